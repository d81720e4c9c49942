"""What a learned graph looks like, and what a search in it finds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ramify.base.types import AnyArray, DoubleArray, IntArray
from ramify.index.label_graph import LabelGraph

PRUNED_METRICS = ("P@1", "P@5", "R@10", "R@100")


@dataclass(frozen=True)
class Pruned:
    """A graph without its weak edges: how it was pruned, the share of edges that it kept, and its metrics."""

    how: str
    kept: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class SearchReport:
    """What a search finds on given data.

    Attributes
    ----------
    recall : R@k by k
    shortlist : share of the true labels on the shortlist, in percent
    by_decile : parts of the last recall by decile of labels, frequent ones first; they add up to it
    pruning : the same search with fewer and fewer edges
    """

    recall: dict[int, float]
    shortlist: float
    by_decile: list[float]
    pruning: list[Pruned]

    def tables(self) -> dict[str, list[list[str]]]:
        """Return it as tables of text, by title."""
        last = max(self.recall)
        recall = [[f"R@{k}", f"{value:.2f}"] for k, value in self.recall.items()]
        parts = [[f"tenth {d + 1}", f"{value:.2f}"] for d, value in enumerate(self.by_decile)]
        rows = [
            [entry.how, f"{entry.kept:.1%}", *(f"{entry.metrics[name]:.2f}" for name in entry.metrics)]
            for entry in self.pruning
        ]
        names = list(self.pruning[0].metrics) if self.pruning else []
        return {
            "recall": [["", "percent"], *recall, ["shortlist", f"{self.shortlist:.2f}"]],
            f"parts of R@{last}": [["labels by frequency", "percent"], *parts],
            "pruning": [["edges", "kept", *names], *rows],
        }


@dataclass(frozen=True, eq=False)
class IndexReport:
    """What a graph looks like.

    Attributes
    ----------
    n_edges : number of edges E
    strong : share of the edges whose score is over each threshold
    survived : share of the labels whose edge to their first cluster scores over each threshold
    clusters_by_decile : (10,) mean number of clusters on which a label hangs by a score over 0.25, frequent ones first
    by_rank : mean score of the strongest, second, … edge of a cluster
    search : what a search finds, if data were at hand
    """

    n_edges: int
    strong: dict[float, float]
    survived: dict[float, float]
    clusters_by_decile: DoubleArray
    by_rank: DoubleArray
    search: SearchReport | None = None

    @classmethod
    def of(cls, graph: LabelGraph, cluster_of: IntArray, deciles: AnyArray) -> IndexReport:
        """Look at a graph; cluster_of (L,) is where each label was first, deciles (L,) how frequent it is."""
        scores, clusters = np.exp(graph.scores.astype(np.float64)), graph.edge_clusters()
        first = scores[clusters == cluster_of[graph.labels]]
        n_strong = np.bincount(graph.labels, scores > 0.25, minlength=graph.n_labels)
        order = np.lexsort((-scores, clusters))
        rank = np.arange(len(order)) - graph.begin[clusters[order]]
        return cls(
            len(scores),
            {t: float(np.mean(scores > t)) if len(scores) else 0.0 for t in THRESHOLDS},
            {t: float((first > t).sum() / max(1, graph.n_labels)) for t in THRESHOLDS},
            np.array([n_strong[deciles == d].mean() if np.any(deciles == d) else np.nan for d in range(10)]),
            np.bincount(rank, scores[order]) / np.maximum(1, np.bincount(rank)),
        )

    def tables(self) -> dict[str, list[list[str]]]:
        """Return it as tables of text, by title."""
        shares = [[f"> {t:g}", f"{self.strong[t]:.1%}", f"{self.survived[t]:.1%}"] for t in THRESHOLDS]
        places = sorted({min(p, len(self.by_rank)) for p in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)} - {0})
        return {
            f"{self.n_edges:,} edges": [["score", "of the edges", "of the labels at their first cluster"], *shares],
            "clusters of a label, score > 0.25": [
                ["labels by frequency", "clusters"],
                *([f"tenth {d + 1}", f"{x:.2f}"] for d, x in enumerate(self.clusters_by_decile)),
            ],
            "edges of a cluster, strongest first": [
                ["place", "mean score"],
                *([f"{p}", f"{self.by_rank[p - 1]:.3f}"] for p in places),
            ],
            **({} if self.search is None else self.search.tables()),
        }


THRESHOLDS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.9)
