"""Training of one-vs-rest linear classifiers for labels that are grouped in clusters (PECOS: Yu et al. 2022).

For each label l, with training set T_l = positives of l ∪ samples that M selects for the cluster of l:

    min_w  ½‖w‖² + Σ_{i ∈ T_l} cost_il · loss(y_il · w·x_i),      y_il = ±1

where x_i includes the constant feature `bias`, so that the bias is regularized like the other weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
from scipy import sparse

from ramify import native
from ramify.base.config import Config, param
from ramify.base.errors import DataError, check_integer
from ramify.base.mixed import Mixed
from ramify.base.sparse import as_csr, ascends, csr_from_parts, same_pattern
from ramify.base.threads import resolve_threads
from ramify.base.types import AnyArray, Csr, FloatArray, LongArray


@dataclass(kw_only=True, eq=False, repr=False)
class LinearConfig(Config):
    """Parameters of one-vs-rest linear classifiers."""

    loss: Literal["squared_hinge", "hinge", "logistic", "dead_zone_logistic"] = param(
        "squared_hinge",
        "loss of a margin; 'logistic' also orders labels beyond a margin of 1; 'dead_zone_logistic' is logistic, but a "
        "negative with a margin above `dead_zone` costs nothing, which trains faster",
    )
    dead_zone: float = param(
        5.0, "margin δ beyond which a negative has no loss, for 'dead_zone_logistic'; raising it is slower", above=0
    )
    C: float = param(1.0, "inverse regularization strength; raising it fits the training data more closely", above=0)
    positive_weight: float = param(1.0, "factor on the loss of positives; raising it favors recall", above=0)
    tail_weight: float = param(
        1.0,
        "further factor on the loss of positives of tail labels; a label with n samples gets "
        "1 + (tail_weight - 1) / (1 + n / tail_count); raising it favors tail labels",
        above=0,
    )
    tail_count: float = param(
        100.0, "samples of a label at which tail weighting has half its effect; raising it affects more labels", above=0
    )
    negative_weight: float = param(1.0, "factor on the loss of negatives; raising it favors precision", above=0)
    bias: float = param(1.0, "value of the constant feature; 0: no bias", low=0)
    threshold: float = param(
        0.1,
        "weights of sparse features below this magnitude are dropped; raising it shrinks and speeds up the model",
        low=0,
    )
    tail_threshold: float | None = param(
        None,
        "the same for tail labels, whose weights are larger: a label with n samples gets "
        "threshold + (tail_threshold - threshold) / (1 + n / 20); None: as `threshold`",
        low=0,
    )
    positive_features: bool = param(
        False,
        "only features that a positive of the cluster has get weights, as long as negatives are not all samples; "
        "training is faster, and others have few and small weights",
    )
    max_nonzeros_per_label: int | None = param(
        None, "weights kept per label, those of the largest magnitude, besides the bias; None: all", low=1
    )
    tolerance: float = param(
        0.2, "training stops at this violation of the optimality conditions; raising it is faster, less exact", above=0
    )
    max_epochs: int = param(100, "epochs over the training set of a label at most", low=1, high=2**31 - 1)
    max_full_epochs: int | None = param(
        None,
        "of these, epochs over all samples of a cluster at most; the others visit only samples that violate the "
        "optimality conditions; with a dead zone twice as many, while more than a tenth of the samples violate them; "
        "lowering it is faster, less exact; None: until `tolerance` is reached",
        low=1,
        high=2**31 - 1,
    )
    negative_fraction: float = param(
        1.0,
        "clusters of 5,000 samples or more: fraction of the samples, weighted by its inverse, that train 16 labels of "
        "which they have none; lowering it is faster, less exact; 1: all",
        above=0,
        high=1,
    )

    def positive_costs(self, n_samples: AnyArray) -> FloatArray:
        """Cost (L,) of a positive of each label, given the number of samples (L,) of the labels."""
        extra = (self.tail_weight - 1.0) / (1.0 + n_samples / self.tail_count)
        return (self.C * self.positive_weight * (1.0 + extra)).astype(np.float32)

    def thresholds(self, n_samples: AnyArray) -> FloatArray:
        """Threshold (L,) of the weights of each label, given the number of samples (L,) of the labels."""
        tail = self.threshold if self.tail_threshold is None else self.tail_threshold
        extra = (tail - self.threshold) / (1.0 + n_samples / _TAIL_THRESHOLD_COUNT)
        return (self.threshold + extra).astype(np.float32)


_TAIL_THRESHOLD_COUNT = 20.0


def ranking_config(
    *, loss: Literal["logistic", "dead_zone_logistic"] = "dead_zone_logistic", tail_threshold: float | None = 0.62
) -> LinearConfig:
    """Parameters of classifiers that rank: the logistic losses also order labels that are clearly irrelevant.

    The dead zone leaves out negatives that are classified well: training is faster, and rankings are more accurate.
    """
    return LinearConfig(
        loss=loss,
        C=7.0,
        tail_weight=20.0,
        tail_count=10.0,
        tolerance=1.0,
        max_full_epochs=4 if loss == "dead_zone_logistic" else None,
        threshold=0.13,
        tail_threshold=tail_threshold,
        positive_features=loss == "dead_zone_logistic",
    )


def fit_ovr(
    X: Any,
    Y: Csr,
    M: Csr | None = None,
    *,
    clusters: LongArray | None = None,
    config: LinearConfig | None = None,
    relevance: Csr | None = None,
    sample_weight: AnyArray | None = None,
    seed: int = 0,
    part: tuple[int, int] = (0, 1),
    cut: native.linear.Cut | None = None,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Csr:
    """Train a linear classifier for each label against the negatives of its cluster.

    Parameters
    ----------
    X : features (n × d): CSR, ndarray or `Mixed`
    Y : positives (n × L)
    M : weights ≥ 0 of the samples from which each cluster takes its negatives (n × clusters); None: all samples, with
        weight 1. The positives of a label are always part of its training set
    clusters : (clusters + 1,) children pointers: cluster c has the labels from clusters[c] to clusters[c + 1]; None:
        one cluster. A label that belongs to several clusters is a column of Y in each
    relevance : factor on the cost of each positive, with the sparsity pattern of Y; None: 1
    sample_weight : factor on the cost of each sample (n,), as a positive and as a negative; None: 1
    part : (i, n) trains the i-th of n parts of the labels, to the same bits as in a whole; the rows of W of all other
        labels are empty. With one cluster, parts are ranges of labels in order
    cut : where X, Y and M lie in larger matrices, whose classifiers are to be trained; None: they are whole
    progress : called with the number of labels trained so far

    Returns
    -------
    W : (L × (d + 1)) CSR, the bias in the last column
    """
    config = config or LinearConfig()
    seed = check_integer(seed, "seed", 0) % 2**64
    n_parts = check_integer(part[1], "the number of parts", high=2**31 - 1)
    part = check_integer(part[0], "the part", 0, n_parts - 1), n_parts
    mixed = Mixed.of(X)
    n_labels = Y.shape[1]
    indptr = np.array([0, n_labels], np.int64) if clusters is None else np.ascontiguousarray(clusters, np.int64)
    _check_shapes(len(mixed), Y, M, indptr)
    if sample_weight is not None:
        M, relevance = _weighted(Y, M, relevance, sample_weight, len(indptr) - 1)
    negatives = None if M is None else _without_zeros(as_csr(M, "M"))
    if negatives is not None and negatives.nnz and negatives.data.min() < 0:
        raise DataError("M has negative weights; the weight of a sample as a negative must not be below 0")
    positives = _without_zeros(as_csr(Y, "Y"))
    if relevance is not None:
        positives = check_relevance(relevance, Y)
    n_samples = np.bincount(positives.indices, minlength=n_labels)
    W = native.linear.fit_ovr(
        mixed,
        positives.T.tocsr(),
        None if negatives is None else negatives.T.tocsr(),
        indptr,
        loss=config.loss,
        positive_costs=config.positive_costs(n_samples),
        negative_cost=config.C * config.negative_weight,
        bias=config.bias,
        dead_zone=config.dead_zone,
        positive_features=config.positive_features,
        tolerance=config.tolerance,
        max_epochs=config.max_epochs,
        max_full_epochs=config.max_full_epochs or config.max_epochs,
        negative_fraction=config.negative_fraction,
        threshold=float(config.thresholds(n_samples).min()) if n_labels else config.threshold,
        max_weights=config.max_nonzeros_per_label or 0,
        with_relevance=relevance is not None,
        seed=seed,
        part=part,
        cut=cut,
        threads=resolve_threads(threads),
        progress=progress,
    )
    if config.tail_threshold is None:
        return W
    return drop_small_weights(W, mixed.sparse.shape[1], config.thresholds(n_samples))


def _check_shapes(n: int, Y: Csr, M: Csr | None, clusters: LongArray) -> None:
    """Check that positives Y and negatives M fit n samples and the children pointers of the clusters."""
    n_labels, n_clusters = Y.shape[1], len(clusters) - 1
    if Y.shape[0] != n:
        raise DataError(f"X has {n} rows, Y has {Y.shape[0]}")
    if not ascends(clusters, n_labels):
        raise DataError(f"clusters must be pointers that ascend from 0 to the number of labels, {n_labels}")
    if M is not None and M.shape != (n, n_clusters):
        raise DataError(f"M must be {n} samples × {n_clusters} clusters; it is {M.shape[0]} × {M.shape[1]}")


def _weighted(
    Y: Csr, M: Csr | None, relevance: Csr | None, sample_weight: AnyArray, n_clusters: int
) -> tuple[Csr, Csr]:
    """Negatives M (n × clusters) and relevance (n × L), multiplied by the weights of the samples (n,)."""
    scale = sparse.diags_array(np.asarray(sample_weight, np.float32), format="csr")
    if M is None:
        M = np.ones((len(sample_weight), n_clusters), np.float32)
    relevance = _without_zeros(as_csr(Y, "Y")) if relevance is None else relevance
    weighted = relevance.copy()
    weighted.data = weighted.data * np.repeat(sample_weight, np.diff(weighted.indptr)).astype(np.float32)
    return sparse.csr_matrix(scale @ M), weighted


def drop_small_weights(W: Csr, n_sparse: int, thresholds: FloatArray) -> Csr:
    """Drop the weights of sparse features (the first columns of W) below the threshold of their label (L,)."""
    small = (np.abs(W.data) < np.repeat(thresholds, np.diff(W.indptr))) & (W.indices < n_sparse)
    if not small.any():
        return W
    W = W.copy()
    W.data[small] = 0
    W.eliminate_zeros()
    return W


def normalize_relevance(R: Csr, kind: Literal["none", "l1", "l2", "max"]) -> Csr:
    """Scale the relevance of each sample, a row of R (n × L), to norm 1."""
    if kind == "none":
        return R
    norm = {"l1": np.add, "max": np.maximum}.get(kind, np.hypot)
    starts = np.minimum(R.indptr[:-1], max(0, R.nnz - 1))
    size = norm.reduceat(R.data, starts) if R.nnz else np.ones(R.shape[0])
    size = np.where((np.diff(R.indptr) > 0) & (size > 0), size, 1.0)
    scaled = R.data / np.repeat(size, np.diff(R.indptr))
    return csr_from_parts(scaled.astype(np.float32), R.indices, R.indptr, R.shape)


@overload
def check_relevance(relevance: None, Y: Csr) -> None: ...
@overload
def check_relevance(relevance: Any, Y: Csr) -> Csr: ...
def check_relevance(relevance: Any, Y: Csr) -> Csr | None:
    """Validate the relevance of positives: ≥ 0, with the sparsity pattern of Y (n × L). None is returned as it is."""
    if relevance is None:
        return None
    R = as_csr(relevance, "relevance")
    if not same_pattern(R, Y):
        raise DataError("relevance must have an entry exactly where Y has one")
    if R.nnz and R.data.min() < 0:
        raise DataError("relevance must not be negative")
    return R


def _without_zeros(matrix: Csr) -> Csr:
    """Remove stored zeros, which the solver would count as entries."""
    if np.all(matrix.data != 0):
        return matrix
    matrix = matrix.copy()
    matrix.eliminate_zeros()
    return matrix
