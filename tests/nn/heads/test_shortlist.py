"""Classifiers on lists of labels, against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from ramify.nn.list_head import LevelTargets, ListHead, squared_hinge
from ramify.nn.tables import Adam
from scipy import sparse

CHILDREN = np.array([0, 3, 4, 9])


def level(n=12, width=5, seed=0):
    random = np.random.default_rng(seed)
    weights, offset = random.standard_normal((9, width)), random.standard_normal(9)
    head = ListHead(weights.astype(np.float32), offset.astype(np.float32), squared_hinge)
    M = sparse.csr_matrix((random.random((n, 3)) < 0.5).astype(np.float32))
    Y = sparse.csr_matrix(random.integers(0, 3, (n, 9)) * (random.random((n, 9)) < 0.3), dtype=np.float32)
    above = sparse.csr_matrix((Y @ np.repeat(np.eye(3), np.diff(CHILDREN), axis=0) > 0).astype(np.float32))
    M = M.maximum(above).tocsr()
    return head, M, Y, random.standard_normal((n, width)).astype(np.float32)


def plain_loss(head, M, Y, vectors):
    """One pair after the other."""
    weights, offset = head.labels.weights.astype(np.float64), head.labels.offset.astype(np.float64)
    total, Y, M = 0.0, Y.toarray(), M.toarray()
    for i, vector in enumerate(vectors.astype(np.float64)):
        nodes = [j for c in range(3) if M[i, c] for j in range(CHILDREN[c], CHILDREN[c + 1])]
        own = 0.0
        for j in nodes:
            sign, cost = (1, Y[i, j]) if Y[i, j] else (-1, 1)
            own += cost * max(0.0, 1 - sign * (weights[j] @ vector + offset[j])) ** 2
        total += own / max(1, len(nodes))
    return total / len(vectors)


def test_targets_name_the_children_and_weigh_the_right_ones():
    _, M, Y, _ = level()
    targets = LevelTargets(M, Y, CHILDREN)(np.array([4, 2, 7]))
    for row, i in zip(targets, (4, 2, 7), strict=True):
        nodes = [j for c in range(3) if M[i, c] for j in range(CHILDREN[c], CHILDREN[c + 1])]
        assert row.indices.tolist() == nodes
        assert row.data.tolist() == [Y[i, j] for j in nodes]


@pytest.mark.parametrize("threads", [1, 3])
def test_loss_and_gradients_are_those_of_the_formula(threads):
    head, M, Y, vectors = level()
    before = head.labels.weights.copy()
    expected = plain_loss(head, M, Y, vectors)
    slopes = np.zeros(vectors.shape)
    for at in np.ndindex(*vectors.shape):
        for sign in (1, -1):
            moved = vectors.astype(np.float64)
            moved[at] += sign * 1e-4
            slopes[at] += sign * plain_loss(head, M, Y, moved) / 2e-4
    loss, d_vectors = head.step(vectors, LevelTargets(M, Y, CHILDREN)(np.arange(12)), Adam(0.01, 1), threads)
    assert loss == pytest.approx(expected, rel=1e-5)
    assert d_vectors == pytest.approx(slopes, abs=1e-4)
    assert plain_loss(head, M, Y, vectors) < expected
    assert not np.array_equal(before, head.labels.weights)


def test_a_point_that_looks_nowhere_learns_nothing():
    head, M, Y, vectors = level()
    M, Y = M.tolil(), Y.tolil()
    M[5], Y[5] = 0, 0
    targets = LevelTargets(M.tocsr(), Y.tocsr(), CHILDREN)(np.arange(12))
    _, d_vectors = head.step(vectors, targets, Adam(0.01, 1), 1)
    assert not d_vectors[5].any()
    loss, gradients = squared_hinge(np.zeros((1, 2), np.float32), np.zeros((1, 2)), np.zeros((1, 2), bool))
    assert loss == 0
    assert not gradients.any()


def test_the_search_looks_at_every_node():
    head, _, _, vectors = level(n=30)
    ids, scores = head.search(vectors, 4, 1)
    every = vectors @ head.labels.weights.T + head.labels.offset
    assert np.array_equal(ids, np.argsort(-every, axis=1)[:, :4])
    assert np.array_equal(scores, -np.sort(-every, axis=1)[:, :4])
    assert head.search(vectors, 50, 1)[0].shape == (30, 9)
