"""Targets of a tree level: the children of the nodes that a sample reaches in the level above."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify.nn.heads.losses import squared_hinge
from ramify.nn.heads.shortlist import ShortlistHead
from ramify.nn.optim import Adam
from ramify.nn.sampling.tree_levels import TreeLevel

CHILDREN = np.array([0, 3, 4, 9])


def level(n=12, dim=5, seed=0):
    random = np.random.default_rng(seed)
    weights, bias = random.standard_normal((9, dim)), random.standard_normal(9)
    head = ShortlistHead(weights.astype(np.float32), bias.astype(np.float32), squared_hinge)
    M = sparse.csr_matrix((random.random((n, 3)) < 0.5).astype(np.float32))
    Y = sparse.csr_matrix(random.integers(0, 3, (n, 9)) * (random.random((n, 9)) < 0.3), dtype=np.float32)
    above = sparse.csr_matrix((Y @ np.repeat(np.eye(3), np.diff(CHILDREN), axis=0) > 0).astype(np.float32))
    M = M.maximum(above).tocsr()
    return head, M, Y, random.standard_normal((n, dim)).astype(np.float32)


def sampler_of(M, weights):
    return TreeLevel(M, (weights > 0).astype(np.float32), weights, CHILDREN)


def children_of(M, i):
    return [j for c in range(3) if M[i, c] for j in range(CHILDREN[c], CHILDREN[c + 1])]


def reference_loss(head, M, weights, phi):
    """One pair of sample and node after the other."""
    W, b = (part.astype(np.float64) for part in head.classifiers)
    total, weights = 0.0, weights.toarray()
    for i, embedding in enumerate(phi.astype(np.float64)):
        nodes = children_of(M, i)
        own = 0.0
        for j in nodes:
            sign, cost = (1, weights[i, j]) if weights[i, j] else (-1, 1)
            own += cost * max(0.0, 1 - sign * (W[j] @ embedding + b[j])) ** 2
        total += own / max(1, len(nodes))
    return total / len(phi)


def test_targets_are_the_children_with_the_weights_of_positives():
    _, M, weights, _ = level()
    targets = sampler_of(M, weights).targets(np.array([4, 2, 7]))
    for row, i in zip(targets, (4, 2, 7), strict=True):
        nodes = children_of(M, i)
        assert row.indices.tolist() == nodes
        assert row.data.tolist() == [weights[i, j] for j in nodes]


@pytest.mark.parametrize("threads", [1, 3])
def test_loss_and_gradients_of_a_level(threads):
    head, M, weights, phi = level()
    before = head.labels.weights.copy()
    expected = reference_loss(head, M, weights, phi)
    slopes = np.zeros(phi.shape)
    for at in np.ndindex(*phi.shape):
        for sign in (1, -1):
            moved = phi.astype(np.float64)
            moved[at] += sign * 1e-4
            slopes[at] += sign * reference_loss(head, M, weights, moved) / 2e-4
    loss, d_phi = head.step(phi, sampler_of(M, weights).targets(np.arange(12)), Adam(0.01, 1), threads)
    assert loss == pytest.approx(expected, rel=1e-5)
    assert d_phi == pytest.approx(slopes, abs=1e-4)
    assert reference_loss(head, M, weights, phi) < expected
    assert not np.array_equal(before, head.labels.weights)


def test_a_sample_that_reaches_no_node_has_no_gradient():
    head, M, weights, phi = level()
    M, weights = M.tolil(), weights.tolil()
    M[5], weights[5] = 0, 0
    targets = sampler_of(M.tocsr(), weights.tocsr()).targets(np.arange(12))
    assert targets[5].nnz == 0
    _, d_phi = head.step(phi, targets, Adam(0.01, 1), 1)
    assert not d_phi[5].any()
