"""The graph from clusters to labels while it is trained, with the classifiers on both sides (ELIAS).

A cluster scores min(1, α · softmax of its logit), an edge min(1, β · softmax within its cluster), a path the product, a
label its best path ŷ; what is predicted is σ(w·φ + b) · ŷ. All of it is kept as logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ramify import native
from ramify.base.sparse import normalize_rows
from ramify.base.types import AnyArray, BoolArray, Csr, DoubleArray, FloatArray, IntArray, LongArray
from ramify.index.label_graph import LabelGraph, cluster_scores
from ramify.nn.tables import Adam, Arrays, DenseParameter, Parts, RowTable

REFRESH = 20
"""Steps after which the strongest cluster of every label is looked up again."""


@dataclass(frozen=True)
class GraphOptions:
    """Settings that training and search share."""

    alpha: float
    beta: float
    beam_size: int
    shortlist: int
    shortlist_weight: float
    cluster_share: float = 1.0
    """Learning rate of the clusters, as a share of that of the labels."""
    edge_share: float = 1.0
    """The same for the edges."""


class Edges:
    """Trained edges: a logit each, and their log scores as of the last change.

    A step costs what the clusters cost that it explores, however many there are.
    """

    def __init__(self, begin: LongArray, labels: IntArray, logits: FloatArray, beta: float, n_labels: int) -> None:
        self.logits = DenseParameter(logits)
        self.log_beta = math.log(beta)
        self.graph = LabelGraph(begin, labels, np.zeros(len(labels), np.float32), n_labels)
        self.raw = np.zeros(len(labels), np.float32)
        self.gradients = np.zeros(len(labels), np.float64)
        self._touched = np.empty(0, np.int32)
        self._by_label = np.argsort(labels, kind="stable")
        self._label_begin = np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=n_labels))])
        self.refresh()

    @property
    def _state(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.logits.values, self.raw, self.graph.scores

    def refresh(self) -> None:
        """Compute all log scores from the logits."""
        native.neural.score_edges(self.graph.indptr, self._state, self.log_beta, 1)

    def parents(self, edge_clusters: IntArray) -> IntArray:
        """Cluster (L,) of the strongest edge of each label, -1 where it has none."""
        raw = self.raw[self._by_label]
        parents = np.full(self.graph.n_labels, -1, np.int32)
        filled = np.flatnonzero(np.diff(self._label_begin))
        best = np.maximum.reduceat(raw, self._label_begin[filled])
        is_best = raw == np.repeat(best, np.diff(self._label_begin)[filled])
        # Written from the last to the first, so that the lowest cluster stands in the end.
        edges = self._by_label[is_best][::-1]
        parents[self.graph.labels[edges]] = edge_clusters[edges]
        return parents

    def start_gradients(self, clusters: IntArray) -> DoubleArray:
        """Noughts (E,) to add the gradients of the log scores of the given clusters' edges to."""
        for c in self._touched:
            self.gradients[self.graph.indptr[c] : self.graph.indptr[c + 1]] = 0
        self._touched = clusters
        return self.gradients

    def step(self, adam: Adam, threads: int) -> None:
        """Learn from the gradients that were added up."""
        moments = self.logits.ready_moments()
        begin, clusters = self.graph.indptr, self._touched
        native.neural.adam_edges(
            begin, self.gradients, self._state, moments, clusters, self.log_beta, adam.numbers, threads
        )


@dataclass(frozen=True, eq=False)
class Gradients:
    """The loss of a batch and its gradients.

    Attributes
    ----------
    vectors : (n, D)
    cluster_logits : (n, C)
    edge_scores : (E,) of the log scores; holds until the next batch
    pairs, products : which labels met which vectors, and the gradients (n, K) of their products
    """

    loss: float
    vectors: FloatArray
    cluster_logits: FloatArray
    edge_scores: DoubleArray
    pairs: native.neural.Pairs
    products: FloatArray


