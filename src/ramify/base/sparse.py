"""Sparse matrices and index arrays: validation of user input, construction from native results, conversions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from ramify.base.errors import DataError
from ramify.base.types import AnyArray, BoolArray, Csr, FloatArray, IntArray, LongArray

MAX_COLUMNS = 2**31 - 1
"""Features or labels at most: their ids have 32 bits."""


def csr_from_parts(data: AnyArray, indices: AnyArray, indptr: AnyArray, shape: tuple[int, int]) -> Csr:
    """Build a CSR matrix from arrays that are known to be valid, without scipy's checks.

    These take 15 to 30 µs, more than a whole query may take.
    """
    if not _can_skip_checks or indices.dtype != indptr.dtype:
        return sparse.csr_matrix((data, indices, indptr), shape=shape)
    matrix: Csr = sparse.csr_matrix.__new__(sparse.csr_matrix)
    matrix.__dict__.update(_template, _shape=shape, data=data, indices=indices, indptr=indptr)
    return matrix


_template: dict[str, Any] = dict(vars(sparse.csr_matrix((1, 1), dtype=np.float32)))
# Other attributes mean an unknown version of scipy: use its constructor.
_can_skip_checks = {"_shape", "data", "indices", "indptr"} <= set(_template) <= {
    "_shape", "data", "indices", "indptr", "maxprint"
}  # fmt: skip


def as_csr(matrix: Any, name: str = "X") -> Csr:
    """Validate a scipy sparse matrix and convert it to canonical float32 CSR; the input is not modified.

    Indices are sorted and duplicate entries summed. Indices out of range, NaN and infinity raise `DataError`.
    """
    if not sparse.issparse(matrix) or len(matrix.shape) != 2:
        raise DataError(f"{name} must be a two-dimensional scipy sparse matrix; got {type(matrix).__name__}")
    if matrix.shape[1] > MAX_COLUMNS:
        raise DataError(f"{name} has {matrix.shape[1]:,} columns; at most {MAX_COLUMNS:,} are supported")
    try:
        csr: Csr = sparse.csr_matrix(matrix)
    except ValueError as error:  # inconsistent arrays, found by scipy
        raise DataError(f"{name} is a damaged sparse matrix: {error}") from error
    _check_structure(csr, name)
    if csr.dtype != np.float32:
        if csr.dtype.kind not in "biuf":
            raise DataError(f"{name} has dtype {csr.dtype}; it must be numeric")
        with np.errstate(over="ignore"):  # what does not fit is infinite, and reported below
            csr = csr.astype(np.float32)
    if not csr.has_sorted_indices or not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    if not np.isfinite(csr.data).all():
        row = int(np.searchsorted(csr.indptr, np.flatnonzero(~np.isfinite(csr.data))[0], side="right")) - 1
        raise DataError(f"{name} contains NaN or infinity (first in row {row}); remove or replace it")
    return csr


def ascends(indptr: AnyArray, end: int | None = None) -> bool:
    """Whether row boundaries (n + 1,) ascend from 0, to `end` if it is given, so that none lies outside.

    They are compared: differences of hostile ones overflow, and look as if they ascended.
    """
    fits = len(indptr) > 0 and indptr[0] == 0 and (end is None or int(indptr[-1]) == end)
    return bool(fits and not np.any(indptr[1:] < indptr[:-1]))


def _check_structure(csr: Csr, name: str) -> None:
    """Check what native code relies on: ascending row pointers, column indices in range."""
    n, d = csr.shape
    indptr, indices = csr.indptr, csr.indices
    if len(indptr) != n + 1 or not ascends(indptr):
        raise DataError(f"{name} is a damaged CSR matrix: its row pointers do not ascend from 0")
    nnz = int(indptr[-1])
    if len(indices) < nnz or len(csr.data) < nnz:
        raise DataError(f"{name} is a damaged CSR matrix: it has fewer entries than its row pointers imply")
    if nnz and (int(indices[:nnz].min()) < 0 or int(indices[:nnz].max()) >= d):
        raise DataError(f"{name} is a damaged CSR matrix: column {int(indices[:nnz].min())} or "
                        f"{int(indices[:nnz].max())} is outside 0 to {d - 1}")  # fmt: skip


def indicator(matrix: Any, name: str = "y") -> Csr:
    """Validate a label indicator (n × L), sparse or dense, and convert it to CSR of ones without explicit zeros."""
    if sparse.issparse(matrix):
        csr = as_csr(matrix, name)
    else:
        dense = np.asarray(matrix)
        if dense.ndim != 2 or dense.dtype.kind not in "biuf":
            raise DataError(f"{name} must be a list of label lists or an n × L indicator matrix")
        csr = as_csr(sparse.csr_matrix(dense), name)
        if np.any((csr.data != 1) & (csr.data > 0)):
            raise DataError(
                f"Unknown label type: {name} is a dense matrix with values other than 0 and 1; pass an indicator or "
                "lists of labels"
            )
    if csr.nnz and csr.data.min() < 0:
        raise DataError(f"{name} has negative entries; an indicator contains 0 and 1")
    if np.any(csr.data == 0):
        csr = csr.copy()
        csr.eliminate_zeros()
    return csr_from_parts(np.ones(csr.nnz, np.float32), csr.indices, csr.indptr, csr.shape)


def indptr_from_counts(counts: Any) -> LongArray:
    """Row pointers (n + 1,) of rows with the given entry counts (n,): row i spans indptr[i] to indptr[i + 1]."""
    indptr = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    return indptr


def indicator_from_lists(rows: Sequence[Sequence[int]], n_columns: int) -> Csr:
    """Indicator matrix (n × n_columns) from the column ids of each row; a repeated id counts once."""
    unique = [sorted(set(row)) for row in rows]
    indptr = indptr_from_counts([len(row) for row in unique])
    indices = np.fromiter((c for row in unique for c in row), np.int32, count=int(indptr[-1]))
    return _ones(indices, indptr, n_columns)


def indicator_from_ids(ids: IntArray, n_columns: int, *, are_sorted: bool = False) -> Csr:
    """Indicator matrix (n × n_columns) from column ids (n, k), -1 for padding; a repeated id counts once."""
    columns = ids if are_sorted else np.sort(ids, axis=1)
    kept = columns >= 0
    kept[:, 1:] &= columns[:, 1:] != columns[:, :-1]
    return _ones(columns[kept].astype(np.int32, copy=False), indptr_from_counts(kept.sum(axis=1)), n_columns)


def _ones(indices: IntArray, indptr: LongArray, n_columns: int) -> Csr:
    narrow = indptr.astype(np.int32) if indptr[-1] <= np.iinfo(np.int32).max else indptr
    return csr_from_parts(np.ones(len(indices), np.float32), indices, narrow, (len(indptr) - 1, n_columns))


def pattern(matrix: Csr) -> Csr:
    """Matrix of ones with the sparsity pattern of `matrix`."""
    return csr_from_parts(np.ones(len(matrix.indices), np.float32), matrix.indices, matrix.indptr, matrix.shape)


def same_pattern(a: Csr, b: Csr) -> bool:
    """Whether two canonical CSR matrices have the same shape and store the same entries."""
    return a.shape == b.shape and np.array_equal(a.indptr, b.indptr) and np.array_equal(a.indices, b.indices)


def entry_rows(matrix: Csr) -> LongArray:
    """Row (nnz,) of each stored entry."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def padded_rows(matrix: Csr) -> tuple[IntArray, FloatArray]:
    """Column ids and values (n, longest row) of sparse rows, padded with -1 and 0."""
    n = matrix.shape[0]
    counts = np.diff(matrix.indptr)
    width = max(1, int(counts.max(initial=0)))
    ids = np.full((n, width), -1, np.int32)
    values = np.zeros((n, width), np.float32)
    at = np.repeat(np.arange(n), counts), np.arange(matrix.indptr[-1]) - np.repeat(matrix.indptr[:-1], counts)
    ids[at], values[at] = matrix.indices, matrix.data
    return ids, values


