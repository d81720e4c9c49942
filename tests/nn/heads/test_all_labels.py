"""Brute-force head against its formula."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify.nn.heads.all_labels import AllLabels
from ramify.nn.optim import Adam


def problem(n=9, n_labels=13, d=5):
    random = np.random.default_rng(0)
    head = AllLabels(
        random.standard_normal((n_labels, d)).astype(np.float32), random.standard_normal(n_labels).astype(np.float32)
    )
    Y = sparse.csr_matrix((random.random((n, n_labels)) < 0.3).astype(np.float32))
    return head, 3 * random.standard_normal((n, d)).astype(np.float32), Y


def reference_loss(weights, bias, phi, Y):
    logits = phi @ weights.T + bias
    return np.mean(np.logaddexp(0, np.where(Y.toarray() > 0, -logits, logits)))


def test_loss_and_gradients():
    head, phi, Y = problem()
    loss, d_phi, d_logits = head.gradients(phi, Y)
    W, b, x = (a.astype(np.float64) for a in (head.weights.values, head.bias.values, phi))
    assert loss == pytest.approx(reference_loss(W, b, x, Y), rel=1e-5)
    h = 1e-6
    for at in [(0, 0), (3, 2), (8, 4)]:
        up, down = x.copy(), x.copy()
        up[at] += h
        down[at] -= h
        slope = (reference_loss(W, b, up, Y) - reference_loss(W, b, down, Y)) / (2 * h)
        assert d_phi[at] == pytest.approx(slope, rel=1e-3, abs=1e-7)
    for label in (0, 6, 12):
        up, down = b.copy(), b.copy()
        up[label] += h
        down[label] -= h
        slope = (reference_loss(W, up, x, Y) - reference_loss(W, down, x, Y)) / (2 * h)
        assert d_logits.sum(axis=0)[label] == pytest.approx(slope, rel=1e-3, abs=1e-7)


def test_search_ranks_all_labels():
    head, phi, _ = problem()
    ids, scores = head.search(phi, 13, 2)
    logits = phi @ head.weights.values.T + head.bias.values
    assert np.array_equal(ids, np.argsort(-logits, axis=1))
    assert scores == pytest.approx(-np.sort(np.logaddexp(0, -logits), axis=1), abs=1e-5)


def test_training_lowers_the_loss():
    head, phi, Y = problem()
    before = head.gradients(phi, Y)[0]
    for step in range(1, 100):
        head.step(phi, Y, Adam(0.05, step), 1)
    assert head.gradients(phi, Y)[0] < 0.3 * before
