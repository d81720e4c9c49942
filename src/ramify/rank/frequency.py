"""Labels by frequency: what follows the labels that a search has found, and what breaks ties between these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ramify.base.types import AnyArray, FloatArray, IntArray
from ramify.rank.filters import LabelFilter

LEAST = 1e-4
"""Scores of labels that were found are above this, those of others below."""


@dataclass(frozen=True, eq=False)
class FrequencyOrder:
    """All L labels, the most frequent first.

    Attributes
    ----------
    order : (L,) ids
    penalties : (L,) below `LEAST`, larger for less frequent labels, so that scores of labels that were found do not tie
    """

    order: IntArray
    penalties: FloatArray

    @classmethod
    def of(cls, counts: AnyArray) -> FrequencyOrder:
        """Order labels by their counts (L,), then by their ids."""
        order = np.argsort(-counts, kind="stable").astype(np.int32)
        penalties = np.empty(len(order), np.float32)
        penalties[order] = LEAST * np.arange(len(order)) / (len(order) + 1)
        return cls(order, penalties)

    def adjusted(self, scores: FloatArray, ids: IntArray) -> FloatArray:
        """Scores (m,) of labels that were found, at least `LEAST`; those of less frequent labels are a bit lower."""
        return np.maximum(scores, np.float32(2 * LEAST)) - self.penalties[ids]

    def fill(self, ids: IntArray, scores: FloatArray, label_filter: LabelFilter | None = None) -> None:
        """Put labels that were not found into the padding of a ranking (n, k), the most frequent first.

        Their scores do not depend on the labels that were found.
        """
        k = ids.shape[1] if label_filter is None else min(ids.shape[1], len(label_filter))
        if k == 0 or ids[:, k - 1].min(initial=0) >= 0:
            return
        frequent = self.order
        if label_filter is not None:
            allowed = label_filter.allowed
            frequent = label_filter.prepared(self, lambda: self.order[allowed[self.order]])
        first = frequent[:k].tolist()  # at most n of them are among the n labels of a row
        for row in np.flatnonzero(ids[:, k - 1] < 0):
            found = ids[row, :k].tolist()
            n = found.index(-1)
            listed = set(found[:n])  # of a single query: np.isin takes longer than all else
            rest = [label for label in first if label not in listed][: k - n]
            ids[row, n : n + len(rest)] = rest
            scores[row, n : n + len(rest)] = np.float32(LEAST) - self.penalties[rest]
