"""The commands, except ``ramify predict``."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ramify.base.errors import DataError
from ramify.base.progress import progress
from ramify.base.ranking import Ranking
from ramify.cli.decide import model_inputs, print_annif, print_groups, read_groups
from ramify.cli.evaluations import (
    check_evaluate_options,
    comparison,
    evaluate_predictions,
    saved_ranking,
    seeds_table,
    unseen,
)
from ramify.cli.options import configured_model, load_model, read_data, read_labelled_data
from ramify.cli.output import print_message, print_table
from ramify.cli.predict import predict_batches
from ramify.cli.report import check_report_options, write_model_report
from ramify.cli.training import (
    check_memory,
    check_output,
    check_space,
    check_train_options,
    fit_calibrated,
    fit_model,
    fit_options,
)
from ramify.io.catalogue import LabelCatalogue
from ramify.io.dataset import Dataset
from ramify.io.files import BadLines, read_lines
from ramify.io.store import Store
from ramify.metrics.report import Evaluation, evaluate
from ramify.models import load, model_class
from ramify.models.base import Model
from ramify.nn.ranks import current_ranks
from ramify.report.about import describe_probabilities


def train(args: argparse.Namespace) -> None:
    """``ramify train``."""
    model = configured_model(model_class(args.model), args.config, args.set, args.preset)
    if args.threads is not None:
        model.set_params(threads=args.threads)
    is_first = current_ranks().is_first  # only the first rank of torchrun writes
    if args.quiet or not is_first:
        model.set_params(verbose=0)
    check_train_options(model, args)
    catalogue = LabelCatalogue.of(args.labels) if args.labels else None  # reports what is wrong before the work
    if not args.dry_run:
        check_output(args.out)
    if args.checkpoints is not None:
        if "checkpoint_dir" not in model.get_params(deep=False):
            raise ValueError(f"{args.model} trains in one step and writes no checkpoints; leave out --checkpoints")
        model.set_params(checkpoint_dir=args.checkpoints)
    dev = read_labelled_data(args.dev, args) if args.dev else None
    if args.engine is not None:
        from ramify.cli.distributed import train_files  # what it needs is not loaded otherwise

        train_files(model, args, catalogue)
        if dev is not None:
            print_evaluation(_evaluate(model, dev, args))
        return
    data = read_labelled_data(args.file, args)
    if args.dry_run:
        from ramify.cli.dry_run import dry_run  # the training loop is not needed otherwise

        print_table(dry_run(model, data, catalogue, args.out), header=False)
        return
    options = fit_options(args, data)
    held_out = read_labelled_data(args.calibrate, args) if args.calibrate not in (None, "auto") else None
    check_space(args.out, data)
    if args.memory_limit is not None:
        check_memory(model, data, catalogue, args.memory_limit)
    started = time.perf_counter()
    try:
        if args.calibrate == "auto":
            fit_calibrated(model, data, options, catalogue)
        else:
            fit_model(model, data, options, catalogue)
    except KeyboardInterrupt:
        if args.checkpoints is not None:
            print_message(f"interrupted; the same command resumes from the last checkpoint in {args.checkpoints}")
        raise
    if held_out is not None:
        model.calibrate(model_inputs(model, held_out), held_out.labels())
    seconds = time.perf_counter() - started
    if not is_first:
        return
    model.save(args.out)
    if not args.quiet:
        size = sum(f.stat().st_size for f in Path(args.out).iterdir())
        calibrated = f"calibrated on {model.calibration_.n_rows:,} rows; " if model.calibration_ is not None else ""
        print_message(
            f"trained {args.model} on {len(data):,} samples with {model.n_labels:,} labels in {seconds:.1f} s; "
            f"{calibrated}saved to {args.out} ({size / 1e6:.1f} MB)"
        )
    if dev is not None and args.seeds > 1:
        results = [_evaluate(model, dev, args)]
        with progress("further seed", args.seeds - 1, model.verbose, "seeds") as advance:
            for seed in range(model.seed + 1, model.seed + args.seeds):
                again = model.clone().set_params(seed=seed)
                if args.checkpoints is not None:  # the first training resumes from its own
                    again.set_params(checkpoint_dir=str(Path(args.checkpoints) / f"seed-{seed}"))
                fit_model(again, data, options, catalogue)
                results.append(_evaluate(again, dev, args))
                advance(1)
        print_table(seeds_table(results), title=f"mean and standard deviation over {args.seeds} seeds")
    elif dev is not None:
        print_evaluation(_evaluate(model, dev, args))


def evaluate_model(args: argparse.Namespace) -> None:
    """``ramify evaluate``: one or several models, or files of predictions."""
    check_evaluate_options(args)
    check_report_options(args)
    if args.engine is not None:
        _evaluate_files(args)
        return
    for name in args.models:
        if not Path(name).is_file():
            Store(name)  # reports what is no model before the data are read
    if args.against and not Path(args.against).is_file():
        Store(args.against)
    data = read_labelled_data(args.file, args)
    if args.report:
        write_model_report(args, data)
        return
    if args.rule is not None or args.annif or args.by:
        _evaluate_otherwise(args, data)
        return
    results: dict[str, Evaluation] = {}
    for name in dict.fromkeys(args.models):
        if Path(name).is_file():
            results[name] = evaluate_predictions(name, data, args)
        else:
            args.model = name
            results[name] = _evaluate(load_model(args), data, args)
    if args.json:
        values = {name: _values(result, args) for name, result in results.items()}
        print(json.dumps(values if len(values) > 1 else values[args.models[0]]))
        return
    if len(results) > 1:
        print_table(comparison(results), style=args.table)
        return
    result = results[args.models[0]]
    print_evaluation(result, args.table)
    if args.deciles:
        _print_deciles(result, args)


def _evaluate_files(args: argparse.Namespace) -> None:
    """Evaluate one model on many files."""
    from ramify.cli.distributed import rank_files

    if len(args.models) > 1 or args.rule is not None or args.annif or args.by or args.report or args.filter:
        raise ValueError("--engine evaluates one model, without --rule, --annif, --by, --report and --filter")
    args.model = args.models[0]
    model = load_model(args)
    found = rank_files(args, _depth(model, args), model.is_calibrated)
    result = _measure(model, found.ranking(), found.labels(), args=args)
    if args.json:
        print(json.dumps(_values(result, args)))
        return
    print_evaluation(result, args.table)
    if args.deciles:
        _print_deciles(result, args)


def _print_deciles(result: Evaluation, args: argparse.Namespace) -> None:
    deciles = result.deciles()
    shown = [name for name in ("P@1", "P@5", "nDCG@5", "PSP@5", "R@10", "R@100", "macro-F1") if name in deciles]
    rows = [["decile", *shown], *([str(i + 1), *(f"{deciles[name][i]:.2f}" for name in shown)] for i in range(10))]
    title = "by label frequency decile, 1 is the most frequent; deciles sum to the total, except F1"
    print_table(rows, title=title, style=args.table, is_first=False)


def _values(result: Evaluation, args: argparse.Namespace) -> dict[str, Any]:
    values: dict[str, Any] = dict(result.to_dict())
    if args.deciles:
        values["deciles"] = result.deciles()
    if result.intervals:
        values["intervals"] = result.intervals
    return values


def _evaluate_otherwise(args: argparse.Namespace, data: Dataset) -> None:
    """Evaluate the label sets of a rule, by Annif's metrics, or by groups of rows."""
    if len(args.models) > 1 or (Path(args.models[0]).is_file() and (args.rule is not None or not args.annif)):
        raise ValueError("--rule, --annif and --by evaluate one model; --annif also a file of predictions")
    args.model = args.models[0]
    if Path(args.model).is_file():
        print_annif(saved_ranking(args.model, data, args)[0], data, args)
        return
    model = load_model(args)
    if args.rule is not None:
        print_annif(model.predict_sets(model_inputs(model, data), rule=args.rule), data, args)
    elif args.annif:
        print_annif(Ranking.concat(list(predict_batches(model, data, max(5, args.limit)))), data, args)
    else:
        groups = read_groups(args, len(data))
        ranking, labels = _rank(model, data, args), data.labels()
        result = _measure(model, ranking, labels, args=args)
        by = {}
        for value, rows in groups.items():
            truth, known = [labels[i] for i in rows], model.labels_.ids
            is_known = any(label in known for row in truth for label in row)  # otherwise there is nothing to measure
            by[value] = _measure(model, ranking[rows], truth, args=args) if is_known else None
        if args.json:
            found = {value: None if r is None else _values(r, args) for value, r in by.items()}
            print(json.dumps({**_values(result, args), "by": found}))
            return
        print_evaluation(result, args.table)
        if args.deciles:
            _print_deciles(result, args)
        print_groups(groups, by, args)


