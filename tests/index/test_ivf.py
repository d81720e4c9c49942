"""The search in lists of vectors against its twin in NumPy, and against faiss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from variants import digests

from ramify import native
from ramify.index.ann.ivf import ROUNDS, VectorLists

pytestmark = pytest.mark.native


def slow_codes(vectors):
    """Whole numbers (n, D rounded up to 32) and steps (n,)."""
    n, width = vectors.shape
    codes, steps = np.zeros((n, -(-width // 32) * 32), np.int8), np.zeros(n, np.float32)
    for i, vector in enumerate(vectors):
        largest = np.abs(vector).max(initial=np.float32(0))
        steps[i] = largest / np.float32(127)
        if steps[i] > 0:
            codes[i, :width] = np.rint(vector / largest * np.float32(127)).astype(np.int8)
    return codes, steps


def slow_search(lists, names, queries, k, n_read):
    """What `VectorLists.search` finds, one list after the other."""
    ids = np.full((len(queries), k), -1, np.int32)
    scores = np.full((len(queries), k), -np.inf, np.float32)
    for row, query in enumerate(queries):
        own = slow_codes(query[None])[0][0].astype(np.int64)

        def rough(codes, own=own):
            return (codes[0].astype(np.int64) @ own).astype(np.float32) * codes[1]

        near = np.lexsort((np.arange(lists.most), -rough(lists.middles)))[:n_read]
        read = np.concatenate([np.arange(lists.begin[c], lists.begin[c + 1]) for c in near]).astype(np.int64)
        said = rough(lists.codes)[read]
        chosen = read[np.lexsort((read, -said))[: k + k // 8 + 16]]
        products = lists.vectors[chosen].astype(np.float64) @ query.astype(np.float64)
        best = np.lexsort((names[chosen], -products))[:k]
        ids[row, : len(best)], scores[row, : len(best)] = names[chosen][best], products[best]
    return ids, scores


def made(n, width, n_lists, seed=0):
    random = np.random.default_rng(seed)
    vectors = random.standard_normal((n, width)).astype(np.float32)
    lists, order = VectorLists.build(vectors, n_lists, seed=seed, threads=1)
    return vectors, lists, np.ascontiguousarray(order.astype(np.int32))


@pytest.mark.parametrize(("n", "width", "n_lists"), [(1, 1, 1), (40, 5, 3), (500, 33, 12), (300, 300, 9)])
@pytest.mark.parametrize("threads", [1, 3])
def test_against_the_slow_twin(n, width, n_lists, threads):
    _, lists, names = made(n, width, n_lists)
    queries = np.random.default_rng(1).standard_normal((21, width)).astype(np.float32)
    for k, n_read in ((1, 1), (7, 2), (40, n_lists), (n + 3, n_lists)):
        ids, scores = lists.search(queries, names, k, n_read, threads)
        expected, products = slow_search(lists, names, queries, k, n_read)
        assert np.array_equal(ids, expected)
        assert scores == pytest.approx(products, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
def test_units_and_products_against_the_slow_twins(threads):
    random = np.random.default_rng(0)
    for n, width in ((1, 1), (600, 37), (5, 64), (3, 0), (0, 4), *((3, width) for width in (15, 16, 17, 24, 25, 300))):
        for scale in (1.0, 1e30, 1e-38, 0.0):
            vectors = (random.standard_normal((n, width)) * scale).astype(np.float32)
            exact = vectors.astype(np.float64)
            lengths = np.linalg.norm(exact, axis=1, keepdims=True)
            units = native.matrix.unit_rows(vectors, threads)
            assert units == pytest.approx(exact / np.where(lengths > 0, lengths, 1), rel=1e-5, abs=1e-6)
            table = random.standard_normal((9, width)).astype(np.float32)
            products = native.matrix.dense_products(table, units, threads)
            assert products == pytest.approx(units.astype(np.float64) @ table.T.astype(np.float64), abs=1e-4)
            if n:
                assert np.array_equal(native.matrix.dense_products(table, units[:1], 1), products[:1])


def test_a_number_that_was_counted_is_not_counted_again():
    for width in range(1, 50):
        for at in range(width):
            vectors = np.zeros((1, width), np.float32)
            vectors[0, at] = np.inf
            assert np.all(native.matrix.dense_products(np.ones((5, width), np.float32), vectors, 1) == np.inf)


def test_codes_against_the_slow_twin():
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
        for found, expected in zip(native.ann.quantize(vectors, 2), slow_codes(vectors), strict=True):
            assert np.array_equal(found, expected)


def test_finds_what_faiss_finds_in_the_same_lists():
    import faiss

    vectors, lists, names = made(2000, 48, 40)
    middles = faiss.IndexFlatIP(48)
    reference = faiss.IndexIVFFlat(middles, 48, 40, faiss.METRIC_INNER_PRODUCT)
    reference.cp.seed, reference.cp.niter, reference.cp.min_points_per_centroid = 0, ROUNDS, 1
    reference.train(vectors)
    reference.add(vectors)
    queries = np.random.default_rng(2).standard_normal((64, 48)).astype(np.float32)
    for n_read in (4, 40):
        reference.nprobe = n_read
        products, expected = reference.search(queries, 20)
        ids, scores = lists.search(queries, names, 20, n_read, 2)
        same = np.mean([len(set(a) & set(b)) / 20 for a, b in zip(ids.tolist(), expected.tolist(), strict=True)])
        assert same > (0.999 if n_read == 40 else 0.97)  # middles are compared by their codes
        assert scores[:, 0] == pytest.approx(products[:, 0], rel=1e-4) or n_read == 4


def test_without_vectors_codes_are_compared():
    _, lists, names = made(900, 75, 20)
    queries = np.random.default_rng(3).standard_normal((50, 75)).astype(np.float32)
    exact, products = lists.search(queries, names, 30, 20, 1)
    bare = lists.codes_only()
    assert len(bare) == 900
    assert bare.width == 75
    ids, scores = bare.search(queries, names, 30, 20, 2)
    numbers, steps = (part.astype(np.float64) for part in lists.codes)
    own, own_steps = (part.astype(np.float64) for part in native.ann.quantize(queries, 1))
    by_codes = (own @ numbers.T) * own_steps[:, None] * steps
    best = np.argsort(-by_codes, axis=1, kind="stable")[:, :30]
    assert scores == pytest.approx(np.take_along_axis(by_codes, best, 1), rel=1e-4)
    assert scores[:, 0] == pytest.approx(products[:, 0], rel=0.05)
    assert np.mean([len(set(a) & set(b)) / 30 for a, b in zip(ids.tolist(), exact.tolist(), strict=True)]) > 0.95


@pytest.mark.parametrize("k", [1, 30, 899, 950])
def test_the_same_is_found_in_any_order(k):
    _, lists, names = made(900, 40, 20)
    queries = np.abs(np.random.default_rng(4).standard_normal((30, 40))).astype(np.float32)  # without signs
    queries[7] *= -1
    queries[8] = 0
    for searched in (lists, lists.codes_only()):
        ids, scores = searched.search(queries, names, k, 20, 1)
        others, unordered = searched.search(queries, names, k, 20, 2, ordered=False)
        order = np.lexsort((others, -unordered), axis=1)
        assert np.array_equal(np.take_along_axis(unordered, order, 1), scores)
        there = scores > -np.inf
        assert np.array_equal(np.take_along_axis(others, order, 1)[there], ids[there])


def test_numbers_that_are_none_are_never_near():
    _, lists, names = made(300, 16, 5)
    steps = lists.codes[1].copy()
    steps[::3] = np.nan
    steps[1::3] *= np.float32(1e30)
    damaged = replace(lists, codes=(lists.codes[0], steps)).codes_only()
    ids, scores = damaged.search(np.ones((4, 16), np.float32), names, 100, 5, 1)
    assert not np.isnan(scores).any()
    assert np.array_equal(np.sort(ids, axis=1), np.sort(ids[:1].repeat(4, axis=0), axis=1))


def test_equal_products_are_ordered_by_name_and_empty_lists_are_no_trouble():
    vectors = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    lists, order = VectorLists.build(vectors, 12, seed=0, threads=1)
    names = np.ascontiguousarray(order[::-1].astype(np.int32))
    ids, scores = lists.search(np.eye(3, dtype=np.float32)[:1], names, 12, 12, 1)
    assert sorted(ids[0]) == list(range(12))
    assert np.array_equal(np.lexsort((ids[0], -scores[0])), np.arange(12))
    zero = np.zeros((1, 3), np.float32)
    assert np.array_equal(lists.search(zero, names, 12, 12, 1)[0][0], np.arange(12))


def test_a_query_of_another_width_is_refused():
    _, lists, names = made(40, 5, 3)
    with pytest.raises(ValueError, match="dimension"):
        lists.search(np.zeros((1, 6), np.float32), names, 3, 1, 1)


CODE = """
import hashlib
import numpy as np
from ramify import native
from test_ivf import made
_, lists, names = made(900, 75, 20)
queries = np.random.default_rng(3).standard_normal((50, 75)).astype(np.float32)
queries[0] *= 1e6
digest = hashlib.sha256()
by_codes = lists.codes_only().search(abs(queries), names, 30, 6, 2)
for part in (*lists.search(queries, names, 30, 6, 2), *by_codes, *lists.codes):
    digest.update(part.tobytes())
print(native.matrix.isa(), digest.hexdigest())
"""


def test_every_instruction_set_gives_the_same_bits():
    found = digests(CODE, Path(__file__).parent)
    assert len(set(found.values())) == 1, found
