"""Classifiers trained on candidates only, against their formula in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify.nn.heads.losses import squared_hinge
from ramify.nn.heads.shortlist import ROWS_PER_BLOCK, ShortlistHead, candidate_logits
from ramify.nn.optim import Adam, RowTable

pytestmark = pytest.mark.native


def problem(n=12, n_labels=9, dim=5, seed=0):
    """A head, targets with weights of positives and explicit zeros for negatives, and embeddings."""
    random = np.random.default_rng(seed)
    weights, bias = random.standard_normal((n_labels, dim)), random.standard_normal(n_labels)
    head = ShortlistHead(weights.astype(np.float32), bias.astype(np.float32), squared_hinge)
    mask = random.random((n, n_labels)) < 0.6
    mask[3] = False
    rows, labels = np.nonzero(mask)
    values = (random.integers(0, 3, len(rows)) * (random.random(len(rows)) < 0.4)).astype(np.float32)
    indptr = np.searchsorted(rows, np.arange(n + 1))
    targets = sparse.csr_matrix((values, labels, indptr), (n, n_labels))
    return head, targets, random.standard_normal((n, dim)).astype(np.float32)


def reference_loss(head, targets, phi):
    """One pair of sample and candidate after the other."""
    weights, bias = (part.astype(np.float64) for part in head.classifiers)
    total = 0.0
    for i, embedding in enumerate(phi.astype(np.float64)):
        row, own = targets[i], 0.0
        for label, weight in zip(row.indices, row.data, strict=True):
            sign, cost = (1, weight) if weight > 0 else (-1, 1)
            own += cost * max(0.0, 1 - sign * (weights[label] @ embedding + bias[label])) ** 2
        total += own / max(1, row.nnz)
    return total / len(phi)


@pytest.mark.parametrize("threads", [1, 3])
def test_loss_and_gradients(threads):
    head, targets, phi = problem()
    before = head.labels.weights.copy()
    expected = reference_loss(head, targets, phi)
    slopes = np.zeros(phi.shape)
    for at in np.ndindex(*phi.shape):
        for sign in (1, -1):
            moved = phi.astype(np.float64)
            moved[at] += sign * 1e-4
            slopes[at] += sign * reference_loss(head, targets, moved) / 2e-4
    loss, d_phi = head.step(phi, targets, Adam(0.01, 1), threads)
    assert loss == pytest.approx(expected, rel=1e-5)
    assert d_phi == pytest.approx(slopes, abs=1e-4)
    assert reference_loss(head, targets, phi) < expected
    assert not np.array_equal(before, head.labels.weights)


def test_a_sample_without_candidates_has_no_gradient():
    head, targets, phi = problem()
    assert targets[3].nnz == 0
    _, d_phi = head.step(phi, targets, Adam(0.01, 1), 1)
    assert not d_phi[3].any()
    assert d_phi.any(axis=1).sum() >= 10


def test_labels_that_are_no_candidates_stay_unchanged():
    head, targets, phi = problem()
    before = [part.copy() for part in head.classifiers]
    targets = sparse.csr_matrix((np.zeros(2, np.float32), [1, 4], [0, 1, 2]), (2, 9))
    head.step(phi[:2], targets, Adam(0.01, 1, weight_decay=0.1), 1)
    others = [0, 2, 3, 5, 6, 7, 8]
    for now, then in zip(head.classifiers, before, strict=True):
        assert np.array_equal(now[others], then[others])


@pytest.mark.parametrize("n", [30, ROWS_PER_BLOCK + 3])
def test_search_scores_every_label(n):
    head, _, phi = problem(n=n)
    ids, scores = head.search(phi, 4, 1)
    weights, bias = head.classifiers
    blocks = phi[:ROWS_PER_BLOCK], phi[ROWS_PER_BLOCK:]
    logits = np.concatenate([block @ weights.T + bias for block in blocks])
    assert np.array_equal(ids, np.argsort(-logits, axis=1)[:, :4])
    assert np.array_equal(scores, -np.sort(-logits, axis=1)[:, :4])
    assert head.search(phi, 50, 1)[0].shape == (n, 9)


@pytest.mark.parametrize("threads", [1, 3])
def test_candidate_logits(threads):
    random = np.random.default_rng(2)
    weights, bias = random.standard_normal((20, 7)).astype(np.float32), random.standard_normal(20).astype(np.float32)
    phi = random.standard_normal((5, 7)).astype(np.float32)
    ids = random.integers(-1, 20, (5, 6)).astype(np.int32)
    logits = candidate_logits(RowTable(weights, bias), ids, phi, threads)
    expected = np.einsum("nkd,nd->nk", weights[ids], phi) + bias[ids]
    assert logits[ids >= 0] == pytest.approx(expected[ids >= 0], rel=1e-4, abs=1e-5)
    assert not logits[ids < 0].any()
