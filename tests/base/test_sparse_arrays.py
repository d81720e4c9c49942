"""Conversions between sparse rows, padded rows and row pointers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify.base.sparse import (
    ascends,
    entry_rows,
    indicator_from_ids,
    indicator_from_lists,
    indptr_from_counts,
    normalize_rows,
    padded_rows,
    pattern,
    same_pattern,
)


def test_padded_rows():
    X = sparse.csr_matrix(np.array([[0, 2, 0, 3], [0, 0, 0, 0], [1, 0, 0, 0]], np.float32))
    ids, values = padded_rows(X)
    assert ids.tolist() == [[1, 3], [-1, -1], [0, -1]]
    assert values.tolist() == [[2, 3], [0, 0], [1, 0]]
    assert ids.dtype == np.int32
    assert values.dtype == np.float32


def test_padded_rows_keep_explicit_zeros():
    X = sparse.csr_matrix((np.array([0, 5], np.float32), np.array([2, 1]), np.array([0, 1, 2])), (2, 3))
    ids, values = padded_rows(X)
    assert ids.tolist() == [[2], [1]]
    assert values.tolist() == [[0], [5]]


@pytest.mark.parametrize("n", [0, 3])
def test_padded_rows_without_entries_have_one_column(n):
    ids, values = padded_rows(sparse.csr_matrix((n, 4), dtype=np.float32))
    assert ids.shape == values.shape == (n, 1)
    assert np.all(ids == -1)
    assert not values.any()


def test_indptr_from_counts():
    indptr = indptr_from_counts([2, 0, 3])
    assert indptr.tolist() == [0, 2, 2, 5]
    assert indptr.dtype == np.int64
    assert indptr_from_counts([]).tolist() == [0]
    assert indptr_from_counts(np.full(3, 2**31 - 1, np.int32))[-1] == 3 * (2**31 - 1)  # no overflow


@pytest.mark.parametrize("are_sorted", [False, True])
def test_indicator_from_ids(are_sorted):
    ids = np.array([[4, 1, -1], [2, 2, 0], [-1, -1, -1]], np.int32)
    given = np.sort(ids, axis=1) if are_sorted else ids
    before = given.copy()
    matrix = indicator_from_ids(given, 5, are_sorted=are_sorted)
    assert matrix.toarray().tolist() == [[0, 1, 0, 0, 1], [1, 0, 1, 0, 0], [0, 0, 0, 0, 0]]
    assert matrix.dtype == np.float32
    assert matrix.has_canonical_format
    assert np.array_equal(given, before)


def test_indicator_from_lists():
    matrix = indicator_from_lists([[3, 0, 3], [], [1]], 4)
    assert matrix.toarray().tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]]
    assert matrix.has_canonical_format


def test_patterns_and_rows_of_entries():
    X = sparse.csr_matrix(np.array([[0, 2, 3], [0, 0, 0], [4, 0, 0]], np.float32))
    assert pattern(X).toarray().tolist() == [[0, 1, 1], [0, 0, 0], [1, 0, 0]]
    assert entry_rows(X).tolist() == [0, 0, 2]
    assert same_pattern(X, pattern(X))
    assert not same_pattern(X, X[:2])
    assert not same_pattern(X, sparse.csr_matrix(X.toarray()[::-1]))


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_normalize_rows(kind):
    X = np.array([[3, 0, 4], [0, 0, 0], [0, -1e-3, 0]], np.float32)
    given = sparse.csr_matrix(X) if kind == "sparse" else X
    unit = normalize_rows(given)
    assert sparse.issparse(unit) == (kind == "sparse")
    assert unit.dtype == np.float32
    expected = [[0.6, 0, 0.8], [0, 0, 0], [0, -1, 0]]
    assert (unit.toarray() if kind == "sparse" else unit) == pytest.approx(np.array(expected))
    assert X[0, 0] == 3  # the input is not modified
    assert (given.toarray() if kind == "sparse" else given)[0, 2] == 4


@pytest.mark.parametrize(
    ("boundaries", "end", "expected"),
    [
        ([0, 2, 2, 5], 5, True),
        ([0, 2, 2, 5], None, True),
        ([0], 0, True),
        ([0, 2, 2, 5], 6, False),
        ([1, 2, 5], 5, False),
        ([0, 3, 2, 5], 5, False),
        ([], 0, False),
        ([0, 2**63 - 1, -5, 5], 5, False),  # no difference, as a 64-bit integer, is negative
    ],
)
def test_boundaries_that_ascend(boundaries, end, expected):
    assert ascends(np.array(boundaries, np.int64), end) is expected
