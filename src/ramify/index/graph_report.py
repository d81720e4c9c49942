"""Statistics of a label graph, and the quality of a search in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ramify.base.types import AnyArray, DoubleArray, IntArray
from ramify.index.label_graph import LabelGraph

THRESHOLDS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.9)
"""Edge scores at which edges and labels are counted."""
STRONG = 0.25
"""Edge score above which a cluster counts as one of a label's clusters."""
RANKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Ranks within a cluster whose mean edge score the table shows."""
PRUNING_METRICS = ("P@1", "P@5", "R@10", "R@100")
"""Metrics that are compared before and after pruning."""

Table = list[list[str]]


@dataclass(frozen=True)
class PruningResult:
    """Metrics of a search in a pruned graph.

    Attributes
    ----------
    description : the pruning criterion, as text
    kept_fraction : fraction of the edges that was kept
    metrics : value in percent of each metric
    """

    description: str
    kept_fraction: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class SearchReport:
    """Quality of a search on given samples.

    Attributes
    ----------
    recall : R@k in percent, by k
    shortlist_recall : fraction of the true labels that is on the shortlist, in percent
    recall_by_decile : contribution to the last R@k of each decile of labels, frequent ones first; they add up to it
    pruning : metrics with all edges, then with fewer and fewer
    """

    recall: dict[int, float]
    shortlist_recall: float
    recall_by_decile: list[float]
    pruning: list[PruningResult]

    def tables(self) -> dict[str, Table]:
        """Return the report as tables of text, by title."""
        recall = [[f"R@{k}", f"{value:.2f}"] for k, value in self.recall.items()]
        pruning = [
            [result.description, f"{result.kept_fraction:.1%}", *(f"{value:.2f}" for value in result.metrics.values())]
            for result in self.pruning
        ]
        names = list(self.pruning[0].metrics) if self.pruning else []
        return {
            "recall": [["metric", "percent"], *recall, ["shortlist recall", f"{self.shortlist_recall:.2f}"]],
            f"R@{max(self.recall)} by label frequency": _by_decile(self.recall_by_decile, "contribution (percent)"),
            "pruning": [["criterion", "edges kept", *names], *pruning],
        }


@dataclass(frozen=True, eq=False)
class GraphReport:
    """Statistics of a label graph.

    Attributes
    ----------
    n_edges : number of edges E
    edges_above : fraction of the edges with a score above each threshold
    labels_above : fraction of the labels whose edge to their initial cluster has a score above each threshold
    clusters_by_decile : (10,) mean number of clusters to which a label is connected with a score above `STRONG`, by
        decile of labels, frequent ones first
    score_by_rank : mean score of the strongest, second strongest, … edge of a cluster
    search : quality of a search; None without data
    """

    n_edges: int
    edges_above: dict[float, float]
    labels_above: dict[float, float]
    clusters_by_decile: DoubleArray
    score_by_rank: DoubleArray
    search: SearchReport | None = None

    @classmethod
    def of(cls, graph: LabelGraph, cluster_of: IntArray, deciles: AnyArray) -> GraphReport:
        """Compute the statistics of a graph, given the initial cluster (L,) and frequency decile (L,) of each label."""
        scores, clusters = np.exp(graph.scores.astype(np.float64)), graph.edge_clusters()
        initial = scores[clusters == cluster_of[graph.labels]]
        n_strong = np.bincount(graph.labels, scores > STRONG, minlength=graph.n_labels)
        order = np.lexsort((-scores, clusters))
        ranks = np.arange(len(order)) - graph.indptr[clusters[order]]
        return cls(
            len(scores),
            {t: float(np.mean(scores > t)) if len(scores) else 0.0 for t in THRESHOLDS},
            {t: float((initial > t).sum() / max(1, graph.n_labels)) for t in THRESHOLDS},
            np.array([n_strong[deciles == d].mean() if np.any(deciles == d) else np.nan for d in range(10)]),
            np.bincount(ranks, scores[order]) / np.maximum(1, np.bincount(ranks)),
        )

    def tables(self) -> dict[str, Table]:
        """Return the report as tables of text, by title."""
        fractions = [[f"> {t:g}", f"{self.edges_above[t]:.1%}", f"{self.labels_above[t]:.1%}"] for t in THRESHOLDS]
        ranks = sorted({min(rank, len(self.score_by_rank)) for rank in RANKS} - {0})
        return {
            f"{self.n_edges:,} edges": [
                ["edge score", "fraction of edges", "fraction of labels at their initial cluster"],
                *fractions,
            ],
            f"clusters per label (edge score > {STRONG:g})": _by_decile(self.clusters_by_decile, "clusters"),
            "edges of a cluster, strongest first": [
                ["rank", "mean edge score"],
                *([f"{rank}", f"{self.score_by_rank[rank - 1]:.3f}"] for rank in ranks),
            ],
            **({} if self.search is None else self.search.tables()),
        }


def _by_decile(values: list[float] | DoubleArray, heading: str) -> Table:
    """Table of one value per decile of labels, frequent ones first; those without a label have none."""
    shown = ["–" if np.isnan(value) else f"{value:.2f}" for value in values]
    return [["label frequency decile", heading], *([f"{d + 1}", value] for d, value in enumerate(shown))]
