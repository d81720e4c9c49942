"""Graph head of ELIAS: a learned, weighted graph from clusters to labels, with classifiers on both sides.

Gupta et al. (2022), ELIAS: End-to-End Learning to Index and Search in Large Output Spaces. For an embedding φ (D,):

    cluster score   ŝ_c = min(1, α · softmax(V φ + v)_c)                     V (C, D), v (C,)
    edge score      â_cl = min(1, β · softmax over the edges of c (A_c)_l)   A: one logit for each of the E edges
    path score      û_l = max over explored clusters c of ŝ_c · â_cl
    prediction      p_l = σ(w_l·φ + b_l) · û_l                               w (L, D), b (L,)

Everything is computed with logarithms: u = log û, s = log ŝ, a = log â. The search explores the `beam_size` best
clusters and scores the `shortlist_size` labels with the best paths.

Loss of a batch of n samples, with shortlists of size K, at most T labels a sample, and z_l = w_l·φ + b_l:

    L = -1/(nK) Σ [y_l (log σ(z_l) + u_l) + (1 - y_l) log(1 - σ(z_l) e^{u_l})]  -  λ/(nT) Σ_{true l} u_l

Backward pass. The kernel `path_loss` gives ∂L/∂z and ∂L/∂u: for positives -(1 - σ(z)) and -1, for negatives
σ(z) σ(-z) e^u / q and σ(z) e^u / q with q = 1 - σ(z) e^u, each over nK. The gradient of u_l goes to the cluster and to
the edge of its best path:

    g_c = Σ_{l: best path through c} ∂L/∂u_l           zero where the score is cut at 1
    ∂L/∂(V φ + v) = g - softmax(V φ + v) Σ_c g_c       likewise within each cluster for the edge logits A
    ∂L/∂φ = Σ_l ∂L/∂z_l w_l + Vᵀ ∂L/∂(V φ + v)

Differences from the paper
- A label without an edge gets one (`index.label_graph.build_edges`).
- The strongest cluster of each label, through which it is always explored in training, is determined again every
  `PARENT_REFRESH_STEPS` steps only.
- Cluster and label classifiers have a bias.
- Losses are means over nK and nT slots, not sums, so that λ does not depend on batch or shortlist size. 1 - p is at
  least 1e-6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ramify import native
from ramify.base.sparse import entry_rows, indptr_from_counts
from ramify.base.types import AnyArray, Csr, DoubleArray, FloatArray, IntArray, LongArray
from ramify.index.label_graph import LabelGraph, cluster_scores
from ramify.nn.heads.classifiers import Classifiers
from ramify.nn.optim import Adam, DenseParameter, RowTable, SavedArrays, ShardedTable, Trainable, label_table, restored

PARENT_REFRESH_STEPS = 20
"""Steps after which the strongest cluster of every label is determined again; it takes longer than a step."""
ROWS_PER_BLOCK = 2048
"""Samples that several ranks search labels for at a time."""


class SearchSize(NamedTuple):
    """Size of a search: clusters to explore, and labels to score with their classifiers."""

    beam_size: int
    shortlist_size: int


def cluster_logits(cluster_classifiers: Classifiers, phi: FloatArray) -> FloatArray:
    """Logits (n, C) V φ + v of the clusters for embeddings (n, D)."""
    weights, bias = cluster_classifiers
    return np.asarray(phi @ weights.T + bias, np.float32)


def search_labels(
    graph: LabelGraph,
    cluster_classifiers: Classifiers,
    label_classifiers: Classifiers,
    log_alpha: float,
    size: SearchSize,
    phi: FloatArray,
    k: int,
    threads: int,
) -> tuple[IntArray, FloatArray]:
    """Ids and log scores log p (n, k) of the best labels for embeddings (n, D)."""
    return native.neural.search_graph(
        graph.arrays,
        cluster_classifiers,
        label_classifiers,
        log_alpha,
        size.beam_size,
        max(size.shortlist_size, k),
        phi,
        k,
        threads,
    )


@dataclass(frozen=True)
class GraphOptions:
    """Settings of a graph head: α, β and λ of the paper, and the sizes of a training step's search.

    The learning rates of clusters and edges are given as ratios to that of the label classifiers.
    """

    alpha: float
    beta: float
    beam_size: int
    shortlist_size: int
    shortlist_loss_weight: float
    cluster_learning_rate_ratio: float = 1.0
    edge_learning_rate_ratio: float = 1.0

    @property
    def search_size(self) -> SearchSize:
        """Size of the search of a training step."""
        return SearchSize(self.beam_size, self.shortlist_size)


class TrainedEdges:
    """Edges with trained logits (E,), and their log scores after the last update.

    A step updates the edges of the clusters that it explored, so its cost does not grow with the graph.
    """

    def __init__(self, indptr: LongArray, labels: IntArray, logits: FloatArray, beta: float, n_labels: int) -> None:
        self.logits = DenseParameter(logits)
        self.log_beta = math.log(beta)
        self.graph = LabelGraph(indptr, labels, np.zeros(len(labels), np.float32), n_labels)
        self.unclipped = np.zeros(len(labels), np.float32)  # log scores before they are cut at 0
        self.gradients = np.zeros(len(labels), np.float64)
        self._touched = np.empty(0, np.int32)
        self._by_label = np.argsort(labels, kind="stable")
        self._label_indptr = indptr_from_counts(np.bincount(labels, minlength=n_labels))
        self.refresh()

    @property
    def _state(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.logits.values, self.unclipped, self.graph.scores

    def refresh(self) -> None:
        """Compute all log scores from the logits."""
        native.neural.score_edges(self.graph.indptr, self._state, self.log_beta, 1)

    def parents(self, edge_clusters: IntArray) -> IntArray:
        """Cluster (L,) of the strongest edge of each label, the lowest of equals; -1 for labels without an edge."""
        scores = self.unclipped[self._by_label]
        parents = np.full(self.graph.n_labels, -1, np.int32)
        counts = np.diff(self._label_indptr)
        with_edges = np.flatnonzero(counts)
        best = np.maximum.reduceat(scores, self._label_indptr[with_edges])
        is_best = scores == np.repeat(best, counts[with_edges])
        # Assigned from the last to the first, so that the lowest cluster remains.
        edges = self._by_label[is_best][::-1]
        parents[self.graph.labels[edges]] = edge_clusters[edges]
        return parents

    def zero_gradients(self, clusters: IntArray) -> DoubleArray:
        """Return the gradients (E,), set to zero, to accumulate those of the given clusters' edges in."""
        for c in self._touched:
            self.gradients[self.graph.indptr[c] : self.graph.indptr[c + 1]] = 0
        self._touched = clusters
        return self.gradients

    def step(self, adam: Adam, threads: int) -> None:
        """Update the edges from the accumulated gradients."""
        native.neural.adam_edges(
            self.graph.indptr,
            self.gradients,
            self._state,
            self.logits.moments(),
            self._touched,
            self.log_beta,
            adam.native,
            threads,
        )


