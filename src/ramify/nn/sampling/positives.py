"""Positives only: for heads that score all labels, or that search their negatives themselves."""

from __future__ import annotations

from ramify.base.types import Csr, LongArray
from ramify.nn.sampling.targets import StaticSampler


class Positives(StaticSampler):
    """The labels Y (n × L) of the samples, without negatives."""

    def __init__(self, Y: Csr) -> None:
        self.Y = Y

    def targets(self, rows: LongArray) -> Csr:
        """Targets (len(rows) × L) of a batch."""
        return self.Y[rows]
