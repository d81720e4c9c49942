"""Positives only: for heads that score all labels, or that search their negatives themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ramify.base.types import AnyArray, Csr, LongArray
from ramify.nn.encoders import Encoder
from ramify.nn.optim import Arrays


class StaticSampler:
    """Base of samplers that do not change during training."""

    Y: Csr

    def begin_epoch(self, epoch: int, encoder: Encoder) -> None:
        """Do nothing: the targets stay the same."""

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return nothing: there is no state."""
        return {}, {}

    def set_state(self, arrays: Mapping[str, AnyArray], values: dict[str, Any]) -> None:
        """Restore nothing."""


class Positives(StaticSampler):
    """The labels Y (n × L) of the samples, without negatives."""

    def __init__(self, Y: Csr) -> None:
        self.Y = Y

    def targets(self, rows: LongArray) -> Csr:
        """Targets (len(rows) × L) of a batch."""
        return self.Y[rows]
