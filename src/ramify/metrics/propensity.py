"""Label propensities (Jain et al., 2016): the probability that a relevant label is observed.

    p_l = 1 / (1 + C (N_l + B)^-A),    C = (ln N - 1) (B + 1)^A

with N training samples, N_l of them with label l, and constants A and B of the data set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify.base.types import AnyArray, DoubleArray
from ramify.io.labels import LabelVocabulary, align_labels, encode_labels

FAMILIES: dict[str, tuple[float, float]] = {
    "default": (0.55, 1.5),  # EURLex, Wiki10, AmazonCat, Delicious, WikiSeeAlso and others without published constants
    "amazon": (0.6, 2.6),
    "wikipedia": (0.5, 0.4),  # except WikiSeeAlso
}
"""Constants (A, B) by family of data set."""


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """Training frequencies of the labels.

    Attributes
    ----------
    n_samples : int
        Number of training samples N.
    counts : (L,) int64
        Number of training samples N_l of each label.
    """

    n_samples: int
    counts: AnyArray

    @classmethod
    def of(cls, y: Any, vocabulary: LabelVocabulary | None = None) -> LabelCounts:
        """Count labels given as lists or as an indicator (n × L); with a vocabulary, in the order of its ids."""
        if isinstance(y, LabelCounts):
            return y
        matrix = encode_labels(y)[0] if vocabulary is None else align_labels(y, vocabulary)[0]
        width = matrix.shape[1] if vocabulary is None else len(vocabulary)
        return cls(matrix.shape[0], np.bincount(matrix.indices, minlength=width)[:width])


def inverse_propensity(counts: LabelCounts, family: str | tuple[float, float] = "default") -> DoubleArray:
    """Inverse propensities 1 / p_l (L,).

    `family` is a key of `FAMILIES` or the constants (A, B).
    """
    if isinstance(family, str):
        if family not in FAMILIES:
            raise ValueError(f"unknown propensity family {family!r}; available: {', '.join(FAMILIES)}, or pass (A, B)")
        family = FAMILIES[family]
    a, b = family
    if not (math.isfinite(a) and math.isfinite(b) and a >= 0 and b > 0):
        raise ValueError(f"the propensity constants (A, B) must be finite, A >= 0 and B > 0; got {family!r}")
    # For N < e, ln N - 1 is negative: rare labels would get smaller weights than frequent ones.
    c = max(0.0, math.log(max(1, counts.n_samples)) - 1.0) * (b + 1.0) ** a
    return np.asarray(1.0 + c * (counts.counts + b) ** -a, np.float64)
