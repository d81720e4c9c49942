"""Negative sampling: M (n × clusters) selects the samples from which the labels of a cluster take their negatives.

The positives of a label are always part of its training set, whether M selects them or not (PECOS: Yu et al. 2022).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import sparse

from ramify.base.errors import DataError
from ramify.base.sparse import indicator_from_ids, pattern
from ramify.base.types import Csr, FloatArray, IntArray, LongArray
from ramify.rank.score_transforms import CERTAIN_MARGIN

Scheme = Literal["teacher", "matcher", "teacher+matcher"]
"""Samples with a label of the cluster (teacher-forced), samples whose beam contains it (matcher-aware), or both."""


def teacher(Y_above: Csr) -> Csr:
    """Teacher-forced negatives: samples with a label of the cluster, from Y of the level above (n × clusters)."""
    return pattern(Y_above)


def matcher(proposed: IntArray, n_clusters: int) -> Csr:
    """Matcher-aware negatives: samples whose beam (n, beam) contains the cluster; -1 for padding."""
    return indicator_from_ids(proposed, n_clusters)


def sampled_matcher(
    proposed: IntArray, n_clusters: int, n_kept: int, fraction: float, seed: int, first_row: int = 0
) -> Csr:
    """Matcher-aware negatives by importance sampling: the lower a cluster ranks for a sample, the rarer it takes it.

    Parameters
    ----------
    proposed : (n, beam) clusters that the search proposes, best first, -1 for padding
    n_kept : the cluster of rank r takes the sample with probability n_kept / r, so the n_kept best always do
    fraction : lower bound of this probability. Weights are the inverse probabilities: the expected loss is the same
    first_row : index of the first row, where the rows are a part: they are sampled as in the whole

    Returns
    -------
    M : (n × clusters) weights
    """
    n, beam = proposed.shape
    probabilities = np.maximum(fraction, np.minimum(1.0, n_kept / np.arange(1, beam + 1))).astype(np.float32)
    drawn = _uniform(seed, first_row, n, beam) < probabilities
    ids = np.where(drawn, proposed, np.int32(-1))
    order = np.argsort(ids, axis=1, kind="stable")
    ids = np.take_along_axis(ids, order, 1)
    M = indicator_from_ids(ids, n_clusters, are_sorted=True)
    M.data = (1 / probabilities)[order[ids >= 0]]
    return M


def _uniform(seed: int, first_row: int, n: int, width: int) -> FloatArray:
    """Rows from `first_row` on, n of them, of the random numbers that ``default_rng(seed).random`` gives all rows."""
    bits = np.random.PCG64(seed)
    start = first_row * width
    bits.advance(start // 2)  # a number takes one half of 64 bits
    random = np.random.Generator(bits)
    if start % 2:
        random.random(1, np.float32)
    return random.random((n, width), np.float32)


def with_weights(certain: Csr, weighted: Csr) -> Csr:
    """Join negatives of weight 1 (n × clusters) with weighted ones; an entry of both has weight 1."""
    rest = weighted - weighted.multiply(pattern(certain))
    rest.eliminate_zeros()
    return sparse.csr_matrix(pattern(certain) + rest)


def union(*parts: Csr) -> Csr:
    """Samples that any of the given matrices selects."""
    if len({part.shape for part in parts}) != 1:
        raise DataError(f"negatives must have equal shapes; got {', '.join(str(part.shape) for part in parts)}")
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return pattern(sparse.csr_matrix(total))


def extra_margins(
    Y: Csr, M: Csr | None, clusters: LongArray, *, are_labels: bool = True, n_rows: int | None = None
) -> FloatArray:
    """Margins (m,) to add to nodes, the columns of Y (n × m), that were trained without negatives.

    Training stops once the positives reach a margin of 1, although nothing contradicts such a node. A node that all
    samples of its cluster have gets 1 in addition; a label that all n samples have gets `CERTAIN_MARGIN`.

    Parameters
    ----------
    M : (n × clusters) samples of each cluster; None: all
    clusters : (clusters + 1,) children pointers: cluster c has the nodes from clusters[c] to clusters[c + 1]
    n_rows : number of all samples, where rows that neither Y nor M selects are left out; None: those of Y
    """
    n_positives = np.bincount(Y.indices, minlength=Y.shape[1])
    cluster_sizes = (
        np.full(len(clusters) - 1, Y.shape[0]) if M is None else np.bincount(M.indices, minlength=M.shape[1])
    )
    cluster_of = np.repeat(np.arange(len(clusters) - 1), np.diff(clusters))
    candidates = np.flatnonzero((n_positives > 0) & (n_positives >= cluster_sizes[cluster_of]))
    if M is not None and len(candidates):
        both = Y[:, candidates].multiply(M[:, cluster_of[candidates]])
        n_common = np.asarray((both > 0).sum(axis=0)).ravel()
        candidates = candidates[n_common == cluster_sizes[cluster_of[candidates]]]
    extra = np.zeros(Y.shape[1], np.float32)
    extra[candidates] = 1.0
    if are_labels:
        extra[n_positives == (Y.shape[0] if n_rows is None else n_rows)] = CERTAIN_MARGIN
    return extra
