"""Clustering, one-vs-rest linear classifiers and beam search."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ramify import _core
from ramify._core import BeamTree
from ramify.base.mixed import Mixed
from ramify.base.sparse import csr_from_parts
from ramify.base.types import AnyArray, ByteArray, Csr, FloatArray, IntArray, LongArray

__all__ = [
    "BeamTree",
    "balanced_2means",
    "fit_ovr",
    "kmeans",
    "pack_weights",
    "score_candidates",
]

LOSSES = {"squared_hinge": 0, "hinge": 1, "logistic": 2}


def balanced_2means(
    rows: Csr, depth: int, spherical: bool, max_iterations: int, tolerance: float, seed: int, threads: int
) -> IntArray:
    """Rows in the order of 2^depth parts of equal size; see cpp/kmeans.h."""
    if not 0 <= depth <= 30 or 1 << depth > max(1, rows.shape[0]):
        raise ValueError(f"{rows.shape[0]} rows cannot be halved {depth} times")
    return _core.balanced_halves(
        rows.indptr, rows.indices, rows.data, rows.shape[1], depth, spherical, max_iterations, tolerance, seed, threads
    )


def kmeans(
    rows: Csr,
    n_clusters: int,
    balanced: bool,
    spherical: bool,
    max_iterations: int,
    tolerance: float,
    seed: int,
    threads: int,
) -> IntArray:
    """Cluster of each row; see cpp/kmeans.h."""
    if not 1 <= n_clusters <= rows.shape[0]:
        raise ValueError(f"{rows.shape[0]} rows cannot make {n_clusters} clusters")
    return _core.kmeans(
        rows.indptr,
        rows.indices,
        rows.data,
        rows.shape[1],
        n_clusters,
        balanced,
        spherical,
        max_iterations,
        tolerance,
        seed,
        threads,
    )


def fit_ovr(
    X: Mixed,
    positives: Csr,
    negatives: Csr | None,
    clusters: LongArray,
    start: Csr | None,
    *,
    loss: str,
    positive_costs: FloatArray,
    negative_cost: float,
    bias: float,
    tolerance: float,
    max_passes: int,
    threshold: float,
    max_weights: int,
    with_relevance: bool,
    seed: int,
    threads: int,
    progress: Callable[[int], None] | None,
) -> Csr:
    """Weights (L × (d + 1)) of one-vs-rest classifiers; positives (L × n), negatives (clusters × n).

    See cpp/ovr_solver.h; shapes are checked by `rank.linear.fit_ovr`.
    """
    csr = X.sparse
    (indptr, indices, data), *_ = _core.fit_ovr(
        csr.indptr,
        csr.indices,
        csr.data,
        csr.shape[1],
        X.dense,
        _long(positives, with_relevance),
        None if negatives is None else _long(negatives, False),
        clusters,
        None if start is None else _long(start, True),
        LOSSES[loss],
        positive_costs,
        negative_cost,
        bias,
        tolerance,
        max_passes,
        threshold,
        max_weights,
        seed,
        threads,
        progress,
    )
    return csr_from_parts(data, indices, indptr, (positives.shape[0], X.shape[1] + 1))


def pack_weights(W: Csr, n_sparse: int, children: LongArray, threads: int) -> tuple[AnyArray, ByteArray, FloatArray]:
    """Heads, table and codebook of a level's weights (nodes × (d + 1)); see cpp/packed.h."""
    return _core.pack_weights(W.indptr, W.indices, W.data, n_sparse, children, threads)


def score_candidates(
    sparse: tuple[LongArray, IntArray, FloatArray],
    dense: FloatArray,
    offset: FloatArray,
    X: Csr,
    vectors: FloatArray,
    lists: IntArray,
    threads: int,
) -> FloatArray:
    """Scores (n, k) of the linear classifiers on the lists (n, k), 0 for -1.

    Parameters
    ----------
    sparse : where the weights of each of L classifiers begin (L + 1,), their features and values
    dense : (L, D) weights of the dense features
    offset : (L,)
    X, vectors : sparse (n × d) and dense (n, D) features; d bounds the features of the weights
    """
    parts = X.indptr, X.indices, X.data, X.shape[1]
    return _core.score_lists(*sparse, dense, offset, *parts, np.ascontiguousarray(vectors), lists, threads)


def _long(matrix: Csr, with_data: bool) -> tuple[LongArray, LongArray, FloatArray | None]:
    """Return the parts of a matrix with wide indices."""
    data = np.ascontiguousarray(matrix.data, np.float32) if with_data else None
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), data
