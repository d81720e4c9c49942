"""Where negatives come from: M (n × clusters) says which points give a cluster's labels their negatives.

Positives are always added, whatever M says.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import sparse

from ramify.base.errors import DataError
from ramify.base.sparse import indicator_from_ids, pattern
from ramify.base.types import Csr, FloatArray, IntArray, LongArray
from ramify.rank.scores import CERTAIN_MARGIN

Scheme = Literal["teacher", "matcher", "teacher+matcher"]
"""teacher: points that have a label of the cluster; matcher: points that the search sends there; or both."""


def teacher(Y_above: Csr) -> Csr:
    """Teacher-forced negatives: a cluster's labels compete for the points that truly belong to the cluster."""
    return pattern(Y_above)


def matcher(proposed: IntArray, n_clusters: int) -> Csr:
    """Matcher-aware negatives from the clusters (n, beam) that the search proposes for each point, -1 for none."""
    return indicator_from_ids(proposed, n_clusters)


def union(*parts: Csr) -> Csr:
    """Points that any of the given matrices names."""
    if len({part.shape for part in parts}) != 1:
        raise DataError(f"negatives of different shapes: {', '.join(str(part.shape) for part in parts)}")
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return pattern(sparse.csr_matrix(total))


def extra_margins(Y: Csr, M: Csr | None, clusters: LongArray, *, are_labels: bool = True) -> FloatArray:
    """Return what to add to the scores of nodes (m,), columns of Y, that had no negatives in M (n × clusters).

    They were taught to reach the margin and no more, though nothing speaks against them: those that every point of
    their cluster has get a margin on top, labels that every point has one that no other has.
    """
    n_points = np.bincount(Y.indices, minlength=Y.shape[1])
    n_given = np.full(len(clusters) - 1, Y.shape[0]) if M is None else np.bincount(M.indices, minlength=M.shape[1])
    cluster_of = np.repeat(np.arange(len(clusters) - 1), np.diff(clusters))
    candidates = np.flatnonzero((n_points > 0) & (n_points >= n_given[cluster_of]))
    if M is not None and len(candidates):
        both = Y[:, candidates].multiply(M[:, cluster_of[candidates]])
        shared = np.asarray((both > 0).sum(axis=0)).ravel()
        candidates = candidates[shared == n_given[cluster_of[candidates]]]
    extra = np.zeros(Y.shape[1], np.float32)
    extra[candidates] = 1.0
    if are_labels:
        extra[n_points == Y.shape[0]] = CERTAIN_MARGIN
    return extra
