"""Exact nearest rows through an inverted index, and the votes of their labels, against reference implementations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify import native
from ramify.base.sparse import as_csr
from ramify.index.postings import Postings

pytestmark = pytest.mark.native


def reference_nearest(X, queries, k):
    """Ids and cosine similarities (m, k) above 0."""
    rows = [m / max(np.linalg.norm(m), 1e-30) for m in X.toarray().astype(np.float64)]
    ids, found = np.full((queries.shape[0], k), -1, np.int32), np.full((queries.shape[0], k), -np.inf)
    for i, query in enumerate(queries.toarray().astype(np.float64)):
        similarities = np.array([row @ query for row in rows]) / max(np.linalg.norm(query), 1e-30)
        best = [j for j in np.argsort(-similarities, kind="stable") if similarities[j] > 1e-9][:k]
        ids[i, : len(best)], found[i, : len(best)] = best, similarities[best]
    return ids, found


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_matches_the_reference_implementation(threads, index):
    random = np.random.default_rng(1)
    X = sparse.random(500, 60, 0.08, "csr", np.float32, random)
    X.data -= 0.2  # some values are negative
    X = as_csr(sparse.vstack([X, X[:3], sparse.csr_matrix((4, 60), dtype=np.float32)]))  # twins and empty rows
    queries = as_csr(sparse.vstack([X[:40], sparse.csr_matrix((2, 60), dtype=np.float32), X[500:503]]))
    queries.indptr, queries.indices = queries.indptr.astype(index), queries.indices.astype(index)
    postings = Postings.build(X)
    for k in (1, 7, 600):
        ids, similarities = postings.search(queries, k, threads)
        expected_ids, expected = reference_nearest(X, queries, k)
        assert np.where(ids >= 0, similarities, -1) == pytest.approx(np.where(ids >= 0, expected, -1), abs=1e-5)
        assert np.mean(ids == expected_ids) > 0.98  # products that are equal up to rounding
        one = postings.search(queries[5], k, 1)
        assert np.array_equal(one[0][0], ids[5])
        assert np.array_equal(one[1][0], similarities[5])
    assert ids[0, :2].tolist() == [0, 500]  # twins by id
    assert np.all(postings.search(queries[40:42], 3, threads)[0] == -1)
    with pytest.raises(ValueError, match="columns"):
        postings.search(queries[:, :50], 3, 1)


def test_joined_indexes_find_what_one_index_finds():
    X = sparse.random(90, 30, 0.2, "csr", np.float32, np.random.default_rng(2))
    whole, joined = Postings.build(X), Postings.build(X[:70]).joined(Postings.build(X[70:]))
    for name in ("indptr", "samples", "values"):
        assert np.array_equal(getattr(whole, name), getattr(joined, name))


def reference_votes(samples, Y, weights, power, penalties, allowed, k):
    n = len(samples[0])
    ids = np.full((n, k), -1, np.int32)
    values = [np.full((n, k), -np.inf), np.zeros((n, k)), np.zeros((n, k))]
    for row in range(n):
        found, total = {}, 0.0
        for sample, similarity in zip(samples[0][row], samples[1][row], strict=True):
            if sample < 0 or similarity <= 0:
                continue
            vote = weights[sample] * float(similarity) ** power
            total += vote
            for label in Y[sample].indices:
                if allowed[label]:
                    votes, count, nearest = found.get(label, (0.0, 0, 0.0))
                    found[label] = votes + vote, count + 1, max(nearest, similarity)
        scored = {i: (max(0.01, v / total) - penalties[i], c, s) for i, (v, c, s) in found.items()}
        for j, label in enumerate(sorted(scored, key=lambda label: (-scored[label][0], label))[:k]):
            ids[row, j] = label
            for part, value in zip(values, scored[label], strict=True):
                part[row, j] = value
    return ids, *values


@pytest.mark.parametrize("threads", [1, 3])
def test_votes_match_the_reference_implementation(threads):
    random = np.random.default_rng(0)
    Y = sparse.csr_matrix((random.random((60, 40)) < 0.1).astype(np.float32))
    samples = np.argsort(random.random((50, 60)), axis=1)[:, :9].astype(np.int32)
    similarities = random.uniform(-0.2, 1, samples.shape).astype(np.float32)
    samples[1, 4:], samples[2] = -1, -1
    penalties = (np.arange(40) * 1e-4).astype(np.float32)
    weights = random.uniform(0.5, 2, 60).astype(np.float32)
    allowed = (random.random(40) < 0.7).astype(np.uint8)
    sample_labels = Y.indptr.astype(np.int64), Y.indices.astype(np.int32)
    for given, mask in ((weights, allowed), (None, None)):
        for k in (1, 6, 40):
            found = native.ann.vote_neighbor_labels(
                (samples, similarities), sample_labels, given, 40, 2.0, 0.01, penalties, mask, k, threads
            )
            expected = reference_votes(
                (samples, similarities), Y, np.ones(60) if given is None else given, 2.0, penalties,
                np.ones(40) if mask is None else mask, k,
            )  # fmt: skip
            assert np.mean(found[0] == expected[0]) > 0.99
            same = found[0] == expected[0]
            for a, b in zip(found[1:], expected[1:], strict=True):
                assert np.where(same & np.isfinite(b), a, 0) == pytest.approx(
                    np.where(same & np.isfinite(b), b, 0), abs=1e-5
                )
    with pytest.raises(ValueError, match="penalties"):
        native.ann.vote_neighbor_labels(
            (samples, similarities), sample_labels, None, 40, 2.0, 0.01, penalties[:3], None, 1, 1
        )
