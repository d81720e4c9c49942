"""Propensities: how likely a true label is to be seen, by how often it was seen in training (Jain et al., 2016)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify.base.types import AnyArray, DoubleArray
from ramify.io.labels import LabelVocabulary, align_labels, encode_labels

FAMILIES: dict[str, tuple[float, float]] = {
    "default": (0.55, 1.5),  # EURLex, Wiki10, AmazonCat, Delicious, WikiSeeAlso and whatever has no fit of its own
    "amazon": (0.6, 2.6),
    "wikipedia": (0.5, 0.4),  # not WikiSeeAlso
}
"""Constants (A, B) by family of data set."""


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """How often each label occurs in training.

    Attributes
    ----------
    n_points : int
        Number of training points N.
    counts : (L,) int64
        Training points of each label.
    """

    n_points: int
    counts: AnyArray

    @classmethod
    def of(cls, y: Any, vocabulary: LabelVocabulary | None = None) -> LabelCounts:
        """Count labels given as lists of names or as an indicator; with a vocabulary, in its order."""
        if isinstance(y, LabelCounts):
            return y
        matrix = encode_labels(y)[0] if vocabulary is None else align_labels(y, vocabulary)[0]
        width = matrix.shape[1] if vocabulary is None else len(vocabulary)
        return cls(matrix.shape[0], np.bincount(matrix.indices, minlength=width)[:width])


def inverse_propensity(counts: LabelCounts, family: str | tuple[float, float] = "default") -> DoubleArray:
    """Inverse propensity (L,) of each label: 1 + C (n + B)^-A with C = (ln N - 1)(B + 1)^A.

    `family` is a name in `FAMILIES` or the constants (A, B) themselves.
    """
    if isinstance(family, str):
        if family not in FAMILIES:
            raise ValueError(f"unknown propensity family {family!r}; known are {', '.join(FAMILIES)}, or give (A, B)")
        family = FAMILIES[family]
    a, b = family
    if not (math.isfinite(a) and math.isfinite(b) and a >= 0 and b > 0):
        raise ValueError(f"the propensity constants (A, B) must be finite, A from 0 up and B above 0; got {family!r}")
    # With fewer than e points ln N - 1 is negative, and rare labels would weigh less than common ones.
    c = max(0.0, math.log(max(1, counts.n_points)) - 1.0) * (b + 1.0) ** a
    return np.asarray(1.0 + c * (counts.counts + b) ** -a, np.float64)
