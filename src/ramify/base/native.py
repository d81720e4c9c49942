"""The one door to the compiled core: it checks what goes in and names what comes out, and computes nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ramify import _core
from ramify._core import Analyzer, BeamTree, CorpusCounts, TextEncoder, Tfidf, XmcText
from ramify.base.mixed import Mixed
from ramify.base.sparse import csr_from_parts
from ramify.base.types import AnyArray, ByteArray, CodeArray, Csr, DoubleArray, FloatArray, IntArray, LongArray

__all__ = [
    "Analyzer",
    "BeamTree",
    "CorpusCounts",
    "TextEncoder",
    "Tfidf",
    "XmcText",
    "balanced_halves",
    "blend_rankings",
    "csr_topk",
    "encode_bags",
    "encode_dense",
    "encode_vectors",
    "explore",
    "fit_ovr",
    "flat_adam",
    "gather_dot",
    "gather_dot_back",
    "group_pairs",
    "is_canonical",
    "isa",
    "kmeans",
    "largest_entries",
    "make_analyzer",
    "merge_votes",
    "pack_weights",
    "path_loss",
    "rank_lists",
    "ranking_hits",
    "ranking_sums",
    "row_adam",
    "score_edges",
    "score_lists",
    "search_graph",
    "search_lists",
    "spmm",
    "spmm_dense",
    "spread_gradients",
    "step_edges",
]

Pairs: TypeAlias = tuple[IntArray, LongArray, LongArray]
"""Pairs of a batch by table row: rows in use, where the pairs of each begin, and their places in the lists."""
Adam: TypeAlias = tuple[float, float, float, float, float, int]
"""Learning rate, two decay rates, epsilon, weight decay and the number of the step, from 1 on."""

Codes: TypeAlias = tuple[CodeArray, FloatArray]
"""Vectors (n, D) in steps of their own: whole numbers (n, D rounded up to 32), and the length of a step (n,)."""


def isa() -> str:
    """Instruction set that the hot loops use here: "avx512", "avx2" or "baseline"."""
    return _core.isa()


def make_analyzer(
    unit: str, ngram_range: tuple[int, int], lowercase: bool, min_token: int, stop_words: Sequence[str]
) -> Analyzer:
    """Analyser that cuts texts into terms; unit is "word", "char" or "char_wb"."""
    if unit not in ("word", "char", "char_wb"):
        raise ValueError(f"unknown unit of analysis {unit!r}")
    low, high = ngram_range
    if not 1 <= low <= high <= 100:
        raise ValueError(f"ngram_range must be (low, high) with 1 <= low <= high <= 100; got {ngram_range!r}")
    return _core.Analyzer(unit, low, high, lowercase, min_token, list(stop_words))


def is_canonical(matrix: Csr) -> bool:
    """Whether a float32 CSR matrix is whole, sorted, without repeated columns, and finite; in one look."""
    n, d = matrix.shape
    return _core.is_canonical(matrix.indptr, matrix.indices, matrix.data, n, d)


def csr_topk(matrix: Csr, k: int, threads: int) -> tuple[IntArray, FloatArray]:
    """Ids and scores (n, k) of the k best entries of each row of a canonical float32 CSR matrix."""
    if k < 1:
        raise ValueError(f"k must be at least 1; got {k}")
    return _core.csr_topk(matrix.indptr, matrix.indices, matrix.data, k, threads)


def list_topk(ids: IntArray, scores: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
    """The k best of lists (n, m), best first, equal ones by number; -1 and -inf where there are no more."""
    if ids.shape != scores.shape or k < 0:
        raise ValueError(f"ids are {ids.shape}, scores are {scores.shape}, and {k} are asked for")
    return _core.list_topk(np.ascontiguousarray(ids, np.int32), np.ascontiguousarray(scores, np.float32), k, threads)


def spmm(a: Csr, b: Csr, threads: int, *, unit_rows: bool = False) -> Csr:
    """Product (m × q) of two canonical float32 CSR matrices (m × p, p × q), rows of length 1 if asked."""
    _same_inner(a, b)
    wide = np.int64 if np.int64 in (a.indices.dtype, b.indices.dtype) else np.int32
    a_indptr, a_indices, b_indptr, b_indices = (
        part.astype(wide, copy=False) for part in (a.indptr, a.indices, b.indptr, b.indices)
    )
    indptr, indices, data = _core.spmm(
        a_indptr, a_indices, a.data, b_indptr, b_indices, b.data, b.shape[1], unit_rows, threads
    )
    return csr_from_parts(data, indices, indptr, (a.shape[0], b.shape[1]))


def spmm_dense(a: Csr, b: FloatArray, threads: int) -> FloatArray:
    """Product (m, q) of a canonical float32 CSR matrix (m × p) and a dense one (p, q)."""
    _same_inner(a, b)
    return _core.spmm_dense(a.indptr, a.indices, a.data, np.ascontiguousarray(b, np.float32), threads)


def largest_entries(matrix: Csr, n: int, threads: int) -> Csr:
    """Return the n entries of each row of a canonical float32 CSR matrix that have the largest magnitude."""
    indptr, indices, data = _core.largest_entries(matrix.indptr, matrix.indices, matrix.data, n, threads)
    return csr_from_parts(data, indices, indptr, matrix.shape)


def balanced_halves(
    rows: Csr, depth: int, spherical: bool, max_iterations: int, tolerance: float, seed: int, threads: int
) -> IntArray:
    """Rows in the order of 2^depth parts of equal size; see cpp/kmeans.h."""
    if not 0 <= depth <= 30 or 1 << depth > max(1, rows.shape[0]):
        raise ValueError(f"{rows.shape[0]} rows cannot be halved {depth} times")
    return _core.balanced_halves(
        rows.indptr, rows.indices, rows.data, rows.shape[1], depth, spherical, max_iterations, tolerance, seed, threads
    )


def kmeans(
    rows: Csr,
    n_clusters: int,
    balanced: bool,
    spherical: bool,
    max_iterations: int,
    tolerance: float,
    seed: int,
    threads: int,
) -> IntArray:
    """Cluster of each row; see cpp/kmeans.h."""
    if not 1 <= n_clusters <= rows.shape[0]:
        raise ValueError(f"{rows.shape[0]} rows cannot make {n_clusters} clusters")
    return _core.kmeans(
        rows.indptr,
        rows.indices,
        rows.data,
        rows.shape[1],
        n_clusters,
        balanced,
        spherical,
        max_iterations,
        tolerance,
        seed,
        threads,
    )


LOSSES = {"squared_hinge": 0, "hinge": 1, "logistic": 2}


def fit_ovr(
    X: Mixed,
    positives: Csr,
    negatives: Csr | None,
    clusters: LongArray,
    start: Csr | None,
    *,
    loss: str,
    positive_costs: FloatArray,
    negative_cost: float,
    bias: float,
    tolerance: float,
    max_passes: int,
    threshold: float,
    max_weights: int,
    with_relevance: bool,
    seed: int,
    threads: int,
    progress: Callable[[int], None] | None,
) -> Csr:
    """Weights (L × (d + 1)) of one-vs-rest classifiers; positives (L × n), negatives (clusters × n).

    See cpp/ovr_solver.h; shapes are checked by `rank.linear.fit_ovr`.
    """
    csr = X.sparse
    (indptr, indices, data), *_ = _core.fit_ovr(
        csr.indptr,
        csr.indices,
        csr.data,
        csr.shape[1],
        X.dense,
        _long(positives, with_relevance),
        None if negatives is None else _long(negatives, False),
        clusters,
        None if start is None else _long(start, True),
        LOSSES[loss],
        positive_costs,
        negative_cost,
        bias,
        tolerance,
        max_passes,
        threshold,
        max_weights,
        seed,
        threads,
        progress,
    )
    return csr_from_parts(data, indices, indptr, (positives.shape[0], X.shape[1] + 1))


def pack_weights(W: Csr, n_sparse: int, children: LongArray, threads: int) -> tuple[AnyArray, ByteArray, FloatArray]:
    """Heads, table and codebook of a level's weights (nodes × (d + 1)); see cpp/packed.h."""
    return _core.pack_weights(W.indptr, W.indices, W.data, n_sparse, children, threads)


