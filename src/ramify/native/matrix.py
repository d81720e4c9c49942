"""Sparse and dense matrix kernels, top-k selection and ranking metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, cast

import numpy as np
from scipy import sparse

from ramify import _core
from ramify.base.sparse import csr_from_parts, with_index_type
from ramify.base.types import ByteArray, Csr, DoubleArray, FloatArray, IntArray, LongArray

__all__ = [
    "RankingSums",
    "blend_rankings",
    "csr_topk",
    "dense_products",
    "is_canonical",
    "isa",
    "largest_entries",
    "list_topk",
    "nearest_rows",
    "ranking_hits",
    "ranking_sums",
    "selected_products",
    "spmm",
    "spmm_dense",
    "take_rows",
    "unit_rows",
]


class RankingSums(TypedDict):
    """Sums behind the ranking metrics; see cpp/matrix/metrics.h for the shapes."""

    hits: DoubleArray
    ndcg: DoubleArray
    recall: DoubleArray
    weighted_hits: DoubleArray
    weighted_ndcg: DoubleArray
    best_weighted_hits: DoubleArray
    best_weighted_ndcg: DoubleArray
    first_rank: IntArray
    n_rows: int


def isa() -> str:
    """Instruction set that the kernels use on this machine: "avx512", "avx2" or "baseline"."""
    return _core.isa()


def is_canonical(matrix: Csr, limit: float) -> bool:
    """Whether a float32 CSR matrix is intact, sorted, without duplicate columns, and within ±limit; in one pass."""
    return _core.is_canonical(matrix, matrix.shape[0], matrix.shape[1], limit)


def nearest_rows(
    indptr: LongArray, samples: IntArray, values: FloatArray, n_samples: int, queries: Csr, k: int, threads: int
) -> tuple[IntArray, FloatArray]:
    """Ids and inner products (m, k) of the samples nearest to queries (m × d), exactly; only products above 0.

    The samples are an inverted index: those with a value in column c from indptr[c] to indptr[c + 1].
    """
    if queries.shape[1] != len(indptr) - 1 or len(samples) != len(values) or k < 1:
        raise ValueError(f"queries have {queries.shape[1]} columns, the index {len(indptr) - 1}; k = {k}")
    return _core.nearest_rows(indptr, samples, values, n_samples, queries, k, threads)


def selected_products(queries: Csr, rows: Csr, ids: IntArray, threads: int) -> FloatArray:
    """Inner products (n, k) of queries (n × d) with the rows ids (n, k) of a matrix (m × d); -inf where the id is -1.

    Both are canonical float32 CSR matrices.
    """
    if queries.shape[1] != rows.shape[1] or ids.ndim != 2 or len(ids) != queries.shape[0]:
        raise ValueError(f"queries are {queries.shape}, rows {rows.shape}, ids {ids.shape}")
    if ids.size and not (int(ids.min()) >= -1 and int(ids.max()) < rows.shape[0]):
        raise ValueError(f"ids must be -1, or below {rows.shape[0]}")
    index_type = np.int64 if np.int64 in (queries.indices.dtype, rows.indices.dtype) else np.int32
    queries, rows = with_index_type(queries, index_type), with_index_type(rows, index_type)
    return _core.selected_products(queries, rows, rows.shape[1], np.ascontiguousarray(ids, np.int32), threads)


def csr_topk(matrix: Csr, k: int, threads: int) -> tuple[IntArray, FloatArray]:
    """Ids and scores (n, k) of the k largest entries of each row of a canonical float32 CSR matrix."""
    if k < 1:
        raise ValueError(f"k must be at least 1; got {k}")
    return _core.csr_topk(matrix, k, threads)


def list_topk(ids: IntArray, scores: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
    """The k best of candidate lists (n, m), best first, equal ones by id; padded with -1 and -inf."""
    if ids.shape != scores.shape or k < 0:
        raise ValueError(f"ids are {ids.shape}, scores are {scores.shape}, k = {k}")
    return _core.list_topk(np.ascontiguousarray(ids, np.int32), np.ascontiguousarray(scores, np.float32), k, threads)


def spmm(a: Csr, b: Csr, threads: int, *, unit_rows: bool = False) -> Csr:
    """Product (m × q) of two canonical float32 CSR matrices (m × p, p × q), with rows of unit norm if asked."""
    _same_inner(a, b)
    index_type = np.int64 if np.int64 in (a.indices.dtype, b.indices.dtype) else np.int32
    a, b = with_index_type(a, index_type), with_index_type(b, index_type)
    indptr, indices, data = _core.spmm(a, b, b.shape[1], unit_rows, threads)
    return csr_from_parts(data, indices, indptr, (a.shape[0], b.shape[1]))


def spmm_dense(a: Csr, b: FloatArray, threads: int) -> FloatArray:
    """Product (m, q) of a canonical float32 CSR matrix (m × p) and a dense one (p, q)."""
    _same_inner(a, b)
    return _core.spmm_dense(a, np.ascontiguousarray(b, np.float32), threads)


def largest_entries(matrix: Csr, n: int, threads: int) -> Csr:
    """Return the n entries of each row of a canonical float32 CSR matrix that have the largest magnitude."""
    indptr, indices, data = _core.largest_entries(matrix, n, threads)
    return csr_from_parts(data, indices, indptr, matrix.shape)


def take_rows(matrices: Sequence[Csr], rows: LongArray, threads: int) -> Csr:
    """Rows, in ascending order, of float32 CSR matrices below each other; every entry is copied once."""
    n_columns = {matrix.shape[1] for matrix in matrices}
    if len(n_columns) != 1:
        raise ValueError("the matrices must have the same number of columns, and there must be one at least")
    if any(matrix.indptr.dtype != np.int32 for matrix in matrices):  # more than 2³¹ entries in one of them
        return sparse.csr_matrix(sparse.vstack(matrices, format="csr")[rows])
    indptr, indices, data = _core.take_rows(list(matrices), np.ascontiguousarray(rows, np.int64), threads)
    return csr_from_parts(data, indices, indptr, (len(rows), n_columns.pop()))


def blend_rankings(ids: IntArray, scores: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
    """Blend rankings (T, n, width) with log scores into one (n, k): the log of the mean of their exponentials."""
    if ids.shape != scores.shape:
        raise ValueError(f"ids are {ids.shape}, scores are {scores.shape}")
    return _core.blend_rankings(ids, scores, k, threads)


def ranking_hits(ids: IntArray, truth: Csr, threads: int) -> ByteArray:
    """Return 1 where the predicted label (n, k) is a true label (n × L, sorted), else 0."""
    _same_rows(ids, truth)
    return _core.ranking_hits(ids, truth, truth.shape[1], threads)


def ranking_sums(
    ids: IntArray, truth: Csr, cutoffs: LongArray, weights: DoubleArray, groups: ByteArray, n_groups: int, threads: int
) -> RankingSums:
    """Sums behind all ranking metrics; see cpp/matrix/metrics.h."""
    _same_rows(ids, truth)
    n_labels = truth.shape[1]
    if len(cutoffs) == 0 or cutoffs[0] < 1 or np.any(np.diff(cutoffs) <= 0):
        raise ValueError(f"cutoffs must be ascending and at least 1; got {cutoffs.tolist()}")
    if len(weights) != n_labels or len(groups) != n_labels or (n_labels and int(groups.max()) >= n_groups):
        raise ValueError("every label needs one weight and one group")
    return cast(RankingSums, _core.ranking_sums(ids, truth, cutoffs, weights, groups, n_groups, threads))


def dense_products(table: FloatArray, vectors: FloatArray, threads: int) -> FloatArray:
    """Products (n, m) of vectors (n, D) with a table (m, D); those of a vector do not depend on the others."""
    if table.shape[1] != vectors.shape[1]:
        raise ValueError(f"vectors of dimension {vectors.shape[1]} for a table of dimension {table.shape[1]}")
    return _core.dense_products(table, vectors, threads)


def unit_rows(vectors: FloatArray, threads: int) -> FloatArray:
    """Vectors (n, D) scaled to unit norm; a vector of zeros stays as it is."""
    return _core.unit_rows(vectors, threads)


def _same_inner(a: Csr, b: Csr | FloatArray) -> None:
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"shapes {a.shape} and {b.shape} do not fit a product")


def _same_rows(ids: IntArray, truth: Csr) -> None:
    if ids.shape[0] != truth.shape[0]:
        raise ValueError(f"the ranking has {ids.shape[0]} rows, the truth has {truth.shape[0]}")
