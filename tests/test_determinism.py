"""The same data and seed give the same bits with any number of threads, in any process and with any instruction set.

The data are large enough that every parallel loop has several blocks, and that threads and vectors meet rows and labels
of all sizes; `test_contract.py` compares the models on a few rows.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from test_contract import MODELS
from variants import digests

import ramify

WORDS = [f"{a}{b}{c}" for a in ("fox", "hen", "Straße", "λόγος") for b in ("", "run", "en") for c in "abcdefghij"]

BATCH = 300
"""Rows that are predicted at once: batches of linear trees are searched in another way than a few rows."""


def data(n_rows, n_labels=230, seed=0):
    """Texts and labels, some of them frequent and most of them rare; a label has words of its own."""
    random = np.random.default_rng(seed)
    labels = [np.unique((n_labels * random.random(3) ** 2).astype(int)).tolist() for _ in range(n_rows)]
    texts = [
        " ".join([f"topic{label}" for label in row] + list(random.choice(WORDS, random.integers(1, 30))))
        for row in labels
    ]
    return texts, labels


def digest(model, texts, directory):
    """Hash of all arrays of a saved model, and of what it predicts."""
    model.save(directory)
    found = hashlib.sha256()
    for file in sorted(Path(directory).glob("*.npy")):
        found.update(file.name.encode() + file.read_bytes())
    rows = np.resize(np.arange(len(texts)), BATCH)
    ranking = model.predict_topk(texts[rows] if isinstance(texts, np.ndarray) else [texts[i] for i in rows], k=20)
    few = model.predict_topk(texts[:9], k=20)
    assert few.ids.tobytes() == ranking.ids[:9].tobytes()
    assert few.scores.tobytes() == ranking.scores[:9].tobytes()
    found.update(ranking.ids.tobytes() + ranking.scores.tobytes())
    return found.hexdigest()


@pytest.mark.parametrize("key", list(MODELS))
def test_the_number_of_threads_changes_no_bits(key, tmp_path):
    n_rows = 600 if key in ("popular", "xr-linear", "one-vs-all") else 150
    texts, labels = data(n_rows)
    found = {
        threads: digest(
            MODELS[key][0](threads=threads, seed=1, verbose=0).fit(texts, labels), texts[:200], tmp_path / str(threads)
        )
        for threads in (1, 2, 7)
    }
    assert len(set(found.values())) == 1, found


def test_predictions_of_an_opened_model_do_not_depend_on_threads(tmp_path):
    texts, labels = data(600)
    ramify.XRLinear(verbose=0).fit(texts, labels).save(tmp_path / "m")
    for threads in (1, 2, 7):
        opened = ramify.load(tmp_path / "m").set_params(threads=threads)
        ranking = opened.predict_topk(texts, k=20)
        if threads == 1:
            expected = ranking
        assert np.array_equal(ranking.ids, expected.ids)
        assert np.array_equal(ranking.scores, expected.scores)


@pytest.mark.native
def test_the_instruction_set_changes_no_bits_of_features():
    code = """
import hashlib
import ramify
from ramify import native
from test_determinism import data, digest
texts, labels = data(250)
found = hashlib.sha256()
for analyzer in ("word", "char_wb"):
    X = ramify.Tfidf(analyzer=analyzer, ngram_range=(1, 2), sublinear_tf=True).fit_transform(texts)
    found.update(X.indptr.tobytes() + X.indices.tobytes() + X.data.tobytes())
print(native.matrix.isa(), found.hexdigest())
"""
    found = digests(code, Path(__file__).parent)
    assert "baseline" in found
    assert len(set(found.values())) == 1, found


@pytest.mark.native
def test_neither_the_instruction_set_nor_the_process_changes_bits_of_a_model():
    """Every model, trained and opened again; each process has its own order of sets and of hashes."""
    code = """
import importlib.util, tempfile
from pathlib import Path
import ramify
from ramify import native
from test_contract import MODELS
from test_determinism import data, digest
texts, labels = data(120)
options = {"verbose": 0, "threads": 2, "seed": 1}
models = {key: make(**options) for key, (make, _) in MODELS.items()}
models["pecos"] = ramify.XRLinear.pecos(**options)
if importlib.util.find_spec("faiss") is None:
    models = {key: model for key, model in models.items() if key not in ("lightdxml", "astec")}
X = ramify.Tfidf(max_features=200).fit_transform(texts).toarray()
found = []
with tempfile.TemporaryDirectory() as directory:
    for key, model in models.items():
        path = Path(directory) / key
        found.append(f"{key}:{digest(model.fit(texts, labels), texts, path)}")
        again = ramify.load(path).set_params(threads=1)
        assert found[-1].endswith(digest(again, texts, Path(directory) / "again")), key
    found.append(digest(ramify.XRLinear(**options).fit(X, labels), X, Path(directory) / "dense"))
print(native.matrix.isa(), ",".join(found))
"""
    found = digests(code, Path(__file__).parent)
    assert "baseline" in found
    expected = found["baseline"].split(",")
    for name, others in found.items():
        assert others.split(",") == expected, name
