"""What samplers share: targets from shortlists, and the interface of samplers that never change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ramify.base.sparse import indicator_from_ids, pattern
from ramify.base.types import AnyArray, Csr, IntArray, LongArray
from ramify.nn.encoders import Encoder
from ramify.nn.optim import Arrays


class StaticSampler:
    """Base of samplers that do not change during training."""

    def begin_epoch(self, epoch: int, encoder: Encoder) -> None:
        """Do nothing: the targets stay the same."""

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return nothing: there is no state."""
        return {}, {}

    def set_state(self, arrays: Mapping[str, AnyArray], values: dict[str, Any]) -> None:
        """Restore nothing."""


class ShortlistTargets:
    """Targets from shortlists (m, k), -1 for padding, of the training rows (m,); Y (n × L) are all samples' labels."""

    def __init__(self, Y: Csr, rows: LongArray, shortlists: IntArray) -> None:
        self.Y, self.shortlists = Y, np.sort(shortlists, axis=1)
        self._position = np.full(Y.shape[0], -1)  # of each sample among the training rows
        self._position[rows] = np.arange(len(rows))

    def targets(self, rows: LongArray) -> Csr:
        """Targets (len(rows) × L) of a batch: the labels of each sample, and its shortlist as negatives."""
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
