"""A weighted graph from clusters to labels: the learned index of ELIAS (Gupta et al., 2022).

A tree gives each label one cluster. Here a label may hang on several, each edge with a weight that is trained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from ramify import native
from ramify.base.errors import DataError
from ramify.base.sparse import as_csr, csr_from_parts, indptr_from_counts
from ramify.base.threads import resolve_threads
from ramify.base.types import Csr, FloatArray, IntArray, LongArray
from ramify.index.kmeans import TreeConfig, balanced_parts


@dataclass(frozen=True, eq=False)
class LabelGraph:
    """Edges from clusters to labels, sorted by cluster, then by label.

    Attributes
    ----------
    begin : (C + 1,) where the edges of each cluster begin
    labels : (E,) label of each edge
    scores : (E,) log score of each edge, at most 0
    """

    begin: LongArray
    labels: IntArray
    scores: FloatArray
    n_labels: int

    def __post_init__(self) -> None:
        if len(self.begin) < 2 or self.begin[0] != 0 or np.any(np.diff(self.begin) < 0):
            raise DataError("the edges of the graph do not fit its clusters")
        if not self.begin[-1] == len(self.labels) == len(self.scores):
            raise DataError(f"the graph has {len(self.labels)} edges with {len(self.scores)} scores")
        if len(self.labels) and not (self.labels.min() >= 0 and self.labels.max() < self.n_labels):
            raise DataError("the graph names labels that do not exist")
        if not np.all(self.scores <= 0):  # NaN is no score either
            raise DataError("the graph has scores over 1")

    @classmethod
    def from_clusters(cls, cluster_of: IntArray, n_clusters: int) -> LabelGraph:
        """Return the graph of a partition: each label (L,) hangs on its cluster with score 1."""
        labels = np.argsort(cluster_of, kind="stable").astype(np.int32)
        begin = indptr_from_counts(np.bincount(cluster_of, minlength=n_clusters))
        return cls(begin, labels, np.zeros(len(labels), np.float32), len(cluster_of))

    @property
    def n_clusters(self) -> int:
        """Number of clusters C."""
        return len(self.begin) - 1

    @property
    def arrays(self) -> tuple[LongArray, IntArray, FloatArray]:
        """What native code takes."""
        return self.begin, self.labels, self.scores

    def edge_clusters(self) -> IntArray:
        """Cluster (E,) of each edge."""
        return np.repeat(np.arange(self.n_clusters, dtype=np.int32), np.diff(self.begin))

    def pruned(
        self, *, threshold: float | None = None, top: int | None = None, share: float | None = None
    ) -> LabelGraph:
        """Drop weak edges: those that score below the threshold, all but the `top` of each cluster, or all but a share.

        A share keeps the strongest edge of each label, then the second of each, and so on, which costs the least for
        its size. Scores stay as they are, and every label keeps its strongest edge.
        """
        if (threshold, top, share).count(None) != 2:
            raise ValueError("give one of threshold, top and share")
        if share is not None and not 0 <= share <= 1:
            raise ValueError(f"share is {share}, not between 0 and 1")
        clusters = self.edge_clusters()
        if threshold is not None:
            keep = np.exp(self.scores) >= threshold
        elif top is not None:
            keep = self._place(clusters) < top
        else:
            best = np.lexsort((-self.scores, self._place(self.labels)))
            keep = np.zeros(len(self.labels), bool)
            keep[best[: math.ceil((share or 0.0) * len(best))]] = True
        keep[self._place(self.labels) == 0] = True
        begin = indptr_from_counts(np.bincount(clusters[keep], minlength=self.n_clusters))
        return LabelGraph(begin, self.labels[keep], self.scores[keep], self.n_labels)

    def _place(self, ends: IntArray) -> LongArray:
        """Place (E,) of each edge among those that share its end, from the highest score on, then by number."""
        order = np.lexsort((-self.scores, ends))
        first = indptr_from_counts(np.bincount(ends))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order)) - first[ends[order]]
        return place


def build_clusters(Z: Csr | FloatArray, n_clusters: int, *, seed: int = 0, threads: int | None = None) -> IntArray:
    """Cluster (L,) of each label by balanced spherical 2-means of its vector (L × d); a power of two of them."""
    n_labels = Z.shape[0]
    depth = min(int(math.log2(n_clusters)), int(math.log2(n_labels))) if n_labels > 1 else 0
    config = TreeConfig(method="halves", tolerance=0.0)
    vectors = as_csr(sparse.csr_matrix(Z), "Z")
    order, borders = balanced_parts(vectors, depth, config, seed, resolve_threads(threads))
    cluster_of = np.empty(n_labels, np.int32)
    cluster_of[order] = np.repeat(np.arange(len(borders) - 1, dtype=np.int32), np.diff(borders))
    return cluster_of


def build_edges(
    matched: Csr, Y: Csr, n_edges: int, cluster_of: IntArray, *, threads: int | None = None
) -> tuple[LongArray, IntArray, FloatArray]:
    """Edges where matched points meet labels: the largest entries of each row of MᵀY.

    Parameters
    ----------
    matched : M (n × C) scores of the clusters that the search finds for each point
    Y : labels of the points (n × L)
    n_edges : edges of a cluster at most; a label that would have none gets one more, where it weighs most, or at its
        own cluster if no point led anywhere
    cluster_of : (L,) a cluster for each label

    Returns
    -------
    begin (C + 1,), labels (E,), weights (E,) : weights are the entries of MᵀY
    """
    n_threads = resolve_threads(threads)
    M = sparse.csr_matrix(matched.T)
    together = native.matrix.spmm(M, Y, n_threads, unit_rows=False)
    kept = native.matrix.largest_entries(together, n_edges, n_threads) if together.nnz else together
    orphans = np.flatnonzero(np.bincount(kept.indices, minlength=Y.shape[1]) == 0)
    by_label = sparse.csc_matrix(together)
    clusters = cluster_of[orphans].copy()
    weights = np.zeros(len(orphans), np.float32)
    for i, label in enumerate(orphans):
        column = slice(by_label.indptr[label], by_label.indptr[label + 1])
        if column.stop > column.start:
            best = int(np.argmax(by_label.data[column]))
            clusters[i], weights[i] = by_label.indices[column][best], by_label.data[column][best]
    rows = np.concatenate([np.repeat(np.arange(kept.shape[0]), np.diff(kept.indptr)), clusters])
    labels = np.concatenate([kept.indices, orphans])
    values = np.concatenate([kept.data, weights])
    order = np.lexsort((labels, rows))
    begin = indptr_from_counts(np.bincount(rows, minlength=kept.shape[0]))
    return begin, labels[order].astype(np.int32), values[order].astype(np.float32)


def start_logits(labels: IntArray, weights: FloatArray, n_labels: int) -> FloatArray:
    """Logits (E,) to train edges from, given the label and weight of each.

    A label's strongest edge gets 0, the others twice the logarithm of their share in it, not below -5: at first a label
    is mostly where it was, and other clusters may take it over.
    """
    strongest = np.zeros(n_labels, np.float32)
    np.maximum.at(strongest, labels, weights)
    share = np.where(strongest[labels] > 0, weights / np.maximum(strongest[labels], 1e-30), 1.0)
    logits: FloatArray = np.maximum(2 * np.log(np.maximum(share, 1e-30)), -5.0).astype(np.float32)
    return logits


def cluster_scores(logits: FloatArray, log_alpha: float) -> tuple[FloatArray, FloatArray]:
    """Log scores log α + log softmax (n, C) of the clusters, not yet cut at 0, and the softmax itself."""
    top = logits.max(axis=1, keepdims=True)
    share = np.exp(logits - top)
    total = share.sum(axis=1, keepdims=True)
    return logits - top - np.log(total) + np.float32(log_alpha), share / total


def matched_clusters(logits: FloatArray, beam: int, log_alpha: float) -> Csr:
    """Scores min(1, α · softmax) of the best `beam` clusters of each row of logits (n, C), as a sparse matrix."""
    n, n_clusters = logits.shape
    beam = min(beam, n_clusters)
    best = np.sort(np.argpartition(-logits, beam - 1, axis=1)[:, :beam], axis=1).astype(np.int32)
    scores = np.exp(np.minimum(0.0, np.take_along_axis(cluster_scores(logits, log_alpha)[0], best, 1)))
    indptr = np.arange(n + 1, dtype=np.int32) * beam
    return csr_from_parts(scores.astype(np.float32).ravel(), best.ravel(), indptr, (n, n_clusters))
