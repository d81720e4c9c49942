"""Combination of the rankings of several models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from ramify import native
from ramify.base.errors import DataError
from ramify.base.ranking import Ranking
from ramify.base.sparse import csr_from_parts
from ramify.base.threads import resolve_threads
from ramify.base.types import AnyArray

Combination = Literal["mean", "rank", "sigmoid", "softmax", "round-robin"]
"""Mean of the scores, the ranks, σ(scores) or the softmax of each row; or the labels of each ranking in turn."""
RANK_PENALTY = 2.5e-7
"""Fraction of its score that a label loses per rank, so that labels with equal scores keep their order."""


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
            weight * _without_ties(_normalized_scores(ranking, combination))
            for ranking, weight in zip(rankings, w, strict=True)
        ]
    n, n_labels = len(rankings[0]), rankings[0].n_labels
    # Sum the scores of each (row, label) pair, identified by row · n_labels + label.
    offsets = np.arange(n)[:, None] * np.int64(n_labels)
    valid = [ranking.ids >= 0 for ranking in rankings]
    keys = np.concatenate([(offsets + ranking.ids)[mask] for ranking, mask in zip(rankings, valid, strict=True)])
    entries = np.concatenate([value[mask] for value, mask in zip(values, valid, strict=True)])
    pairs, position = np.unique(keys, return_inverse=True)
    total = np.zeros(len(pairs))
    aggregate = np.maximum if combination == "round-robin" else np.add
    aggregate.at(total, position, entries)
    indptr = np.searchsorted(pairs, np.arange(n + 1) * np.int64(n_labels))
    matrix = csr_from_parts(total.astype(np.float32), pairs % n_labels, indptr, (n, n_labels))
    best = native.matrix.csr_topk(matrix, k, resolve_threads(None, n))
    return Ranking(*best, n_labels, rankings[0].names)


def _normalized_scores(ranking: Ranking, combination: str) -> AnyArray:
    """Scores (n, k) of a ranking on the scale on which they are averaged."""
    scores = ranking.scores.astype(np.float64)
    valid = ranking.ids >= 0
    if combination == "rank":
        return np.broadcast_to(1 - np.arange(ranking.k) / ranking.k, scores.shape)
    if combination == "sigmoid":
        return np.exp(-np.logaddexp(0, -np.where(valid, scores, 0)))
    if combination == "softmax":
        with np.errstate(invalid="ignore"):
            exponentials = np.where(valid, np.exp(scores - scores[:, :1]), 0)  # the best score is the first
        return np.asarray(exponentials / np.maximum(exponentials.sum(axis=1, keepdims=True), 1e-300))
    return np.where(valid, scores, 0)


def _without_ties(values: AnyArray) -> AnyArray:
    """Lower values (n, k) by `RANK_PENALTY`, so that equal ones differ by rank."""
    return values - np.abs(values) * RANK_PENALTY * np.arange(values.shape[1])


def _round_robin_scores(ranking: Ranking, turn: int, n_rankings: int) -> AnyArray:
    """Scores (n, k) that fall with the position of a label when n_rankings rankings name one label each in turn."""
    return np.broadcast_to(1 / (1 + turn + n_rankings * np.arange(ranking.k, dtype=np.float64)), ranking.ids.shape)
