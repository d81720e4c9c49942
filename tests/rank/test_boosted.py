"""Boosted trees as arrays, against scikit-learn's predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from variants import digests

from ramify import native
from ramify.rank.boosted import _exported, fit_boosted

pytestmark = pytest.mark.native


def data(n=700, d=6):
    random = np.random.default_rng(0)
    X = random.normal(size=(n, d)).astype(np.float32)
    X[:, 1] = np.round(X[:, 1])  # ties with the thresholds
    X[random.random(n) < 0.3, 2] = -1
    return X, (X[:, 0] + X[:, 1] * X[:, 2] + random.normal(size=n) * 0.3) > 0.5


@pytest.mark.parametrize("n_leaves", [2, 7, 32])
def test_probabilities_are_those_of_scikit_learn(n_leaves):
    from sklearn.ensemble import HistGradientBoostingClassifier

    X, targets = data()
    model = HistGradientBoostingClassifier(max_iter=30, max_leaf_nodes=n_leaves, min_samples_leaf=3).fit(X, targets)
    trees = _exported(model, X.shape[1])
    extreme = np.array([[1e30, -1e30, np.inf, -np.inf, 0, 0]], np.float32)
    for rows in (X, X[:1], X[:33], X[:0], extreme):
        expected = model.predict_proba(rows)[:, 1] if len(rows) else np.empty(0)
        for threads in (1, 3):
            assert trees(rows, threads) == pytest.approx(expected, abs=1e-5)
    with pytest.raises(ValueError, match="6 features"):
        trees(X[:, :3])


def test_learning_is_the_same_with_any_number_of_threads():
    X, targets = data()
    first, second = (fit_boosted(X, targets, n_trees=5, threads=threads) for threads in (1, 3))
    assert np.array_equal(first.leaves, second.leaves)
    assert np.array_equal(first.thresholds, second.thresholds)
    assert fit_boosted(X, np.ones(len(X), bool)) is None
    assert fit_boosted(X[:0], np.ones(0, bool)) is None


def test_the_instruction_set_changes_no_bits():
    code = """
import hashlib
import numpy as np
from ramify import native
random = np.random.default_rng(0)
masks = random.integers(0, 2**32, 60, dtype=np.uint32)
trees = (np.arange(0, 61, 6, dtype=np.int64), random.integers(0, 5, 60).astype(np.int32),
         random.normal(size=60).astype(np.float32), masks, random.normal(size=(10, 32)).astype(np.float32))
X = random.normal(size=(5, 333)).astype(np.float32)
print(native.matrix.isa(), hashlib.sha256(native.linear.score_boosted(trees, X, 2).tobytes()).hexdigest())
"""
    found = digests(code, Path(__file__).parent)
    assert len(set(found.values())) == 1, found


def test_wrong_shapes():
    with pytest.raises(ValueError, match="leaves"):
        native.linear.score_boosted(
            (np.zeros(3, np.int64), np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0, np.uint32),
             np.zeros((1, 32), np.float32)), np.zeros((1, 1), np.float32), 1,
        )  # fmt: skip
