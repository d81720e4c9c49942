"""Candidates of samples, as the retrieval of LightDXML and Astec gives them, and rankings of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ramify.base.types import FloatArray, IntArray
from ramify.rank.filters import LabelFilter

MAX_COMPARED = 100_000
"""Pairs of ids that are compared directly; more are sorted."""


class Retrieval(NamedTuple):
    """Candidates (n, k) with their similarities, and the embeddings (n, D) that the classifiers see.

    With a filter `allowed` are ids and similarities (n, m) of the nearest allowed labels; some may be candidates, of
    which k = 0 are retrieved where the allowed labels are all that is needed.
    """

    ids: IntArray
    similarities: FloatArray
    phi: FloatArray
    allowed: tuple[IntArray, FloatArray] | None = None


class AllowedLabels(NamedTuple):
    """A filter, and how many of the labels that it allows are wanted."""

    label_filter: LabelFilter
    k: int


class Ranked(NamedTuple):
    """Ids and scores (n, k) of labels, best first, and the best score (n, 1) of each row, whatever is allowed."""

    ids: IntArray
    scores: FloatArray
    best: FloatArray


def no_candidates(n: int) -> tuple[IntArray, FloatArray]:
    """Ids and similarities (n, 0) of no candidates."""
    return np.empty((n, 0), np.int32), np.empty((n, 0), np.float32)


def add_candidates(
    found: tuple[IntArray, FloatArray], more: tuple[IntArray, FloatArray], n_labels: int
) -> tuple[IntArray, FloatArray]:
    """Ids and similarities (n, k + m) of candidates (n, k) and more (n, m), each label once."""
    ids = np.concatenate([found[0], unlisted(more[0], found[0], n_labels)], axis=1)
    return ids, np.concatenate([found[1], more[1]], axis=1)


def unlisted(ids: IntArray, listed: IntArray, n_labels: int) -> IntArray:
    """Ids (n, m) of labels, -1 in place of those that are listed (n, k) in the same row already."""
    if ids.size * listed.shape[1] <= MAX_COMPARED:
        return np.where((ids[:, :, None] == listed[:, None, :]).any(axis=2), np.int32(-1), ids)
    rows = np.arange(len(ids), dtype=np.int64)[:, None] * n_labels
    return np.where(np.isin(rows + ids, (rows + listed)[listed >= 0]), np.int32(-1), ids)
