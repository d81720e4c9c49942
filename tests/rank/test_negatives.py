"""Teacher-forced and matcher-aware negatives, and margins of nodes without negatives."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify import DataError
from ramify.rank import negatives
from ramify.rank.score_transforms import CERTAIN_MARGIN


def test_teacher_matcher_and_their_union():
    above = sparse.csr_matrix(np.array([[2, 0, 0], [0, 1, 3], [0, 0, 0]], np.float32))
    proposed = np.array([[1, -1], [2, 1], [2, 0]], np.int32)
    teacher, matcher = negatives.teacher(above), negatives.matcher(proposed, 3)
    assert teacher.toarray().tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 0]]
    assert matcher.toarray().tolist() == [[0, 1, 0], [0, 1, 1], [1, 0, 1]]
    both = negatives.union(teacher, matcher)
    assert both.toarray().tolist() == [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
    assert both.has_sorted_indices
    with pytest.raises(DataError, match="shapes"):
        negatives.union(teacher, matcher[:2])


def test_nodes_without_negatives_get_extra_margins():
    Y = sparse.csr_matrix(np.array([[1, 1, 0, 0], [1, 0, 1, 1], [1, 0, 1, 0]], np.float32))
    clusters = np.array([0, 2, 4], np.int64)
    assert negatives.extra_margins(Y, None, clusters).tolist() == [CERTAIN_MARGIN, 0, 0, 0]
    M = sparse.csr_matrix(np.array([[1, 0], [1, 1], [0, 1]], np.float32))
    assert negatives.extra_margins(Y, M, clusters).tolist() == [CERTAIN_MARGIN, 0, 1, 0]
    # As many positives as the cluster has samples, but not the same.
    M = sparse.csr_matrix(np.array([[0, 1], [1, 1], [1, 0]], np.float32))
    assert negatives.extra_margins(Y, M, clusters).tolist() == [CERTAIN_MARGIN, 0, 0, 0]
    assert negatives.extra_margins(Y, None, clusters, are_labels=False).tolist() == [1, 0, 0, 0]


def test_sampled_matcher_keeps_the_best_and_weights_the_rest():
    random = np.random.default_rng(0)
    proposed = np.argsort(random.random((4000, 30)), axis=1)[:, :20].astype(np.int32)
    proposed[7, 3:] = -1
    M = negatives.sampled_matcher(proposed, 30, 5, 0.4, seed=1)
    dense = M.toarray()
    assert M.has_sorted_indices
    for row in range(50):
        for rank, cluster in enumerate(proposed[row], start=1):
            inverse = np.float32(max(1.0, min(rank / 5, 2.5)))
            if cluster >= 0:
                assert dense[row, cluster] in ((1,) if rank <= 5 else (0, pytest.approx(inverse)))
    assert not dense[np.arange(4000), np.setdiff1d(np.arange(30), proposed[0])[0]].all()
    full = negatives.matcher(proposed, 30).toarray()
    assert np.all(full[dense > 0] == 1)
    assert dense.sum() == pytest.approx(full.sum(), rel=0.02)  # the expected weight is that of all
    assert np.array_equal(dense, negatives.sampled_matcher(proposed, 30, 5, 0.4, seed=1).toarray())
    assert not np.array_equal(dense, negatives.sampled_matcher(proposed, 30, 5, 0.4, seed=2).toarray())


def test_joining_certain_and_weighted_negatives():
    certain = sparse.csr_matrix(np.array([[1, 0, 0], [0, 1, 1]], np.float32))
    weighted = sparse.csr_matrix(np.array([[5, 5, 0], [1, 0, 5]], np.float32))
    assert negatives.with_weights(certain, weighted).toarray().tolist() == [[1, 5, 0], [1, 1, 1]]
