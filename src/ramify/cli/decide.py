"""``ramify calibrate`` and ``ramify compare``; groups of rows and Annif's metrics of ``ramify evaluate``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from ramify.base.errors import DataError
from ramify.base.ranking import Ranking
from ramify.base.types import LongArray
from ramify.cli.options import is_built_in, read_labelled_data, regular_file
from ramify.cli.output import print_message, print_table
from ramify.cli.predict import predict_batches
from ramify.cli.training import check_output
from ramify.io.dataset import Dataset
from ramify.io.files import BadLines, read_lines
from ramify.io.formats import detect_format
from ramify.metrics import annif_label_table, annif_metrics, compare
from ramify.metrics.report import Evaluation
from ramify.models import load
from ramify.models.base import Model


def calibrate(args: argparse.Namespace) -> None:
    """``ramify calibrate``."""
    check_output(args.out or args.model)
    model = load(args.model)
    own = {"threads": model.threads, "verbose": model.verbose}  # parameters that the command line does not change
    model.set_params(threads=args.threads, verbose=0)
    data = read_labelled_data(args.file, args)
    model.calibrate(model_inputs(model, data), data.labels(), rule=args.rule)
    model.set_params(**own).save(args.out or args.model)
    assert model.calibration_ is not None
    print_message(
        f"calibrated on {model.calibration_.n_rows:,} rows ({model.calibration_.method}); labels are chosen by "
        f"{model.rule_}; saved to {args.out or args.model}"
    )


def compare_models(args: argparse.Namespace) -> None:
    """``ramify compare``."""
    models = [load(path).set_params(threads=args.threads, verbose=0) for path in (args.model, args.other)]
    data = read_labelled_data(args.file, args)
    a, b = (Ranking.concat(list(predict_batches(model, data, args.k))) for model in models)
    found = compare(a, b, data.labels(), models[0].label_counts_, k=args.k, confidence=args.confidence)
    if args.json:
        print(json.dumps(found.to_dict()))
        return
    print(f"A: {args.model}\nB: {args.other}")
    for title, rows in found.tables().items():
        print_table(rows, title=title)


def model_inputs(model: Model, data: Dataset) -> Any:
    """Inputs of a data set as the model takes them."""
    if data.texts is not None and model.input_kind_ == "fields":
        return [text if isinstance(text, dict) else {"text": text} for text in data.texts]
    return data.inputs


# ---- ramify evaluate ----


def read_groups(args: argparse.Namespace, n_rows: int) -> dict[str, LongArray]:
    """Rows of each value of the field ``--by`` of a file of JSON Lines with `n_rows` samples."""
    if is_built_in(args.file):
        raise DataError("--by reads a field of JSON Lines, which the built-in data do not have")
    with regular_file(args.file) as path:
        if detect_format(path) != "jsonl":
            raise DataError("--by reads a field of JSON Lines; convert the file with `ramify data convert`")
        rows: dict[str, list[int]] = {}
        known: dict[str, None] = {}
        lines = (line for _, line in read_lines(path, args.encoding, BadLines(path, skip=False)) if line.strip())
        for row, line in enumerate(lines):
            values = json.loads(line)
            known.update(dict.fromkeys(values))
            rows.setdefault(str(values.get(args.by, "(none)")), []).append(row)
    if args.by not in known:
        raise DataError(f"no line of {args.file} has a field {args.by!r}; there are {', '.join(known)}")
    if sum(map(len, rows.values())) != n_rows:
        raise DataError("--by cannot be combined with skipped lines: the rows do not match")
    return {value: np.array(found) for value, found in sorted(rows.items())}


def print_groups(groups: dict[str, LongArray], results: dict[str, Evaluation | None], args: argparse.Namespace) -> None:
    """Print the main metrics of each group of rows; none for a group without a label that the model knows."""
    shown = ["P@1", "P@5", "nDCG@5", "R@10", "micro-F1"]
    values = {value: {} if r is None else r.to_dict() for value, r in results.items()}
    names = [name for name in shown if any(name in r for r in values.values())]
    table = [[args.by, "rows", *names]]
    table += [
        [v, f"{len(groups[v]):,}", *(f"{r[name]:.2f}" if name in r else "" for name in names)]
        for v, r in values.items()
    ]
    print_table(table, title=f"by {args.by}", style=args.table, is_first=False)


def print_annif(ranking: Ranking, data: Dataset, args: argparse.Namespace) -> None:
    """Print Annif's metrics, of all rows and of each group of `--by`, and write its table of labels."""
    limit = args.limit if args.rule is None else min(args.limit, ranking.k)  # a label set is complete, however small
    labels, options = data.labels(), {"limit": limit, "threshold": args.annif_threshold}
    found = annif_metrics(ranking, labels, **options)
    groups = read_groups(args, len(data)) if args.by else {}
    by = {v: annif_metrics(ranking[rows], [labels[i] for i in rows], **options) for v, rows in groups.items()}
    if args.json:
        print(json.dumps({**found, "by": by} if args.by else found))
    else:
        columns = [found, *by.values()]
        rows = [[n, *(f"{c[n]:.4f}" if isinstance(c[n], float) else f"{c[n]:,}" for c in columns)] for n in found]
        header = ["metric", "all", *by] if args.by else ["metric", "value"]
        title = f"as annif eval, limit {args.limit}" + (f", by {args.by}" if args.by else "")
        print_table([header, *rows], title=title, style=args.table)
    if args.results_file:
        name = None if ranking.catalogue is None else ranking.catalogue.display_name
        table = annif_label_table(ranking, labels, **options, names=name)
        with Path(args.results_file).open("w", encoding="utf-8") as file:
            file.writelines("\t".join(str(cell) for cell in row) + "\n" for row in table)
