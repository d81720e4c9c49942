"""Encoders, the label graph, candidate scoring and Adam for the neural models."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from ramify import _core
from ramify._core import AdamOptions, TextEncoder
from ramify.base.types import ByteArray, Csr, DoubleArray, FloatArray, IntArray, LongArray

__all__ = [
    "AdamOptions",
    "Pairs",
    "TextEncoder",
    "adam_dense",
    "adam_edges",
    "adam_rows",
    "embed_bags",
    "embed_dense",
    "explore_graph",
    "gather_dot",
    "gather_dot_backward",
    "group_pairs",
    "path_loss",
    "rank_blended",
    "scatter_path_gradients",
    "score_edges",
    "search_graph",
]

Pairs: TypeAlias = tuple[IntArray, LongArray, LongArray]
"""Pairs of a batch by table row: rows in use (m,), indptr (m + 1,) and positions in the candidate lists."""


def embed_bags(X: Csr, words: FloatArray, residual: FloatArray, bias: FloatArray, threads: int) -> FloatArray:
    """Embeddings (n, D) of sparse rows (n × V) by word embeddings (V, D) and a residual layer (D, D).

    See cpp/neural/bag_encoder.h for the equation.
    """
    if X.shape[1] != words.shape[0]:
        raise ValueError(f"X has {X.shape[1]} features, there are {words.shape[0]} word embeddings")
    return _core.embed_bags(X, words, residual, bias, threads)


def embed_dense(h: FloatArray, residual: FloatArray, bias: FloatArray, threads: int) -> FloatArray:
    """Embeddings (n, D) of dense inputs h (n, D) by the residual layer alone."""
    if h.shape[1] != residual.shape[0]:
        raise ValueError(f"inputs of dimension {h.shape[1]} for a layer of dimension {residual.shape[0]}")
    return _core.embed_dense(h, residual, bias, threads)


def explore_graph(
    graph: tuple[LongArray, IntArray, FloatArray],
    n_labels: int,
    clusters: FloatArray,
    order: FloatArray,
    beam_size: int,
    width: int,
    truth: tuple[LongArray, IntArray, IntArray] | None,
    threads: int,
) -> tuple[IntArray, FloatArray, IntArray, ByteArray, FloatArray, IntArray]:
    """Shortlists of labels by their best paths through the label graph; see cpp/neural/explore.h.

    Parameters
    ----------
    graph : edges of each cluster: indptr (C + 1,), labels and log weights (E,)
    clusters, order : (n, C) log scores of the clusters, and what the best `beam_size` are chosen by
    truth : true labels of each row: indptr (n + 1,), labels, and a cluster for each that is explored besides the beam

    Returns
    -------
    labels, scores, edges, targets : (n, width); path scores and edges of the true labels
    """
    if clusters.shape != order.shape or clusters.shape[1] != len(graph[0]) - 1:
        raise ValueError(f"scores {clusters.shape} and order {order.shape} for {len(graph[0]) - 1} clusters")
    return _core.explore_graph(graph, n_labels, clusters, order, beam_size, width, truth, threads)


def scatter_path_gradients(
    edges: IntArray, gradients: FloatArray, edge_cluster: IntArray, d_clusters: FloatArray, d_edges: DoubleArray
) -> None:
    """Add gradients of path scores (n, k) to the cluster (n, C) and the edge (E,) of each path, in place."""
    _core.scatter_path_gradients(edges, gradients, edge_cluster, d_clusters, d_edges)


def path_loss(
    labels: IntArray, scores: FloatArray, logits: FloatArray, targets: ByteArray, weights: FloatArray, threads: int
) -> tuple[float, FloatArray, FloatArray]:
    """Binary cross-entropy of σ(logit) · e^score (n, k) against the targets, with its gradients by score and logit.

    `weights` (n,) are those of the rows in the sum.
    """
    if weights.shape != (len(labels),):
        raise ValueError(f"weights {weights.shape} for {len(labels)} rows")
    return _core.path_loss(labels, scores, logits, targets, weights, threads)


def group_pairs(candidates: IntArray, n_rows: int) -> Pairs:
    """Group candidates (n, k), ids of table rows or -1 for none, by table row."""
    return _core.group_pairs(candidates, n_rows)


def gather_dot(
    pairs: Pairs, width: int, table: FloatArray, bias: FloatArray, embeddings: FloatArray, threads: int
) -> FloatArray:
    """Products (n, width) of embeddings (n, D) with the table rows of their candidates, 0 where there is none."""
    return _core.gather_dot(pairs, width, table, bias, embeddings, threads)


def gather_dot_backward(pairs: Pairs, table: FloatArray, gradients: FloatArray, threads: int) -> FloatArray:
    """Gradients of the embeddings (n, D) from those of their products (n, k)."""
    return _core.gather_dot_backward(pairs, table, gradients, threads)


def rank_blended(
    classifiers: tuple[FloatArray, FloatArray],
    beta: float,
    by_row: bool,
    candidates: IntArray,
    similarities: FloatArray,
    embeddings: FloatArray,
    k: int,
    threads: int,
) -> tuple[IntArray, FloatArray]:
    """Ids and blended scores (n, k) of the best candidates (n, m) of embeddings (n, D).

    Classifiers (weights (L, D) and bias (L,)) count with weight beta, similarities (n, m) with 1 - beta; `by_row`
    relative to the largest of a row. See cpp/neural/rank_blended.h.
    """
    if candidates.shape != similarities.shape or k < 1 or classifiers[0].shape[1] != embeddings.shape[1]:
        raise ValueError(
            f"candidates are {candidates.shape}, similarities are {similarities.shape}, embeddings are "
            f"{embeddings.shape}, classifiers are {classifiers[0].shape}; k = {k}"
        )
    candidates, similarities = (
        np.ascontiguousarray(candidates, np.int32),
        np.ascontiguousarray(similarities, np.float32),
    )
    return _core.rank_blended(classifiers, beta, by_row, candidates, similarities, embeddings, k, threads)


def score_edges(
    indptr: LongArray, edges: tuple[FloatArray, FloatArray, FloatArray], log_beta: float, threads: int
) -> None:
    """Compute the log weights of edges from their logits, in place; edges: logits, raw and clipped log weights (E,)."""
    _core.score_edges(indptr, edges, log_beta, threads)


def adam_edges(
    indptr: LongArray,
    gradients: DoubleArray,
    edges: tuple[FloatArray, FloatArray, FloatArray],
    moments: tuple[FloatArray, FloatArray],
    clusters: IntArray,
    log_beta: float,
    options: AdamOptions,
    threads: int,
) -> None:
    """One step of Adam for the edges of some clusters, in place; edges as in `score_edges`."""
    _core.adam_edges(indptr, gradients, edges, moments, clusters, log_beta, options, threads)


def adam_rows(
    pairs: Pairs,
    gradients: FloatArray,
    embeddings: FloatArray,
    table: FloatArray,
    bias: FloatArray | None,
    slots: LongArray,
    moments: tuple[FloatArray, FloatArray],
    options: AdamOptions,
    threads: int,
) -> None:
    """One step of Adam for the rows of a table that are in use, in place; see cpp/neural/adam.h."""
    _core.adam_rows(pairs, gradients, embeddings, table, bias, slots, moments, options, threads)


def adam_dense(
    values: FloatArray, gradients: FloatArray, moments: tuple[FloatArray, FloatArray], options: AdamOptions
) -> None:
    """One step of Adam for an array of any shape, in place."""
    first, second = moments
    flat = first.reshape(-1), second.reshape(-1)
    _core.adam_dense(values.reshape(-1), gradients.reshape(-1), flat, options)


def search_graph(
    graph: tuple[LongArray, IntArray, FloatArray],
    clusters: tuple[FloatArray, FloatArray],
    labels: tuple[FloatArray, FloatArray],
    log_alpha: float,
    beam_size: int,
    shortlist_size: int,
    embeddings: FloatArray,
    k: int,
    threads: int,
) -> tuple[IntArray, FloatArray]:
    """Ids and log scores (n, k) of the best labels of embeddings (n, D); clusters and labels as weights and bias."""
    if not clusters[0].shape[1] == labels[0].shape[1] == embeddings.shape[1]:
        raise ValueError(
            f"embeddings of dimension {embeddings.shape[1]} for cluster weights {clusters[0].shape} and label weights "
            f"{labels[0].shape}"
        )
    return _core.search_graph(graph, clusters, labels, log_alpha, beam_size, shortlist_size, embeddings, k, threads)
