"""IVF search against a reference implementation in NumPy, and against faiss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from variants import digests

from ramify import native
from ramify.index.ann.ivf import KMEANS_ITERATIONS, IvfIndex

pytestmark = pytest.mark.native


def reference_codes(vectors):
    """Int8 codes (n, D rounded up to 32) and scales (n,)."""
    n, dim = vectors.shape
    codes, scales = np.zeros((n, -(-dim // 32) * 32), np.int8), np.zeros(n, np.float32)
    for i, vector in enumerate(vectors):
        largest = np.abs(vector).max(initial=np.float32(0))
        scales[i] = largest / np.float32(127)
        if scales[i] > 0:
            codes[i, :dim] = np.rint(vector / largest * np.float32(127)).astype(np.int8)
    return codes, scales


def reference_search(index, order, queries, k, nprobe):
    """`IvfIndex.search`, one inverted list after the other."""
    ids = np.full((len(queries), k), -1, np.int32)
    scores = np.full((len(queries), k), -np.inf, np.float32)
    for row, query in enumerate(queries):
        query_codes = reference_codes(query[None])[0][0].astype(np.int64)

        def products_of_codes(codes, query_codes=query_codes):
            return (codes[0].astype(np.int64) @ query_codes).astype(np.float32) * codes[1]

        probed = np.lexsort((np.arange(index.nlist), -products_of_codes(index.centroids)))[:nprobe]
        scanned = np.concatenate([np.arange(index.indptr[c], index.indptr[c + 1]) for c in probed]).astype(np.int64)
        approximate = products_of_codes(index.codes)[scanned]
        candidates = scanned[np.lexsort((scanned, -approximate))[: k + k // 8 + 16]]
        products = index.vectors[candidates].astype(np.float64) @ query.astype(np.float64)
        best = np.lexsort((order[candidates], -products))[:k]
        ids[row, : len(best)], scores[row, : len(best)] = order[candidates][best], products[best]
    return ids, scores


def build(n, dim, nlist, seed=0):
    """Random vectors (n, dim), their index, and the row of each position."""
    random = np.random.default_rng(seed)
    vectors = random.standard_normal((n, dim)).astype(np.float32)
    index, order = IvfIndex.build(vectors, nlist, seed=seed, threads=1)
    return vectors, index, np.ascontiguousarray(order.astype(np.int32))


@pytest.mark.parametrize(("n", "dim", "nlist"), [(1, 1, 1), (40, 5, 3), (500, 33, 12), (300, 300, 9)])
@pytest.mark.parametrize("threads", [1, 3])
def test_search_against_the_reference(n, dim, nlist, threads):
    _, index, order = build(n, dim, nlist)
    queries = np.random.default_rng(1).standard_normal((21, dim)).astype(np.float32)
    for k, nprobe in ((1, 1), (7, 2), (40, nlist), (n + 3, nlist)):
        ids, scores = index.search(queries, order, k, nprobe, threads)
        expected, products = reference_search(index, order, queries, k, nprobe)
        assert np.array_equal(ids, expected)
        assert scores == pytest.approx(products, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
def test_unit_rows_and_dense_products_against_numpy(threads):
    random = np.random.default_rng(0)
    for n, dim in ((1, 1), (600, 37), (5, 64), (3, 0), (0, 4), *((3, dim) for dim in (15, 16, 17, 24, 25, 300))):
        for scale in (1.0, 1e30, 1e-38, 0.0):
            vectors = (random.standard_normal((n, dim)) * scale).astype(np.float32)
            exact = vectors.astype(np.float64)
            lengths = np.linalg.norm(exact, axis=1, keepdims=True)
            units = native.matrix.unit_rows(vectors, threads)
            assert units == pytest.approx(exact / np.where(lengths > 0, lengths, 1), rel=1e-5, abs=1e-6)
            table = random.standard_normal((9, dim)).astype(np.float32)
            products = native.matrix.dense_products(table, units, threads)
            assert products == pytest.approx(units.astype(np.float64) @ table.T.astype(np.float64), abs=1e-4)
            if n:
                assert np.array_equal(native.matrix.dense_products(table, units[:1], 1), products[:1])


def test_dense_products_read_every_entry_once():
    for dim in range(1, 50):
        for at in range(dim):
            vectors = np.zeros((1, dim), np.float32)
            vectors[0, at] = np.inf
            assert np.all(native.matrix.dense_products(np.ones((5, dim), np.float32), vectors, 1) == np.inf)


def test_codes_against_the_reference():
    random = np.random.default_rng(0)
    for vectors in (
        random.standard_normal((90, 37)),
        random.standard_normal((5, 64)) * 1e30,
        random.standard_normal((5, 3)) * 1e-40,
        np.full((4, 8), 1e-45),
        np.zeros((3, 32)),
        np.empty((0, 7)),
    ):
        vectors = vectors.astype(np.float32)
        for found, expected in zip(native.ann.quantize(vectors, 2), reference_codes(vectors), strict=True):
            assert np.array_equal(found, expected)


def test_search_against_faiss():
    import faiss

    vectors, index, order = build(2000, 48, 40)
    quantizer = faiss.IndexFlatIP(48)
    reference = faiss.IndexIVFFlat(quantizer, 48, 40, faiss.METRIC_INNER_PRODUCT)
    reference.cp.seed, reference.cp.niter, reference.cp.min_points_per_centroid = 0, KMEANS_ITERATIONS, 1
    reference.train(vectors)
    reference.add(vectors)
    queries = np.random.default_rng(2).standard_normal((64, 48)).astype(np.float32)
    for nprobe in (4, 40):
        reference.nprobe = nprobe
        products, expected = reference.search(queries, 20)
        ids, scores = index.search(queries, order, 20, nprobe, 2)
        same = np.mean([len(set(a) & set(b)) / 20 for a, b in zip(ids.tolist(), expected.tolist(), strict=True)])
        assert same > (0.999 if nprobe == 40 else 0.97)  # our centroids are compared by their codes
        assert scores[:, 0] == pytest.approx(products[:, 0], rel=1e-4) or nprobe == 4


def test_search_without_vectors_uses_codes():
    _, index, order = build(900, 75, 20)
    queries = np.random.default_rng(3).standard_normal((50, 75)).astype(np.float32)
    exact, products = index.search(queries, order, 30, 20, 1)
    codes_only = index.without_vectors()
    assert len(codes_only) == 900
    assert codes_only.dim == 75
    ids, scores = codes_only.search(queries, order, 30, 20, 2)
    codes, scales = (part.astype(np.float64) for part in index.codes)
    query_codes, query_scales = (part.astype(np.float64) for part in native.ann.quantize(queries, 1))
    by_codes = (query_codes @ codes.T) * query_scales[:, None] * scales
    best = np.argsort(-by_codes, axis=1, kind="stable")[:, :30]
    assert scores == pytest.approx(np.take_along_axis(by_codes, best, 1), rel=1e-4)
    assert scores[:, 0] == pytest.approx(products[:, 0], rel=0.05)
    assert np.mean([len(set(a) & set(b)) / 30 for a, b in zip(ids.tolist(), exact.tolist(), strict=True)]) > 0.95


@pytest.mark.parametrize("k", [1, 30, 899, 950])
def test_unordered_search_finds_the_same(k):
    _, index, order = build(900, 40, 20)
    queries = np.abs(np.random.default_rng(4).standard_normal((30, 40))).astype(np.float32)  # all products positive
    queries[7] *= -1
    queries[8] = 0
    for searched in (index, index.without_vectors()):
        ids, scores = searched.search(queries, order, k, 20, 1)
        others, unordered = searched.search(queries, order, k, 20, 2, ordered=False)
        best_first = np.lexsort((others, -unordered), axis=1)
        assert np.array_equal(np.take_along_axis(unordered, best_first, 1), scores)
        valid = scores > -np.inf
        assert np.array_equal(np.take_along_axis(others, best_first, 1)[valid], ids[valid])


def test_nan_is_never_found():
    _, index, order = build(300, 16, 5)
    scales = index.codes[1].copy()
    scales[::3] = np.nan
    scales[1::3] *= np.float32(1e30)
    damaged = replace(index, codes=(index.codes[0], scales)).without_vectors()
    ids, scores = damaged.search(np.ones((4, 16), np.float32), order, 100, 5, 1)
    assert not np.isnan(scores).any()
    assert np.array_equal(np.sort(ids, axis=1), np.sort(ids[:1].repeat(4, axis=0), axis=1))


def test_ties_are_ordered_by_id_and_lists_may_be_empty():
    vectors = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    index, order = IvfIndex.build(vectors, 12, seed=0, threads=1)
    ids = np.ascontiguousarray(order[::-1].astype(np.int32))
    found, scores = index.search(np.eye(3, dtype=np.float32)[:1], ids, 12, 12, 1)
    assert sorted(found[0]) == list(range(12))
    assert np.array_equal(np.lexsort((found[0], -scores[0])), np.arange(12))
    zero = np.zeros((1, 3), np.float32)
    assert np.array_equal(index.search(zero, ids, 12, 12, 1)[0][0], np.arange(12))


def test_query_of_another_dimension_is_refused():
    _, index, order = build(40, 5, 3)
    with pytest.raises(ValueError, match="dimension"):
        index.search(np.zeros((1, 6), np.float32), order, 3, 1, 1)


CODE = """
import hashlib
import numpy as np
from ramify import native
from test_ivf import build
_, index, order = build(900, 75, 20)
queries = np.random.default_rng(3).standard_normal((50, 75)).astype(np.float32)
queries[0] *= 1e6
digest = hashlib.sha256()
by_codes = index.without_vectors().search(abs(queries), order, 30, 6, 2)
for part in (*index.search(queries, order, 30, 6, 2), *by_codes, *index.codes):
    digest.update(part.tobytes())
print(native.matrix.isa(), digest.hexdigest())
"""


def test_every_instruction_set_gives_the_same_bits():
    found = digests(CODE, Path(__file__).parent)
    assert len(set(found.values())) == 1, found