def _evaluate(model: Model, data: Dataset, args: argparse.Namespace) -> Evaluation:
    pairs = _read_pairs(args.filter, data, model, args) if getattr(args, "filter", None) else None
    return _measure(model, _rank(model, data, args), data.labels(), args=args, filter_pairs=pairs)


def _rank(model: Model, data: Dataset, args: argparse.Namespace) -> Ranking:
    """Rank at least 100 labels, for F1; by probability, if the model is calibrated."""
    k = _depth(model, args)
    rank = partial(model.predict_topk, k=k, probabilities=True) if model.is_calibrated else None
    return Ranking.concat(list(predict_batches(model, data, k, rank)))


def _depth(model: Model, args: argparse.Namespace) -> int:
    """Labels of each row that an evaluation needs."""
    ks = getattr(args, "ks", None)
    return min(model.n_labels, max(100, *ks) if ks else 100)


def _measure(
    model: Model, ranking: Ranking, labels: Any, *, args: argparse.Namespace, filter_pairs: Any = None
) -> Evaluation:
    return evaluate(
        ranking,
        labels,
        model.label_counts_,
        ks=getattr(args, "ks", None),
        threshold=model.threshold,
        propensity=getattr(args, "propensity", "default"),
        unseen=unseen(args),
        confidence=getattr(args, "ci", None),
        filter_pairs=filter_pairs,
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


def print_evaluation(result: Evaluation, style: str = "text") -> None:
    """Print the table and the notes of an evaluation."""
    print_table(result.table(), style=style)
    if result.intervals:
        rows = [[name, f"{low:.2f} to {high:.2f}"] for name, (low, high) in result.intervals.items()]
        print_table([["metric", "confidence interval"], *rows], style=style, is_first=False)
    if result.reliability is not None:
        for title, table in result.reliability.tables().items():
            print_table(table, title=title, style=style, is_first=False)
    for note in result.notes() if style == "text" else ():
        print(note)


def _plotter(model: Model, directory: str) -> Callable[[tuple[Any, ...]], None]:
    """Return what writes the plots of a model, given data to search."""
    if not hasattr(model, "index_report") and not hasattr(model, "curves"):
        raise DataError(f"no plots are available for {model.kind}; --plots is for models with a learned index")
    from ramify.plots import plot_curves, plot_index, require_matplotlib

    require_matplotlib()

    def write_plots(data: tuple[Any, ...]) -> None:
        if hasattr(model, "index_report"):
            paths = plot_index(model.index_report(*data), directory)
        else:
            paths = plot_curves(model.curves(), directory)  # type: ignore[attr-defined]
        for path in paths:
            print_message(f"wrote {path}")

    return write_plots


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
    plots = _plotter(model, args.plots) if args.plots else None  # reports what is missing before anything is printed
    if args.json:
        facts: dict[str, Any] = {
            "kind": store.kind,
            "library_version": store.library_version,
            "input_kind": model.input_kind_,
            "n_features": model.n_features_in_,
            "n_labels": model.n_labels,
            "n_samples": model.label_counts_.n_samples,
            "calibrated_on": model.calibration_.n_rows if model.calibration_ else None,
            "rule": model.rule_.to_dict() if model.rule_ else None,
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
        "parameters": repr(model),
        "size": f"{sum(e['size'] for e in store.files.values()) / 1e6:.2f} MB in {len(store.files)} arrays",
    }
    facts["probabilities"] = describe_probabilities(model)
    if model.rule_ is not None:
        facts["decision rule"] = model.rule_.name
    if args.verify:
        facts["hashes"] = "verified"
    print_table([[k, v] for k, v in facts.items()], header=False)
    data = _inputs_and_labels(args)
    for title, rows in model.report(*data).items():
        print_table(rows, title=title)
    if data and type(model).report is Model.report:  # no report of its own: what the data say of any model
        print_evaluation(_evaluate(model, read_labelled_data(args.data, args), args))
    if plots is not None:
        plots(data)
    print_table(
        [
            ["parameter", "value"],
            *([p.path, _value(store.params, p.path)] for p in type(model).describe(defaults=model)),
        ]
    )
    if args.arrays:
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
