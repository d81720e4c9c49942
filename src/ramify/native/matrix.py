"""Sparse and dense matrix kernels, top-k selection and ranking metrics."""

from __future__ import annotations

import numpy as np

from ramify import _core
from ramify.base.sparse import csr_from_parts
from ramify.base.types import ByteArray, Csr, DoubleArray, FloatArray, IntArray, LongArray

__all__ = [
    "blend_rankings",
    "csr_topk",
    "dense_products",
    "is_canonical",
    "isa",
    "largest_entries",
    "list_topk",
    "ranking_hits",
    "ranking_sums",
    "spmm",
    "spmm_dense",
    "unit_rows",
]


def isa() -> str:
    """Instruction set that the hot loops use here: "avx512", "avx2" or "baseline"."""
    return _core.isa()


def is_canonical(matrix: Csr) -> bool:
    """Whether a float32 CSR matrix is whole, sorted, without repeated columns, and finite; in one look."""
    n, d = matrix.shape
    return _core.is_canonical(matrix.indptr, matrix.indices, matrix.data, n, d)


def csr_topk(matrix: Csr, k: int, threads: int) -> tuple[IntArray, FloatArray]:
    """Ids and scores (n, k) of the k best entries of each row of a canonical float32 CSR matrix."""
    if k < 1:
        raise ValueError(f"k must be at least 1; got {k}")
    return _core.csr_topk(matrix.indptr, matrix.indices, matrix.data, k, threads)


def list_topk(ids: IntArray, scores: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
    """The k best of lists (n, m), best first, equal ones by number; -1 and -inf where there are no more."""
    if ids.shape != scores.shape or k < 0:
        raise ValueError(f"ids are {ids.shape}, scores are {scores.shape}, and {k} are asked for")
    return _core.list_topk(np.ascontiguousarray(ids, np.int32), np.ascontiguousarray(scores, np.float32), k, threads)


def spmm(a: Csr, b: Csr, threads: int, *, unit_rows: bool = False) -> Csr:
    """Product (m × q) of two canonical float32 CSR matrices (m × p, p × q), rows of length 1 if asked."""
    _same_inner(a, b)
    wide = np.int64 if np.int64 in (a.indices.dtype, b.indices.dtype) else np.int32
    a_indptr, a_indices, b_indptr, b_indices = (
        part.astype(wide, copy=False) for part in (a.indptr, a.indices, b.indptr, b.indices)
    )
    indptr, indices, data = _core.spmm(
        a_indptr, a_indices, a.data, b_indptr, b_indices, b.data, b.shape[1], unit_rows, threads
    )
    return csr_from_parts(data, indices, indptr, (a.shape[0], b.shape[1]))


def spmm_dense(a: Csr, b: FloatArray, threads: int) -> FloatArray:
    """Product (m, q) of a canonical float32 CSR matrix (m × p) and a dense one (p, q)."""
    _same_inner(a, b)
    return _core.spmm_dense(a.indptr, a.indices, a.data, np.ascontiguousarray(b, np.float32), threads)


def largest_entries(matrix: Csr, n: int, threads: int) -> Csr:
    """Return the n entries of each row of a canonical float32 CSR matrix that have the largest magnitude."""
    indptr, indices, data = _core.largest_entries(matrix.indptr, matrix.indices, matrix.data, n, threads)
    return csr_from_parts(data, indices, indptr, matrix.shape)


def blend_rankings(ids: IntArray, scores: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
    """Blend rankings (T, n, width) with log scores into one (n, k): the log of the mean of their exponentials."""
    if ids.shape != scores.shape:
        raise ValueError(f"ids are {ids.shape}, scores are {scores.shape}")
    return _core.blend_rankings(ids, scores, k, threads)


def ranking_hits(ids: IntArray, truth: Csr, threads: int) -> ByteArray:
    """Return 1 where the predicted label (n, k) is among the truth (n × L, sorted), else 0."""
    _same_rows(ids, truth)
    return _core.ranking_hits(ids, truth.indptr, truth.indices, truth.shape[1], threads)


def ranking_sums(
    ids: IntArray, truth: Csr, cutoffs: LongArray, weights: DoubleArray, groups: ByteArray, n_groups: int, threads: int
) -> _core.RankingSums:
    """Sums behind all ranking metrics; see cpp/metrics.h for the shapes."""
    _same_rows(ids, truth)
    n_labels = truth.shape[1]
    if len(cutoffs) == 0 or cutoffs[0] < 1 or np.any(np.diff(cutoffs) <= 0):
        raise ValueError(f"cutoffs must ascend from 1 up; got {cutoffs.tolist()}")
    if len(weights) != n_labels or len(groups) != n_labels or (n_labels and int(groups.max()) >= n_groups):
        raise ValueError("every label needs one weight and one group")
    return _core.ranking_sums(ids, truth.indptr, truth.indices, n_labels, cutoffs, weights, groups, n_groups, threads)


def dense_products(table: FloatArray, vectors: FloatArray, threads: int) -> FloatArray:
    """Products (n, m) of vectors (n, D) with a table (m, D); those of a vector do not depend on the others."""
    if table.shape[1] != vectors.shape[1]:
        raise ValueError(f"vectors of width {vectors.shape[1]} for a table of width {table.shape[1]}")
    return _core.all_products(table, vectors, threads)


def unit_rows(vectors: FloatArray, threads: int) -> FloatArray:
    """Vectors (n, D) with length 1; one of zeros stays as it is."""
    return _core.unit_vectors(vectors, threads)


def _same_inner(a: Csr, b: Csr | FloatArray) -> None:
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"{a.shape} times {b.shape} do not fit together")


def _same_rows(ids: IntArray, truth: Csr) -> None:
    if ids.shape[0] != truth.shape[0]:
        raise ValueError(f"the ranking has {ids.shape[0]} rows, the truth has {truth.shape[0]}")
