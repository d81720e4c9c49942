"""The commands, except ``ramify predict``."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from ramify.base.errors import DataError
from ramify.base.ranking import Ranking
from ramify.cli.options import configured_model, load_model, read_data
from ramify.cli.output import print_message, print_table
from ramify.cli.predict import predict_batches
from ramify.io.dataset import Dataset
from ramify.io.files import BadLines, read_lines
from ramify.io.formats import write
from ramify.io.store import Store
from ramify.metrics.report import Evaluation, evaluate
from ramify.models import load, model_class
from ramify.models.base import Model


def train(args: argparse.Namespace) -> None:
    """``ramify train``."""
    model = configured_model(model_class(args.model), args.config, args.set)
    if args.threads is not None:
        model.set_params(threads=args.threads)
    if args.quiet:
        model.set_params(verbose=0)
    if args.checkpoints is not None:
        if "checkpoint_dir" not in model.get_params(deep=False):
            raise ValueError(f"{args.model} trains in one step and writes no checkpoints; leave out --checkpoints")
        model.set_params(checkpoint_dir=args.checkpoints)
    data = read_data(args.file, args)
    dev = read_data(args.dev, args) if args.dev else None
    started = time.perf_counter()
    try:
        _fit(model, data)
    except KeyboardInterrupt:
        if args.checkpoints is not None:
            print_message(f"interrupted; the same command resumes from the last checkpoint in {args.checkpoints}")
        raise
    seconds = time.perf_counter() - started
    model.save(args.out)
    if not args.quiet:
        size = sum(f.stat().st_size for f in Path(args.out).iterdir())
        print_message(
            f"trained {args.model} on {len(data):,} samples with {model.n_labels:,} labels in {seconds:.1f} s; "
            f"saved to {args.out} ({size / 1e6:.1f} MB)"
        )
    if dev is not None:
        print_evaluation(_evaluate(model, dev, args))


def _fit(model: Model, data: Dataset) -> None:
    """Fit with the weights of the data file, if the model uses them."""
    options: dict[str, Any] = {}
    if data.relevance is not None and model.uses_relevance:
        options["relevance"] = data.encoded_relevance()
    elif data.relevance is not None:
        print_message(f"warning: {model.kind} does not use the weights of {data.name}")
    model.fit(data.inputs, data.labels(), **options)


def evaluate_model(args: argparse.Namespace) -> None:
    """``ramify evaluate``."""
    model = load_model(args)
    result = _evaluate(model, read_data(args.file, args), args)
    if args.json:
        values: dict[str, Any] = dict(result.to_dict())
        if args.deciles:
            values["deciles"] = result.deciles()
        print(json.dumps(values))
        return
    print_evaluation(result)
    if args.deciles:
        deciles = result.deciles()
        shown = [name for name in ("P@1", "P@5", "nDCG@5", "PSP@5", "R@10", "R@100", "macro-F1") if name in deciles]
        rows = [["decile", *shown], *([str(i + 1), *(f"{deciles[name][i]:.2f}" for name in shown)] for i in range(10))]
        print_table(
            rows, title="by label frequency decile, 1 is the most frequent; deciles sum to the total, except F1"
        )


def _evaluate(model: Model, data: Dataset, args: argparse.Namespace) -> Evaluation:
    ks = getattr(args, "ks", None)
    k = min(model.n_labels, max(100, *ks) if ks else 100)  # at least 100, for F1
    return evaluate(
        Ranking.concat(list(predict_batches(model, data, k))),
        data.labels(),
        model.label_counts_,
        ks=ks,
        threshold=model.threshold,
        propensity=getattr(args, "propensity", "default"),
        unseen=getattr(args, "unseen", "count"),
        filter_pairs=_read_pairs(args.filter, data, model, args) if getattr(args, "filter", None) else None,
        threads=args.threads,
    )


def _read_pairs(path: str, data: Dataset, model: Model, args: argparse.Namespace) -> list[list[int]]:
    """Read pairs of row index and label id of the data file; returns label ids of the model, without unknown labels."""
    has_ids = data.X is not None or args.label_names  # labels in the file are ids, columns of Y
    pairs = []
    for line_number, line in read_lines(path, "utf-8", BadLines(path, skip=False)):
        parts = line.split()
        if not parts:
            continue
        if len(parts) != 2 or not all(p.isdecimal() for p in parts):
            raise DataError(f"{path}:{line_number}: expected a row index and a label id, found {line[:60]!r}")
        row, label = map(int, parts)
        if row >= len(data) or (has_ids and label >= data.n_labels):
            raise DataError(f"{path}:{line_number}: row index or label id out of range")
        label_id = model.labels_.ids.get(data.label_names[label] if has_ids else label)
        if label_id is not None:
            pairs.append([row, label_id])
    return pairs


def print_evaluation(result: Evaluation) -> None:
    """Print the table and the notes of an evaluation."""
    print_table(result.table())
    for note in result.notes():
        print(note)


def _plot(model: Model, directory: str, data: tuple[Any, ...]) -> None:
    from ramify.plots import plot_curves, plot_index

    if hasattr(model, "index_report"):
        paths = plot_index(model.index_report(*data), directory)
    elif hasattr(model, "curves"):
        paths = plot_curves(model.curves(), directory)
    else:
        raise DataError(f"no plots are available for {model.kind}; --plots is for models with a learned index")
    for path in paths:
        print_message(f"wrote {path}")


def _inputs_and_labels(args: argparse.Namespace) -> tuple[Any, ...]:
    """Inputs and labels of ``--data``; empty without it."""
    if not args.data:
        return ()
    data = read_data(args.data, args)
    return data.inputs, data.labels()


def inspect(args: argparse.Namespace) -> None:
    """``ramify inspect``."""
    store = Store(args.model, verify=args.verify)
    model = load(args.model)
    if args.json:
        facts: dict[str, Any] = {
            "kind": store.kind,
            "library_version": store.library_version,
            "input_kind": model.input_kind_,
            "n_features": model.n_features_in_,
            "n_labels": model.n_labels,
            "n_samples": model.label_counts_.n_samples,
            "params": store.params,
            "files": store.files,
        }
        print(json.dumps(facts, ensure_ascii=False))
        return
    facts = {
        "kind": store.kind,
        "written by": f"Ramify {store.library_version}",
        "input": model.input_kind_
        if model.n_features_in_ is None
        else f"{model.input_kind_}, {model.n_features_in_:,} features",
        "labels": f"{model.n_labels:,}",
        "training samples": f"{model.label_counts_.n_samples:,}",
        "size": f"{sum(e['size'] for e in store.files.values()) / 1e6:.2f} MB in {len(store.files)} arrays",
    }
    if args.verify:
        facts["hashes"] = "verified"
    print_table([[k, v] for k, v in facts.items()], header=False)
    print_table(
        [
            ["parameter", "value"],
            *([p.path, _value(store.params, p.path)] for p in type(model).describe(defaults=model)),
        ]
    )
    data = _inputs_and_labels(args)
    for title, rows in model.report(*data).items():
        print_table(rows, title=title)
    if args.plots:
        _plot(model, args.plots, data)
    arrays = [
        [name, entry["dtype"], " × ".join(map(str, entry["shape"])), f"{entry['size']:,}"]
        for name, entry in store.files.items()
    ]
    print_table([["array", "dtype", "shape", "bytes"], *arrays])


def export_encoder(args: argparse.Namespace) -> None:
    """``ramify export-encoder``."""
    model: Any = load_model(args)
    if not hasattr(model, "export_encoder"):
        raise ValueError(f"{args.model} contains a {model.kind!r} model, which has no encoder")
    metrics = model.export_encoder(*_inputs_and_labels(args), int8=args.int8, max_loss=args.max_loss)
    if metrics:
        precision = "int8" if args.int8 else "float32"
        print_table([["P@1 before", f"P@1 {precision}"], [f"{metrics['before']:.2f}", f"{metrics['after']:.2f}"]])
        if not metrics["kept"]:
            raise ValueError(
                f"int8 loses more than {args.max_loss:g} percentage points of P@1; the model was not changed"
            )
    model.set_params(threads=None)
    model.save(args.out or args.model)
    print_message(f"exported the encoder of {args.out or args.model} to ONNX")


def _value(params: dict[str, Any], path: str) -> str:
    """Format a parameter as JSON of at most 80 characters."""
    for part in path.split("."):
        params = params[part]
    text = json.dumps(params)
    return text if len(text) <= 80 else f"{text[:79]}…"


def data_stats(args: argparse.Namespace) -> None:
    """``ramify data stats``: the first file is the training set of the others."""
    train_set: Dataset | None = None
    results = {}
    for name in args.files:
        data = read_data(name, args)
        results[name] = data.stats(train_set)
        train_set = train_set or data
    if args.json:
        print(json.dumps({name: stats.to_dict() for name, stats in results.items()}))
        return
    for name, stats in results.items():
        print_table([list(row) for row in stats.rows()], title=name, header=False)


def data_convert(args: argparse.Namespace) -> None:
    """``ramify data convert``."""
    data = read_data(args.input, args)
    write(data, args.output)
    print_message(f"wrote {len(data):,} samples with {data.n_labels:,} labels to {args.output}")
