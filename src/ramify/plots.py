"""Pictures of what was learned, as PNG files; needs matplotlib (`pip install 'ramify[plots]'`)."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ramify.index.graph_report import THRESHOLDS, GraphReport


def plot_index(report: GraphReport, folder: str | os.PathLike[str]) -> list[Path]:
    """Draw what an index looks like into a folder; return the files."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    drawings: dict[str, Callable[[Any], None]] = {
        "edge-scores": lambda axes: _edge_scores(axes, report),
        "clusters-by-decile": lambda axes: _clusters_by_decile(axes, report),
        "surviving-edges": lambda axes: _surviving_edges(axes, report),
    }
    if report.search is not None:
        search = report.search
        drawings |= {
            "recall": lambda axes: _recall(axes, search.recall, search.shortlist_recall),
            "recall-by-decile": lambda axes: _by_decile(
                axes, search.recall_by_decile, f"part of R@{max(search.recall)} (%)"
            ),
            "pruning": lambda axes: _pruning(axes, report),
        }
    return [_draw(place / f"{name}.png", draw) for name, draw in drawings.items()]


def plot_curves(curves: dict[str, list[list[float]]], folder: str | os.PathLike[str]) -> list[Path]:
    """Draw P@1 and PSP@1 on held-out points against what was tried, a picture each; return the files.

    `curves` has rows of x, P@1 and PSP@1 by the name of x.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, rows in curves.items():
        if rows:
            draw = functools.partial(_curve, name=name, rows=rows)
            paths.append(_draw(place / f"by-{name.replace(' ', '-')}.png", draw))
    return paths


def _draw(path: Path, draw: Callable[[Any], None]) -> Path:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'ramify[plots]'") from error
    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.grid(alpha=0.3)
    draw(axes)
    figure.savefig(path, dpi=120)
    return path


def _curve(axes: Any, name: str, rows: list[list[float]]) -> None:
    x, first, rare = zip(*rows, strict=True)
    axes.plot(x, first, marker="o", label="P@1")
    axes.plot(x, rare, marker="s", label="PSP@1")
    axes.set(xlabel=name, ylabel="%", title="Held-out points")
    axes.legend()


def _edge_scores(axes: Any, report: GraphReport) -> None:
    axes.plot(np.arange(1, len(report.score_by_rank) + 1), report.score_by_rank)
    axes.set(xlabel="edge of a cluster, strongest first", ylabel="mean score", xscale="log", title="Edges of a cluster")


def _clusters_by_decile(axes: Any, report: GraphReport) -> None:
    _by_decile(axes, report.clusters_by_decile.tolist(), "clusters with a score over 0.25")
    axes.set_title("Clusters of a label")


def _by_decile(axes: Any, values: list[float], name: str) -> None:
    axes.bar(np.arange(1, len(values) + 1), values)
    axes.set(xlabel="tenth of the labels, most frequent first", ylabel=name, xticks=np.arange(1, len(values) + 1))


def _surviving_edges(axes: Any, report: GraphReport) -> None:
    axes.plot(THRESHOLDS, [100 * report.labels_above[t] for t in THRESHOLDS], marker="o")
    axes.set(xlabel="score over", ylabel="labels (%)", title="Labels that hang on their first cluster", ylim=(0, 100))


def _recall(axes: Any, recall: dict[int, float], shortlist: float) -> None:
    axes.plot(list(recall), list(recall.values()), marker="o", label="R@k")
    axes.axhline(shortlist, linestyle="--", color="gray", label="shortlist")
    axes.set(xlabel="k", ylabel="recall (%)", xscale="log", title="Recall")
    axes.legend()


def _pruning(axes: Any, report: GraphReport) -> None:
    assert report.search is not None
    rows = sorted(report.search.pruning, key=lambda row: row.kept_fraction)
    for name in rows[0].metrics:
        axes.plot(
            [100 * row.kept_fraction for row in rows], [row.metrics[name] for row in rows], marker="o", label=name
        )
    axes.set(xlabel="edges kept (%)", ylabel="%", title="Pruning")
    axes.legend()
