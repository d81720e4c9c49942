"""``ramify data``: statistics and conversion of data files."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ramify.cli.help import add_command, examples
from ramify.cli.options import add_data_options, read_data
from ramify.cli.output import print_message, print_table
from ramify.features.defaults import suggest
from ramify.io.dataset import Dataset
from ramify.io.formats import write


def add_data(parent: Any, file_help: str) -> None:
    """Add ``ramify data``."""
    summary = "Statistics and conversion of data files."
    data = parent.add_parser(
        "data",
        help=summary,
        description=summary,
        epilog=examples("data"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    children = data.add_subparsers(dest="data_command", metavar="COMMAND", required=True)
    sub = add_command(children, "stats", "Show statistics of samples, labels and duplicates.", data_stats)
    sub.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help=f"{file_help}; the others are compared with the first, the training set",
    )
    sub.add_argument("--json", action="store_true", help="print JSON")
    add_data_options(sub)
    sub = add_command(
        children, "convert", "Convert a data file to the format given by the suffix of OUT.", data_convert
    )
    sub.add_argument("input", metavar="FILE", help=file_help)
    sub.add_argument(
        "output",
        metavar="OUT",
        help=".jsonl, .tsv, .csv, .parquet or .annif for texts; .txt (XMC text) or .npz for features; also .gz or .xz",
    )
    add_data_options(sub)


def data_stats(args: argparse.Namespace) -> None:
    """``ramify data stats``: the first file is the training set of the others."""
    train_set: Dataset | None = None
    results = {}
    for name in args.files:
        data = read_data(name, args)
        suggestion = suggest(data.texts) if data.texts else None
        results[name] = (data.stats(train_set), suggestion)
        train_set = train_set or data
    if args.json:
        languages = {name: None if s is None else s.languages for name, (_, s) in results.items()}
        print(json.dumps({n: {**stats.to_dict(), "languages": languages[n]} for n, (stats, _) in results.items()}))
        return
    for name, (stats, suggestion) in results.items():
        rows = [list(row) for row in stats.rows()]
        if suggestion is not None:
            rows.append(["languages and features of linear models", suggestion.reason])
        print_table(rows, title=name, header=False)


def data_convert(args: argparse.Namespace) -> None:
    """``ramify data convert``."""
    data = read_data(args.input, args)
    write(data, args.output)
    print_message(f"wrote {len(data):,} samples with {data.n_labels:,} labels to {args.output}")
