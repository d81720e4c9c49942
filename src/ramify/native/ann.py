"""Int8 quantization and IVF search."""

from __future__ import annotations

from typing import TypeAlias

from ramify import _core
from ramify.base.types import CodeArray, FloatArray, IntArray, LongArray

__all__ = [
    "merge_neighbor_labels",
    "quantize",
    "search_ivf",
]

Codes: TypeAlias = tuple[CodeArray, FloatArray]
"""Vectors (n, D) in steps of their own: whole numbers (n, D rounded up to 32), and the length of a step (n,)."""


def quantize(vectors: FloatArray, threads: int) -> Codes:
    """Codes of vectors (n, D)."""
    return _core.encode_vectors(vectors, threads)


def search_ivf(
    middles: Codes,
    begin: LongArray,
    names: IntArray,
    vectors: FloatArray,
    codes: Codes,
    queries: FloatArray,
    n_read: int,
    k: int,
    ordered: bool,
    threads: int,
) -> tuple[IntArray, FloatArray]:
    """Names and products (n, k) of the best vectors in the `n_read` lists nearest to queries (n, D).

    Best first if ordered, else as they come. Without vectors (0, D) codes alone are compared.
    """
    if vectors.shape[1] != queries.shape[1] or k < 1:
        raise ValueError(f"queries of width {queries.shape[1]} for vectors of width {vectors.shape[1]}; k = {k}")
    return _core.search_lists(*middles, begin, names, vectors, *codes, queries, n_read, k, ordered, threads)


def merge_neighbor_labels(
    labels: tuple[IntArray, FloatArray],
    points: tuple[IntArray, FloatArray],
    point_labels: tuple[LongArray, IntArray],
    n_labels: int,
    share: float,
    k: int,
    threads: int,
) -> tuple[IntArray, FloatArray]:
    """Ids and scores (n, k) of labels by their own similarities (n, a) and by the labels of near points (n, b).

    `point_labels` are where the labels of each point begin, and the labels.
    """
    if labels[0].shape != labels[1].shape or points[0].shape != points[1].shape or len(labels[0]) != len(points[0]):
        raise ValueError(f"labels are {labels[0].shape}, points are {points[0].shape}")
    return _core.merge_votes(*labels, *points, *point_labels, n_labels, share, k, threads)
