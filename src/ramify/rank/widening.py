"""Rankings that are as long as a row needs: a few labels first, and more only for the rows that have more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ramify.base.sparse import csr_from_parts, indptr_from_counts
from ramify.base.types import BoolArray, Csr, FloatArray, IntArray, LongArray

MAX_KEPT = 100_000_000
"""Labels of all rows together; more would be a dense matrix in disguise."""
_BLOCK = 1 << 23
"""Entries of a search at most, so that memory grows with the labels that are kept, not with those that are ranked."""

Search = Callable[[LongArray, int], tuple[IntArray, FloatArray, BoolArray]]
"""Ids and scores (m, k) of the best labels of the given rows (m,), padded with -1, and which of them are kept."""


def kept_labels(
    search: Search, n: int, n_labels: int, width: int, is_settled: Callable[[int], bool] = lambda _k: False
) -> Csr:
    """Scores (n × n_labels) of the labels that the search keeps.

    Each row is ranked to `width` labels; a row whose last label is kept is ranked again to four times as many, unless k
    labels are settled to be enough.
    """
    parts: list[tuple[LongArray, IntArray, FloatArray]] = []
    open_rows, k, n_kept = np.arange(n), min(width, n_labels), 0
    while len(open_rows):
        still_open = []
        size = max(1, _BLOCK // k)
        for start in range(0, len(open_rows), size):
            rows = open_rows[start : start + size]
            ids, scores, kept = search(rows, k)
            kept &= ids >= 0
            if k < n_labels and not is_settled(k):
                still_open.append(rows[kept[:, -1]])
                kept[kept[:, -1]] = False  # until they are ranked again
            n_kept += int(np.count_nonzero(kept))
            if n_kept > MAX_KEPT:
                raise ValueError(
                    f"more than {MAX_KEPT:,} labels are chosen; raise the threshold, pass fewer rows at a time, or use "
                    "predict_topk"
                )
            parts.append((np.repeat(rows, kept.sum(axis=1)), ids[kept], scores[kept]))
        open_rows = np.concatenate([np.empty(0, np.int64), *still_open])
        k = min(4 * k, n_labels)
    rows, ids, scores = (np.concatenate(columns) for columns in zip(*parts, strict=True)) if parts else _nothing()
    order = np.lexsort((ids, rows))
    indptr = indptr_from_counts(np.bincount(rows, minlength=n)).astype(np.int32)
    return csr_from_parts(scores[order], ids[order].astype(np.int32), indptr, (n, n_labels))


def _nothing() -> tuple[LongArray, IntArray, FloatArray]:
    return np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.float32)
