"""Out-of-fold predictions: what a ranker over several models learns from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ramify.base.sparse import is_stored, keep_entries
from ramify.base.types import AnyArray, Csr, FloatArray, LongArray
from ramify.metrics.ranking import ndcg_by_row
from ramify.models.hybrid.pairs import Pairs
from ramify.rank.evidence import Evidence

NEAR = 20
"""Best labels of each member whose pairs are all kept."""
KEPT = 0.2
"""Fraction of the other wrong pairs that is kept, each with more weight."""

RARE = 3
"""Labels with at most so many samples, or as many as half of the labels have, are rare."""


def default_folds(n: int, max_rows: int) -> int:
    """Return the number of folds: one where a tenth of the n rows is enough to learn from."""
    return 1 if n >= 10 * max_rows else 3


def fold_rows(Y: Csr, n_folds: int | None, max_rows: int, seed: int) -> list[tuple[LongArray, LongArray]]:
    """Rows to train on and rows to predict, of each fold; all sorted.

    Rows without a label are never predicted: they do not say which labels are wrong. One fold predicts `max_rows`, at
    most half of the rows; several predict `max_rows` together.
    """
    n = Y.shape[0]
    order = np.random.default_rng(seed).permutation(np.flatnonzero(np.diff(Y.indptr)))
    n_folds = n_folds or default_folds(n, max_rows)
    if len(order) < 2 * max(2, n_folds):
        return []
    parts = [order[: min(max_rows, len(order) // 2)]] if n_folds == 1 else np.array_split(order, n_folds)
    folds = []
    for part in parts:
        rest = np.setdiff1d(np.arange(n), part)
        if Y[rest].nnz:
            folds.append((rest, np.sort(part[: -(-max_rows // n_folds)])))
    return folds


def hide_labels(Y: Csr, fraction: float, seed: int) -> Csr:
    """Y (n × L) without the entries of a random fraction of its rare labels, as those without a sample are."""
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    most = max(RARE, np.median(counts[counts > 0])) if Y.nnz else RARE
    hidden = (np.random.default_rng(seed).random(Y.shape[1]) < fraction) & (counts <= most)
    shown = ~hidden[Y.indices]
    return keep_entries(Y, shown) if shown.any() else Y


class OutOfFold:
    """Collects the pairs of rows that the members were not trained on, and what each member has found."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self._kinds = list(kinds)
        self._columns: list[FloatArray] = []
        self._targets: list[AnyArray] = []
        self._near: list[AnyArray] = []
        self._weights: list[AnyArray] = []
        self._found = np.zeros((len(kinds), 2))  # true labels that a member found, and no other member
        self._hits: list[list[AnyArray]] = [[] for _ in kinds]
        self._n_true = 0

    def add(self, pairs: Pairs, evidence: Sequence[Evidence], Y: Csr, weights: AnyArray | None) -> None:
        """Add the pairs of rows with true labels Y (n × L), and weights (n,) of the rows."""
        targets = is_stored(Y, pairs.rows, pairs.ids)
        self._columns.append(pairs.columns)
        self._targets.append(targets)
        self._weights.append(np.ones(len(targets)) if weights is None else weights[pairs.rows])
        n, n_labels = Y.shape
        keys = pairs.rows * np.int64(n_labels) + pairs.ids
        near, by = np.zeros(len(keys), bool), np.zeros((len(evidence), len(keys)), bool)
        for i, found in enumerate(evidence):
            starts = np.concatenate([[0], np.cumsum(np.bincount(found.rows, minlength=n))])
            rank = np.arange(len(found.rows)) - starts[found.rows]
            own = found.rows * np.int64(n_labels) + found.ids
            places = np.searchsorted(keys, own)
            is_pair = (
                (places < len(keys)) & (keys[np.minimum(places, max(0, len(keys) - 1))] == own)
                if len(keys)
                else own < 0
            )
            by[i, places[is_pair]] = True
            near[places[is_pair & (rank < NEAR)]] = True
            best = np.full((n, 5), -1, np.int32)
            first = rank < 5
            best[found.rows[first], rank[first]] = found.ids[first]
            self._hits[i].append(np.stack([is_stored(Y, np.arange(n), best[:, 0]), ndcg_by_row(best, Y, 5)]))
        self._near.append(near)
        for i in range(len(evidence)):
            mine = by[i] & targets
            self._found[i] += mine.sum(), (mine & (by.sum(axis=0) == 1)).sum()
        self._n_true += Y.nnz

    def training_set(self, seed: int) -> tuple[FloatArray, AnyArray, AnyArray]:
        """Features, targets and weights of the pairs to learn from: of the wrong ones that none ranks high, some.

        The features of the others are dropped: it can be called once.
        """
        if not self._columns:
            return np.empty((0, 1), np.float32), np.empty(0, bool), np.empty(0)
        targets, near = np.concatenate(self._targets), np.concatenate(self._near)
        sure = targets | near
        keep = sure | (np.random.default_rng(seed).random(len(targets)) < KEPT)
        weights = np.concatenate(self._weights) * np.where(sure, 1.0, 1 / KEPT)
        ends = np.cumsum([len(part) for part in self._targets])[:-1]
        columns = [part[:, chosen] for part, chosen in zip(self._columns, np.split(keep, ends), strict=True)]
        self._columns.clear()
        return np.concatenate(columns, axis=1).T, targets[keep], weights[keep]

    def summary(self) -> list[dict[str, str | float]]:
        """Facts about each member, in %."""
        result: list[dict[str, str | float]] = []
        for i, kind in enumerate(self._kinds if self._n_true else []):
            first, ndcg = np.concatenate(self._hits[i], axis=1)
            facts: dict[str, str | float] = {"kind": kind, "P@1": 100 * float(first.mean())}
            facts["nDCG@5"] = 100 * float(np.nanmean(ndcg))
            facts["recall"] = 100 * float(self._found[i, 0]) / self._n_true
            facts["alone"] = 100 * float(self._found[i, 1]) / self._n_true
            result.append(facts)
        return result
