"""Bilinear weights and products of selected rows, against plain implementations."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest
from scipy import sparse

from ramify import native

pytestmark = pytest.mark.native


def random_csr(rng, n, d, density):
    matrix = sparse.random(n, d, density, format="csr", random_state=rng, dtype=np.float32)
    matrix.sort_indices()
    return matrix


def objective(X, Z, pairs, W, direct, bias, costs, C):
    scores = (X @ W @ Z.T).toarray() + direct * (X @ Z[:, : X.shape[1]].T).toarray() + bias
    coo = pairs.tocoo()
    losses = np.maximum(0, 1 - coo.data * scores[coo.row, coo.col]) ** 2
    cost = costs[coo.row] * np.where(coo.data > 0, C[0], C[1])
    return 0.5 * (W.data.astype(float) ** 2).sum() + 0.5 * (direct / 4) ** 2 + 0.5 * bias**2 + (cost * losses).sum()


def problem(rng, n=30, d=12, n_labels=9):
    X, texts = random_csr(rng, n, d, 0.4), random_csr(rng, n_labels, d, 0.3)
    Z = sparse.hstack([texts, sparse.eye(n_labels)], format="csr").astype(np.float32)
    Z.sort_indices()
    pattern = random_csr(rng, d, d + n_labels, 0.5)
    pairs = random_csr(rng, n, n_labels, 0.6)
    pairs.data = np.sign(rng.standard_normal(pairs.nnz)).astype(np.float32)
    return X, Z, pairs, pattern, rng.uniform(0.5, 2, n).astype(np.float32)


def fit(X, Z, pairs, W, costs, **options):
    common = {"positive_cost": 2.0, "negative_cost": 0.5, "tolerance": 1e-5, "max_epochs": 3000, "seed": 0}
    return native.linear.fit_bilinear(X, Z, pairs, W, costs=costs, **{**common, **options})


@pytest.mark.parametrize("seed", range(4))
def test_no_change_of_a_weight_lowers_the_objective(seed):
    rng = np.random.default_rng(seed)
    X, Z, pairs, pattern, costs = problem(rng)
    W, direct, bias = fit(X, Z, pairs, pattern, costs)
    assert np.array_equal(W.indices, pattern.indices)
    best = objective(X, Z, pairs, W, direct, bias, costs, (2.0, 0.5))
    for _ in range(30):
        other = W.copy()
        other.data = other.data + rng.normal(0, 0.01, W.nnz).astype(np.float32)
        moved = direct + rng.normal(0, 0.01), bias + rng.normal(0, 0.01)
        assert objective(X, Z, pairs, other, *moved, costs, (2.0, 0.5)) > best - 1e-6
    nothing = W.copy()
    nothing.data = nothing.data * 0
    assert objective(X, Z, pairs, nothing, 0.0, 0.0, costs, (2.0, 0.5)) > 1.1 * best


def test_empty_rows_and_no_pairs():
    rng = np.random.default_rng(1)
    X, Z, pairs, pattern, costs = problem(rng)
    empty = sparse.csr_matrix(pairs.shape, dtype=np.float32)
    W, direct, bias = fit(X, Z, empty, pattern, costs)
    assert not W.data.any()
    assert (direct, bias) == (0, 0)
    W, direct, bias = fit(sparse.csr_matrix(X.shape, dtype=np.float32), Z, pairs, pattern, costs)
    assert not W.data.any()  # nothing but the bias can be learned
    assert direct == 0
    with pytest.raises(ValueError, match="do not fit"):
        fit(X, Z, pairs[:5], pattern, costs)


def test_the_same_seed_gives_the_same_bits():
    X, Z, pairs, pattern, costs = problem(np.random.default_rng(3))
    first, second = (fit(X, Z, pairs, pattern, costs, max_epochs=3)[0].data for _ in range(2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, fit(X, Z, pairs, pattern, costs, max_epochs=3, seed=7)[0].data)


def test_a_long_training_can_be_interrupted():
    """Also one whose epochs are short: here they would go on for days."""
    X, Z, pairs, pattern, costs = problem(np.random.default_rng(3))
    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            fit(X, Z, pairs, pattern, costs, tolerance=1e-30, max_epochs=2**31 - 1)
    finally:
        timer.join()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("wide", [False, True])
def test_selected_products(threads, wide):
    rng = np.random.default_rng(0)
    queries, rows = random_csr(rng, 50, 30, 0.2), random_csr(rng, 20, 30, 0.3)
    if wide:
        queries.indices, queries.indptr = queries.indices.astype(np.int64), queries.indptr.astype(np.int64)
    ids = rng.integers(-1, 20, (50, 7)).astype(np.int32)
    expected = np.take_along_axis((queries @ rows.T).toarray(), np.maximum(ids, 0).astype(np.int64), 1)
    found = native.matrix.selected_products(queries, rows, ids, threads)
    assert np.isneginf(found[ids < 0]).all()
    assert found[ids >= 0] == pytest.approx(expected[ids >= 0], abs=1e-6)
    with pytest.raises(ValueError, match="below 20"):
        native.matrix.selected_products(queries, rows, ids + 1, threads)
