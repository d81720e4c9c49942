"""Model directories of earlier versions of the format, which are opened for ever after; see tests/golden/make.py."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from golden.make import MODELS, QUERIES
from stores import change_array, edit_manifest

import ramify
from ramify.io.store import FORMAT_VERSION, OLDEST_FORMAT_VERSION

GOLDEN = Path(__file__).parent / "golden"
DIRECTORIES = sorted(path for path in GOLDEN.glob("v*/*") if path.is_dir())
NEEDS_FAISS = ("lightdxml", "astec")


def test_every_kind_and_every_version_is_there():
    versions = {int(path.parent.name[1:]) for path in DIRECTORIES}
    assert versions == set(range(OLDEST_FORMAT_VERSION, FORMAT_VERSION + 1))
    assert {path.name for path in DIRECTORIES if path.parent.name == f"v{FORMAT_VERSION}"} == set(MODELS)


@pytest.mark.parametrize("path", DIRECTORIES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_golden_models_answer_as_when_they_were_written(path):
    if path.name.startswith(NEEDS_FAISS):
        pytest.importorskip("faiss")
    model = ramify.load(path, verify=True)
    expected = json.loads(path.with_suffix(".json").read_text())
    ranking = model.predict_topk(QUERIES, k=3)
    scores = np.array([[-np.inf if s is None else s for s in row] for row in expected["scores"]])
    assert ranking.scores == pytest.approx(scores, abs=1e-4)
    distinct = np.abs(np.diff(scores, axis=1)).min(axis=1) > 1e-3  # rounding may order equal labels in another way
    for row in np.flatnonzero(distinct):
        assert [label for label, _ in ranking.labels()[row]] == expected["labels"][row]


def overflowing(boundaries: np.ndarray) -> np.ndarray:
    """Boundaries that go out of range although none of their differences, as 64-bit integers, is negative."""
    changed = boundaries.copy()
    changed[1:3] = np.iinfo(np.int64).max, -5
    with np.errstate(over="ignore"):
        assert np.all(np.diff(changed) >= 0)
    return changed


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_boundaries_whose_differences_overflow_are_refused(kind, tmp_path):
    if kind.startswith(NEEDS_FAISS):
        pytest.importorskip("faiss")
    source = GOLDEN / f"v{FORMAT_VERSION}" / kind
    arrays = {file.stem: np.load(file) for file in source.glob("*.npy")}
    ascending = [name for name, array in arrays.items() if array.ndim == 1 and np.all(np.diff(array) >= 0)]
    names = [name for name in ascending if arrays[name].dtype == np.int64 and len(arrays[name]) > 3]
    for name in names:
        shutil.copytree(source, tmp_path / name)
        change_array(tmp_path / name, name, overflowing)
        with pytest.raises(ramify.ModelFormatError):
            ramify.load(tmp_path / name)
    assert names or kind in ("popular", "one-vs-all", "neural-one-vs-all", "x-transformer"), list(arrays)


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_models_without_labels_are_refused(kind, tmp_path):
    shutil.copytree(GOLDEN / f"v{FORMAT_VERSION}" / kind, tmp_path / kind)
    change_array(tmp_path / kind, "label_counts", lambda counts: counts[:0])

    def without_labels(manifest):
        manifest["files"]["label_counts.npy"]["shape"] = [0]
        manifest["state"]["labels"] = {"kind": "range", "n": 0}

    edit_manifest(tmp_path / kind, without_labels)
    with pytest.raises(ramify.ModelFormatError, match="description of the labels"):
        ramify.load(tmp_path / kind)


AUDIT = """
import json, os, sys
from pathlib import Path

events, present = set(), {}

def hook(event, args):
    if not present:
        return
    if event == "open":
        name, mode, flags = args
        if isinstance(name, int) or name in present or os.path.samefile(name, present[""]):
            name = "the model"
        is_written = mode not in (None, "r", "rb") or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        events.add((event, str(name), "written" if is_written else "read"))
    elif event == "mmap.__new__":
        events.add((event, "the model", {1: "read"}.get(args[2], str(args))))  # 1: ACCESS_READ
    else:
        events.add((event, str(args), ""))

import ramify
for path in map(Path, sys.argv[1:]):
    for again in (False, True):  # the first time modules are imported
        if again:
            present.update({"": path}, **{file.name: file for file in path.iterdir()})
            sys.addaudithook(hook) if path == Path(sys.argv[1]) else None
        ramify.load(path, verify=True).predict_topk(["a red fox", "hen eggs", ""], k=3).labels()
    present.clear()
print(json.dumps(sorted(events)))
"""


def test_an_opened_model_reaches_nothing_but_its_own_files():
    """Neither network nor terminal, no code, no process, no other file: the interpreter tells of all of these."""
    paths = [str(path) for path in DIRECTORIES if path.parent.name == f"v{FORMAT_VERSION}"]
    try:
        import faiss  # noqa: F401
    except ImportError:
        paths = [path for path in paths if not Path(path).name.startswith(NEEDS_FAISS)]
    environment = {**os.environ, "RAMIFY_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", AUDIT, *paths]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [["mmap.__new__", "the model", "read"], ["open", "the model", "read"]]
