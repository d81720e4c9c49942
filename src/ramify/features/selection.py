"""Which terms of a corpus become features, by their frequencies."""

from __future__ import annotations

import math

import numpy as np

from ramify.base.types import AnyArray, BoolArray


def df_range(n: int, min_df: int | float, max_df: int | float, needs_terms: bool) -> tuple[int, int]:
    """Documents, of n, that a term must and may occur in; both bounds are counts or fractions."""
    low = min_df if isinstance(min_df, int) else min_df * n
    high = max_df if isinstance(max_df, int) else max_df * n
    if high < low and needs_terms:
        raise ValueError(f"max_df={max_df!r} corresponds to fewer documents than min_df={min_df!r}")
    return math.ceil(low), math.floor(high)


def most_frequent(df: AnyArray, frequency: AnyArray, max_features: int | None, needs_terms: bool) -> BoolArray | None:
    """Mask of the max_features most frequent terms, None: all; ties as in scikit-learn, which sorts integer counts."""
    if len(df) == 0 and needs_terms:
        raise ValueError(
            "no terms: the documents are empty or contain only stop words, or min_df and max_df exclude all terms"
        )
    if max_features is None or len(df) <= max_features:
        return None
    counts = frequency.astype(np.int64)
    order = (-(counts if np.array_equal(counts, frequency) else frequency)).argsort()[:max_features]
    keep = np.zeros(len(frequency), bool)
    keep[order] = True
    return keep
