"""The real Annif: its command line with the backend `ramify`, and with its `http` backend at our server.

Annif needs other versions of our dependencies, so that these tests have an environment of their own: `make test-annif`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("annif", reason="Annif is not installed here; `make test-annif` runs these tests")

import ramify

ANNIF = Path(sys.executable).parent / "annif"
SERVER = os.environ.get("RAMIFY_COMMAND", "ramify")
"""``ramify`` of an environment with the extra `serve`."""
PROJECTS = """
[pydoc]
name=Documentation of Python
language=en
backend=ramify
vocab=pydoc
limit=20

[large]
name=A changed one
language=en
backend=ramify
vocab=pydoc
n_trees=2
linear.C=2
calibrate=true

[wrong]
name=Nonsense
language=en
backend=ramify
vocab=pydoc
cluster_k=100

[remote]
name=Ramify elsewhere
language=en
backend=http
vocab=pydoc
endpoint=http://127.0.0.1:PORT/v1/projects/pydoc/suggest
limit=20
"""


def uri(label: str) -> str:
    return f"http://pydoc.example/{urllib.parse.quote(label, safe='')}"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Project:
    """A folder with a vocabulary, documents and projects of Annif."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        data = ramify.datasets.load("pydoc")
        self.train, self.test = (data.split(name).subset(np.arange(n)) for name, n in (("train", 600), ("test", 150)))
        names = sorted({label for part in (self.train, self.test) for row in part.labels() for label in row})
        lines = [f"<{uri(name)}>\t{name}\n" for name in names]
        (folder / "vocab.tsv").write_text("".join(lines))
        for name, part in (("train.tsv", self.train), ("test.tsv", self.test)):
            rows = zip(part.texts, part.labels(), strict=True)
            text = "".join(f"{' '.join(t.split())}\t{' '.join(f'<{uri(x)}>' for x in labels)}\n" for t, labels in rows)
            (folder / name).write_text(text)
        (folder / "projects.cfg").write_text(PROJECTS.replace("PORT", str(self.port)))
        nltk = folder / "nltk" / "tokenizers" / "punkt_tab" / "english"  # Annif wants these files; empty ones suffice
        nltk.mkdir(parents=True)
        for name in ("collocations.tab", "sent_starters.txt", "abbrev_types.txt", "ortho_context.tab"):
            (nltk / name).touch()
        self.environment = {
            **os.environ, "ANNIF_CONFIG": "ramify.annif.Config", "NLTK_DATA": str(folder / "nltk"),
            "RAMIFY_THREADS": "2", "ANNIF_PROJECTS": "projects.cfg", "ANNIF_DATADIR": "data",
        }  # fmt: skip

    def annif(self, *arguments: str, text: str | None = None, code: int = 0) -> str:
        done = subprocess.run(
            [ANNIF, *arguments], cwd=self.folder, env=self.environment, input=text, capture_output=True, text=True,
            timeout=600,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def evaluate(self, *arguments: str) -> dict[str, float]:
        lines = re.findall(r"^(.+?):\s+([\d.]+)$", self.annif("eval", *arguments), re.M)
        return {name.strip(): float(value) for name, value in lines}

    def model(self, name: str) -> Path:
        return self.folder / "data" / "projects" / name / "ramify-model"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("annif"))
    project.annif("load-vocab", "pydoc", "vocab.tsv", "--language", "en")
    project.annif("train", "pydoc", "train.tsv")
    return project


def suggestions(output: str) -> list[tuple[str, float]]:
    return [(found, float(score)) for found, score in re.findall(r"^<(\S+)>\t.*\t([\d.e-]+)$", output, re.M)]


def same(first, second):
    assert [label for label, _ in first] == [label for label, _ in second]
    np.testing.assert_allclose([score for _, score in first], [score for _, score in second], atol=2e-4)


