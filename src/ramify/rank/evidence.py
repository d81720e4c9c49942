"""What a model knows about the labels that it finds for each sample, as features of (sample, label) pairs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ramify.base.types import FloatArray, IntArray, LongArray


class Evidence(NamedTuple):
    """Candidates of n samples, with what speaks for each.

    Attributes
    ----------
    rows, ids : (m,) sample and label of each candidate; those of a sample best first, by ascending samples
    columns : (m,) values by name; the first is the score
    of_rows : (n,) values of the samples, by name
    """

    rows: LongArray
    ids: IntArray
    columns: dict[str, FloatArray]
    of_rows: dict[str, FloatArray]

    @classmethod
    def of_ranking(
        cls, ids: IntArray, columns: dict[str, FloatArray], of_rows: dict[str, FloatArray] | None = None
    ) -> Evidence:
        """Return the evidence of a ranking (n, k), padded with -1; columns are (n, k)."""
        valid = ids >= 0
        rows = np.repeat(np.arange(len(ids)), valid.sum(axis=1))
        return cls(rows, ids[valid], {name: values[valid] for name, values in columns.items()}, of_rows or {})
