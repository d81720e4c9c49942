"""A classifier for every label, and every label in every step: the brute force that an index is measured against."""

from __future__ import annotations

import numpy as np

from ramify import native
from ramify.base.types import Csr, FloatArray, IntArray
from ramify.index.label_graph import LabelGraph
from ramify.nn.tables import Adam, DenseParameter, Parts, RowTable


class AllLabels(Parts):
    """Classifiers (L, D) with offsets (L,); the loss is the mean over all labels of a batch's points."""

    def __init__(self, weights: FloatArray, offset: FloatArray) -> None:
        self.weights, self.offset = DenseParameter(weights), DenseParameter(offset)
        n_labels = len(offset)
        # A search finds all labels below a single cluster that scores 1.
        self.graph = LabelGraph.from_clusters(np.zeros(n_labels, np.int32), 1)
        self.clusters = np.zeros((1, weights.shape[1]), np.float32), np.zeros(1, np.float32)

    def step(self, vectors: FloatArray, Y: Csr, adam: Adam, threads: int) -> tuple[float, FloatArray]:
        """Learn from a batch: loss and gradients (n, D) of its vectors (n, D)."""
        loss, d_vectors, d_logits = self.gradients(vectors, Y)
        self.weights.step(d_logits.T @ vectors, adam)
        self.offset.step(d_logits.sum(axis=0), Adam(adam.rate, adam.step))
        return loss, d_vectors

    def gradients(self, vectors: FloatArray, Y: Csr) -> tuple[float, FloatArray, FloatArray]:
        """Loss, and gradients of the vectors (n, D) and of the logits (n, L)."""
        logits = vectors @ self.weights.values.T + self.offset.values
        rows, n = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)), np.float32(1 / logits.size)
        powers = np.exp(-np.abs(logits))
        loss = float(np.log1p(powers).sum(dtype=np.float64) + np.maximum(logits, 0).sum(dtype=np.float64))
        loss -= float(logits[rows, Y.indices].sum(dtype=np.float64))
        d_logits = np.where(logits >= 0, 1, powers) / (1 + powers)
        d_logits[rows, Y.indices] -= 1
        d_logits *= n
        return loss / logits.size, d_logits @ self.weights.values, d_logits

    def search(self, vectors: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and log scores (n, k) of the best labels of vectors (n, D)."""
        labels = self.weights.values, self.offset.values
        n_labels = len(labels[1])
        return native.neural.search_graph(
            self.graph.arrays, self.clusters, labels, 0.0, 1, n_labels, vectors, k, threads
        )

    def parts(self) -> dict[str, RowTable | DenseParameter]:
        """Everything that is trained, by name."""
        return {"weights": self.weights, "offset": self.offset}
