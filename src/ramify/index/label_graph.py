"""Bipartite graph of clusters and labels with learned edge scores: the index of ELIAS (Gupta et al. 2022).

A label tree assigns each label to one cluster. Here a label may be connected to several, by edges whose scores are
trained together with the model. The scores of clusters, edges and paths (ŝ, â, û) are defined in `nn.heads.graph`; a
`LabelGraph` holds log â of each edge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from ramify import native
from ramify.base.errors import DataError, check_integer
from ramify.base.sparse import as_csr, ascends, csr_from_parts, entry_rows, indptr_from_counts
from ramify.base.threads import resolve_threads
from ramify.base.types import BoolArray, Csr, FloatArray, IntArray, LongArray
from ramify.index.kmeans import TreeConfig, balanced_clusters

MIN_EDGE_LOGIT = -5.0
"""Lower bound on initial edge logits, so that training can still strengthen the weakest edges."""


MAX_EDGES = 2**31 - 1
"""Native code numbers edges with 32 bits."""


@dataclass(frozen=True, eq=False)
class LabelGraph:
    """Edges from clusters to labels in CSR layout, sorted by cluster, then by label.

    Attributes
    ----------
    indptr : (C + 1,) cluster c has the edges from indptr[c] to indptr[c + 1]
    labels : (E,) label of each edge
    scores : (E,) log â of each edge, at most 0
    """

    indptr: LongArray
    labels: IntArray
    scores: FloatArray
    n_labels: int

    def __post_init__(self) -> None:
        if len(self.indptr) < 2 or not ascends(self.indptr):
            raise DataError("the edge pointers of the label graph do not ascend from 0")
        if not self.indptr[-1] == len(self.labels) == len(self.scores):
            raise DataError(
                f"the label graph should have {self.indptr[-1]} edges; it has {len(self.labels)} labels and "
                f"{len(self.scores)} scores"
            )
        if len(self.labels) > MAX_EDGES:
            raise DataError(f"the label graph has {len(self.labels):,} edges; at most {MAX_EDGES:,} are supported")
        if len(self.labels) and not (self.labels.min() >= 0 and self.labels.max() < self.n_labels):
            raise DataError(f"the label graph has label ids outside 0 to {self.n_labels - 1}")
        if not np.all(self.scores <= 0):  # also refuses NaN
            raise DataError("the label graph has edge scores above 1, or NaN")

    @classmethod
    def from_clusters(cls, cluster_of: IntArray, n_clusters: int) -> LabelGraph:
        """Graph of a partition: each label is connected to its cluster cluster_of (L,), with score 1."""
        n_clusters = check_integer(n_clusters, "n_clusters", 1, np.iinfo(np.int32).max)
        labels = np.argsort(cluster_of, kind="stable").astype(np.int32)
        indptr = indptr_from_counts(np.bincount(cluster_of, minlength=n_clusters))
        return cls(indptr, labels, np.zeros(len(labels), np.float32), len(cluster_of))

    def restricted(self, allowed: BoolArray) -> LabelGraph:
        """Graph with the edges to allowed labels (L,) only."""
        kept = allowed[self.labels]
        indptr = np.concatenate([[0], np.cumsum(kept)])[self.indptr].astype(np.int64)
        return LabelGraph(indptr, self.labels[kept], self.scores[kept], self.n_labels)

    @property
    def n_clusters(self) -> int:
        """Number of clusters C."""
        return len(self.indptr) - 1

    @property
    def arrays(self) -> tuple[LongArray, IntArray, FloatArray]:
        """The three arrays, as native functions take them."""
        return self.indptr, self.labels, self.scores

    def edge_clusters(self) -> IntArray:
        """Cluster (E,) of each edge."""
        return np.repeat(np.arange(self.n_clusters, dtype=np.int32), np.diff(self.indptr))

    def pruned(
        self, *, threshold: float | None = None, top: int | None = None, fraction: float | None = None
    ) -> LabelGraph:
        """Return a graph without weak edges, by exactly one criterion. Every label keeps its strongest edge.

        Parameters
        ----------
        threshold : drop edges with a score below it
        top : keep so many edges of each cluster, the strongest
        fraction : keep this fraction of all edges: first the strongest edge of each label, then the second of each, and
            so on. It costs the least accuracy for a given size
        """
        if (threshold, top, fraction).count(None) != 2:
            raise ValueError("give exactly one of threshold, top and fraction")
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError(f"fraction must be between 0 and 1; got {fraction}")
        clusters, rank_of_label = self.edge_clusters(), self._ranks(self.labels)
        if threshold is not None:
            keep = np.exp(self.scores) >= threshold
        elif top is not None:
            keep = self._ranks(clusters) < check_integer(top, "top", 0)
        else:
            order = np.lexsort((-self.scores, rank_of_label))
            keep = np.zeros(len(self.labels), bool)
            keep[order[: math.ceil((fraction or 0.0) * len(order))]] = True
        keep[rank_of_label == 0] = True
        indptr = indptr_from_counts(np.bincount(clusters[keep], minlength=self.n_clusters))
        return LabelGraph(indptr, self.labels[keep], self.scores[keep], self.n_labels)

    def _ranks(self, nodes: IntArray) -> LongArray:
        """Rank (E,) of each edge, from 0, among those with the same node (E,), by descending score."""
        order = np.lexsort((-self.scores, nodes))
        indptr = indptr_from_counts(np.bincount(nodes))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order)) - indptr[nodes[order]]
        return ranks


def build_clusters(Z: Csr | FloatArray, n_clusters: int, *, seed: int = 0, threads: int | None = None) -> IntArray:
    """Cluster (L,) of each label by balanced spherical 2-means of Z (L × d).

    `n_clusters` is rounded down to a power of two.
    """
    n_labels = Z.shape[0]
    depth = min(int(math.log2(n_clusters)), int(math.log2(n_labels))) if n_labels > 1 else 0
    config = TreeConfig(method="balanced-2means", max_iterations=20, tolerance=0.0)
    order, indptr = balanced_clusters(as_csr(sparse.csr_matrix(Z), "Z"), depth, config, seed, resolve_threads(threads))
    cluster_of = np.empty(n_labels, np.int32)
    cluster_of[order] = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
    return cluster_of


def build_edges(
    matched: Csr, Y: Csr, n_edges: int, cluster_of: IntArray, *, threads: int | None = None
) -> tuple[LongArray, IntArray, FloatArray]:
    """Edges of the graph: the largest entries of each row of MᵀY (C × L).

    Entry (c, l) says how strongly the samples with label l match cluster c.

    Parameters
    ----------
    matched : M (n × C), scores of the clusters in the beam of each sample
    Y : labels of the samples (n × L)
    n_edges : edges per cluster at most (ELIAS: κ). A label without an edge gets one in addition: at the largest entry
        of its column, or at cluster_of if the column is empty
    cluster_of : (L,) cluster of each label

    Returns
    -------
    indptr (C + 1,), labels (E,), weights (E,) : weights are the entries of MᵀY
    """
    n_threads = resolve_threads(threads)
    cooccurrence = native.matrix.spmm(sparse.csr_matrix(matched.T), Y, n_threads, unit_rows=False)
    kept = native.matrix.largest_entries(cooccurrence, n_edges, n_threads) if cooccurrence.nnz else cooccurrence
    orphans = np.flatnonzero(np.bincount(kept.indices, minlength=Y.shape[1]) == 0)
    by_label = sparse.csc_matrix(cooccurrence)
    clusters = cluster_of[orphans].copy()
    weights = np.zeros(len(orphans), np.float32)
    for i, label in enumerate(orphans):
        column = slice(by_label.indptr[label], by_label.indptr[label + 1])
        if column.stop > column.start:
            best = int(np.argmax(by_label.data[column]))
            clusters[i], weights[i] = by_label.indices[column][best], by_label.data[column][best]
    rows = np.concatenate([entry_rows(kept), clusters])
    labels = np.concatenate([kept.indices, orphans])
    values = np.concatenate([kept.data, weights])
    order = np.lexsort((labels, rows))
    indptr = indptr_from_counts(np.bincount(rows, minlength=kept.shape[0]))
    return indptr, labels[order].astype(np.int32), values[order].astype(np.float32)


def init_edge_logits(labels: IntArray, weights: FloatArray, n_labels: int) -> FloatArray:
    """Initial edge logits (E,), given the label and the weight of each edge.

    2 · log(weight / weight of the label's strongest edge), at least `MIN_EDGE_LOGIT`: initially a label belongs mostly
    to one cluster, and the others can gain it during training.
    """
    strongest = np.zeros(n_labels, np.float32)
    np.maximum.at(strongest, labels, weights)
    ratio = np.where(strongest[labels] > 0, weights / np.maximum(strongest[labels], 1e-30), 1.0)
    logits: FloatArray = np.maximum(2 * np.log(np.maximum(ratio, 1e-30)), MIN_EDGE_LOGIT).astype(np.float32)
    return logits


def cluster_scores(logits: FloatArray, log_alpha: float) -> tuple[FloatArray, FloatArray]:
    """Log scores log α + log softmax (n, C), not yet clipped at 0, and the softmax (n, C), from logits (n, C)."""
    largest = logits.max(axis=1, keepdims=True)
    exponentials = np.exp(logits - largest)
    total = exponentials.sum(axis=1, keepdims=True)
    return logits - largest - np.log(total) + np.float32(log_alpha), exponentials / total


def matched_clusters(logits: FloatArray, beam: int, log_alpha: float) -> Csr:
    """Scores M (n × C) = min(1, α · softmax) of the `beam` best clusters of each row of logits (n, C)."""
    n, n_clusters = logits.shape
    beam = min(beam, n_clusters)
    best = np.sort(np.argpartition(-logits, beam - 1, axis=1)[:, :beam], axis=1).astype(np.int32)
    scores = np.exp(np.minimum(0.0, np.take_along_axis(cluster_scores(logits, log_alpha)[0], best, 1)))
    indptr = np.arange(n + 1, dtype=np.int32) * beam
    return csr_from_parts(scores.astype(np.float32).ravel(), best.ravel(), indptr, (n, n_clusters))
