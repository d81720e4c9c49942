"""Row-sparse Adam against a slow twin that keeps everything dense."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify import native
from ramify.nn.tables import Adam, DenseParameter, RowTable

pytestmark = pytest.mark.native


def random_lists(random, n, width, n_rows):
    lists = np.stack([random.permutation(n_rows)[:width] for _ in range(n)]).astype(np.int32)
    lists[random.random(lists.shape) < 0.3] = -1
    return lists


def test_pairs_are_grouped_by_row():
    random = np.random.default_rng(0)
    lists = random_lists(random, 9, 4, 11)
    rows, begin, places = native.neural.group_pairs(lists, 11)
    assert np.all(np.diff(rows) > 0)
    flat = lists.ravel()
    for i, row in enumerate(rows):
        assert places[begin[i] : begin[i + 1]].tolist() == np.flatnonzero(flat == row).tolist()
    assert begin[-1] == (flat >= 0).sum()
    assert native.neural.group_pairs(np.full((2, 2), -1, np.int32), 5)[0].size == 0


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("d", [1, 7, 64])
def test_products_and_their_gradients(threads, d):
    random = np.random.default_rng(d)
    table, offset = random.standard_normal((30, d)).astype(np.float32), random.standard_normal(30).astype(np.float32)
    vectors = random.standard_normal((12, d)).astype(np.float32)
    lists = random_lists(random, 12, 8, 30)
    pairs = native.neural.group_pairs(lists, 30)
    out = native.neural.gather_dot(pairs, 8, table, offset, vectors, threads)
    there = lists >= 0
    expected = np.einsum("ijd,id->ij", table[lists], vectors) + offset[lists]
    assert out[there] == pytest.approx(expected[there], abs=1e-4)
    assert np.all(out[~there] == 0)
    gradients = np.where(there, random.standard_normal(lists.shape), 0).astype(np.float32)
    back = native.neural.gather_dot_backward(pairs, table, gradients, threads)
    assert back == pytest.approx(np.einsum("ij,ijd->id", gradients, table[lists] * there[..., None]), abs=1e-4)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_linear_classifiers_on_lists(threads, index):
    random = np.random.default_rng(3)
    X = sparse.random(40, 25, 0.2, "csr", np.float32, random)
    X.indptr, X.indices = X.indptr.astype(index), X.indices.astype(index)
    W = sparse.random(30, 25, 0.3, "csr", np.float32, random)
    W.data -= 0.5
    dense, offset = random.standard_normal((30, 6)).astype(np.float32), random.standard_normal(30).astype(np.float32)
    vectors = random.standard_normal((40, 6)).astype(np.float32)
    lists = random_lists(random, 40, 9, 30)
    parts = W.indptr.astype(np.int64), W.indices.astype(np.int32), W.data
    found = native.linear.score_candidates(parts, dense, offset, X, vectors, lists, threads)
    expected = X @ W.T.toarray() + vectors @ dense.T + offset
    expected = np.where(lists >= 0, np.take_along_axis(expected, np.maximum(lists, 0), 1), 0)
    assert found == pytest.approx(expected, abs=1e-4)
    one = native.linear.score_candidates(parts, dense, offset, X[7], vectors[7:8], lists[7:8], 1)
    assert np.array_equal(one[0], found[7])


@pytest.mark.parametrize("threads", [1, 4])
def test_steps_as_a_dense_twin_makes_them(threads):
    random = np.random.default_rng(1)
    n_rows, d = 25, 5
    table = RowTable(random.standard_normal((n_rows, d)).astype(np.float32), np.zeros(n_rows, np.float32))
    slow = np.hstack([table.weights, table.offset[:, None]]).astype(np.float64)
    m, v = np.zeros_like(slow), np.zeros_like(slow)
    for number in range(1, 30):
        vectors = random.standard_normal((6, d)).astype(np.float32)
        lists = random_lists(random, 6, 3, n_rows)
        gradients = np.where(lists >= 0, random.standard_normal(lists.shape), 0).astype(np.float32)
        adam = Adam(0.01, number, weight_decay=0.1)
        table.step(native.neural.group_pairs(lists, n_rows), gradients, vectors, adam, threads)
        sums = np.zeros_like(slow)
        for i, j in zip(*np.nonzero(lists >= 0), strict=True):
            sums[lists[i, j]] += gradients[i, j] * np.append(vectors[i], 1.0)
        used = np.unique(lists[lists >= 0])
        m[used] = 0.9 * m[used] + 0.1 * sums[used]
        v[used] = 0.999 * v[used] + 0.001 * sums[used] ** 2
        slow[used, :d] -= 0.01 * 0.1 * slow[used, :d]
        slow[used] -= 0.01 * (m[used] / (1 - 0.9**number)) / (np.sqrt(v[used] / (1 - 0.999**number)) + 1e-8)
    assert table.weights == pytest.approx(slow[:, :d], abs=1e-4)
    assert table.offset == pytest.approx(slow[:, d], abs=1e-4)


def test_a_row_without_a_gradient_rests():
    random = np.random.default_rng(0)
    table = RowTable(random.standard_normal((6, 20)).astype(np.float32), np.zeros(6, np.float32))
    lists, vectors = np.array([[0, 1, 2], [1, 2, 3]], np.int32), random.standard_normal((2, 20)).astype(np.float32)
    pairs = native.neural.group_pairs(lists, 6)
    for number, gradients in enumerate(([[1, 1, 1], [1, 1, 1]], [[0, 0, 1], [0, -2, 1]]), 1):
        before = table.weights.copy(), table.offset.copy()
        table.step(pairs, np.array(gradients, np.float32), vectors, Adam(0.1, number, weight_decay=0.1), 1)
    moved = (table.weights != before[0]).any(axis=1), table.offset != before[1]
    assert moved[0].tolist() == moved[1].tolist() == [False, False, True, True, False, False]


def test_moments_are_made_for_rows_in_use_only():
    table = RowTable(np.zeros((100_000, 4), np.float32), None)
    lists = np.array([[3, 99_999]], np.int32)
    table.step(
        native.neural.group_pairs(lists, 100_000),
        np.ones((1, 2), np.float32),
        np.ones((1, 4), np.float32),
        Adam(0.1, 1),
        1,
    )
    assert table._moments is not None
    assert len(table._moments[0]) <= 16
    assert np.count_nonzero(table.weights.any(axis=1)) == 2


def test_a_dense_parameter_descends():
    values = np.array([[3.0, -2.0]], np.float32)
    parameter = DenseParameter(values)
    for number in range(1, 800):
        parameter.step(2 * parameter.values, Adam(0.02, number))
    assert np.abs(parameter.values).max() < 0.05
