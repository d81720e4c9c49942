"""The same data and seed give the same bits with any number of threads, and linear models with any instruction set.

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
    ranking = model.predict_topk(texts, k=20)
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
def test_the_instruction_set_changes_no_bits():
    code = """
import hashlib, tempfile
from pathlib import Path
import ramify
from ramify import native
from test_determinism import data, digest
texts, labels = data(250)
found = hashlib.sha256()
for analyzer in ("word", "char_wb"):
    X = ramify.Tfidf(analyzer=analyzer, ngram_range=(1, 2), sublinear_tf=True).fit_transform(texts)
    found.update(X.indptr.tobytes() + X.indices.tobytes() + X.data.tobytes())
with tempfile.TemporaryDirectory() as directory:
    options = {"verbose": 0, "threads": 2}
    models = (ramify.XRLinear(**options), ramify.XRLinear.pecos(**options), ramify.OneVsAll(**options))
    for i, model in enumerate(models):
        found.update(digest(model.fit(texts, labels), texts, Path(directory) / str(i)).encode())
    dense = ramify.XRLinear(**options).fit(X[:, :300].toarray(), labels)
    found.update(digest(dense, X[:, :300].toarray(), Path(directory) / "dense").encode())
print(native.matrix.isa(), found.hexdigest())
"""
    found = digests(code, Path(__file__).parent)
    assert "baseline" in found
    assert len(set(found.values())) == 1, found
