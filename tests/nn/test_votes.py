"""Near labels and the labels of near points as one list, against their twin in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify import native

pytestmark = pytest.mark.native


def slow_merge(labels, points, Y, share, k):
    ids, scores = np.full((len(labels[0]), k), -1, np.int32), np.full((len(labels[0]), k), -np.inf, np.float32)
    for row in range(len(ids)):
        near, votes = {}, {}
        for label, similarity in zip(labels[0][row], labels[1][row], strict=True):
            if label >= 0:
                near[label] = (1 + similarity) / 2
        for point, similarity in zip(points[0][row], points[1][row], strict=True):
            for label in Y[point].indices if point >= 0 else ():
                votes[label] = votes.get(label, np.float32(0)) + (1 + similarity) / 2
        most = max([1e-30, *votes.values()])
        both = {n: (1 - share) * near.get(n, 0) + share * votes.get(n, 0) / most for n in {**near, **votes}}
        best = sorted(both, key=lambda n: (-both[n], n))[:k]
        ids[row, : len(best)], scores[row, : len(best)] = best, [both[n] for n in best]
    return ids, scores


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_against_the_slow_twin(share, threads):
    random = np.random.default_rng(0)
    Y = sparse.csr_matrix((random.random((60, 40)) < 0.1).astype(np.float32))
    labels = np.argsort(random.random((50, 40)), axis=1)[:, :9].astype(np.int32)
    points = np.argsort(random.random((50, 60)), axis=1)[:, :7].astype(np.int32)
    near = [random.uniform(-1, 1, part.shape).astype(np.float32) for part in (labels, points)]
    labels[1, 4:], points[1, 2:], labels[2], points[3], labels[4], points[4] = -1, -1, -1, -1, -1, -1
    found = (labels, near[0]), (points, near[1])
    of_points = Y.indptr.astype(np.int64), Y.indices.astype(np.int32)
    for k in (1, 5, 40):
        ids, scores = native.ann.merge_neighbor_labels(*found, of_points, 40, share, k, threads)
        expected, wanted = slow_merge(*found, Y, share, k)
        assert scores == pytest.approx(wanted, rel=1e-5, abs=1e-6)
        assert np.mean(ids == expected) > 0.98  # what is equal but for rounding may change places
        one = native.ann.merge_neighbor_labels(*((a[7:8], b[7:8]) for a, b in found), of_points, 40, share, k, 1)
        assert np.array_equal(one[0][0], ids[7])
    with pytest.raises(ValueError, match="samples"):
        native.ann.merge_neighbor_labels(found[0], (points[1:], near[1][1:]), of_points, 40, share, 3, 1)
