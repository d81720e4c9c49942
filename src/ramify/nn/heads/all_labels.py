"""Brute-force head: every label is scored for every sample. The exact baseline of an index."""

from __future__ import annotations

import numpy as np

from ramify.base.types import Csr, FloatArray, IntArray
from ramify.index.label_graph import LabelGraph
from ramify.nn.heads.classifiers import Classifiers
from ramify.nn.heads.graph import SearchSize, search_labels
from ramify.nn.heads.losses import binary_cross_entropy_all
from ramify.nn.optim import Adam, DenseParameter, Trainable


class AllLabels(Trainable):
    """Label classifiers σ(w·φ + b) with weights (L, D) and bias (L,); the loss is the mean over all labels."""

    def __init__(self, weights: FloatArray, bias: FloatArray) -> None:
        self.weights, self.bias = DenseParameter(weights), DenseParameter(bias)
        # The search is that of the graph head, with one cluster of score 1 that contains every label.
        graph = LabelGraph.from_clusters(np.zeros(len(bias), np.int32), 1)
        cluster = np.zeros((1, weights.shape[1]), np.float32), np.zeros(1, np.float32)
        self._single_cluster = graph, cluster

    @property
    def classifiers(self) -> Classifiers:
        """Weights (L, D) and bias (L,)."""
        return self.weights.values, self.bias.values

    def step(
        self, phi: FloatArray, Y: Csr, adam: Adam, threads: int, sample_weight: FloatArray | None = None
    ) -> tuple[float, FloatArray]:
        """Update from a batch of embeddings (n, D) with labels Y (n × L); return the loss and the gradients (n, D)."""
        loss, d_phi, d_logits = self.gradients(phi, Y, sample_weight)
        self.weights.step(d_logits.T @ phi, adam)
        self.bias.step(d_logits.sum(axis=0), Adam(adam.learning_rate, adam.step))
        return loss, d_phi

    def gradients(
        self, phi: FloatArray, Y: Csr, sample_weight: FloatArray | None = None
    ) -> tuple[float, FloatArray, FloatArray]:
        """Loss, and gradients of the embeddings (n, D) and of the logits (n, L)."""
        logits = phi @ self.weights.values.T + self.bias.values
        loss, d_logits = binary_cross_entropy_all(logits, Y, sample_weight)
        return loss, d_logits @ self.weights.values, d_logits

    def search(self, phi: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and log probabilities (n, k) of the best labels for embeddings (n, D); every label is scored."""
        graph, cluster = self._single_cluster
        return search_labels(graph, cluster, self.classifiers, 0.0, SearchSize(1, graph.n_labels), phi, k, threads)

    def parameters(self) -> dict[str, DenseParameter]:
        """Everything that is trained, by name."""
        return {"weights": self.weights, "bias": self.bias}
