"""What a model itself tells a report: facts, figures of its index, training curves, and measured times."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify.base.errors import RamifyError
from ramify.models.base import Model

N_TIMED = 100
"""Samples that are asked one by one to measure the time of a single query."""

Table = list[list[str]]


@dataclass(frozen=True)
class Curve:
    """A line over x for each name, such as the loss by epoch."""

    title: str
    x: str
    y: str
    lines: dict[str, list[tuple[float, float]]]


def describe_probabilities(model: Model) -> str:
    """Where the probabilities of a model come from."""
    if model.calibration_ is not None:
        return f"from {model.calibration_.n_rows:,} rows"
    return "the scores estimate them" if model.scores_are_probabilities else "none: raw scores"


def model_facts(model: Model) -> list[tuple[str, str]]:
    """Name and value of what identifies a model."""
    inputs = {"text": "texts", "fields": "text fields"}.get(model.input_kind_, f"{model.input_kind_} features")
    return [
        ("model", f"{type(model).__name__} ({model.kind})"),
        ("input", inputs),
        ("labels", f"{model.n_labels:,}"),
        ("training samples", f"{model.label_counts_.n_samples:,}"),
        ("labels with one sample", f"{int((model.label_counts_.counts == 1).sum()):,}"),
        ("probabilities", describe_probabilities(model)),
        ("decision rule", "none" if model.rule_ is None else model.rule_.name),
        ("parameters", repr(model)),
    ]


def index_figures(model: Model) -> dict[str, Table]:
    """Tables of the index, by title: the levels of label trees, or what the model reports of itself."""
    tables: dict[str, Table] = {}
    trees = getattr(model, "trees_", [])
    for i, linear_tree in enumerate(trees):
        tree = linear_tree.tree
        rows = [["level", "nodes", "children of a node", "at most"]]
        for level, (above, indptr) in enumerate(itertools.pairwise([None, *tree.levels]), 1):
            children = np.diff(indptr)
            n_nodes = 1 if above is None else int(above[-1])
            name = "root" if level == 1 else f"{level - 1}"
            rows.append([name, f"{n_nodes:,}", f"{float(children.mean()):.1f}", f"{int(children.max()):,}"])
        rows.append(["labels", f"{len(tree.labels):,}", "", ""])
        tables["label tree" if len(trees) == 1 else f"label tree {i + 1}"] = rows
    reported = {title: rows for title, rows in model.report().items() if not title.startswith(("training", "valid"))}
    return tables | reported


def training_curves(model: Model) -> list[Curve]:
    """Curves that a neural model has kept of its training; none for linear models."""
    curves = []
    for name, rows in model.curves().items() if hasattr(model, "curves") else ():
        lines = {"P@1": [(row[0], row[1]) for row in rows], "PSP@1": [(row[0], row[2]) for row in rows]}
        if len(rows) > 1:
            curves.append(Curve(f"validation metrics by {name}", name, "%", lines))
    members = getattr(model, "members_", [])
    histories = [member.history for member in members] or [getattr(model, "history_", [])]
    named = [("" if len(histories) == 1 else f"member {i + 1}", history) for i, history in enumerate(histories)]
    losses = {f"{name} loss".strip(): [(i + 1.0, loss) for i, (loss, _) in enumerate(h)] for name, h in named}
    scores = {
        f"{name} nDCG@5".strip(): [(i + 1.0, score) for i, (_, score) in enumerate(h) if score is not None]
        for name, h in named
    }
    for title, y, lines in (("training loss", "loss", losses), ("validation nDCG@5", "%", scores)):
        if any(len(line) > 1 for line in lines.values()):
            curves.append(Curve(title, "validation", y, lines))
    return curves


def single_query_times(model: Model, inputs: Any) -> dict[str, float]:
    """Median and 95th percentile of the milliseconds of a query for one sample, top 10."""
    n = len(inputs) if isinstance(inputs, Sequence) else inputs.shape[0]
    seconds = []
    for i in range(min(n, N_TIMED)):
        started = time.perf_counter()
        try:
            model.predict_topk(inputs[i : i + 1], min(10, model.n_labels))
        except RamifyError:
            return {}
        seconds.append(time.perf_counter() - started)
    if not seconds:
        return {}
    return {
        "one query, median (ms)": 1000 * float(np.median(seconds)),
        "one query, 95th percentile (ms)": 1000 * float(np.percentile(seconds, 95)),
    }
