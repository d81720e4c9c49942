"""Features of (sample, label) pairs from the evidence of several models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ramify.base.sparse import csr_from_parts, indptr_from_counts
from ramify.base.types import AnyArray, BoolArray, Csr, FloatArray, IntArray, LongArray
from ramify.rank.evidence import Evidence

ABSENT = np.float32(-1)
"""Value of the features of a model that has not found the label."""
OWN = ("frequency", "found", "agreement")
"""Features of a pair beside those of the models: how frequent the label is, how many models have found it, and the mean
of their scores relative to the best of the sample."""


BELOW = np.float32(1e-3)
"""Fraction that a raised probability stays below the best of its row, at most."""


class Pairs(NamedTuple):
    """The candidates of n samples: the union of what the models have found.

    Attributes
    ----------
    rows, ids : (m,) sample and label, by ascending samples and labels
    columns : (d, m) features of the pairs
    """

    rows: LongArray
    ids: IntArray
    columns: FloatArray

    def to_csr(self, values: FloatArray, shape: tuple[int, int]) -> Csr:
        """Return values (m,) of the pairs as a matrix (n × L)."""
        indptr = indptr_from_counts(np.bincount(self.rows, minlength=shape[0])).astype(np.int32)
        return csr_from_parts(values, self.ids, indptr, shape)

    def take(self, chosen: BoolArray) -> Pairs:
        """Return some of the pairs."""
        return Pairs(self.rows[chosen], self.ids[chosen], self.columns[:, chosen])


def feature_names(columns: Sequence[Sequence[str]], of_rows: Sequence[Sequence[str]], keys: Sequence[str]) -> list[str]:
    """Names of the columns of `make_pairs`, from those of the evidence of models with the given keys."""
    names = list(OWN)
    for own, about_rows, key in zip(columns, of_rows, keys, strict=True):
        names += [f"{key} {name}" for name in (*own, "rank", "relative", "best")]
        names += [f"{key} {name} of the sample" for name in about_rows]
    return names


def make_pairs(evidence: Sequence[Evidence], n: int, n_labels: int, counts: AnyArray) -> Pairs:
    """Join the candidates of several models; `counts` (L,) are the training samples of each label."""
    keys = [found.rows * np.int64(n_labels) + found.ids for found in evidence]
    candidates = np.unique(np.concatenate(keys)) if keys else np.empty(0, np.int64)
    rows = candidates // n_labels
    ids = (candidates - rows * n_labels).astype(np.int32)
    width = len(OWN) + sum(len(e.columns) + 3 + len(e.of_rows) for e in evidence)
    columns = np.full((width, len(candidates)), ABSENT, np.float32)
    found_by, agreement = np.zeros(len(candidates), np.float32), np.zeros(len(candidates), np.float32)
    at = len(OWN)
    for found, own in zip(evidence, keys, strict=True):
        places = np.searchsorted(candidates, own)
        rank, relative, best = _within_rows(found, n)
        for values in (*found.columns.values(), rank, relative):
            columns[at][places] = values
            at += 1
        for values in (best, *found.of_rows.values()):
            np.take(values, rows, out=columns[at])
            at += 1
        found_by[places] += 1
        agreement[places] += relative
    columns[0], columns[1] = np.log1p(counts[ids]), found_by
    columns[2] = agreement / np.float32(max(1, len(evidence)))
    return Pairs(rows, ids, columns)


def raise_some(scores: FloatArray, rows: LongArray, chosen: BoolArray, factor: float) -> FloatArray:
    """Probabilities (m,) whose odds are multiplied by a factor where they are `chosen`.

    The best of each row stays the best: others are raised to just below it, in the order of their probabilities.
    """
    if factor == 1 or not chosen.any():
        return scores
    raised = np.where(chosen, factor * scores / (1 + (factor - 1) * scores), scores).astype(np.float32)
    if factor < 1:
        return raised
    starts = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
    at = np.cumsum(np.r_[True, rows[1:] != rows[:-1]]) - 1
    is_best = scores == np.maximum.reduceat(scores, starts)[at]
    best = np.maximum.reduceat(np.where(is_best, raised, 0), starts)[at]
    return np.where(chosen & ~is_best, np.minimum(raised, best * (1 - BELOW * (1 - raised))), raised).astype(np.float32)


def _within_rows(found: Evidence, n: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Ranks and relative scores (m,) of candidates, and the best score (n,) of each sample."""
    scores = next(iter(found.columns.values()))
    starts = indptr_from_counts(np.bincount(found.rows, minlength=n))
    best = np.full(n, ABSENT, np.float32)
    has_any = starts[1:] > starts[:-1]
    best[has_any] = scores[starts[:-1][has_any]]
    rank = (np.arange(len(scores)) - starts[found.rows]).astype(np.float32)
    of_row = best[found.rows]
    relative = np.where(of_row > 0, scores / np.where(of_row > 0, of_row, np.float32(1)), np.float32(0))
    return rank, relative.astype(np.float32), best