class GraphHead(Parts):
    """Clusters, edges and label classifiers over vectors φ (n, D)."""

    def __init__(
        self,
        clusters: tuple[FloatArray, FloatArray],
        graph: LabelGraph | Edges,
        labels: tuple[FloatArray, FloatArray],
        options: GraphOptions,
    ) -> None:
        self.cluster_weights, self.cluster_offset = (DenseParameter(part) for part in clusters)
        self.edges = graph if isinstance(graph, Edges) else None
        self.fixed = graph if isinstance(graph, LabelGraph) else None
        self.labels = RowTable(*labels)
        self.options = options
        self.log_alpha = math.log(options.alpha)
        self._edge_cluster = self.graph.edge_clusters()
        self._parents: IntArray | None = None
        self._unused = np.zeros(0 if self.edges is not None else len(self.graph.labels), np.float64)

    @property
    def graph(self) -> LabelGraph:
        """The graph as it is now."""
        if self.edges is not None:
            return self.edges.graph
        assert self.fixed is not None
        return self.fixed

    def parents(self, step: int) -> IntArray:
        """Cluster (L,) through which each label is always explored while it is trained."""
        if self._parents is None or (self.edges is not None and step % REFRESH == 0):
            if self.edges is not None:
                self._parents = self.edges.parents(self._edge_cluster)
            else:
                self._parents = np.empty(self.graph.n_labels, np.int32)
                self._parents[self.graph.labels] = self._edge_cluster
        return self._parents

    def gradients(self, vectors: FloatArray, Y: Csr, number: int, threads: int) -> Gradients:
        """Loss on a batch of vectors (n, D) with labels Y (n × L), and what it says about everything that is trained.

        The loss is the mean over the shortlists' slots of the classification loss, plus the mean over the labels' slots
        of -log ŷ times its weight; slots that a row does not fill cost nothing, but count.
        """
        options, graph = self.options, self.graph
        n = len(vectors)
        logits = vectors @ self.cluster_weights.values.T + self.cluster_offset.values
        raw, share = cluster_scores(logits, self.log_alpha)
        truth = Y.indptr.astype(np.int64), Y.indices.astype(np.int32), self.parents(number)[Y.indices]
        lists, scores, edges, targets, truth_scores, truth_edges = native.neural.explore_graph(
            graph.arrays,
            graph.n_labels,
            np.minimum(raw, 0.0),
            np.ascontiguousarray(logits),
            options.beam_size,
            options.shortlist,
            truth,
            threads,
        )
        width = lists.shape[1]
        pairs = native.neural.group_pairs(lists, graph.n_labels)
        products = self.labels.dot(pairs, width, vectors, threads)
        loss, d_scores, d_products = native.neural.path_loss(
            lists, scores, products, targets, 1.0 / (n * width), threads
        )
        widest = max(1, int(np.diff(Y.indptr).max(initial=0)))
        weight = options.shortlist_weight / (n * widest)
        found = truth_edges >= 0
        loss -= weight * float(truth_scores[found].sum())

        by_cluster = np.zeros_like(raw)
        if self.edges is None:
            by_edge = self._unused
        else:
            used = np.zeros(graph.n_clusters, bool)
            used[self._edge_cluster[edges[edges >= 0]]] = True
            used[self._edge_cluster[truth_edges[found]]] = True
            by_edge = self.edges.start_gradients(np.flatnonzero(used).astype(np.int32))
        native.neural.scatter_path_gradients(edges, d_scores, self._edge_cluster, by_cluster, by_edge)
        rows = np.repeat(np.arange(n), np.diff(Y.indptr))[found]
        np.add.at(by_cluster, (rows, self._edge_cluster[truth_edges[found]]), np.float32(-weight))
        np.add.at(by_edge, truth_edges[found], -weight)
        passed = np.where(raw <= 0, by_cluster, 0)
        d_logits = (passed - share * passed.sum(axis=1, keepdims=True)).astype(np.float32)
        d_vectors = self.labels.dot_back(pairs, d_products, threads) + d_logits @ self.cluster_weights.values
        return Gradients(loss, np.ascontiguousarray(d_vectors), d_logits, by_edge, pairs, d_products)

    def step(self, vectors: FloatArray, Y: Csr, adam: Adam, threads: int) -> tuple[float, FloatArray]:
        """Learn from a batch: loss and gradients (n, D) of its vectors (n, D)."""
        found = self.gradients(vectors, Y, adam.step, threads)
        self.labels.step(found.pairs, found.products, vectors, adam, threads)
        cluster_rate = self.options.cluster_share * adam.rate
        cluster_adam = Adam(cluster_rate, adam.step, weight_decay=adam.weight_decay)
        self.cluster_weights.step(found.cluster_logits.T @ vectors, cluster_adam)
        self.cluster_offset.step(found.cluster_logits.sum(axis=0), Adam(cluster_rate, adam.step))
        if self.edges is not None:
            self.edges.step(Adam(self.options.edge_share * adam.rate, adam.step), threads)
        return found.loss, found.vectors

    def search(self, vectors: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and log scores (n, k) of the best labels of vectors (n, D), as things stand."""
        clusters = self.cluster_weights.values, self.cluster_offset.values
        assert self.labels.offset is not None
        labels, options = (self.labels.weights, self.labels.offset), self.options
        width = max(options.shortlist, k)
        return native.neural.search_graph(
            self.graph.arrays, clusters, labels, self.log_alpha, options.beam_size, width, vectors, k, threads
        )

    def parts(self) -> dict[str, RowTable | DenseParameter]:
        """Everything that is trained, by name."""
        parts: dict[str, RowTable | DenseParameter] = {
            "cluster_weights": self.cluster_weights,
            "cluster_offset": self.cluster_offset,
            "labels": self.labels,
        }
        return parts if self.edges is None else {**parts, "edges": self.edges.logits}

    def set_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take over the values of all arrays."""
        super().set_arrays(arrays)
        if self.edges is not None:
            self.edges.refresh()

    def moments(self) -> Arrays:
        """What the optimiser remembers, and the parents, which are not looked up at every step."""
        found = super().moments()
        return found if self._parents is None else {**found, "parents": self._parents}

    def set_moments(self, moments: Mapping[str, AnyArray]) -> None:
        """Go on from what `moments` gave."""
        super().set_moments(moments)
        self._parents = np.array(moments["parents"]) if "parents" in moments else None


def reached(lists: IntArray, Y: Csr) -> BoolArray:
    """Whether each label of Y (n × L) is on the list (n, k) of its row; in the order of Y's entries."""
    rows = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr))
    wanted = rows * Y.shape[1] + Y.indices
    there = (np.arange(len(lists), dtype=np.int64)[:, None] * Y.shape[1] + lists)[lists >= 0]
    return np.isin(wanted, there)


def start_labels(Y: Csr, vectors: FloatArray, n_scored: int, threads: int) -> tuple[FloatArray, FloatArray]:
    """Return label classifiers (L, D) to start from: they look towards the middle of their points.

    A vector that is unlike a label's points gets the logit of the mean of the labels that a step scores, `n_scored` for
    each point, one that is just like them about 0.
    """
    share = min(0.5, Y.nnz / max(1, Y.shape[0]) / n_scored)
    offset = math.log(max(share, 1e-6) / (1 - share))
    middle = vectors.mean(axis=0)
    around = vectors - middle
    length = float(np.sqrt(np.mean(np.square(around).sum(axis=1))))
    weights = normalize_rows(native.matrix.spmm_dense(Y.T.tocsr(), np.ascontiguousarray(around, np.float32), threads))
    weights *= np.float32(-offset / max(length, 1e-6))
    return weights, (offset - weights @ middle).astype(np.float32)
