"""Int8 quantization and IVF search."""

from __future__ import annotations

from typing import TypeAlias

from ramify import _core
from ramify.base.types import ByteArray, CodeArray, FloatArray, IntArray, LongArray

__all__ = [
    "Codes",
    "merge_neighbor_labels",
    "quantize",
    "search_ivf",
    "vote_neighbor_labels",
]

Codes: TypeAlias = tuple[CodeArray, FloatArray]
"""Quantized vectors (n, D): int8 codes (n, D rounded up to a multiple of 32) and scales (n,)."""


def quantize(vectors: FloatArray, threads: int) -> Codes:
    """Int8 codes and scales of vectors (n, D)."""
    return _core.quantize(vectors, threads)


def search_ivf(
    centroids: Codes,
    indptr: LongArray,
    ids: IntArray,
    vectors: FloatArray,
    codes: Codes,
    queries: FloatArray,
    nprobe: int,
    k: int,
    ordered: bool,
    threads: int,
) -> tuple[IntArray, FloatArray]:
    """Ids and inner products (n, k) of the best vectors in the `nprobe` lists nearest to each query (n, D).

    Best first if ordered, else in any order. With empty vectors (0, D) only the codes are compared.
    """
    if vectors.shape[1] != queries.shape[1] or k < 1:
        raise ValueError(
            f"queries of dimension {queries.shape[1]} for vectors of dimension {vectors.shape[1]}; k = {k}"
        )
    return _core.search_ivf(centroids, indptr, ids, vectors, codes, queries, nprobe, k, ordered, threads)


def merge_neighbor_labels(
    labels: tuple[IntArray, FloatArray],
    samples: tuple[IntArray, FloatArray],
    sample_labels: tuple[LongArray, IntArray],
    n_labels: int,
    weight: float,
    allowed: ByteArray | None,
    k: int,
    threads: int,
) -> tuple[IntArray, FloatArray]:
    """Ids and scores (n, k) of labels by their own similarities (n, a) and by the labels of near samples (n, b).

    `sample_labels` are the indptr and the label ids of all training samples, of which only those `allowed` (n_labels,)
    are found; see cpp/ann/neighbor_labels.h.
    """
    if allowed is not None and len(allowed) != n_labels:
        raise ValueError(f"{len(allowed)} labels are allowed or not; there are {n_labels}")
    if labels[0].shape != labels[1].shape or samples[0].shape != samples[1].shape or len(labels[0]) != len(samples[0]):
        raise ValueError(f"labels are {labels[0].shape}, samples are {samples[0].shape}")
    return _core.merge_neighbor_labels(labels, samples, sample_labels, n_labels, weight, allowed, k, threads)


def vote_neighbor_labels(
    samples: tuple[IntArray, FloatArray],
    sample_labels: tuple[LongArray, IntArray],
    weights: FloatArray | None,
    n_labels: int,
    power: float,
    least: float,
    penalties: FloatArray,
    allowed: ByteArray | None,
    k: int,
    threads: int,
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Ids, votes, numbers of near samples and largest similarities (n, k) of the labels of near samples (n, b).

    `sample_labels` are the indptr and the label ids of all training samples; see cpp/ann/neighbor_labels.h.
    """
    if samples[0].shape != samples[1].shape or k < 1:
        raise ValueError(f"samples are {samples[0].shape} and {samples[1].shape}; k = {k}")
    if (weights is not None and len(weights) != len(sample_labels[0]) - 1) or (
        allowed is not None and len(allowed) != n_labels
    ):
        raise ValueError("weights of samples or allowed labels have another length")
    if len(penalties) != n_labels:
        raise ValueError(f"there are {len(penalties)} penalties for {n_labels} labels")
    options = n_labels, power, least, penalties, allowed, k, threads
    return _core.vote_neighbor_labels(samples, sample_labels, weights, *options)