def blend_rankings(ids: IntArray, scores: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
    """Blend rankings (T, n, width) with log scores into one (n, k): the log of the mean of their exponentials."""
    if ids.shape != scores.shape:
        raise ValueError(f"ids are {ids.shape}, scores are {scores.shape}")
    return _core.blend_rankings(ids, scores, k, threads)


def ranking_hits(ids: IntArray, truth: Csr, threads: int) -> ByteArray:
    """Return 1 where the predicted label (n, k) is among the truth (n × L, sorted), else 0."""
    _same_rows(ids, truth)
    return _core.ranking_hits(ids, truth.indptr, truth.indices, truth.shape[1], threads)


def ranking_sums(
    ids: IntArray, truth: Csr, cutoffs: LongArray, weights: DoubleArray, groups: ByteArray, n_groups: int, threads: int
) -> _core.RankingSums:
    """Sums behind all ranking metrics; see cpp/metrics.h for the shapes."""
    _same_rows(ids, truth)
    n_labels = truth.shape[1]
    if len(cutoffs) == 0 or cutoffs[0] < 1 or np.any(np.diff(cutoffs) <= 0):
        raise ValueError(f"cutoffs must ascend from 1 up; got {cutoffs.tolist()}")
    if len(weights) != n_labels or len(groups) != n_labels or (n_labels and int(groups.max()) >= n_groups):
        raise ValueError("every label needs one weight and one group")
    return _core.ranking_sums(ids, truth.indptr, truth.indices, n_labels, cutoffs, weights, groups, n_groups, threads)


def encode_bags(X: Csr, words: FloatArray, residual: FloatArray, offset: FloatArray, threads: int) -> FloatArray:
    """Vectors (n, D) of sparse rows (n × V) by word vectors (V, D) and a residual layer; see cpp/bag.h."""
    if X.shape[1] != words.shape[0]:
        raise ValueError(f"X has {X.shape[1]} features, there are {words.shape[0]} word vectors")
    return _core.encode_bags(X.indptr, X.indices, X.data, words, residual, offset, threads)


def encode_dense(h: FloatArray, residual: FloatArray, offset: FloatArray, threads: int) -> FloatArray:
    """Vectors (n, D) with a residual layer on top."""
    if h.shape[1] != residual.shape[0]:
        raise ValueError(f"vectors of width {h.shape[1]} for a layer of width {residual.shape[0]}")
    return _core.encode_dense(h, residual, offset, threads)


def explore(
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


def spread_gradients(
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


def all_products(table: FloatArray, vectors: FloatArray, threads: int) -> FloatArray:
    """Products (n, m) of vectors (n, D) with a table (m, D); those of a vector do not depend on the others."""
    if table.shape[1] != vectors.shape[1]:
        raise ValueError(f"vectors of width {vectors.shape[1]} for a table of width {table.shape[1]}")
    return _core.all_products(table, vectors, threads)


def gather_dot_back(pairs: Pairs, table: FloatArray, gradients: FloatArray, threads: int) -> FloatArray:
    """Gradients of the vectors (n, D) from those of their products (n, k)."""
    return _core.gather_dot_back(pairs, table, gradients, threads)


def rank_lists(
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


def step_edges(
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


def score_lists(
    sparse: tuple[LongArray, IntArray, FloatArray],
    dense: FloatArray,
    offset: FloatArray,
    X: Csr,
    vectors: FloatArray,
    lists: IntArray,
    threads: int,
) -> FloatArray:
    """Scores (n, k) of the linear classifiers on the lists (n, k), 0 for -1.

    Parameters
    ----------
    sparse : where the weights of each of L classifiers begin (L + 1,), their features and values
    dense : (L, D) weights of the dense features
    offset : (L,)
    X, vectors : sparse (n × d) and dense (n, D) features; d bounds the features of the weights
    """
    parts = X.indptr, X.indices, X.data, X.shape[1]
    return _core.score_lists(*sparse, dense, offset, *parts, np.ascontiguousarray(vectors), lists, threads)


def row_adam(
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


def flat_adam(values: FloatArray, gradients: FloatArray, moments: tuple[FloatArray, FloatArray], adam: Adam) -> None:
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


def unit_vectors(vectors: FloatArray, threads: int) -> FloatArray:
    """Vectors (n, D) with length 1; one of zeros stays as it is."""
    return _core.unit_vectors(vectors, threads)


def encode_vectors(vectors: FloatArray, threads: int) -> Codes:
    """Codes of vectors (n, D)."""
    return _core.encode_vectors(vectors, threads)


def search_lists(
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


def merge_votes(
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


def _long(matrix: Csr, with_data: bool) -> tuple[LongArray, LongArray, FloatArray | None]:
    """Return the parts of a matrix with wide indices."""
    data = np.ascontiguousarray(matrix.data, np.float32) if with_data else None
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), data


def _same_inner(a: Csr, b: Csr | FloatArray) -> None:
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"{a.shape} times {b.shape} do not fit together")


def _same_rows(ids: IntArray, truth: Csr) -> None:
    if ids.shape[0] != truth.shape[0]:
        raise ValueError(f"the ranking has {ids.shape[0]} rows, the truth has {truth.shape[0]}")
