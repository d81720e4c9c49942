"""What happens to single labels: the rank of each true label, recall by frequency, hard and confused labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from ramify.base.ranking import Ranking
from ramify.base.sparse import entry_rows
from ramify.base.types import AnyArray, Csr, LongArray
from ramify.metrics.ranking import N_DECILES, frequency_deciles

RANKS = (1, 5, 10, 100)
"""Ranks at which the true labels of a decile are counted."""
HARD_RANK = 5
"""A label is found in a row if it is among so many."""
MIN_SUPPORT = 5
"""Rows of the test set that a label needs to be called hard, if enough labels have as many."""
NOT_RANKED = 1 << 40
"""Rank of a label that a ranking does not have."""
MAX_CONFUSED = 20
"""True labels of a row that are looked at for confused pairs."""


@dataclass(frozen=True)
class DecileRecall:
    """True labels of a tenth of the labels by training frequency.

    Attributes
    ----------
    n_true : true labels of the test rows in this decile
    n_train : smallest and largest number of training samples of its labels
    found : fraction of the true labels within each of `RANKS`
    """

    n_true: int
    n_train: tuple[int, int]
    found: tuple[float, ...]


@dataclass(frozen=True)
class HardLabel:
    """A label that is often missed: `recall` is the fraction of its rows that have it among the best five.

    `median_rank` is from 1, None where most rows do not rank it; `instead` is the label that is most often first in
    the rows that miss it.
    """

    name: str
    n_train: int | None
    n_test: int
    recall: float
    median_rank: float | None
    instead: str | None


@dataclass(frozen=True)
class ConfusedPair:
    """A true label that is missed while another one is predicted, with the number of rows."""

    missed: str
    predicted: str
    n_rows: int
    n_true: int


def true_label_ranks(ranking: Ranking, truth: Csr) -> LongArray:
    """Rank (nnz,) of each true label in its row, from 0; `NOT_RANKED` where it is not there."""
    n = truth.shape[1]
    rows, columns = np.nonzero(ranking.ids >= 0)
    keys = rows.astype(np.int64) * n + ranking.ids[rows, columns]
    order = np.argsort(keys, kind="stable")  # of equal keys the first one, which has the better rank
    wanted = entry_rows(truth).astype(np.int64) * n + truth.indices
    at = np.searchsorted(keys[order], wanted)
    inside = at < len(keys)
    at = np.minimum(at, max(0, len(keys) - 1))
    ranks = np.full(truth.nnz, NOT_RANKED, np.int64)
    if len(keys):
        found = inside & (keys[order][at] == wanted)
        ranks[found] = columns[order][at[found]]
    return ranks


def recall_by_decile(ranks: LongArray, truth: Csr, counts: AnyArray) -> list[DecileRecall]:
    """Recall within each decile of label frequency, given training counts (L,); unknown labels are in the last one."""
    deciles = frequency_deciles(counts)
    group = np.append(deciles, np.full(max(0, truth.shape[1] - len(deciles)), N_DECILES - 1, np.uint8))[truth.indices]
    result = []
    for d in range(N_DECILES):
        mine, of_labels = ranks[group == d], counts[deciles == d]
        found = tuple(float(np.mean(mine < k)) if len(mine) else 0.0 for k in RANKS)
        bounds = (int(of_labels.min()), int(of_labels.max())) if len(of_labels) else (0, 0)
        result.append(DecileRecall(len(mine), bounds, found))
    return result


def hard_labels(
    ranking: Ranking, truth: Csr, ranks: LongArray, counts: AnyArray | None, name: Callable[[int], str], n: int = 12
) -> list[HardLabel]:
    """Return the labels with the lowest recall among the five best, of those that the test set has several times."""
    support = np.bincount(truth.indices, minlength=truth.shape[1])[: ranking.n_labels]
    found = np.bincount(truth.indices[ranks < HARD_RANK], minlength=truth.shape[1])[: ranking.n_labels]
    least = next((m for m in range(MIN_SUPPORT, 0, -1) if int((support >= m).sum()) >= n), 1)
    candidates = np.flatnonzero((support >= least) & (found < support))
    recall = found[candidates] / support[candidates]
    worst = candidates[np.lexsort((candidates, -support[candidates], recall))[:n]]
    rows_of, result = entry_rows(truth), []
    for label in worst.tolist():
        mine = np.flatnonzero(truth.indices == label)
        median = float(np.median(ranks[mine]))
        first = ranking.ids[rows_of[mine][ranks[mine] >= HARD_RANK], 0]
        first = first[first >= 0]
        result.append(
            HardLabel(
                name(label),
                None if counts is None else int(counts[label]),
                int(support[label]),
                float(found[label] / support[label]),
                None if median >= ranking.k else median + 1,
                name(int(np.bincount(first).argmax())) if len(first) else None,
            )
        )
    return result


def confused_pairs(
    ranking: Ranking, truth: Csr, ranks: LongArray, name: Callable[[int], str], n: int = 12
) -> list[ConfusedPair]:
    """Return the pairs of a missed and a wrongly predicted label that most rows have.

    A row with t true labels should have them as its first t; those that are not there are missed, and the labels that
    are there instead are wrong.
    """
    n_true = np.minimum(np.diff(truth.indptr), MAX_CONFUSED)
    rows = entry_rows(truth)
    is_missed = (ranks >= n_true[rows]) & (truth.indices < ranking.n_labels)
    shape = (len(ranking), ranking.n_labels)
    ones = np.ones(int(is_missed.sum()), np.int32)
    missed = sparse.csr_matrix((ones, (rows[is_missed], truth.indices[is_missed])), shape=shape)
    best = ranking.ids[:, :MAX_CONFUSED]
    at = np.nonzero((np.arange(best.shape[1]) < n_true[:, None]) & (best >= 0))
    chosen = sparse.csr_matrix((np.ones(len(at[0]), np.int32), (at[0], best[at])), shape=shape)
    wrong = chosen - chosen.multiply(truth[:, : ranking.n_labels] != 0)
    pairs = sparse.coo_matrix(missed.T @ sparse.csr_matrix(wrong))
    order = np.lexsort((pairs.col, pairs.row, -pairs.data))[:n]
    support = np.bincount(truth.indices, minlength=truth.shape[1])
    return [
        ConfusedPair(name(int(pairs.row[i])), name(int(pairs.col[i])), int(pairs.data[i]), int(support[pairs.row[i]]))
        for i in order
        if pairs.data[i] > 0
    ]
