"""Finite-sample guarantees from held-out rows: bounds on the mean of a loss between 0 and 1.

Conformal risk control (Angelopoulos et al., 2024) bounds the expected loss of a threshold by which a loss can only
fall. Learn then Test (Angelopoulos et al., 2022) tests any threshold for a mean loss above α, by the p-value of
Hoeffding and Bentkus.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import bdtr

from ramify.base.types import DoubleArray


def hoeffding_bentkus(mean: Any, n: Any, alpha: float) -> DoubleArray:
    """p-values of "the expected loss exceeds α", given the mean of n independent losses in [0, 1]; elementwise."""
    mean, n = np.asarray(mean, np.float64), np.asarray(n, np.float64)
    a = np.minimum(mean, alpha)
    with np.errstate(divide="ignore", invalid="ignore"):
        divergence = np.where(a > 0, a * np.log(a / alpha), 0) + np.where(
            a < 1, (1 - a) * np.log((1 - a) / (1 - alpha)), 0
        )
    hoeffding = np.exp(-n * divergence)
    bentkus = np.e * bdtr(np.minimum(np.ceil(n * mean), n), n.astype(np.int64), alpha)
    return np.where(n > 0, np.minimum(np.minimum(hoeffding, bentkus), 1.0), 1.0)


def largest_mean(n: int, alpha: float, confidence: float | None) -> float:
    """Return the largest mean loss of n rows with which the expected loss is at most α; below 0 if there is none.

    With `confidence`, that holds with this probability over the held-out rows; without, on average over them
    (conformal risk control: (n · mean + 1) / (n + 1) ≤ α).
    """
    if n == 0:
        return -1.0
    if confidence is None:
        return (alpha * (n + 1) - 1) / n
    if hoeffding_bentkus(0.0, n, alpha) > 1 - confidence:
        return -1.0
    low, high = 0.0, alpha
    for _ in range(60):
        middle = (low + high) / 2
        if hoeffding_bentkus(middle, n, alpha) <= 1 - confidence:
            low = middle
        else:
            high = middle
    return low
