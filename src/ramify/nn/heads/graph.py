"""Graph head of ELIAS: a learned, weighted graph from clusters to labels, with classifiers on both sides.

Gupta et al. (2022), ELIAS: End-to-End Learning to Index and Search in Large Output Spaces. For an embedding φ (D,):

    cluster score   ŝ_c = min(1, α · softmax(V φ + v)_c)                  V (C, D), v (C,)
    edge score      â_cl = min(1, β · softmax over the edges of c (A_c)_l)  A: one logit for each of the E edges
    path score      û_l = max over explored clusters c of ŝ_c · â_cl
    prediction      p_l = σ(w_l·φ + b_l) · û_l                            w (L, D), b (L,)

Everything is computed with logarithms: u = log û, s = log ŝ, a = log â. The search explores the `beam_size` best
clusters and scores the `shortlist_size` labels with the best paths.

Loss of a batch, over the shortlist slots K and the label slots T of its n samples, z_l = w_l·φ + b_l:

    L = -1/(nK) Σ [y_l (log σ(z_l) + u_l) + (1 - y_l) log(1 - σ(z_l) e^{u_l})]  -  λ/(nT) Σ_{true l} u_l

Backward pass. The kernel `path_loss` gives ∂L/∂z and ∂L/∂u: for positives -(1 - σ(z)) and -1, for negatives
σ(z) σ(-z) e^u / q and σ(z) e^u / q with q = 1 - σ(z) e^u, each over nK. The gradient of u_l goes to the cluster and to
the edge of its best path:

    g_c = Σ_{l: best path through c} ∂L/∂u_l           zero where the score is cut at 1
    ∂L/∂(V φ + v) = g - softmax(V φ + v) Σ_c g_c       likewise within each cluster for the edge logits A
    ∂L/∂φ = Σ_l ∂L/∂z_l w_l + Vᵀ ∂L/∂(V φ + v)

Differences from the paper
- Edges keep one logit each; their number per cluster is bounded by their weight in MᵀY, not learned.
- While training, each true label is also explored through its strongest cluster, so that it always receives a gradient.
- Losses are means over slots, so the learning rate does not depend on batch or shortlist size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ramify import native
from ramify.base.sparse import entry_rows, indptr_from_counts
from ramify.base.types import AnyArray, Csr, DoubleArray, FloatArray, IntArray, LongArray
from ramify.index.label_graph import LabelGraph, cluster_scores
from ramify.nn.optim import Adam, Arrays, DenseParameter, RowTable, Trainable

PARENT_REFRESH_STEPS = 20
"""Steps after which the strongest cluster of every label is determined again."""


@dataclass(frozen=True)
class GraphOptions:
    """Settings that training and search share; α, β and λ of the paper.

    The learning rates of clusters and edges are given as ratios to that of the label classifiers.
    """

    alpha: float
    beta: float
    beam_size: int
    shortlist_size: int
    shortlist_loss_weight: float
    cluster_learning_rate_ratio: float = 1.0
    edge_learning_rate_ratio: float = 1.0


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
        clusters: tuple[FloatArray, FloatArray],
        graph: LabelGraph | TrainedEdges,
        labels: tuple[FloatArray, FloatArray],
        options: GraphOptions,
    ) -> None:
        self.cluster_weights, self.cluster_bias = (DenseParameter(part) for part in clusters)
        self.edges = graph if isinstance(graph, TrainedEdges) else None
        self._fixed_graph = graph if isinstance(graph, LabelGraph) else None
        self.labels = RowTable(*labels)
        self.options = options
        self.log_alpha = math.log(options.alpha)
        self._edge_clusters = self.graph.edge_clusters()
        self._parents: IntArray | None = None
        self._no_edge_gradients = np.zeros(0 if self.edges is not None else len(self.graph.labels), np.float64)

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
                self._parents = np.empty(self.graph.n_labels, np.int32)
                self._parents[self.graph.labels] = self._edge_clusters
        return self._parents

    def gradients(self, phi: FloatArray, Y: Csr, step: int, threads: int) -> GraphGradients:
        """Loss and gradients on a batch of embeddings (n, D) with labels Y (n × L).

        Slots that a sample does not fill add nothing to the loss, but count in its means.
        """
        options, graph, n = self.options, self.graph, len(phi)
        # Forward: clusters, shortlists with their best paths, label logits.
        logits = phi @ self.cluster_weights.values.T + self.cluster_bias.values
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
            shortlists, scores, label_logits, targets, 1.0 / (n * width), threads
        )
        max_labels = max(1, int(np.diff(Y.indptr).max(initial=0)))
        weight = options.shortlist_loss_weight / (n * max_labels)
        reached = truth_edges >= 0
        loss -= weight * float(truth_scores[reached].sum())

        # Backward through the best paths to clusters and edges.
        d_clusters = np.zeros_like(unclipped)
        if self.edges is None:
            d_edges = self._no_edge_gradients
        else:
            used = np.zeros(graph.n_clusters, bool)
            used[self._edge_clusters[edges[edges >= 0]]] = True
            used[self._edge_clusters[truth_edges[reached]]] = True
            d_edges = self.edges.zero_gradients(np.flatnonzero(used).astype(np.int32))
        native.neural.scatter_path_gradients(edges, d_scores, self._edge_clusters, d_clusters, d_edges)
        rows = entry_rows(Y)[reached]
        np.add.at(d_clusters, (rows, self._edge_clusters[truth_edges[reached]]), np.float32(-weight))
        np.add.at(d_edges, truth_edges[reached], -weight)

        # Backward through the clipped softmax of the clusters, and to the embeddings.
        passed = np.where(unclipped <= 0, d_clusters, 0)
        d_cluster_logits = (passed - softmax * passed.sum(axis=1, keepdims=True)).astype(np.float32)
        d_phi = self.labels.dot_backward(pairs, d_logits, threads) + d_cluster_logits @ self.cluster_weights.values
        return GraphGradients(loss, np.ascontiguousarray(d_phi), d_cluster_logits, d_edges, pairs, d_logits)

    def step(self, phi: FloatArray, Y: Csr, adam: Adam, threads: int) -> tuple[float, FloatArray]:
        """Update from a batch of embeddings (n, D) with labels Y (n × L); return the loss and the gradients (n, D)."""
        batch = self.gradients(phi, Y, adam.step, threads)
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
        clusters = self.cluster_weights.values, self.cluster_bias.values
        assert self.labels.bias is not None
        labels, options = (self.labels.weights, self.labels.bias), self.options
        width = max(options.shortlist_size, k)
        return native.neural.search_graph(
            self.graph.arrays, clusters, labels, self.log_alpha, options.beam_size, width, phi, k, threads
        )

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

    def optimizer_state(self) -> Arrays:
        """Return the optimizer state, and the parents, which are not determined at every step."""
        state = super().optimizer_state()
        return state if self._parents is None else {**state, "parents": self._parents}

    def set_optimizer_state(self, state: Mapping[str, AnyArray]) -> None:
        """Restore what `optimizer_state` returned."""
        super().set_optimizer_state(state)
        self._parents = np.array(state["parents"]) if "parents" in state else None
