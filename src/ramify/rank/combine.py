"""Combination of the rankings of several models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from ramify.base.errors import DataError
from ramify.base.ranking import Ranking, strictly_descending
from ramify.base.types import AnyArray

Combination = Literal["mean", "rank", "sigmoid", "softmax", "round-robin"]
"""Mean of the scores, the ranks, σ(scores) or the softmax of each row; or the labels of each ranking in turn."""

MIN_WIDTH = 200
"""Labels that each member of a model ranks at least. A label that a member has not ranked scores 0 there: if members
ranked only as many labels as are asked for, the best label, its score and its probability would depend on how many.
"""


def member_width(k: int, n_labels: int) -> int:
    """Return how many of n_labels labels each member ranks, for a combined ranking of k."""
    return min(n_labels, max(2 * k, MIN_WIDTH))


def combine_rankings(
    rankings: Sequence[Ranking], k: int, combination: Combination = "mean", weights: Sequence[float] | None = None
) -> Ranking:
    """Return the k best labels of all rankings together; a label that is missing from a ranking scores 0 there.

    Parameters
    ----------
    rankings : of the same rows over the same labels
    weights : weight of each ranking; None: equal. With "round-robin" a larger weight goes first
    """
    if combination not in get_args(Combination):
        raise ValueError(f"the combination must be one of {', '.join(get_args(Combination))}; got {combination!r}")
    if not rankings or len({(len(ranking.ids), ranking.n_labels) for ranking in rankings}) != 1:
        raise DataError(
            "rankings to combine must have the same rows and the same labels, and there must be at least one"
        )
    w = np.ones(len(rankings)) if weights is None else np.asarray(weights, np.float64)
    if len(w) != len(rankings) or np.any(w < 0) or w.sum() <= 0:
        raise ValueError(f"{len(rankings)} rankings need {len(rankings)} weights ≥ 0, not all 0; got {list(w)}")
    if combination == "round-robin":
        turns = np.argsort(np.argsort(-w, kind="stable"))
        values = [
            _round_robin_scores(ranking, int(turn), len(rankings))
            for ranking, turn in zip(rankings, turns, strict=True)
        ]
    else:
        w = w / w.sum()
        values = [
            weight * _normalized_scores(ranking, combination) for ranking, weight in zip(rankings, w, strict=True)
        ]
    n, n_labels = len(rankings[0]), rankings[0].n_labels
    # Sum the scores of each (row, label) pair, identified by row · n_labels + label.
    offsets = np.arange(n)[:, None] * np.int64(n_labels)
    valid = [ranking.ids >= 0 for ranking in rankings]
    keys = np.concatenate([(offsets + ranking.ids)[mask] for ranking, mask in zip(rankings, valid, strict=True)])
    entries = np.concatenate([value[mask] for value, mask in zip(values, valid, strict=True)])
    pairs, position = np.unique(keys, return_inverse=True)
    total, ranks = np.zeros(len(pairs)), np.zeros(len(pairs))
    aggregate = np.maximum if combination == "round-robin" else np.add
    aggregate.at(total, position, entries)
    # Many scores may saturate at 1; the ranks then say more than the scores. A missing label follows the last one.
    gains = [
        weight * np.broadcast_to(ranking.k - np.arange(ranking.k), ranking.ids.shape)[mask]
        for ranking, mask, weight in zip(rankings, valid, w, strict=True)
    ]
    np.add.at(ranks, position, np.concatenate(gains))
    rows = pairs // n_labels
    order = np.lexsort((-ranks, -total, rows))
    column = np.arange(len(pairs)) - np.searchsorted(pairs, offsets[:, 0])[rows]
    kept = column < k
    ids, scores = np.full((n, k), -1, np.int32), np.full((n, k), -np.inf, np.float32)
    ids[rows[kept], column[kept]] = (pairs % n_labels)[order[kept]]
    scores[rows[kept], column[kept]] = total[order[kept]]
    return Ranking(ids, strictly_descending(ids, scores), n_labels, rankings[0].names)


def _normalized_scores(ranking: Ranking, combination: str) -> AnyArray:
    """Scores (n, k) of a ranking on the scale on which they are averaged, whatever follows the first labels."""
    scores = ranking.scores.astype(np.float64)
    valid = ranking.ids >= 0
    if combination == "rank":
        return np.broadcast_to(np.maximum(0, 1 - np.arange(ranking.k) / min(ranking.k, MIN_WIDTH)), scores.shape)
    if combination == "sigmoid":
        return np.exp(-np.logaddexp(0, -np.where(valid, scores, 0)))
    if combination == "softmax":
        with np.errstate(invalid="ignore"):
            exponentials = np.where(valid, np.exp(scores - scores[:, :1]), 0)  # the best score is the first
        return np.asarray(exponentials / np.maximum(exponentials[:, :MIN_WIDTH].sum(axis=1, keepdims=True), 1e-300))
    return np.where(valid, scores, 0)


def _round_robin_scores(ranking: Ranking, turn: int, n_rankings: int) -> AnyArray:
    """Scores (n, k) that fall with the position of a label when n_rankings rankings name one label each in turn."""
    return np.broadcast_to(1 / (1 + turn + n_rankings * np.arange(ranking.k, dtype=np.float64)), ranking.ids.shape)
