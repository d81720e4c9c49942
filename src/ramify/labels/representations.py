"""Label representations Z (L × d), from which label trees and graphs are built (PECOS: Yu et al. 2022).

They come from the positive samples of a label (PII, PIFA), from these and features of the label itself (PIFA + label
features), or from the bipartite graph of samples and labels (spectral). A label without samples has a zero row; the
clustering has to assign it nevertheless.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import svds

from ramify import native
from ramify.base.errors import DataError
from ramify.base.mixed import Mixed
from ramify.base.sparse import as_csr, normalize_rows
from ramify.base.threads import blas_threads, resolve_threads
from ramify.base.types import AnyArray, Csr, FloatArray

SPECTRAL_DIMENSIONS = 24
"""Dimensions of a spectral representation."""


def pii(Y: Csr) -> Csr:
    """Positive instance indices (L × n): Yᵀ, rows scaled to unit norm."""
    return normalize_rows(_transposed(Y))


def pifa(X: Csr | FloatArray, Y: Csr, *, normalize_y: bool = True, threads: int | None = None) -> Csr | FloatArray:
    """Positive instance feature aggregation (L × d): YᵀX, rows scaled to unit norm.

    With `normalize_y` the rows of Y have unit norm: a sample with m labels contributes x/√m to each, so that samples
    with many labels do not dominate. Z is sparse if X is, else dense.
    """
    if X.shape[0] != Y.shape[0]:
        raise DataError(f"X has {X.shape[0]} rows, Y has {Y.shape[0]}")
    left = _transposed(normalize_rows(Y) if normalize_y else Y)
    threads = resolve_threads(threads)
    if isinstance(X, np.ndarray):
        return normalize_rows(native.matrix.spmm_dense(left, X, threads))
    return native.matrix.spmm(left, X, threads, unit_rows=True)


def pifa_mixed(X: Mixed, Y: Csr, *, normalize_y: bool = True, threads: int | None = None) -> Csr | FloatArray:
    """`pifa` of sparse and dense features side by side (L × (s + e)), rows scaled to unit norm."""
    if X.dense.shape[1] == 0 or X.sparse.shape[1] == 0:
        return pifa(X.sparse if X.sparse.shape[1] else X.dense, Y, normalize_y=normalize_y, threads=threads)
    left, n_threads = _transposed(normalize_rows(Y) if normalize_y else Y), resolve_threads(threads)
    by_terms = native.matrix.spmm(left, X.sparse, n_threads, unit_rows=False)
    dense = sparse.csr_matrix(native.matrix.spmm_dense(left, X.dense, n_threads))
    return as_csr(normalize_rows(as_csr(sparse.hstack([by_terms, dense], format="csr"), "Z")), "Z")


def pifa_with_features(
    X: Csr | FloatArray, Y: Csr, label_features: Csr | FloatArray, *, threads: int | None = None
) -> Csr | FloatArray:
    """PIFA concatenated with features of the labels (L × e), such as TF-IDF of their names: Z (L × (d + e))."""
    instances = pifa(X, Y, threads=threads)
    if label_features.shape[0] != Y.shape[1]:
        raise DataError(f"the label features have {label_features.shape[0]} rows for {Y.shape[1]} labels")
    if isinstance(instances, np.ndarray) and isinstance(label_features, np.ndarray):
        return np.hstack([instances, label_features]).astype(np.float32)
    return as_csr(sparse.hstack([sparse.csr_matrix(instances), sparse.csr_matrix(label_features)], format="csr"), "Z")


def spectral(Y: Csr, n_dimensions: int | None = None, *, seed: int = 0) -> FloatArray:
    """Spectral representation (L, k) of the bipartite graph of samples and labels (Dhillon 2001).

    Z = D₂^(-½) V, where V are the right singular vectors 2 … k + 1 of D₁^(-½) Y D₂^(-½), and D₁ and D₂ are diagonal
    with the row and column sums of Y. `n_dimensions` is k; None: 24, or as many as a smaller Y has.
    """
    n_values = min(Y.shape) - 1
    if n_dimensions is None:
        n_dimensions = min(SPECTRAL_DIMENSIONS, n_values - 1)
    if not 1 <= n_dimensions < n_values:
        raise ValueError(
            f"n_dimensions must be between 1 and {n_values - 1} for Y of shape {Y.shape}; got {n_dimensions}"
        )
    by_row, by_label = (_inverse_root(np.asarray(Y.sum(axis=axis)).ravel()) for axis in (1, 0))
    scaled = sparse.diags(by_row) @ Y.astype(np.float64) @ sparse.diags(by_label)
    v0 = np.random.default_rng(seed).standard_normal(min(Y.shape))
    with blas_threads(1):  # the same bits for any number of cores
        _, values, right = svds(scaled, k=n_dimensions + 1, v0=v0)
    vectors = right[np.argsort(-values)][1:]
    # The sign of a singular vector is arbitrary: make its largest entry positive.
    vectors *= np.where(vectors[np.arange(len(vectors)), np.abs(vectors).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]
    return np.ascontiguousarray((vectors * by_label).T, np.float32)


def _transposed(matrix: Csr) -> Csr:
    return as_csr(matrix.T.tocsr(), "Y")


def _inverse_root(sums: AnyArray) -> AnyArray:
    return np.where(sums > 0, 1.0 / np.sqrt(np.where(sums > 0, sums, 1.0)), 0.0)