def with_index_type(matrix: Csr, index_type: type[np.int32 | np.int64]) -> Csr:
    """Matrix whose row pointers and column indices have a type that fits them."""
    if matrix.indptr.dtype == matrix.indices.dtype == index_type:
        return matrix
    indices, indptr = matrix.indices.astype(index_type), matrix.indptr.astype(index_type)
    return csr_from_parts(matrix.data, indices, indptr, matrix.shape)


def keep_entries(matrix: Csr, kept: BoolArray) -> Csr:
    """Matrix with some of its stored entries, kept (nnz,); the matrix itself if these are all."""
    if kept.all():
        return matrix
    before = np.concatenate([[0], np.cumsum(kept)])
    indptr = before[matrix.indptr].astype(matrix.indptr.dtype)
    return csr_from_parts(matrix.data[kept], matrix.indices[kept], indptr, matrix.shape)


def normalize_rows(matrix: Any) -> Any:
    """Scale rows to unit L2 norm; zero rows stay zero. Works on CSR and on dense arrays, and returns the same kind."""
    if isinstance(matrix, np.ndarray):
        norms = np.sqrt(np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64))
        return (matrix / np.where(norms > 0, norms, 1.0)[:, None]).astype(np.float32)
    squares = np.concatenate([[0.0], np.cumsum(matrix.data.astype(np.float64) ** 2)])
    norms = np.sqrt(np.maximum(squares[matrix.indptr[1:]] - squares[matrix.indptr[:-1]], 0.0))
    scale = np.repeat(np.where(norms > 0, norms, 1.0), np.diff(matrix.indptr))
    return csr_from_parts((matrix.data / scale).astype(np.float32), matrix.indices, matrix.indptr, matrix.shape)


def is_stored(matrix: Csr, rows: AnyArray, columns: AnyArray) -> BoolArray:
    """Whether each entry (m,) is stored in a canonical CSR matrix; a column of -1 is not."""
    width = np.int64(matrix.shape[1])
    keys = entry_rows(matrix) * width + matrix.indices
    wanted = rows * width + columns
    if not len(keys):
        return np.zeros(len(wanted), bool)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.asarray((keys[at] == wanted) & (np.asarray(columns) >= 0))
