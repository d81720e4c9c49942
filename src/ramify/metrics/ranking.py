"""Ranking metrics at cutoffs, as sums that a native kernel makes in one pass.

Definitions, for n rows that have a true label (rows without one say nothing about a ranking and are left out):

- P@k: hits among the first k, over k. A row with fewer than k predictions has misses there.
- R@k: hits over the number of true labels.
- nDCG@k: Σ 1/log2(rank + 1) over hits, over the best that the row allows, min(k, true labels) hits at the top.
- PSP@k and PSnDCG@k: P and nDCG with each hit weighted by its label's inverse propensity, summed over rows and divided
  by the same sum of the best possible ranking.
- coverage@k: the share of the labels true somewhere that are hit somewhere.

By decile, each metric but coverage is split by the label that was hit: the parts add up to the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ramify import native
from ramify.base.ranking import Ranking
from ramify.base.types import AnyArray, BoolArray, ByteArray, Csr, DoubleArray

N_DECILES = 10


@dataclass(frozen=True, eq=False)
class RankingMetrics:
    """Metrics in percent.

    Attributes
    ----------
    cutoffs : list of k
    values : metric → (n_cutoffs,)
    by_group : metric → (n_groups, n_cutoffs)
    n_rows : rows with a true label
    """

    cutoffs: list[int]
    values: dict[str, DoubleArray]
    by_group: dict[str, DoubleArray]
    n_rows: int


def ranking_metrics(
    ranking: Ranking,
    truth: Csr,
    cutoffs: Sequence[int],
    weights: DoubleArray | None,
    groups: ByteArray | None,
    n_groups: int,
    threads: int,
) -> RankingMetrics:
    """Metrics of a ranking against the truth (n × L).

    `weights` (L,) are inverse propensities, without which there are no PS metrics; `groups` (L,) split the labels.
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
    """Share of true labels that are hit at least once in the first k (n_groups, n_cutoffs)."""
    is_true = np.bincount(truth.indices, minlength=truth.shape[1]) > 0
    total = np.bincount(groups[is_true], minlength=n_groups)
    hit = [np.bincount(groups[is_true & (first_rank < k)], minlength=n_groups) for k in ks]
    return np.asarray(np.stack(hit, axis=1) / np.maximum(total, 1)[:, None], np.float64)


def f1_scores(
    ranking: Ranking, truth: Csr, threshold: float, groups: ByteArray, n_groups: int, threads: int
) -> dict[str, DoubleArray]:
    """Micro and macro F1 in percent, (1 + n_groups,): of all labels, then of each group.

    A label is predicted where its score reaches the threshold. Macro F1 is the mean over labels that are true or
    predicted somewhere; a label that is neither says nothing.
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
    """Take (row, label) pairs out of a ranking; what is behind them moves up.

    For data sets that come with pairs which must not be predicted, such as an article for itself.
    """
    out = native.matrix.ranking_hits(ranking.ids, pairs, threads).view(bool)
    touched = np.flatnonzero(out.any(axis=1))
    if not len(touched):
        return ranking
    ids, scores = ranking.ids.copy(), ranking.scores.copy()
    order = np.argsort(out[touched], axis=1, kind="stable")  # what stays comes first, in its order
    ids[touched] = np.where(np.take_along_axis(out[touched], order, 1), -1, np.take_along_axis(ids[touched], order, 1))
    scores[touched] = np.where(ids[touched] < 0, -np.inf, np.take_along_axis(scores[touched], order, 1))
    return Ranking(ids, scores, ranking.n_labels, ranking.names)


def frequency_deciles(counts: AnyArray) -> ByteArray:
    """Decile (L,) of each label by training frequency: 0 for the most frequent tenth of the labels, 9 for the last."""
    order = np.argsort(-counts, kind="stable")
    deciles = np.empty(len(counts), np.uint8)
    deciles[order] = np.arange(len(counts)) * N_DECILES // max(1, len(counts))
    return deciles
