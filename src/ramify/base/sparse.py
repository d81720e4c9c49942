"""Sparse matrices: checking what users pass, and making what native code returns."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from ramify.base.errors import DataError
from ramify.base.types import AnyArray, Csr


def csr_from_parts(data: AnyArray, indices: AnyArray, indptr: AnyArray, shape: tuple[int, int]) -> Csr:
    """Make a CSR matrix from arrays that are known to be right.

    scipy's constructor checks them for 15 to 30 µs, more than a whole query may take.
    """
    if not _can_skip_checks or indices.dtype != indptr.dtype:
        return sparse.csr_matrix((data, indices, indptr), shape=shape)
    matrix: Csr = sparse.csr_matrix.__new__(sparse.csr_matrix)
    matrix.__dict__.update(_template, _shape=shape, data=data, indices=indices, indptr=indptr)
    return matrix


_template: dict[str, Any] = dict(vars(sparse.csr_matrix((1, 1), dtype=np.float32)))
# A scipy that keeps anything else in its matrices gets the checked constructor.
_can_skip_checks = {"_shape", "data", "indices", "indptr"} <= set(_template) <= {
    "_shape", "data", "indices", "indptr", "maxprint"
}  # fmt: skip


def as_csr(matrix: Any, name: str = "X") -> Csr:
    """Check a scipy sparse matrix and bring it to canonical float32 CSR; the input is left as it is.

    Unsorted indices are sorted and repeated entries added up. Indices out of range, NaN and infinity raise `DataError`.
    """
    if not sparse.issparse(matrix) or len(matrix.shape) != 2:
        raise DataError(f"{name} must be a two-dimensional scipy sparse matrix; got {type(matrix).__name__}")
    try:
        csr: Csr = sparse.csr_matrix(matrix)
    except ValueError as error:  # scipy found it damaged
        raise DataError(f"{name} is a damaged sparse matrix: {error}") from error
    _check_structure(csr, name)
    if csr.dtype != np.float32:
        if csr.dtype.kind not in "biuf":
            raise DataError(f"{name} holds {csr.dtype} values; numbers are needed")
        csr = csr.astype(np.float32)
    if not csr.has_sorted_indices or not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    if not np.isfinite(csr.data).all():
        row = int(np.searchsorted(csr.indptr, np.flatnonzero(~np.isfinite(csr.data))[0], side="right")) - 1
        raise DataError(f"{name} has NaN or infinity (first in row {row}); remove or replace it")
    return csr


def _check_structure(csr: Csr, name: str) -> None:
    """Check what native code relies on: row borders in order, columns in range."""
    n, d = csr.shape
    indptr, indices = csr.indptr, csr.indices
    if len(indptr) != n + 1 or indptr[0] != 0 or np.any(np.diff(indptr) < 0):
        raise DataError(f"{name} is a damaged CSR matrix: its row pointers are not ascending from 0")
    nnz = int(indptr[-1])
    if len(indices) < nnz or len(csr.data) < nnz:
        raise DataError(f"{name} is a damaged CSR matrix: it has fewer entries than its row pointers say")
    if nnz and (int(indices[:nnz].min()) < 0 or int(indices[:nnz].max()) >= d):
        raise DataError(f"{name} is a damaged CSR matrix: column {int(indices[:nnz].min())} or "
                        f"{int(indices[:nnz].max())} lies outside 0 to {d - 1}")  # fmt: skip


def indicator(matrix: Any, name: str = "y") -> Csr:
    """Check a label indicator (sparse or dense, n × L) and bring it to CSR of ones, without explicit zeros."""
    if sparse.issparse(matrix):
        csr = as_csr(matrix, name)
    else:
        dense = np.asarray(matrix)
        if dense.ndim != 2 or dense.dtype.kind not in "biuf":
            raise DataError(f"{name} must be a list of label lists or an n × L indicator matrix")
        csr = as_csr(sparse.csr_matrix(dense), name)
        if np.any((csr.data != 1) & (csr.data > 0)):
            raise DataError(
                f"{name} is a dense matrix with other values than 0 and 1; give an indicator or lists of labels"
            )
    if csr.nnz and csr.data.min() < 0:
        raise DataError(f"{name} has negative entries; an indicator holds 0 and 1")
    if np.any(csr.data == 0):
        csr = csr.copy()
        csr.eliminate_zeros()
    return csr_from_parts(np.ones(csr.nnz, np.float32), csr.indices, csr.indptr, csr.shape)


def rows_from_lists(rows: list[list[int]], n_columns: int) -> Csr:
    """Indicator matrix (n × n_columns) from the column numbers of each row; a repeated number counts once."""
    indptr = np.zeros(len(rows) + 1, np.int64)
    unique = [sorted(set(row)) for row in rows]
    np.cumsum([len(row) for row in unique], out=indptr[1:])
    indices = np.fromiter((c for row in unique for c in row), np.int32, count=int(indptr[-1]))
    if indptr[-1] <= np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)
    return csr_from_parts(np.ones(len(indices), np.float32), indices, indptr, (len(rows), n_columns))
