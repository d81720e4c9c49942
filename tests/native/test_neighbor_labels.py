"""Merging the nearest labels with the labels of the nearest samples, against a reference implementation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify import native
from ramify.rank.filters import select

pytestmark = pytest.mark.native


def reference_merge(labels, samples, Y, weight, k):
    ids, scores = np.full((len(labels[0]), k), -1, np.int32), np.full((len(labels[0]), k), -np.inf, np.float32)
    for row in range(len(ids)):
        by_label, by_sample = {}, {}
        for label, similarity in zip(labels[0][row], labels[1][row], strict=True):
            if label >= 0:
                by_label[label] = (1 + similarity) / 2
        for sample, similarity in zip(samples[0][row], samples[1][row], strict=True):
            for label in Y[sample].indices if sample >= 0 else ():
                by_sample[label] = by_sample.get(label, np.float32(0)) + (1 + similarity) / 2
        largest = max([1e-30, *by_sample.values()])
        merged = {
            label: (1 - weight) * by_label.get(label, 0) + weight * by_sample.get(label, 0) / largest
            for label in {**by_label, **by_sample}
        }
        best = sorted(merged, key=lambda label: (-merged[label], label))[:k]
        ids[row, : len(best)], scores[row, : len(best)] = best, [merged[label] for label in best]
    return ids, scores


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_matches_the_reference_implementation(weight, threads):
    random = np.random.default_rng(0)
    Y = sparse.csr_matrix((random.random((60, 40)) < 0.1).astype(np.float32))
    labels = np.argsort(random.random((50, 40)), axis=1)[:, :9].astype(np.int32)
    samples = np.argsort(random.random((50, 60)), axis=1)[:, :7].astype(np.int32)
    similarities = [random.uniform(-1, 1, part.shape).astype(np.float32) for part in (labels, samples)]
    labels[1, 4:], samples[1, 2:], labels[2], samples[3], labels[4], samples[4] = -1, -1, -1, -1, -1, -1
    neighbors = (labels, similarities[0]), (samples, similarities[1])
    sample_labels = Y.indptr.astype(np.int64), Y.indices.astype(np.int32)
    for k in (1, 5, 40):
        ids, scores = native.ann.merge_neighbor_labels(*neighbors, sample_labels, 40, weight, None, k, threads)
        expected_ids, expected_scores = reference_merge(*neighbors, Y, weight, k)
        assert scores == pytest.approx(expected_scores, rel=1e-5, abs=1e-6)
        assert np.mean(ids == expected_ids) > 0.98  # ties up to rounding may be in another order
        allowed = np.arange(40) % 3 == 0
        nearest = np.where((labels >= 0) & allowed[labels], labels, -1).astype(np.int32), similarities[0]
        some = native.ann.merge_neighbor_labels(
            nearest, neighbors[1], sample_labels, 40, weight, allowed.view(np.uint8), k, threads
        )
        everything = reference_merge(*neighbors, Y, weight, 40)
        expected = select(*everything, (everything[0] >= 0) & allowed[everything[0]], k)
        assert some[1] == pytest.approx(expected[1], rel=1e-5, abs=1e-6)
        assert np.all((some[0] < 0) | allowed[some[0]])
        single = [(a[7:8], b[7:8]) for a, b in neighbors]
        one = native.ann.merge_neighbor_labels(*single, sample_labels, 40, weight, None, k, 1)
        assert np.array_equal(one[0][0], ids[7])
    with pytest.raises(ValueError, match="39 labels are allowed or not; there are 40"):
        native.ann.merge_neighbor_labels(*neighbors, sample_labels, 40, weight, np.ones(39, np.uint8), 3, 1)
    with pytest.raises(ValueError, match=r"labels are \(50, 9\).*\(49, 7\)"):
        native.ann.merge_neighbor_labels(
            neighbors[0], (samples[1:], similarities[1][1:]), sample_labels, 40, weight, None, 3, 1
        )
