"""Encoders, the label graph, candidate scoring and Adam for the neural models."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from ramify import _core
from ramify._core import TextEncoder
from ramify.base.types import ByteArray, Csr, DoubleArray, FloatArray, IntArray, LongArray

__all__ = [
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

Adam: TypeAlias = tuple[float, float, float, float, float, int]
"""Learning rate, two decay rates, epsilon, weight decay and the number of the step, from 1 on."""


Pairs: TypeAlias = tuple[IntArray, LongArray, LongArray]
"""Pairs of a batch by table row: rows in use, where the pairs of each begin, and their places in the lists."""


def embed_bags(X: Csr, words: FloatArray, residual: FloatArray, offset: FloatArray, threads: int) -> FloatArray:
    """Vectors (n, D) of sparse rows (n × V) by word vectors (V, D) and a residual layer; see cpp/bag.h."""
    if X.shape[1] != words.shape[0]:
        raise ValueError(f"X has {X.shape[1]} features, there are {words.shape[0]} word vectors")
    return _core.encode_bags(X.indptr, X.indices, X.data, words, residual, offset, threads)


def embed_dense(h: FloatArray, residual: FloatArray, offset: FloatArray, threads: int) -> FloatArray:
    """Vectors (n, D) with a residual layer on top."""
    if h.shape[1] != residual.shape[0]:
        raise ValueError(f"vectors of width {h.shape[1]} for a layer of width {residual.shape[0]}")
    return _core.encode_dense(h, residual, offset, threads)


def explore_graph(
    graph: tuple[LongArray, IntArray, FloatArray],
    n_labels: int,
    clusters: FloatArray,
    order: FloatArray,
    beam: int,
    width: int,
    truth: tuple[LongArray, IntArray, IntArray] | None,
    threads: int,
) -> tuple[IntArray, FloatArray, IntArray, ByteArray, FloatArray, IntArray]:
    """Shortlists of labels for rows of cluster scores; see cpp/shortlist.h.

    Parameters
    ----------
    graph : where the edges of each cluster begin (C + 1,), their labels and log scores (E,)
    clusters, order : (n, C) log scores of the clusters, and what the best `beam` are chosen by
    truth : where the labels of each row begin (n + 1,), the labels, and a cluster for each that is explored too

    Returns
    -------
    labels, scores, edges, targets : (n, width); scores and edges of the truth
    """
    if clusters.shape != order.shape or clusters.shape[1] != len(graph[0]) - 1:
        raise ValueError(f"scores {clusters.shape} and order {order.shape} for {len(graph[0]) - 1} clusters")
    return _core.explore(*graph, n_labels, clusters, order, beam, width, truth, threads)


def scatter_path_gradients(
    edges: IntArray, gradients: FloatArray, edge_cluster: IntArray, by_cluster: FloatArray, by_edge: DoubleArray
) -> None:
    """Add gradients of labels (n, k) to the cluster (n, C) and the edge (E,) of their best path."""
    _core.spread_gradients(edges, gradients, edge_cluster, by_cluster, by_edge)


def path_loss(
    labels: IntArray, scores: FloatArray, logits: FloatArray, targets: ByteArray, weight: float, threads: int
) -> tuple[float, FloatArray, FloatArray]:
    """Loss of σ(logit) · e^score (n, k) against the targets, and its gradients by score and by logit."""
    return _core.path_loss(labels, scores, logits, targets, weight, threads)


def group_pairs(lists: IntArray, n_rows: int) -> Pairs:
    """Group the entries of lists (n, k) of table rows, -1 for none, by table row."""
    return _core.group_pairs(lists, n_rows)


def gather_dot(
    pairs: Pairs, width: int, table: FloatArray, offset: FloatArray, vectors: FloatArray, threads: int
) -> FloatArray:
    """Products (n, width) of vectors (n, D) with the rows of a table on their lists, 0 where there is none."""
    return _core.gather_dot(pairs, width, table, offset, vectors, threads)


def gather_dot_backward(pairs: Pairs, table: FloatArray, gradients: FloatArray, threads: int) -> FloatArray:
    """Gradients of the vectors (n, D) from those of their products (n, k)."""
    return _core.gather_dot_back(pairs, table, gradients, threads)


def rank_blended(
    classifiers: tuple[FloatArray, FloatArray],
    beta: float,
    lists: IntArray,
    evidence: FloatArray,
    vectors: FloatArray,
    k: int,
    threads: int,
) -> tuple[IntArray, FloatArray]:
    """Ids and scores (n, k) of the best of lists (n, m) by classifiers on vectors (n, D) and by evidence (n, m)."""
    if lists.shape != evidence.shape or k < 1 or classifiers[0].shape[1] != vectors.shape[1]:
        raise ValueError(f"lists are {lists.shape}, evidence is {evidence.shape}, vectors are {vectors.shape}; k = {k}")
    lists, evidence = np.ascontiguousarray(lists, np.int32), np.ascontiguousarray(evidence, np.float32)
    return _core.rank_lists(*classifiers, beta, lists, evidence, vectors, k, threads)


def score_edges(
    begin: LongArray, state: tuple[FloatArray, FloatArray, FloatArray], log_beta: float, threads: int
) -> None:
    """Raw log scores log β + log softmax within the cluster, and the same cut at 0, (E,) each, from logits."""
    _core.score_edges(begin, *state, log_beta, threads)


def adam_edges(
    begin: LongArray,
    gradients: DoubleArray,
    state: tuple[FloatArray, FloatArray, FloatArray],
    moments: tuple[FloatArray, FloatArray],
    clusters: IntArray,
    log_beta: float,
    adam: Adam,
    threads: int,
) -> None:
    """One step of Adam for the edges of some clusters, in place; state: logits, raw and cut log scores, (E,) each."""
    _core.step_edges(begin, gradients, *state, *moments, clusters, log_beta, adam, threads)


def adam_rows(
    pairs: Pairs,
    gradients: FloatArray,
    vectors: FloatArray,
    table: FloatArray,
    offset: FloatArray | None,
    slots: LongArray,
    moments: tuple[FloatArray, FloatArray],
    adam: Adam,
    threads: int,
) -> None:
    """One step of Adam for the rows of a table that are in use, in place; see cpp/gather.h."""
    _core.row_adam(pairs, gradients, vectors, table, offset, slots, *moments, adam, threads)


def adam_dense(values: FloatArray, gradients: FloatArray, moments: tuple[FloatArray, FloatArray], adam: Adam) -> None:
    """One step of Adam for an array of any shape, in place."""
    first, second = moments
    _core.flat_adam(values.reshape(-1), gradients.reshape(-1), first.reshape(-1), second.reshape(-1), adam)


def search_graph(
    graph: tuple[LongArray, IntArray, FloatArray],
    clusters: tuple[FloatArray, FloatArray],
    labels: tuple[FloatArray, FloatArray],
    log_alpha: float,
    beam: int,
    width: int,
    vectors: FloatArray,
    k: int,
    threads: int,
) -> tuple[IntArray, FloatArray]:
    """Ids and log scores (n, k) of the best labels of vectors (n, D); clusters and labels as weights and offsets."""
    if not clusters[0].shape[1] == labels[0].shape[1] == vectors.shape[1]:
        raise ValueError(f"vectors of width {vectors.shape[1]} for weights of another width")
    return _core.search_graph(*graph, *clusters, *labels, log_alpha, beam, width, vectors, k, threads)
