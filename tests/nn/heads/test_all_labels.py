from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify.nn.all_labels import AllLabels
from ramify.nn.tables import Adam


def problem(n=9, n_labels=13, d=5):
    random = np.random.default_rng(0)
    head = AllLabels(
        random.standard_normal((n_labels, d)).astype(np.float32), random.standard_normal(n_labels).astype(np.float32)
    )
    Y = sparse.csr_matrix((random.random((n, n_labels)) < 0.3).astype(np.float32))
    return head, 3 * random.standard_normal((n, d)).astype(np.float32), Y


def slow_loss(weights, offset, vectors, Y):
    logits = vectors @ weights.T + offset
    return np.mean(np.logaddexp(0, np.where(Y.toarray() > 0, -logits, logits)))


def test_loss_and_gradients():
    head, vectors, Y = problem()
    loss, d_vectors, d_logits = head.gradients(vectors, Y)
    W, b, x = (a.astype(np.float64) for a in (head.weights.values, head.offset.values, vectors))
    assert loss == pytest.approx(slow_loss(W, b, x, Y), rel=1e-5)
    h = 1e-6
    for at in [(0, 0), (3, 2), (8, 4)]:
        up, down = x.copy(), x.copy()
        up[at] += h
        down[at] -= h
        slope = (slow_loss(W, b, up, Y) - slow_loss(W, b, down, Y)) / (2 * h)
        assert d_vectors[at] == pytest.approx(slope, rel=1e-3, abs=1e-7)
    for label in (0, 6, 12):
        up, down = b.copy(), b.copy()
        up[label] += h
        down[label] -= h
        slope = (slow_loss(W, up, x, Y) - slow_loss(W, down, x, Y)) / (2 * h)
        assert d_logits.sum(axis=0)[label] == pytest.approx(slope, rel=1e-3, abs=1e-7)


def test_a_search_ranks_all_labels():
    head, vectors, _ = problem()
    ids, scores = head.search(vectors, 13, 2)
    logits = vectors @ head.weights.values.T + head.offset.values
    assert np.array_equal(ids, np.argsort(-logits, axis=1))
    assert scores == pytest.approx(-np.sort(np.logaddexp(0, -logits), axis=1), abs=1e-5)


def test_learns():
    head, vectors, Y = problem()
    before = head.gradients(vectors, Y)[0]
    for number in range(1, 100):
        head.step(vectors, Y, Adam(0.05, number), 1)
    assert head.gradients(vectors, Y)[0] < 0.3 * before
