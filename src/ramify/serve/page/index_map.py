"""The index of a model as a map: clusters with their sizes and typical labels, down to the labels themselves.

A node of a label tree has the id "level.node", the root "0.0". The map of a label graph (ELIAS) has two levels: all
clusters, and the labels of a cluster with the scores of their edges.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ramify.base.types import AnyArray, IntArray, LongArray
from ramify.index.label_graph import LabelGraph
from ramify.index.tree import LabelTree
from ramify.models.base import Model
from ramify.serve.problems import Problem

N_TYPICAL = 4
"""Most frequent labels that stand for a cluster."""
MAX_CHILDREN = 512
"""Clusters or labels of one node that are shown: the largest."""
MIN_EDGE = 0.01
"""Score of an edge from which on a label counts as one of a cluster."""

Node = dict[str, Any]
"""What is known of a node, with label ids in place of names."""


class IndexMap(Protocol):
    """Map of an index."""

    def node(self, node_id: str) -> Node:
        """Describe a node with its path from the root and its clusters or labels."""

    def clusters_of(self, label_id: int) -> list[tuple[str, float | None]]:
        """Ids of the clusters that hold a label, the best first, with the score of the edge or None."""


def make_map(model: Model, tree: int = 0) -> IndexMap:
    """Make the map of a model; raises `Problem` if it has no index of clusters."""
    counts = model.label_counts_.counts
    trees = getattr(model, "trees_", [])
    if trees:
        if not 0 <= tree < len(trees):
            raise Problem(404, f"the model has {len(trees)} trees; count them from 0")
        return TreeMap(trees[tree].tree, counts)
    members = getattr(model, "members_", [])
    if members and isinstance(getattr(members[0], "graph", None), LabelGraph):
        return GraphMap(members[0].graph, counts)
    raise Problem(404, f"a {type(model).__name__} has no clusters of labels that could be shown")


def _typical(labels: IntArray, weights: AnyArray) -> list[int]:
    """Label ids with the largest weights, the largest first."""
    n = min(N_TYPICAL, len(labels))
    best = np.argpartition(-weights, n - 1)[:n] if n < len(labels) else np.arange(n)
    return [int(i) for i in labels[best[np.argsort(-weights[best], kind="stable")]]]


class TreeMap:
    """Map of a label tree."""

    def __init__(self, tree: LabelTree, counts: AnyArray) -> None:
        self._tree, self._counts = tree, counts
        starts: list[LongArray] = [np.asarray(tree.levels[-1])]  # leaves below each node, from the bottom level up
        for indptr in reversed(tree.levels[:-1]):
            starts.append(starts[-1][np.asarray(indptr)])
        self._leaves = starts[::-1]
        self._samples = np.concatenate([[0], np.cumsum(counts[tree.labels], dtype=np.int64)])

    def node(self, node_id: str) -> Node:
        """Describe a node."""
        level, node = self._parse(node_id)
        result = self._summary(level, node)
        result["path"] = [self._summary(t, i) for t, i in self._ancestors(level, node)]
        first, last = (int(i) for i in self._tree.levels[level][node : node + 2])
        if level == self._tree.depth - 1:
            labels = self._tree.labels[first:last]
            order = np.argsort(-self._counts[labels], kind="stable")[:MAX_CHILDREN]
            result["labels"] = [(int(i), None) for i in labels[order]]
            result["n_more"] = max(0, last - first - MAX_CHILDREN)
            return result
        sizes = np.diff(self._leaves[level + 1])[first:last]
        order = np.sort(np.argsort(-sizes, kind="stable")[:MAX_CHILDREN])
        result["children"] = [self._summary(level + 1, first + int(i)) for i in order]
        result["n_more"] = max(0, last - first - MAX_CHILDREN)
        return result

    def clusters_of(self, label_id: int) -> list[tuple[str, float | None]]:
        """Leaf clusters of a label: one, or several where clusters overlap."""
        leaves = np.flatnonzero(self._tree.labels == label_id)
        level = self._tree.depth - 1
        nodes = np.searchsorted(self._tree.levels[level], leaves, side="right") - 1
        return [(f"{level}.{int(node)}", None) for node in dict.fromkeys(nodes.tolist())]

    def _parse(self, node_id: str) -> tuple[int, int]:
        parts = node_id.split(".")
        if len(parts) == 2 and all(part.isdecimal() and len(part) < 10 for part in parts):
            level, node = int(parts[0]), int(parts[1])
            if level < self._tree.depth and node < len(self._tree.levels[level]) - 1:
                return level, node
        raise Problem(404, f"the tree has no cluster {node_id[:40]!r}; the root is 0.0")

    def _ancestors(self, level: int, node: int) -> list[tuple[int, int]]:
        found = []
        for t in range(level, 0, -1):
            node = int(np.searchsorted(self._tree.levels[t - 1], node, side="right")) - 1
            found.append((t - 1, node))
        return found[::-1]

    def _summary(self, level: int, node: int) -> Node:
        first, last = (int(i) for i in self._leaves[level][node : node + 2])
        below = self._tree.labels[first:last]
        return {
            "id": f"{level}.{node}",
            "title": "all labels" if level == 0 else f"cluster {node}, level {level}",
            "n_labels": last - first,
            "n_samples": int(self._samples[last] - self._samples[first]),
            "typical": _typical(below, self._counts[below]),
        }


class GraphMap:
    """Map of a label graph: the score of an edge says how much a label belongs to a cluster."""

    def __init__(self, graph: LabelGraph, counts: AnyArray) -> None:
        self._graph, self._counts = graph, counts
        self._scores = np.exp(graph.scores.astype(np.float64))
        self._clusters = graph.edge_clusters()
        self._sizes = np.bincount(self._clusters, self._scores >= MIN_EDGE, minlength=graph.n_clusters).astype(int)
        self._samples = np.bincount(
            self._clusters, self._scores * counts[graph.labels], minlength=graph.n_clusters
        ).astype(int)

    def node(self, node_id: str) -> Node:
        """Describe the root, or a cluster."""
        if node_id == "0.0":
            order = np.sort(np.argsort(-self._sizes, kind="stable")[:MAX_CHILDREN])
            children = [self._summary(int(c)) for c in order if self._sizes[c]]
            n_more = int((self._sizes > 0).sum()) - len(children)
            return {**self._root(), "path": [], "children": children, "n_more": n_more}
        prefix, _, number = node_id.partition(".")
        if prefix != "1" or not number.isdecimal() or len(number) > 9 or int(number) >= self._graph.n_clusters:
            raise Problem(404, f"the graph has no cluster {node_id[:40]!r}; the root is 0.0, the first cluster 1.0")
        labels, scores = self._edges(int(number))
        order = np.argsort(-scores * np.maximum(1, self._counts[labels]), kind="stable")[:MAX_CHILDREN]
        result = {**self._summary(int(number)), "path": [self._root()]}
        result["labels"] = [(int(labels[i]), float(scores[i])) for i in order]
        result["n_more"] = max(0, len(labels) - MAX_CHILDREN)
        return result

    def clusters_of(self, label_id: int) -> list[tuple[str, float | None]]:
        """Clusters of a label with the scores of its edges, the strongest first."""
        edges = np.flatnonzero((self._graph.labels == label_id) & (self._scores >= MIN_EDGE))
        edges = edges[np.argsort(-self._scores[edges], kind="stable")]
        return [(f"1.{int(self._clusters[e])}", float(self._scores[e])) for e in edges]

    def _root(self) -> Node:
        counts, every = self._counts, np.arange(self._graph.n_labels, dtype=np.int32)
        return {
            "id": "0.0", "title": "all labels", "n_labels": self._graph.n_labels,
            "n_samples": int(counts.sum()), "typical": _typical(every, counts),
        }  # fmt: skip

    def _edges(self, cluster: int) -> tuple[IntArray, AnyArray]:
        first, last = self._graph.indptr[cluster : cluster + 2]
        kept = self._scores[first:last] >= MIN_EDGE
        return self._graph.labels[first:last][kept], self._scores[first:last][kept]

    def _summary(self, cluster: int) -> Node:
        labels, scores = self._edges(cluster)
        return {
            "id": f"1.{cluster}", "title": f"cluster {cluster}", "n_labels": int(self._sizes[cluster]),
            "n_samples": int(self._samples[cluster]), "typical": _typical(labels, scores * self._counts[labels]),
        }  # fmt: skip
