"""``ramify card``: a model card in Markdown."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ramify.base.ranking import Ranking
from ramify.cli.help import add_command
from ramify.cli.options import add_data_options, load_model, read_labelled_data
from ramify.cli.output import format_table
from ramify.cli.predict import predict_batches
from ramify.io.store import Store
from ramify.metrics.report import evaluate
from ramify.models.base import Model
from ramify.report.about import describe_probabilities

_FREQUENT = 10


def add_card(parent: Any) -> None:
    """Add the command."""
    sub = add_command(parent, "card", "Write a model card in Markdown.", write_card)
    sub.add_argument("model", metavar="DIR", help="directory of a saved model")
    sub.add_argument("--data", metavar="FILE", help="evaluate the model on this data file")
    sub.add_argument("--out", metavar="FILE", help="file to write (default: standard output)")
    sub.add_argument("--threads", type=int, metavar="N", help="threads to use (default: all cores)")
    add_data_options(sub)


def write_card(args: argparse.Namespace) -> None:
    """Write the card, or print it."""
    model, store = load_model(args), Store(args.model)
    text = "\n".join([*_about(model, store, args.model), *_results(model, args), *_use(model, args.model)]) + "\n"
    if args.out is None:
        print(text, end="")
    else:
        Path(args.out).write_text(text, encoding="utf-8")


def _about(model: Model, store: Store, path: str) -> list[str]:
    counts = model.label_counts_.counts
    doc = (type(model).__doc__ or "").strip().splitlines()[0]
    size = sum(entry["size"] for entry in store.files.values())
    changed = repr(type(model).from_dict(store.params))
    facts = [
        ["", ""],
        ["model", f"`{type(model).__name__}` ({model.kind})"],
        ["input", {"text": "texts", "fields": "text fields"}.get(model.input_kind_, f"{model.input_kind_} features")],
        ["labels", f"{model.n_labels:,}"],
        ["training samples", f"{model.label_counts_.n_samples:,}"],
        ["labels with one sample", f"{int((counts == 1).sum()):,}"],
        ["size", f"{size / 1e6:.1f} MB"],
        ["probabilities", describe_probabilities(model)],
        *([] if model.rule_ is None else [["decision rule", f"`{model.rule_.name}`"]]),
        ["written by", f"Ramify {store.library_version}"],
    ]
    best = np.argsort(-counts, kind="stable")[:_FREQUENT]
    name = str if model.catalogue_ is None else model.catalogue_.display_name
    frequent = ", ".join(f"{name(model.labels_[int(i)])} ({int(counts[i]):,})" for i in best)
    return [
        f"# {Path(path).resolve().name}",
        "",
        doc,
        "",
        format_table(facts, "markdown"),
        "",
        f"Parameters that differ from the defaults: `{changed}`",
        "",
        f"Most frequent labels: {frequent}",
        "",
        "The model predicts only labels that it was trained on. A rare label is found less often than a frequent one.",
        "",
    ]


def _results(model: Model, args: argparse.Namespace) -> list[str]:
    if not args.data:
        return []
    data = read_labelled_data(args.data, args)
    k = min(model.n_labels, 100)
    rank = partial(model.predict_topk, k=k, probabilities=model.is_calibrated)
    ranking = Ranking.concat(list(predict_batches(model, data, k, rank)))
    result = evaluate(ranking, data.labels(), model.label_counts_, threshold=model.threshold)
    notes = [f"- {note}" for note in result.notes()]
    if result.reliability is not None:
        notes += [f"- {', '.join(f'{name} {v:.4f}' for name, v in result.reliability.to_dict().items())}"]
    return [f"## Results on {data.name}", "", format_table(result.table(), "markdown"), "", *notes, ""]


def _use(model: Model, path: str) -> list[str]:
    example = {"text": '["a text"]', "fields": '[{"title": "a title"}]'}.get(model.input_kind_, "X")
    return [
        "## Use",
        "",
        "```python",
        "import ramify",
        "",
        f"model = ramify.load({Path(path).name!r})",
        f"model.predict_topk({example}, k=5).labels()",
        *([] if model.rule_ is None else [f"model.predict_sets({example}).labels()  # as many as the rule chooses"]),
        "```",
    ]
