"""Label representations Z (L × d): what a label looks like to the index.

From the positive instances of a label (PII, PIFA), from features of its own (PIFA + label features), or from the graph
of points and labels (spectral). A label without a training point has a zero row: what clusters labels must give it a
place.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import svds

from ramify import native
from ramify.base.errors import DataError
from ramify.base.mixed import Mixed
from ramify.base.sparse import as_csr, normalize_rows
from ramify.base.threads import resolve_threads
from ramify.base.types import AnyArray, Csr, FloatArray


def pii(Y: Csr) -> Csr:
    """Positive instance indices (L × n): which points a label has, rows of length 1."""
    return normalize_rows(_transposed(Y))


def pifa(X: Csr | FloatArray, Y: Csr, *, normalize_y: bool = True, threads: int | None = None) -> Csr | FloatArray:
    """Positive instance feature aggregation (L × d): the sum of a label's points, rows of length 1.

    With `normalize_y` a point with m labels gives 1/√m of itself to each, so that points with many labels do not blur
    them all. Sparse features give a sparse result, dense ones a dense array.
    """
    if X.shape[0] != Y.shape[0]:
        raise DataError(f"X has {X.shape[0]} rows, Y has {Y.shape[0]}")
    left = _transposed(normalize_rows(Y) if normalize_y else Y)
    threads = resolve_threads(threads)
    if isinstance(X, np.ndarray):
        return normalize_rows(native.matrix.spmm_dense(left, X, threads))
    return native.matrix.spmm(left, X, threads, unit_rows=True)


def pifa_mixed(X: Mixed, Y: Csr, *, normalize_y: bool = True, threads: int | None = None) -> Csr | FloatArray:
    """PIFA of sparse features beside dense ones (L × (s + e)), rows of length 1; of one kind alone, that of `pifa`."""
    if X.dense.shape[1] == 0 or X.sparse.shape[1] == 0:
        return pifa(X.sparse if X.sparse.shape[1] else X.dense, Y, normalize_y=normalize_y, threads=threads)
    left, n_threads = _transposed(normalize_rows(Y) if normalize_y else Y), resolve_threads(threads)
    words = native.matrix.spmm(left, X.sparse, n_threads, unit_rows=False)
    dense = sparse.csr_matrix(native.matrix.spmm_dense(left, X.dense, n_threads))
    return as_csr(normalize_rows(as_csr(sparse.hstack([words, dense], format="csr"), "Z")), "Z")


def pifa_with_features(
    X: Csr | FloatArray,
    Y: Csr,
    label_features: Csr | FloatArray,
    *,
    mode: Literal["concat", "sum"] = "concat",
    weight: float | AnyArray = 0.5,
    threads: int | None = None,
) -> Csr | FloatArray:
    """PIFA joined with features that labels have of their own, such as TF-IDF of their names.

    Parameters
    ----------
    label_features : (L × e), in the space of X (e = d) for "sum"
    mode : "concat" puts both side by side (L × (d + e)); "sum" mixes them, weight · PIFA + (1 - weight) · features
    weight : share of PIFA in the sum, one number or one for each label (L,)
    """
    instances = pifa(X, Y, threads=threads)
    if label_features.shape[0] != Y.shape[1]:
        raise DataError(f"{label_features.shape[0]} rows of label features for {Y.shape[1]} labels")
    both_dense = isinstance(instances, np.ndarray) and isinstance(label_features, np.ndarray)
    if mode == "concat":
        if both_dense:
            return np.hstack([instances, label_features]).astype(np.float32)
        return as_csr(
            sparse.hstack([sparse.csr_matrix(instances), sparse.csr_matrix(label_features)], format="csr"), "Z"
        )
    if mode != "sum":
        raise ValueError(f"mode must be 'concat' or 'sum'; got {mode!r}")
    if label_features.shape[1] != instances.shape[1]:
        raise DataError(
            f"label features of width {label_features.shape[1]} cannot be added to PIFA of width {instances.shape[1]}"
        )
    share = np.broadcast_to(np.asarray(weight, np.float32), (Y.shape[1],))
    if not np.all((share >= 0) & (share <= 1)):
        raise ValueError("weight must lie between 0 and 1")
    if both_dense:
        return (share[:, None] * instances + (1 - share)[:, None] * label_features).astype(np.float32)
    mixed = sparse.diags(share) @ sparse.csr_matrix(instances) + sparse.diags(1 - share) @ sparse.csr_matrix(
        label_features
    )
    return as_csr(mixed, "Z")


def spectral(Y: Csr, n_dimensions: int = 24, *, seed: int = 0) -> FloatArray:
    """Spectral representation (L, k) of the graph between points and labels (Dhillon, 2001).

    The right singular vectors behind the first of Y, its rows and columns scaled by the roots of their sums; each
    label's row is scaled once more by the root of its own.
    """
    n_largest = min(Y.shape) - 1
    if not 1 <= n_dimensions < n_largest:
        raise ValueError(f"n_dimensions must lie between 1 and {n_largest - 1} for {Y.shape[0]} × {Y.shape[1]} labels")
    by_row, by_label = (_inverse_root(np.asarray(Y.sum(axis=axis)).ravel()) for axis in (1, 0))
    scaled = sparse.diags(by_row) @ Y.astype(np.float64) @ sparse.diags(by_label)
    start = np.random.default_rng(seed).standard_normal(min(Y.shape))
    _, values, right = svds(scaled, k=n_dimensions + 1, v0=start)
    vectors = right[np.argsort(-values)][1:]
    vectors *= np.where(vectors[np.arange(len(vectors)), np.abs(vectors).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]
    return np.ascontiguousarray((vectors * by_label).T, np.float32)


def _transposed(matrix: Csr) -> Csr:
    return as_csr(matrix.T.tocsr(), "Y")


def _inverse_root(sums: AnyArray) -> AnyArray:
    return np.where(sums > 0, 1.0 / np.sqrt(np.where(sums > 0, sums, 1.0)), 0.0)
