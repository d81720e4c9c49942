"""Ranking metrics at cutoffs k, from sums that a native kernel computes in one traversal.

For a row i with true labels T_i and ranking r_i1, r_i2, …, let y_ij = [r_ij ∈ T_i] be the hits (0 for padding and for
repeated labels), d_j = 1 / log2(j + 1) the discounts, D_i = Σ_{j ≤ min(k, |T_i|)} d_j, and w_l the inverse propensity
of label l. Sums and means are over the n rows with a true label; rows without one are excluded.

    P@k        = 1/n Σ_i 1/k Σ_{j≤k} y_ij
    R@k        = 1/n Σ_i 1/|T_i| Σ_{j≤k} y_ij
    nDCG@k     = 1/n Σ_i 1/D_i Σ_{j≤k} d_j y_ij
    PSP@k      = Σ_i Σ_{j≤k} w_{r_ij} y_ij, divided by its maximum over all rankings
    PSnDCG@k   = Σ_i 1/D_i Σ_{j≤k} d_j w_{r_ij} y_ij, divided by its maximum over all rankings
    coverage@k = fraction of the labels in ∪_i T_i that are hit within the first k of some row

By group of labels, such as frequency deciles, the hits of each metric except coverage are split by their label: the
contributions of the groups sum to the total.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from ramify import native
from ramify.base.errors import DataError
from ramify.base.ranking import Ranking
from ramify.base.sparse import as_csr
from ramify.base.types import AnyArray, BoolArray, ByteArray, Csr, DoubleArray, IntArray

N_DECILES = 10


@dataclass(frozen=True, eq=False)
class RankingMetrics:
    """Metrics in percent.

    Attributes
    ----------
    cutoffs : the values of k
    values : metric → (n_cutoffs,)
    by_group : metric → (n_groups, n_cutoffs)
    n_rows : number of rows with a true label
    """

    cutoffs: list[int]
    values: dict[str, DoubleArray]
    by_group: dict[str, DoubleArray]
    n_rows: int


def as_ranking(ranking: Any, threads: int) -> Ranking:
    """Convert a matrix of scores (n × L), sparse or dense, to a ranking of its nonzero entries."""
    if isinstance(ranking, Ranking):
        return ranking
    if isinstance(ranking, np.ndarray) and ranking.ndim == 2 and ranking.dtype.kind in "biuf":
        ranking = sparse.csr_matrix(ranking)
    if not sparse.issparse(ranking):
        raise DataError(f"expected a Ranking or an n × L matrix of scores; got {type(ranking).__name__}")
    k = int(np.diff(sparse.csr_matrix(ranking).indptr).max(initial=1))
    matrix = as_csr(ranking, "scores")
    return Ranking(*native.matrix.csr_topk(matrix, k, threads), matrix.shape[1])


def ranking_metrics(
    ranking: Ranking,
    truth: Csr,
    cutoffs: Sequence[int],
    weights: DoubleArray | None,
    groups: ByteArray | None,
    n_groups: int,
    threads: int,
) -> RankingMetrics:
    """Compute the metrics of a ranking.

    Parameters
    ----------
    truth : (n × L) indicator of the true labels
    weights : (L,) inverse propensities; None: no PSP and PSnDCG
    groups : (L,) group of each label, 0 to n_groups - 1; None: one group
    """
    n_labels = truth.shape[1]
    ks = np.unique(np.asarray(cutoffs, np.int64))
    group_of = np.zeros(n_labels, np.uint8) if groups is None else groups
    weight_of = np.ones(n_labels) if weights is None else weights
    sums = native.matrix.ranking_sums(ranking.ids, truth, ks, weight_of, group_of, n_groups, threads)
    n = max(1, sums["n_rows"])
    parts: dict[str, DoubleArray] = {"P": sums["hits"] / (n * ks), "nDCG": sums["ndcg"] / n, "R": sums["recall"] / n}
    if weights is not None:
        parts["PSP"] = sums["weighted_hits"] / np.maximum(sums["best_weighted_hits"], 1e-300)
        parts["PSnDCG"] = sums["weighted_ndcg"] / np.maximum(sums["best_weighted_ndcg"], 1e-300)
    by_group = {name: 100.0 * part for name, part in parts.items()}
    by_group["coverage"] = 100.0 * _coverage(sums["first_rank"], truth, ks, group_of, n_groups)
    values = {name: part.sum(axis=0) for name, part in by_group.items() if name != "coverage"}
    values["coverage"] = 100.0 * _coverage(sums["first_rank"], truth, ks, np.zeros(n_labels, np.uint8), 1)[0]
    return RankingMetrics(ks.tolist(), values, by_group, int(sums["n_rows"]))


def _coverage(first_rank: AnyArray, truth: Csr, ks: AnyArray, groups: ByteArray, n_groups: int) -> DoubleArray:
    """Fraction of the true labels that are hit at least once within the first k (n_groups, n_cutoffs)."""
    is_true = np.bincount(truth.indices, minlength=truth.shape[1]) > 0
    total = np.bincount(groups[is_true], minlength=n_groups)
    hit = [np.bincount(groups[is_true & (first_rank < k)], minlength=n_groups) for k in ks]
    return np.asarray(np.stack(hit, axis=1) / np.maximum(total, 1)[:, None], np.float64)


def f1_scores(
    ranking: Ranking, truth: Csr, threshold: float, groups: ByteArray, n_groups: int, threads: int
) -> dict[str, DoubleArray]:
    """Micro and macro F1 in percent, (1 + n_groups,): over all labels, then within each group.

    A label is predicted if its score reaches the threshold: F1_l = 2 TP_l / (predicted_l + true_l). Macro F1 is the
    mean over the labels that are true or predicted in some row.
    """
    n_labels = truth.shape[1]
    chosen = (ranking.ids >= 0) & (ranking.scores >= threshold)
    hit = native.matrix.ranking_hits(ranking.ids, truth, threads).view(bool) & chosen
    true_positive = np.bincount(ranking.ids[hit], minlength=n_labels)
    predicted = np.bincount(ranking.ids[chosen], minlength=n_labels)
    actual = np.bincount(truth.indices, minlength=n_labels)
    both = predicted + actual
    each = np.divide(2.0 * true_positive, both, out=np.zeros(n_labels), where=both > 0)

    def scores(mask: BoolArray) -> tuple[float, float]:
        used = mask & (both > 0)
        micro = 2.0 * float(true_positive[mask].sum()) / max(1, int(both[mask].sum()))
        return 100.0 * micro, 100.0 * float(each[used].mean()) if used.any() else 0.0

    masks = [np.ones(n_labels, bool), *(groups == g for g in range(n_groups))]
    micro, macro = zip(*(scores(mask) for mask in masks), strict=True)
    return {"micro-F1": np.array(micro), "macro-F1": np.array(macro)}


def remove_pairs(ranking: Ranking, pairs: Csr, threads: int) -> Ranking:
    """Remove (row, label) pairs (n × L) from a ranking; the following labels move up.

    Some data sets define pairs that must not be predicted, such as an article as its own label.
    """
    removed = native.matrix.ranking_hits(ranking.ids, pairs, threads).view(bool)
    rows = np.flatnonzero(removed.any(axis=1))
    if not len(rows):
        return ranking
    ids, scores = ranking.ids.copy(), ranking.scores.copy()
    order = np.argsort(removed[rows], axis=1, kind="stable")  # remaining labels first, in their order
    ids[rows] = np.where(np.take_along_axis(removed[rows], order, 1), -1, np.take_along_axis(ids[rows], order, 1))
    scores[rows] = np.where(ids[rows] < 0, -np.inf, np.take_along_axis(scores[rows], order, 1))
    return replace(ranking, ids=ids, scores=scores)


def frequency_deciles(counts: AnyArray) -> ByteArray:
    """Frequency decile (L,) of each label: 0 for the most frequent tenth of the labels, 9 for the rarest."""
    order = np.argsort(-counts, kind="stable")
    deciles = np.empty(len(counts), np.uint8)
    deciles[order] = np.arange(len(counts)) * N_DECILES // max(1, len(counts))
    return deciles


def ndcg_by_row(ids: IntArray, truth: Csr, k: int) -> DoubleArray:
    """nDCG@k of each row (n,), from 0 to 1, for label ids (n, ≥ 1) and true labels (n × L); NaN without a label."""
    ids = ids[:, :k]
    rows = np.repeat(np.arange(len(ids)), ids.shape[1])
    hits = np.asarray(truth[rows, np.maximum(ids, 0).ravel()]).reshape(ids.shape) * (ids >= 0)
    discounts = 1.0 / np.log2(np.arange(k) + 2)
    best = np.concatenate([[np.nan], np.cumsum(discounts)])[np.minimum(np.diff(truth.indptr), k)]
    return np.asarray(hits @ discounts[: ids.shape[1]] / best, np.float64)
