"""Parts of a training have the bits of the whole: negatives by rows, classifiers by clusters, packing by features."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify import native
from ramify.rank.linear import LinearConfig, fit_ovr, ranking_config
from ramify.rank.negatives import extra_margins, sampled_matcher


@pytest.mark.parametrize("width", [5, 8])
def test_negatives_of_some_rows_are_those_of_all(width):
    random = np.random.default_rng(0)
    proposed = np.stack([random.permutation(30)[:width] for _ in range(50)]).astype(np.int32)
    proposed[7, 3:] = -1
    whole = sampled_matcher(proposed, 30, 2, 0.1, seed=4)
    for a, b in ((0, 50), (0, 1), (1, 20), (13, 14), (20, 50)):
        part = sampled_matcher(proposed[a:b], 30, 2, 0.1, seed=4, first_row=a)
        assert (part != whole[a:b]).nnz == 0
        assert part.nnz == whole[a:b].nnz


def problem(seed=0, n=160, d=120, n_labels=90):
    random = np.random.default_rng(seed)
    X = sparse.random(n, d, 0.08, "csr", np.float32, random)
    Y = sparse.csr_matrix((random.random((n, n_labels)) < 0.05).astype(np.float32))
    clusters = np.array([0, 40, 41, 41, 75, 90])
    M = sparse.csr_matrix(
        (random.random((n, 5)) < [0.5, 1.1, 0.2, 0.2, 0.05]) * random.random((n, 5)), dtype=np.float32
    )
    return X, Y, M, clusters


@pytest.mark.native
@pytest.mark.parametrize("config", [ranking_config(), LinearConfig(max_full_epochs=2), LinearConfig(loss="logistic")])
@pytest.mark.parametrize("with_negatives", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
def test_classifiers_of_some_clusters_are_those_of_the_whole(config, with_negatives, threads):
    X, Y, M, clusters = problem()
    M = M if with_negatives else None
    whole = fit_ovr(X, Y, M, clusters=clusters, config=config, seed=3)
    size = native.linear.job_size(Y.shape[1])
    assert size == 16
    for c, e, begin, end in ((0, 1, 16, 40), (0, 2, 0, 41), (1, 4, 40, 75), (3, 5, 41 + 16, 90), (4, 5, 75, 90)):
        first, last = clusters[c], clusters[e]
        labels, chosen = Y[:, first:last], None if M is None else M[:, c:e]
        rows = np.arange(len(Y.toarray()))
        if chosen is not None:  # rows that nobody needs are left out
            rows = np.flatnonzero(labels.getnnz(axis=1) + chosen.getnnz(axis=1))
            chosen = chosen[rows]
        cut = native.linear.Cut(int(first), Y.shape[1], X.shape[0], False, int(begin - first), int(end - first))
        W = fit_ovr(
            X[rows], labels[rows], chosen, clusters=clusters[c : e + 1] - first, config=config, seed=3, cut=cut,
            threads=threads,
        )  # fmt: skip
        part, expected = W[begin - first : end - first], whole[begin:end]
        np.testing.assert_array_equal(part.indptr, expected.indptr)
        np.testing.assert_array_equal(part.indices, expected.indices)
        np.testing.assert_array_equal(part.data, expected.data)
        assert W.nnz == part.nnz


def test_extra_margins_of_some_clusters_are_those_of_the_whole():
    _, Y, M, clusters = problem(n_labels=90)
    Y = Y.tolil()
    Y[:, 40] = 1.0  # all rows
    Y[M[:, 4].nonzero()[0], 80] = 1.0  # all rows of its cluster
    Y = Y.tocsr()
    whole = extra_margins(Y, M, clusters)
    assert whole[40] > whole[80] == 1.0
    for c, e in ((0, 1), (1, 4), (4, 5)):
        labels, chosen = Y[:, clusters[c] : clusters[e]], M[:, c:e]
        rows = np.flatnonzero(labels.getnnz(axis=1) + chosen.getnnz(axis=1))
        part = extra_margins(labels[rows], chosen[rows], clusters[c : e + 1] - clusters[c], n_rows=Y.shape[0])
        np.testing.assert_array_equal(part, whole[clusters[c] : clusters[e]])


@pytest.mark.native
@pytest.mark.parametrize("seed", range(3))
def test_packed_features_are_those_of_the_whole(seed):
    random = np.random.default_rng(seed)
    W = sparse.random(90, 301, 0.2, "csr", np.float32, random)
    W.data = (random.choice([-1, 1], W.nnz) * np.exp(random.normal(0, seed, W.nnz))).astype(np.float32)
    children = np.array([0, 40, 41, 41, 90])
    starts, blocks, codebook = native.linear.pack_weights(W, 300, children, 1)
    sizes = np.abs(W[:, :300].data)
    magnitudes = (float(sizes.min()), float(sizes.max()))
    at = 0
    for a, b in ((0, 1), (1, 130), (130, 300)):
        part = sparse.csr_matrix(W[:, a:b])
        found = native.linear.pack_weights(part, b - a, children, 2, magnitudes)
        np.testing.assert_array_equal(found[2], codebook)
        np.testing.assert_array_equal(found[0] + np.uint32(at), starts[a : b + 1])
        end = 4 * int(found[0][-1])
        np.testing.assert_array_equal(found[1][:end], blocks[4 * at : 4 * at + end])
        at += int(found[0][-1])
    assert 4 * at + len(found[1]) - end == len(blocks)