@dataclass(frozen=True, eq=False)
class GraphGradients:
    """Loss of a batch and its gradients.

    Attributes
    ----------
    phi : (n, D) gradients of the embeddings
    cluster_logits : (n, C)
    edge_scores : (E,) of the log scores; valid until the next batch
    pairs, logits : pairs of sample and label on the shortlists, and the gradients (n, K) of their logits
    """

    loss: float
    phi: FloatArray
    cluster_logits: FloatArray
    edge_scores: DoubleArray
    pairs: native.neural.Pairs
    logits: FloatArray


class GraphHead(Trainable):
    """Cluster classifiers, edges and label classifiers over embeddings φ (n, D)."""

    def __init__(
        self,
        cluster_classifiers: Classifiers,
        graph: LabelGraph | TrainedEdges,
        label_classifiers: Classifiers,
        options: GraphOptions,
    ) -> None:
        self.cluster_weights, self.cluster_bias = (DenseParameter(part) for part in cluster_classifiers)
        self.edges = graph if isinstance(graph, TrainedEdges) else None
        self._fixed_graph = graph if isinstance(graph, LabelGraph) else None
        self.labels = label_table(*label_classifiers)
        self.options = options
        self.log_alpha = math.log(options.alpha)
        self._edge_clusters = self.graph.edge_clusters()
        self._parents: IntArray | None = None
        # With a fixed graph the gradients of its edges are computed, and discarded.
        self._discarded = np.zeros(0 if self.edges is not None else len(self.graph.labels), np.float64)

    @property
    def graph(self) -> LabelGraph:
        """The graph with its present scores."""
        if self.edges is not None:
            return self.edges.graph
        assert self._fixed_graph is not None
        return self._fixed_graph

    def parents(self, step: int) -> IntArray:
        """Cluster (L,) through which each label is always explored during training."""
        if self._parents is None or (self.edges is not None and step % PARENT_REFRESH_STEPS == 0):
            if self.edges is not None:
                self._parents = self.edges.parents(self._edge_clusters)
            else:
                self._parents = np.full(self.graph.n_labels, -1, np.int32)
                self._parents[self.graph.labels] = self._edge_clusters
        return self._parents

    def gradients(
        self, phi: FloatArray, Y: Csr, step: int, threads: int, sample_weight: FloatArray | None = None
    ) -> GraphGradients:
        """Loss and gradients on a batch of embeddings (n, D) with labels Y (n × L).

        Slots that a sample does not fill add nothing to the loss, but count in its means.
        """
        options, graph, n = self.options, self.graph, len(phi)
        if sample_weight is None:
            sample_weight = np.ones(n, np.float32)
        # Forward: clusters, shortlists with their best paths, label logits.
        logits = cluster_logits(self.cluster_classifiers, phi)
        unclipped, softmax = cluster_scores(logits, self.log_alpha)
        truth = Y.indptr.astype(np.int64), Y.indices.astype(np.int32), self.parents(step)[Y.indices]
        shortlists, scores, edges, targets, truth_scores, truth_edges = native.neural.explore_graph(
            graph.arrays,
            graph.n_labels,
            np.minimum(unclipped, 0.0),
            np.ascontiguousarray(logits),
            options.beam_size,
            options.shortlist_size,
            truth,
            threads,
        )
        width = shortlists.shape[1]
        pairs = native.neural.group_pairs(shortlists, graph.n_labels)
        label_logits = self.labels.dot(pairs, width, phi, threads)

        # Both losses, and the gradients of path scores and label logits.
        loss, d_scores, d_logits = native.neural.path_loss(
            shortlists, scores, label_logits, targets, np.float32(1 / (n * width)) * sample_weight, threads
        )
        max_labels = max(1, int(np.diff(Y.indptr).max(initial=0)))
        reached = truth_edges >= 0
        rows = entry_rows(Y)[reached]
        weight = options.shortlist_loss_weight / (n * max_labels) * sample_weight[rows].astype(np.float64)
        loss -= float(weight @ truth_scores[reached])

        # Backward through the best paths to clusters and edges.
        d_clusters = np.zeros_like(unclipped)
        if self.edges is None:
            d_edges = self._discarded
        else:
            used = np.zeros(graph.n_clusters, bool)
            used[self._edge_clusters[edges[edges >= 0]]] = True
            used[self._edge_clusters[truth_edges[reached]]] = True
            d_edges = self.edges.zero_gradients(np.flatnonzero(used).astype(np.int32))
        native.neural.scatter_path_gradients(edges, d_scores, self._edge_clusters, d_clusters, d_edges)
        np.add.at(d_clusters, (rows, self._edge_clusters[truth_edges[reached]]), -weight.astype(np.float32))
        np.add.at(d_edges, truth_edges[reached], -weight)

        # Backward through the clipped softmax of the clusters, and to the embeddings.
        passed = np.where(unclipped <= 0, d_clusters, 0)
        d_cluster_logits = (passed - softmax * passed.sum(axis=1, keepdims=True)).astype(np.float32)
        d_phi = self.labels.dot_backward(pairs, d_logits, threads) + d_cluster_logits @ self.cluster_weights.values
        return GraphGradients(loss, np.ascontiguousarray(d_phi), d_cluster_logits, d_edges, pairs, d_logits)

    def step(
        self, phi: FloatArray, Y: Csr, adam: Adam, threads: int, sample_weight: FloatArray | None = None
    ) -> tuple[float, FloatArray]:
        """Update from a batch of embeddings (n, D) with labels Y (n × L); return the loss and the gradients (n, D)."""
        batch = self.gradients(phi, Y, adam.step, threads, sample_weight)
        self.labels.step(batch.pairs, batch.logits, phi, adam, threads)
        cluster_lr = self.options.cluster_learning_rate_ratio * adam.learning_rate
        cluster_adam = Adam(cluster_lr, adam.step, weight_decay=adam.weight_decay)
        self.cluster_weights.step(batch.cluster_logits.T @ phi, cluster_adam)
        self.cluster_bias.step(batch.cluster_logits.sum(axis=0), Adam(cluster_lr, adam.step))
        if self.edges is not None:
            edge_lr = self.options.edge_learning_rate_ratio * adam.learning_rate
            self.edges.step(Adam(edge_lr, adam.step), threads)
        return batch.loss, batch.phi

    def search(self, phi: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and log scores (n, k) of the best labels for embeddings (n, D)."""
        if isinstance(self.labels, ShardedTable):  # logits are exchanged, not classifiers
            blocks = [phi[i : i + ROWS_PER_BLOCK] for i in range(0, len(phi), ROWS_PER_BLOCK)]
            found = [self._search_together(block, k, threads) for block in blocks]
            ids, scores = (np.concatenate(part) for part in zip(*found, strict=True))
            return ids, scores
        classifiers = self.cluster_classifiers, self.label_classifiers
        return search_labels(self.graph, *classifiers, self.log_alpha, self.options.search_size, phi, k, threads)

    def _search_together(self, phi: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """`search` by all ranks: log p = log σ(w·φ + b) + u for the labels with the best paths."""
        size, graph = self.options.search_size, self.graph
        logits = cluster_logits(self.cluster_classifiers, phi)
        shortlists, paths, *_ = native.neural.explore_graph(
            graph.arrays,
            graph.n_labels,
            np.minimum(cluster_scores(logits, self.log_alpha)[0], 0.0),
            np.ascontiguousarray(logits),
            size.beam_size,
            max(size.shortlist_size, k),
            None,
            threads,
        )
        pairs = native.neural.group_pairs(shortlists, graph.n_labels)
        z = self.labels.dot(pairs, shortlists.shape[1], phi, threads)
        scores = np.where(shortlists >= 0, paths - np.logaddexp(0, -z), -np.inf)
        return native.matrix.list_topk(shortlists, scores, k, threads)

    @property
    def cluster_classifiers(self) -> Classifiers:
        """Weights (C, D) and bias (C,)."""
        return self.cluster_weights.values, self.cluster_bias.values

    @property
    def label_classifiers(self) -> Classifiers:
        """Weights (L, D) and bias (L,)."""
        return self.labels.whole()

    def parameters(self) -> dict[str, RowTable | DenseParameter]:
        """Everything that is trained, by name."""
        parameters: dict[str, RowTable | DenseParameter] = {
            "cluster_weights": self.cluster_weights,
            "cluster_bias": self.cluster_bias,
            "labels": self.labels,
        }
        return parameters if self.edges is None else {**parameters, "edges": self.edges.logits}

    def set_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Copy the values of all arrays."""
        super().set_arrays(arrays)
        if self.edges is not None:
            self.edges.refresh()

    def optimizer_state(self) -> SavedArrays:
        """Return the optimizer state, and the parents, which are not determined at every step."""
        state = super().optimizer_state()
        return state if self._parents is None else {**state, "parents": self._parents}

    def set_optimizer_state(self, state: Mapping[str, AnyArray]) -> None:
        """Restore what `optimizer_state` returned."""
        super().set_optimizer_state(state)
        self._parents = None
        if "parents" in state:
            graph = self.graph
            self._parents = restored(state, "parents", np.int32, (graph.n_labels,), (-1, graph.n_clusters))
