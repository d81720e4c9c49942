"""Plots of trained models as PNG files; requires matplotlib (`pip install 'ramify[plots]'`)."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ramify.base.extras import needed_for
from ramify.index.graph_report import THRESHOLDS, GraphReport


def plot_index(report: GraphReport, directory: str | os.PathLike[str]) -> list[Path]:
    """Plot the report of a label graph; returns the paths of the files."""
    plots: dict[str, Callable[[Any], None]] = {
        "edge-scores": lambda axes: _edge_scores(axes, report),
        "clusters-by-decile": lambda axes: _clusters_by_decile(axes, report),
        "surviving-edges": lambda axes: _surviving_edges(axes, report),
    }
    if report.search is not None:
        search = report.search
        plots |= {
            "recall": lambda axes: _recall(axes, search.recall, search.shortlist_recall),
            "recall-by-decile": lambda axes: _by_decile(
                axes, search.recall_by_decile, f"contribution to R@{max(search.recall)} (%)"
            ),
            "pruning": lambda axes: _pruning(axes, report),
        }
    return [_save(Path(directory) / f"{name}.png", draw) for name, draw in plots.items()]


def plot_curves(curves: dict[str, list[list[float]]], directory: str | os.PathLike[str]) -> list[Path]:
    """Plot validation P@1 and PSP@1 against each variable, one file per variable; returns the paths of the files.

    `curves` maps the name of a variable, such as "epoch", to rows of its value, P@1 and PSP@1.
    """
    return [
        _save(Path(directory) / f"by-{name.replace(' ', '-')}.png", functools.partial(_curve, name=name, rows=rows))
        for name, rows in curves.items()
        if rows
    ]


def require_matplotlib() -> None:
    """Raise an ImportError that says how to install matplotlib, if it is missing."""
    with needed_for("plotting", "matplotlib", "plots"):
        import matplotlib.figure  # noqa: F401


def _save(path: Path, draw: Callable[[Any], None]) -> Path:
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    path.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.grid(alpha=0.3)
    draw(axes)
    figure.savefig(path, dpi=120)
    return path


def _curve(axes: Any, name: str, rows: list[list[float]]) -> None:
    x, precision, weighted_precision = zip(*rows, strict=True)
    axes.plot(x, precision, marker="o", label="validation P@1")
    axes.plot(x, weighted_precision, marker="s", label="validation PSP@1")
    axes.set(xlabel=name, ylabel="%", title="Validation metrics")
    axes.legend()


def _edge_scores(axes: Any, report: GraphReport) -> None:
    axes.plot(np.arange(1, len(report.score_by_rank) + 1), report.score_by_rank)
    axes.set(xlabel="rank of the edge within its cluster", ylabel="mean score", xscale="log", title="Edge scores")


def _clusters_by_decile(axes: Any, report: GraphReport) -> None:
    _by_decile(axes, report.clusters_by_decile.tolist(), "clusters with score > 0.25")
    axes.set_title("Clusters per label")


def _by_decile(axes: Any, values: list[float], name: str) -> None:
    axes.bar(np.arange(1, len(values) + 1), values)
    axes.set(xlabel="label frequency decile (1: most frequent)", ylabel=name, xticks=np.arange(1, len(values) + 1))


def _surviving_edges(axes: Any, report: GraphReport) -> None:
    axes.plot(THRESHOLDS, [100 * report.labels_above[t] for t in THRESHOLDS], marker="o")
    axes.set(xlabel="score threshold", ylabel="labels (%)", title="Labels with a strong edge to their initial cluster")
    axes.set_ylim(0, 100)


def _recall(axes: Any, recall: dict[int, float], shortlist: float) -> None:
    axes.plot(list(recall), list(recall.values()), marker="o", label="R@k")
    axes.axhline(shortlist, linestyle="--", color="gray", label="shortlist")
    axes.set(xlabel="k", ylabel="recall (%)", xscale="log", title="Recall")
    axes.legend()


def _pruning(axes: Any, report: GraphReport) -> None:
    assert report.search is not None
    rows = sorted(report.search.pruning, key=lambda row: row.kept_fraction)
    kept = [100 * row.kept_fraction for row in rows]
    for name in rows[0].metrics:
        axes.plot(kept, [row.metrics[name] for row in rows], marker="o", label=name)
    axes.set(xlabel="edges kept (%)", ylabel="%", title="Pruning")
    axes.legend()
