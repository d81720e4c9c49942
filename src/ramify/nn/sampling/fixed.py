"""Fixed shortlists: each sample trains on its own labels and on candidates that are given once."""

from __future__ import annotations

from ramify.nn.sampling.targets import ShortlistTargets, StaticSampler


class FixedShortlists(ShortlistTargets, StaticSampler):
    """Shortlists that do not change during training; see `ShortlistTargets` for the parameters."""
