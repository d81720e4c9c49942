"""Clustering, one-vs-rest linear classifiers and beam search."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ramify import _core
from ramify._core import MARGIN_BONUS, MIN_SAMPLED_ROWS, BeamTree
from ramify.base.mixed import Mixed
from ramify.base.sparse import csr_from_parts, with_index_type
from ramify.base.types import AnyArray, ByteArray, Csr, DoubleArray, FloatArray, IntArray, LongArray

__all__ = [
    "MARGIN_BONUS",
    "MIN_SAMPLED_ROWS",
    "BeamTree",
    "Candidates",
    "Cut",
    "LinearClassifiers",
    "ScoreTree",
    "balanced_2means",
    "fit_bilinear",
    "fit_ovr",
    "job_size",
    "kmeans",
    "pack_features",
    "pack_weights",
    "rank_candidates",
    "score_boosted",
    "score_candidates",
]


def balanced_2means(
    rows: Csr, depth: int, spherical: bool, max_iterations: int, tolerance: float, seed: int, threads: int
) -> IntArray:
    """Row ids (n,) in the order of 2^depth clusters of equal size; see cpp/linear/balanced_2means.h."""
    if not 0 <= depth <= 30 or 1 << depth > max(1, rows.shape[0]):
        raise ValueError(f"{rows.shape[0]} rows cannot be split into halves {depth} times")
    options = _core.KMeansOptions(spherical=spherical, max_iterations=max_iterations, tolerance=tolerance, seed=seed)
    return _core.balanced_2means(rows, rows.shape[1], depth, options, threads)


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
    """Cluster id (n,) of each row; see cpp/linear/kmeans.h."""
    if not 1 <= n_clusters <= rows.shape[0]:
        raise ValueError(f"n_clusters must be between 1 and the {rows.shape[0]} rows; got {n_clusters}")
    options = _core.KMeansOptions(spherical=spherical, max_iterations=max_iterations, tolerance=tolerance, seed=seed)
    return _core.kmeans(rows, rows.shape[1], n_clusters, balanced, options, threads)


class Cut(NamedTuple):
    """Where a problem lies in a larger one: its labels get the weights that they get there.

    The problem has whole clusters of the larger one, with all of their rows, in order; other rows may be left out.

    Attributes
    ----------
    first_label : label 0 of the problem in the larger one
    n_labels, n_rows : of the larger one
    is_wide : whether the features of the larger one have more than 2^31 entries
    begin, end : labels of the problem to train; a cluster may be cut after every `job_size(n_labels)` of its labels
    """

    first_label: int
    n_labels: int
    n_rows: int
    is_wide: bool
    begin: int
    end: int


def job_size(n_labels: int) -> int:
    """Labels of a cluster that are trained together; see `Cut`."""
    return int(_core.ovr_job_size(n_labels))


def fit_ovr(
    X: Mixed,
    positives: Csr,
    negatives: Csr | None,
    clusters: LongArray,
    *,
    loss: str,
    positive_costs: FloatArray,
    negative_cost: float,
    bias: float,
    dead_zone: float,
    positive_features: bool,
    tolerance: float,
    max_epochs: int,
    max_full_epochs: int,
    negative_fraction: float,
    threshold: float,
    max_weights: int,
    with_relevance: bool,
    seed: int,
    part: tuple[int, int],
    cut: Cut | None,
    threads: int,
    progress: Callable[[int], None] | None,
) -> Csr:
    """Weights (L × (d + 1)) of one-vs-rest classifiers; positives (L × n), negatives (clusters × n).

    Only labels of the part (i, n), the i-th of n, are trained; the rows of all others are empty. See
    cpp/linear/ovr_solver.h; shapes are checked by `rank.linear.fit_ovr`.
    """
    options = _core.SolverOptions(
        loss=_core.Loss[loss],
        negative_cost=negative_cost,
        bias=bias,
        dead_zone=dead_zone,
        positive_features=positive_features,
        tolerance=tolerance,
        max_epochs=max_epochs,
        max_full_epochs=max_full_epochs,
        negative_fraction=negative_fraction,
        threshold=threshold,
        max_weights=max_weights,
        seed=seed,
    )
    indptr, indices, data = _core.fit_ovr(
        X.sparse,
        X.sparse.shape[1],
        X.dense,
        _long(positives, with_relevance),
        None if negatives is None else _long(negatives, True),
        clusters,
        positive_costs,
        options,
        part,
        cut,
        threads,
        progress,
    )
    return csr_from_parts(data, indices, indptr, (positives.shape[0], X.shape[1] + 1))


def pack_weights(
    W: Csr, n_sparse: int, children: LongArray, threads: int, magnitudes: tuple[float, float] | None = None
) -> tuple[AnyArray, ByteArray, FloatArray]:
    """Block starts, blocks and codebook of the weights of a level (nodes × (d + 1)); see cpp/linear/packed.h.

    Where W has only some features of the level, the smallest and the largest magnitude of all must be given.
    """
    return _core.pack_weights(W, n_sparse, children, magnitudes, threads)


def pack_features(W: Csr, threads: int) -> tuple[AnyArray, ByteArray]:
    """Block starts and blocks of the weights (d × L) of each feature; see cpp/linear/candidate_kernel.h."""
    return _core.pack_features(W, W.shape[1], threads)


class LinearClassifiers(NamedTuple):
    """L linear classifiers over d sparse and D dense features.

    Attributes
    ----------
    block_starts, blocks : sparse weights by feature: what `pack_features` returns
    positions : (L,) column of each classifier in the packed weights
    dense : (L, D) weights of the dense features
    bias : (L,)
    """

    block_starts: AnyArray
    blocks: ByteArray
    positions: IntArray
    dense: FloatArray
    bias: FloatArray


class Candidates(NamedTuple):
    """Candidates (n, k) of n samples, -1 for none, to score with linear classifiers.

    The features are raw; TF-IDF is scaled to norm 1, embeddings to `embedding_norm`.
    """

    X: Csr
    embeddings: FloatArray
    embedding_norm: float
    ids: IntArray


def score_candidates(classifiers: LinearClassifiers, candidates: Candidates, threads: int) -> FloatArray:
    """Margins (n, k) of the candidates, 0 where there is none."""
    return _core.score_candidates(*_checked(classifiers, candidates), threads)


def rank_candidates(
    classifiers: LinearClassifiers,
    candidates: Candidates,
    log_scores: FloatArray,
    *,
    power: float,
    transform: int,
    transform_power: float,
    tree: ScoreTree | None,
    tree_weight: float,
    counts: LongArray,
    k: int,
    threads: int,
) -> tuple[IntArray, FloatArray]:
    """Ids and log scores (n, k) of the best candidates, given the log scores (n, m) that they were proposed with.

    See `CandidateBlend` in cpp/linear/candidates.h.
    """
    return _core.rank_candidates(
        *_checked(classifiers, candidates),
        np.ascontiguousarray(log_scores),
        power=power,
        transform=transform,
        transform_power=transform_power,
        tree=tree,
        tree_weight=tree_weight,
        counts=counts,
        k=k,
        threads=threads,
    )


ScoreTree = tuple[IntArray, DoubleArray, IntArray, IntArray, FloatArray, int]
"""Feature, threshold, left, right and value of each node of a decision tree, and its depth."""


def score_boosted(
    trees: tuple[LongArray, IntArray, FloatArray, AnyArray, FloatArray], columns: FloatArray, threads: int
) -> FloatArray:
    """Sum of the leaves (n,) that rows with the features columns (d, n) reach in boosted trees of at most 32 leaves.

    `trees` are the row pointers of the splits of each tree; feature, threshold and remaining leaves (bits, uint32) of
    each split; and the values of the leaves (trees, 32). See cpp/linear/boosted_kernel.h.
    """
    indptr, features, thresholds, masks, leaves = trees
    if len(indptr) != len(leaves) + 1 or leaves.shape[1:] != (32,):
        raise ValueError(f"boosted trees have {len(indptr) - 1} and {leaves.shape} leaves")
    return _core.score_boosted(indptr, features, thresholds, masks, leaves, columns, threads)


def fit_bilinear(
    X: Csr,
    Z: Csr,
    pairs: Csr,
    W: Csr,
    *,
    positive_cost: float,
    negative_cost: float,
    costs: FloatArray,
    tolerance: float,
    max_epochs: int,
    seed: int,
) -> tuple[Csr, float, float]:
    """Weights (d × e) with the pattern of W, weight of common terms, and bias; see cpp/linear/bilinear.h.

    X (n × d) are samples, Z (L × e) labels, pairs (n × L) have the targets 1 and -1, costs (n,) belong to samples.
    """
    n, n_labels = pairs.shape
    if X.shape != (n, W.shape[0]) or Z.shape != (n_labels, W.shape[1]) or len(costs) != n:
        raise ValueError(f"X {X.shape}, Z {Z.shape}, {len(costs)} costs and W {W.shape} do not fit pairs {pairs.shape}")
    if max(matrix.nnz for matrix in (X, Z, pairs, W)) >= 2**31:
        raise ValueError("bilinear weights need matrices of less than 2^31 entries; train on fewer rows")
    x, z, p, w = (with_index_type(matrix, np.int32) for matrix in (X, Z, pairs, W))
    weights, direct, bias = _core.fit_bilinear(
        x, z, p, np.ascontiguousarray(costs, np.float32), w, positive_cost, negative_cost, tolerance, max_epochs,
        seed % 2**64,
    )  # fmt: skip
    return csr_from_parts(weights, W.indices, W.indptr, W.shape), direct, bias


def _checked(
    classifiers: LinearClassifiers, candidates: Candidates
) -> tuple[LinearClassifiers, float, Csr, FloatArray, IntArray]:
    X, embeddings, norm, ids = candidates
    if X.shape[1] != len(classifiers.block_starts) - 1:
        raise ValueError(f"X has {X.shape[1]} features, the classifiers {len(classifiers.block_starts) - 1}")
    return classifiers, norm, X, np.ascontiguousarray(embeddings), np.ascontiguousarray(ids)


def _long(matrix: Csr, with_data: bool) -> tuple[LongArray, LongArray, FloatArray | None]:
    """Return the arrays of a matrix with 64-bit indices."""
    data = np.ascontiguousarray(matrix.data, np.float32) if with_data else None
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), data
