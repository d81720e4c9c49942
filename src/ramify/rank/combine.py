"""From the rankings of several models to one."""

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
"""mean of scores, of places, of σ(scores), of shares of a row; or the models' answers in turn."""
A_LITTLE = 2.5e-7
"""Share of a score that each place costs: labels that a model is sure of differ by their places only."""


def combine_rankings(
    rankings: Sequence[Ranking], k: int, how: Combination = "mean", weights: Sequence[float] | None = None
) -> Ranking:
    """Return the k best labels by all rankings together; a label that a ranking does not name gets nothing from it.

    Parameters
    ----------
    rankings : of the same rows over the same labels
    weights : of each ranking; None: all alike. In turns they say who begins
    """
    if how not in get_args(Combination):
        raise ValueError(f"rankings are combined by {', '.join(get_args(Combination))}; got {how!r}")
    if not rankings or len({(len(ranking.ids), ranking.n_labels) for ranking in rankings}) != 1:
        raise DataError("rankings to combine must be of the same rows and the same labels")
    shares = np.ones(len(rankings)) if weights is None else np.asarray(weights, np.float64)
    if len(shares) != len(rankings) or np.any(shares < 0) or shares.sum() <= 0:
        raise ValueError(f"needed are {len(rankings)} weights from 0 up, not all 0; got {list(shares)}")
    if how == "round-robin":
        turns = np.argsort(np.argsort(-shares, kind="stable"))
        values = [_in_turn(ranking, int(turn), len(rankings)) for ranking, turn in zip(rankings, turns, strict=True)]
    else:
        shares = shares / shares.sum()
        values = [share * _placed(_comparable(ranking, how)) for ranking, share in zip(rankings, shares, strict=True)]
    n, n_labels = len(rankings[0]), rankings[0].n_labels
    rows = np.arange(n)[:, None] * np.int64(n_labels)
    there = [ranking.ids >= 0 for ranking in rankings]
    keys = np.concatenate([(rows + ranking.ids)[kept] for ranking, kept in zip(rankings, there, strict=True)])
    entries = np.concatenate([value[kept] for value, kept in zip(values, there, strict=True)])
    pairs, place = np.unique(keys, return_inverse=True)  # a row and a label each
    total = np.zeros(len(pairs))
    join = np.maximum if how == "round-robin" else np.add
    join.at(total, place, entries)
    indptr = np.searchsorted(pairs, np.arange(n + 1) * np.int64(n_labels))
    matrix = csr_from_parts(total.astype(np.float32), pairs % n_labels, indptr, (n, n_labels))
    best = native.matrix.csr_topk(matrix, k, resolve_threads(None, n))
    return Ranking(*best, n_labels, rankings[0].names)


def _comparable(ranking: Ranking, how: str) -> AnyArray:
    """Scores (n, k) of a ranking as they are averaged."""
    scores = ranking.scores.astype(np.float64)
    there = ranking.ids >= 0
    if how == "rank":
        return np.broadcast_to(1 - np.arange(ranking.k) / ranking.k, scores.shape)
    if how == "sigmoid":
        return np.exp(-np.logaddexp(0, -np.where(there, scores, 0)))
    if how == "softmax":
        with np.errstate(invalid="ignore"):
            powers = np.where(there, np.exp(scores - scores[:, :1]), 0)  # the best stands first
        return np.asarray(powers / np.maximum(powers.sum(axis=1, keepdims=True), 1e-300))
    return np.where(there, scores, 0)


def _placed(values: AnyArray) -> AnyArray:
    """Values (n, k) of labels in their order, so that equal ones differ by their place."""
    return values - np.abs(values) * A_LITTLE * np.arange(values.shape[1])


def _in_turn(ranking: Ranking, turn: int, n: int) -> AnyArray:
    """Scores (n, k) that fall with the place in which a label is named when n rankings speak in turn."""
    return np.broadcast_to(1 / (1 + turn + n * np.arange(ranking.k, dtype=np.float64)), ranking.ids.shape)
