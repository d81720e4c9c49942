"""What each command does."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from ramify.base.errors import DataError
from ramify.base.ranking import Ranking
from ramify.cli.options import configured_model, read_data
from ramify.cli.output import print_table, report_skipped, say
from ramify.cli.predict import ranked
from ramify.io.dataset import Dataset
from ramify.io.files import BadLines, read_lines
from ramify.io.formats import write
from ramify.io.store import Store
from ramify.metrics.report import Evaluation, evaluate
from ramify.models import load, model_class
from ramify.models.base import Model
from ramify.models.encoded import EncodedModel


def train(args: argparse.Namespace) -> None:
    """``ramify train``."""
    model = configured_model(model_class(args.model), args.config, args.set)
    if args.threads is not None:
        model.set_params(threads=args.threads)
    if args.quiet:
        model.set_params(verbose=0)
    data = read_data(args.file, args)
    report_skipped(data)
    dev = read_data(args.dev, args) if args.dev else None
    started = time.perf_counter()
    model.fit(data.inputs, data.labels())
    seconds = time.perf_counter() - started
    model.save(args.out)
    if not args.quiet:
        size = sum(f.stat().st_size for f in Path(args.out).iterdir())
        say(f"trained {args.model} on {len(data):,} points with {model.n_labels:,} labels in {seconds:.1f} s; "
            f"saved to {args.out} ({size / 1e6:.1f} MB)")  # fmt: skip
    if dev is not None:
        print_evaluation(_evaluate(model, dev, args))


def evaluate_model(args: argparse.Namespace) -> None:
    """``ramify evaluate``."""
    model = load(args.model)
    model.set_params(threads=args.threads, verbose=0)
    data = read_data(args.file, args)
    report_skipped(data)
    result = _evaluate(model, data, args)
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
        print_table(rows, title="by decile of labels, the most frequent first; parts add up to the whole, but for F1")


def _evaluate(model: Model, data: Dataset, args: argparse.Namespace) -> Evaluation:
    ks = getattr(args, "ks", None)
    width = min(model.n_labels, max(100, *ks) if ks else 100)  # no fewer: F1 looks at all of them
    return evaluate(
        Ranking.concat(list(ranked(model, data, width))),
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
    """Pairs of row and label in the numbers of the data file, in those of the model; others do nothing."""
    numbered = data.X is not None or args.label_names  # the file's numbers are places in its list of names
    pairs = []
    for number, line in read_lines(path, "utf-8", BadLines(path, skip=False)):
        parts = line.split()
        if not parts:
            continue
        if len(parts) != 2 or not all(p.isdecimal() for p in parts):
            raise DataError(f"{path}:{number}: expected a row and a label number, found {line[:60]!r}")
        row, label = map(int, parts)
        if row >= len(data) or (numbered and label >= data.n_labels):
            raise DataError(f"{path}:{number}: there is no such row or label in the data")
        found = model.labels_.numbers.get(data.label_names[label] if numbered else label)
        if found is not None:
            pairs.append([row, found])
    return pairs


def print_evaluation(result: Evaluation) -> None:
    """Print the table of an evaluation with its notes."""
    print_table(result.table())
    for note in result.notes():
        print(note)


def _plot(model: Model, folder: str, given: tuple[Any, ...]) -> None:
    from ramify.plots import plot_curves, plot_index

    if hasattr(model, "index_report"):
        paths = plot_index(model.index_report(*given), folder)
    elif hasattr(model, "curves"):
        paths = plot_curves(model.curves(), folder)
    else:
        raise DataError(f"there is nothing to draw of a {model.kind} model; --plots is for models with a learned index")
    for path in paths:
        say(f"wrote {path}")


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
            "n_points": model.label_counts_.n_points,
            "params": store.params,
            "files": store.files,
        }
        print(json.dumps(facts, ensure_ascii=False))
        return
    facts = {
        "kind": store.kind,
        "written by": f"Ramify {store.library_version}",
        "takes": model.input_kind_
        if model.n_features_in_ is None
        else f"{model.input_kind_}, {model.n_features_in_:,} features",
        "labels": f"{model.n_labels:,}",
        "training points": f"{model.label_counts_.n_points:,}",
        "size": f"{sum(e['size'] for e in store.files.values()) / 1e6:.2f} MB in {len(store.files)} arrays",
    }
    if args.verify:
        facts["content"] = "fits its hashes"
    print_table([[k, v] for k, v in facts.items()], header=False)
    print_table(
        [
            ["parameter", "value"],
            *([p.path, _value(store.params, p.path)] for p in type(model).describe(defaults=model)),
        ]
    )
    data = read_data(args.data, args) if args.data else None
    given = () if data is None else (data.inputs, data.labels())
    for title, rows in model.report(*given).items():
        print_table(rows, title=title)
    if args.plots:
        _plot(model, args.plots, given)
    arrays = [
        [name, entry["dtype"], " × ".join(map(str, entry["shape"])), f"{entry['size']:,}"]
        for name, entry in store.files.items()
    ]
    print_table([["array", "type", "shape", "bytes"], *arrays])


def export_encoder(args: argparse.Namespace) -> None:
    """``ramify export-encoder``."""
    model = load(args.model)
    model.set_params(threads=args.threads, verbose=0)
    if not isinstance(model, EncodedModel):
        raise ValueError(f"{args.model} holds a {model.kind!r} model, which has no encoder")
    data = read_data(args.data, args) if args.data else None
    given = () if data is None else (data.inputs, data.labels())
    figures = model.export_encoder(*given, int8=args.int8, max_loss=args.max_loss)
    if figures:
        form = "int8" if args.int8 else "float32"
        print_table([["P@1 before", f"P@1 by {form}"], [f"{figures['before']:.2f}", f"{figures['after']:.2f}"]])
        if not figures["kept"]:
            raise ValueError(f"int8 costs more than {args.max_loss:g} points of P@1; the model stays as it is")
    model.set_params(threads=None)
    model.save(args.out or args.model)
    say(f"onnxruntime computes the vectors of {args.out or args.model}")


def _value(params: dict[str, Any], path: str) -> str:
    """Return a parameter as JSON, cut where it is long."""
    for part in path.split("."):
        params = params[part]
    text = json.dumps(params)
    return text if len(text) <= 80 else f"{text[:79]}…"


def data_stats(args: argparse.Namespace) -> None:
    """``ramify data stats``: the first file is the training data of the others."""
    train_set: Dataset | None = None
    results = {}
    for name in args.files:
        data = read_data(name, args)
        report_skipped(data)
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
    report_skipped(data)
    write(data, args.output)
    say(f"{len(data):,} points with {data.n_labels:,} labels written to {args.output}")
