"""Fixed shortlists: each sample trains on its own labels and on candidates that are given once."""

from __future__ import annotations

import numpy as np

from ramify.base.sparse import indicator_from_ids, pattern
from ramify.base.types import Csr, IntArray, LongArray
from ramify.nn.sampling.positives import StaticSampler


class FixedShortlists(StaticSampler):
    """Candidates (m, k) of the training rows (m,), with the labels Y (n × L) of all samples."""

    def __init__(self, Y: Csr, rows: LongArray, shortlists: IntArray) -> None:
        self.Y = Y
        self._shortlists = ShortlistTargets(Y, rows, shortlists)

    def targets(self, rows: LongArray) -> Csr:
        """Targets (len(rows) × L) of a batch."""
        return self._shortlists.targets(rows)


class ShortlistTargets:
    """Targets from shortlists (m, k), -1 for padding, of the training rows (m,)."""

    def __init__(self, Y: Csr, rows: LongArray, shortlists: IntArray) -> None:
        self.Y, self.shortlists = Y, np.sort(shortlists, axis=1)
        self._position = np.full(Y.shape[0], -1)  # of each sample among the training rows
        self._position[rows] = np.arange(len(rows))

    def targets(self, rows: LongArray) -> Csr:
        """Targets (len(rows) × L): the labels of each sample, and its shortlist as negatives."""
        Y = self.Y[rows]
        candidates = indicator_from_ids(self.shortlists[self._position[rows]], Y.shape[1], are_sorted=True)
        return with_negatives(pattern((candidates + Y).tocsr()), Y)


def with_negatives(candidates: Csr, positives: Csr) -> Csr:
    """Targets (n × m): the weights of the positives, and explicit zeros for all other candidates.

    Parameters
    ----------
    candidates : (n × m) ones for positives and negatives
    positives : (n × m) weights above 0
    """
    # Sparse sums drop zeros, so 1 is added first and subtracted at the end.
    targets = (candidates + positives).tocsr()
    targets.sort_indices()
    targets.data -= 1.0
    return targets
