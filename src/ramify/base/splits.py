"""Validation sets: training rows held out for model selection."""

from __future__ import annotations

import numpy as np

from ramify.base.types import Csr, LongArray


def hold_out(Y: Csr, size: int, seed: int) -> tuple[LongArray, LongArray]:
    """Split rows into training and validation rows, both sorted.

    At most `size` rows and a tenth of the data are held out. Every label keeps a training sample, and rows without
    labels stay in the training set.

    Parameters
    ----------
    Y : (n × L) label indicator
    """
    n = Y.shape[0]
    size = min(size, n // 10)
    remaining = np.bincount(Y.indices, minlength=Y.shape[1])
    held: list[int] = []
    for row in np.random.default_rng(seed).permutation(n):
        if len(held) >= size:
            break
        labels = Y.indices[Y.indptr[row] : Y.indptr[row + 1]]
        if len(labels) and np.all(remaining[labels] > 1):
            remaining[labels] -= 1
            held.append(int(row))
    validation = np.sort(np.array(held, np.int64))
    return np.setdiff1d(np.arange(n), validation), validation