def test_suggest_is_what_the_model_suggests(project):
    text = " ".join(project.test.texts[0].split())
    model = ramify.load(project.model("pydoc"))
    expected = model.predict_topk([text], 10).labels()[0]
    same(suggestions(project.annif("suggest", "pydoc", text=text)), expected)
    names = model.predict_topk([text], 1).labels(names="en")[0]
    assert uri(names[0][0]) == expected[0][0]  # the model knows the names of the vocabulary


def test_eval(project):
    found = project.evaluate("pydoc", "test.tsv")
    model = ramify.load(project.model("pydoc"))
    ranking = model.predict_topk([" ".join(text.split()) for text in project.test.texts], 10)
    labels = [[uri(label) for label in row] for row in project.test.labels()]
    hits = [row[0][0] in gold for row, gold in zip(ranking.labels(), labels, strict=True)]
    assert found["Precision@1"] == pytest.approx(np.mean(hits), abs=1e-4)
    assert found["Documents evaluated"] == 150
    assert project.evaluate("-j", "2", "pydoc", "test.tsv") == found  # in parallel


def test_parameters_of_the_project_are_those_of_the_model(project):
    project.annif("train", "large", "train.tsv", "-j", "1")
    model = ramify.load(project.model("large"))
    assert (model.n_trees, model.linear.C, model.is_calibrated, model.threads) == (2, 2, True, None)
    project.annif("train", "large", "--cached", "-b", "ramify.n_trees=1")
    assert ramify.load(project.model("large")).n_trees == 1
    assert "cluster_k" in project.annif("train", "wrong", "train.tsv", code=1)


def test_hyperopt_and_optimize(project):
    output = project.annif("hyperopt", "pydoc", "test.tsv", "-T", "2", "-d", "50")
    assert "linear.C=" in output
    assert re.search(r"Got best NDCG score 0\.\d+", output)
    assert "Best" in project.annif("optimize", "pydoc", "test.tsv", "-d", "20")


def test_untrained_projects_and_empty_corpora_are_explained(project):
    assert "not trained" in project.annif("suggest", "wrong", text="a", code=1)
    (project.folder / "empty.tsv").write_text("")
    assert "no documents" in project.annif("train", "wrong", "empty.tsv", code=1)


@contextmanager
def running(command, environment, address):
    """Run a server until it answers at an address."""
    process = subprocess.Popen(command, env=environment["env"], cwd=environment["cwd"])
    try:
        for _ in range(300):
            assert process.poll() is None
            try:
                urllib.request.urlopen(address, timeout=10).close()
                break
            except OSError:
                time.sleep(0.2)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def test_the_server_of_annif_uses_the_backend(project):
    port = free_port()
    environment = {"env": project.environment, "cwd": project.folder}
    address = f"http://127.0.0.1:{port}/v1/projects"
    with running([ANNIF, "run", "--port", str(port)], environment, address):
        with urllib.request.urlopen(f"{address}/pydoc") as answer:
            assert json.load(answer)["is_trained"] is True
        form = urllib.parse.urlencode({"text": project.test.texts[0], "limit": 3}).encode()
        with urllib.request.urlopen(f"{address}/pydoc/suggest", form) as answer:
            hits = json.load(answer)["results"]
    expected = ramify.load(project.model("pydoc")).predict_topk([project.test.texts[0]], 3).labels()[0]
    same([(hit["uri"], hit["score"]) for hit in hits], expected)


def test_the_http_backend_of_annif_uses_our_server(project):
    environment = {"env": dict(os.environ), "cwd": project.folder}
    address = f"http://127.0.0.1:{project.port}/v1/projects/pydoc"
    command = [SERVER, "serve", f"pydoc={project.model('pydoc')}", "--port", str(project.port)]
    with running(command, environment, address):
        text = " ".join(project.test.texts[0].split())
        same(
            suggestions(project.annif("suggest", "remote", text=text)),
            suggestions(project.annif("suggest", "pydoc", text=text)),
        )
        remote, own = (project.evaluate(name, "test.tsv") for name in ("remote", "pydoc"))
        assert remote == own
        with urllib.request.urlopen(address) as answer:  # the whole description, as Annif gives it
            assert json.load(answer)["vocab"]["loaded"] is True
