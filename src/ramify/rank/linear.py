"""The one trainer of linear rankers: one-vs-rest classifiers of labels that lie in clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ramify import native
from ramify.base.config import Config, param
from ramify.base.errors import DataError
from ramify.base.mixed import Mixed
from ramify.base.sparse import as_csr
from ramify.base.threads import resolve_threads
from ramify.base.types import AnyArray, Csr, FloatArray, LongArray


@dataclass(kw_only=True, eq=False, repr=False)
class LinearConfig(Config):
    """How linear classifiers are trained: ½|w|² + Σ C·cost·loss, the bias regularised with the rest."""

    loss: Literal["squared_hinge", "hinge", "logistic"] = param("squared_hinge", "what a wrong or narrow score costs")
    C: float = param(1.0, "weight of the losses; larger fits the training data more closely", above=0)
    positive_weight: float = param(1.0, "factor on the losses of positives", above=0)
    rare_weight: float = param(1.0, "further factor on the losses of positives of labels with few points", above=0)
    rare_points: float = param(100.0, "points of a label at which half of that extra is left", above=0)
    negative_weight: float = param(1.0, "factor on the losses of negatives", above=0)
    bias: float = param(1.0, "value of the constant feature; 0: no bias", low=0)
    threshold: float = param(
        0.1, "weights of sparse features below this are dropped; bias and dense weights stay", low=0
    )
    max_nonzeros_per_label: int | None = param(None, "keep only the largest weights of a label, bias apart", low=1)
    tolerance: float = param(0.2, "how far from the best solution training may end", above=0)
    max_passes: int = param(100, "passes over the points at most", low=1)

    def positive_costs(self, n_points: AnyArray) -> FloatArray:
        """C of the positives of labels (L,) with so many points each."""
        extra = (self.rare_weight - 1.0) / (1.0 + n_points / self.rare_points)
        return (self.C * self.positive_weight * (1.0 + extra)).astype(np.float32)


def ranking_config(*, threshold: float = 0.1) -> LinearConfig:
    """Return how classifiers that rank labels are trained: the logistic loss also orders what is clearly wrong."""
    return LinearConfig(loss="logistic", C=7.0, rare_weight=20.0, rare_points=10.0, tolerance=1.0, threshold=threshold)


def fit_ovr(
    X: Any,
    Y: Csr,
    M: Csr | None = None,
    *,
    clusters: LongArray | None = None,
    config: LinearConfig | None = None,
    relevance: Csr | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Csr:
    """Train a linear classifier for each label against its cluster's negatives.

    Parameters
    ----------
    X : features (n × d): CSR, ndarray or `Mixed`
    Y : positives (n × L)
    M : points that give each cluster its negatives (n × clusters); None: all points. A label's positives are always
        part of its training set
    clusters : borders (clusters + 1,): cluster c has the labels from clusters[c] up to clusters[c + 1]; None: all
        labels are one cluster. A label that belongs to several clusters is a column of Y in each
    relevance : costs of the positives, with the pattern of Y; None: 1 each
    progress : called with the number of labels that are done

    Returns
    -------
    W : (L × (d + 1)) CSR, the bias in the last column
    """
    config = config or LinearConfig()
    mixed = Mixed.of(X)
    n = mixed.shape[0]
    n_labels = Y.shape[1]
    borders = np.array([0, n_labels], np.int64) if clusters is None else np.ascontiguousarray(clusters, np.int64)
    if Y.shape[0] != n:
        raise DataError(f"X has {n} rows, Y has {Y.shape[0]}")
    if borders[0] != 0 or borders[-1] != n_labels or np.any(np.diff(borders) < 0):
        raise DataError(f"clusters must be ascending borders from 0 to {n_labels}")
    if M is not None and M.shape != (n, len(borders) - 1):
        raise DataError(f"M is {M.shape[0]} × {M.shape[1]}, needed is {n} points × {len(borders) - 1} clusters")
    positives = _without_zeros(as_csr(Y, "Y"))
    if relevance is not None:
        positives = as_csr(relevance, "relevance")
        if not np.array_equal(positives.indptr, Y.indptr) or not np.array_equal(positives.indices, Y.indices):
            raise DataError("relevance must have an entry exactly where Y has one")
        if positives.nnz and positives.data.min() < 0:
            raise DataError("relevance must not be negative")
    return native.linear.fit_ovr(
        mixed,
        positives.T.tocsr(),
        None if M is None else _without_zeros(as_csr(M, "M")).T.tocsr(),
        borders,
        loss=config.loss,
        positive_costs=config.positive_costs(np.bincount(positives.indices, minlength=n_labels)),
        negative_cost=config.C * config.negative_weight,
        bias=config.bias,
        tolerance=config.tolerance,
        max_epochs=config.max_passes,
        threshold=config.threshold,
        max_weights=config.max_nonzeros_per_label or 0,
        with_relevance=relevance is not None,
        seed=seed,
        threads=resolve_threads(threads),
        progress=progress,
    )


def _without_zeros(matrix: Csr) -> Csr:
    """Return the matrix without stored zeros, which would count as entries."""
    if np.all(matrix.data != 0):
        return matrix
    matrix = matrix.copy()
    matrix.eliminate_zeros()
    return matrix


def decision_function(X: Any, W: Csr, bias: float = 1.0) -> FloatArray:
    """Raw scores (n, L) of all labels; dense, so for few labels or few rows only."""
    mixed = Mixed.of(X)
    n_sparse, d = mixed.sparse.shape[1], mixed.shape[1]
    scores = np.asarray((mixed.sparse @ W[:, :n_sparse].T).toarray())
    scores += mixed.dense @ W[:, n_sparse:d].T.toarray()
    scores += bias * W[:, d].T.toarray()
    return scores.astype(np.float32)
