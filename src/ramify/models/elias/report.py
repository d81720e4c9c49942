"""What the index of a trained `Elias` finds on data: recall, by label frequency and with pruned graphs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from ramify.base.sparse import entry_rows
from ramify.base.types import BoolArray, Csr, IntArray
from ramify.index.graph_report import PRUNING_METRICS, PruningResult, SearchReport
from ramify.metrics.report import evaluate
from ramify.nn.trainer import History

if TYPE_CHECKING:
    from ramify.models.elias.model import Elias

CUTOFFS = (1, 3, 5, 10, 20, 50, 100)
PRUNINGS: list[tuple[str, dict[str, Any]]] = [
    *((f"score ≥ {threshold:g}", {"threshold": threshold}) for threshold in (0.01, 0.05, 0.1, 0.25, 0.5)),
    *((f"best {fraction:.0%}", {"fraction": fraction}) for fraction in (0.5, 0.3, 0.2, 0.1)),
]
"""Descriptions and arguments of `Elias.prune`: edges above a score, and fractions of the edges."""


def search_report(model: Elias, X: Any, y: Any) -> SearchReport:
    """Evaluate the search of a model on data X with labels y, with its own graphs and with pruned copies."""
    width = min(CUTOFFS[-1], model.n_labels)
    ks = [k for k in CUTOFFS if k <= width]
    names = [name for name in PRUNING_METRICS if int(name.split("@")[1]) in ks]
    full = evaluate(model.predict_topk(X, width), y, model.label_counts_, ks=ks)
    pruning = [PruningResult("all", 1.0, {name: full[name] for name in names})]
    for description, options in PRUNINGS:
        pruned = copy.copy(model).prune(**options)  # the copy shares everything but its members' graphs
        metrics = evaluate(pruned.predict_topk(X, width), y, model.label_counts_, ks=ks)
        kept = _n_edges(pruned) / max(1, _n_edges(model))
        pruning.append(PruningResult(description, kept, {name: metrics[name] for name in names}))
    recall = {k: full[f"R@{k}"] for k in ks}
    return SearchReport(recall, model.shortlist_recall(X, y), full.deciles()[f"R@{ks[-1]}"], pruning)


def _n_edges(model: Elias) -> int:
    return sum(len(member.graph.labels) for member in model.members_)


def is_listed(shortlists: IntArray, Y: Csr) -> BoolArray:
    """Whether each label of Y (n × L), in the order of its entries, is on the shortlist (n, k) of its row."""
    true = entry_rows(Y).astype(np.int64) * Y.shape[1] + Y.indices
    listed = (np.arange(len(shortlists), dtype=np.int64)[:, None] * Y.shape[1] + shortlists)[shortlists >= 0]
    return np.isin(true, listed)


def history_table(history: History) -> list[list[str]]:
    """Loss and validation nDCG@5 of each epoch, below a header."""
    rows = [
        [f"{i + 1}", f"{loss:.5f}", "–" if score is None else f"{score:.2f}"] for i, (loss, score) in enumerate(history)
    ]
    return [["epoch", "loss", "validation nDCG@5"], *rows]
