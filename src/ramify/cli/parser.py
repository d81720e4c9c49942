"""The argument parser of all commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ramify.cli import commands
from ramify.cli.options import add_data_options
from ramify.cli.predict import predict
from ramify.metrics import FAMILIES
from ramify.models import REGISTRY, model_class
from ramify.version import __version__

FILE_HELP = (
    "data file (JSON Lines, TSV, CSV, Annif TSV, XMC text, NPZ, Parquet; plain, .gz or .xz), - for standard input, "
    "or pydoc:train, pydoc:test"
)


class _ModelHelp(argparse.Action):
    """``--help`` of ``ramify train MODEL``: the options of the command and the parameters of the model."""

    def __init__(self, option_strings: Sequence[str], dest: str, **_: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, help="show this help; after a MODEL, also its parameters")

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        parser.print_help()
        key = getattr(namespace, "model", None) or next((word for word in sys.argv if word in REGISTRY), None)
        if key:
            print(f"\nparameters of {key}, set with --set NAME=VALUE or in a TOML file:")
            for info in model_class(key).describe():
                print(f"  {info.path} = {info.default!r}  ({info.type_name})\n      {info.doc}")
        parser.exit()


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line. The FILE of ``predict`` may follow the options, which argparse alone does not accept."""
    parser = make_parser()
    args, extra = parser.parse_known_args(argv)
    if len(extra) == 1 and args.command == "predict" and args.file == "-" and not extra[0].startswith("-"):
        args.file, extra = extra[0], []
    if extra:
        parser.error(f"unrecognized arguments: {' '.join(extra)}")
    return args


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="ramify", description="Extreme multi-label classification: find the few relevant labels among millions."
    )
    parser.add_argument("--version", action="version", version=f"ramify {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add in (_add_train, _add_predict, _add_evaluate, _add_inspect, _add_export_encoder, _add_data):
        add(subparsers)
    return parser


def _command(
    parent: Any, name: str, help: str, run: Callable[[argparse.Namespace], None], **options: Any
) -> argparse.ArgumentParser:
    sub: argparse.ArgumentParser = parent.add_parser(name, help=help, description=help, **options)
    sub.set_defaults(run=run)
    return sub


def _model_command(
    parent: Any, name: str, help: str, run: Callable[[argparse.Namespace], None]
) -> argparse.ArgumentParser:
    sub = _command(parent, name, help, run)
    sub.add_argument("model", metavar="DIR", help="directory of a saved model")
    return sub


def _add_json(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--json", action="store_true", help="print JSON")


def _add_threads(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--threads", type=int, metavar="N", help="threads to use (default: RAMIFY_THREADS or all cores)")


def _cutoffs(text: str) -> list[int]:
    values = [int(part) for part in text.split(",")]
    if not all(1 <= k < 2**31 for k in values):
        raise ValueError
    return values


def _add_train(parent: Any) -> None:
    sub = _command(parent, "train", "Train a model and save it.", commands.train, add_help=False)
    sub.add_argument("model", choices=list(REGISTRY), metavar="MODEL", help=f"one of: {', '.join(REGISTRY)}")
    sub.add_argument("-h", "--help", action=_ModelHelp)
    sub.add_argument("file", metavar="FILE", help=FILE_HELP)
    sub.add_argument("--out", required=True, metavar="DIR", help="directory to save the model to")
    sub.add_argument("--dev", metavar="FILE", help="evaluate on this data file after training")
    sub.add_argument(
        "--checkpoints",
        metavar="DIR",
        help="write checkpoints to this directory; the same command resumes an interrupted training from there",
    )
    sub.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a parameter, a nested one as component.name; may be repeated",
    )
    sub.add_argument("--config", metavar="FILE", help="TOML file of parameters; --set takes precedence")
    sub.add_argument("--quiet", action="store_true", help="print only warnings and errors")
    _add_threads(sub)
    add_data_options(sub)


def _add_predict(parent: Any) -> None:
    sub = _model_command(parent, "predict", "Rank labels: JSON Lines in, JSON Lines out, as a stream.", predict)
    sub.add_argument("file", nargs="?", default="-", metavar="FILE", help=f"{FILE_HELP} (default: standard input)")
    sub.add_argument("--k", type=int, default=10, help="labels per row (default: 10)")
    sub.add_argument("--text", action="store_true", help="the input is plain text, one text per line")
    sub.add_argument("--out", metavar="FILE", help="output file (default: standard output)")
    _add_threads(sub)
    add_data_options(sub)


def _add_evaluate(parent: Any) -> None:
    sub = _model_command(parent, "evaluate", "Evaluate a model on labeled data.", commands.evaluate_model)
    sub.add_argument("file", metavar="FILE", help=FILE_HELP)
    sub.add_argument("--ks", type=_cutoffs, metavar="1,3,5", help="cutoffs (default: 1,3,5,10,100)")
    sub.add_argument(
        "--propensity",
        choices=list(FAMILIES),
        default="default",
        help="family of data sets, for the propensities of PSP and PSnDCG (default: default)",
    )
    sub.add_argument(
        "--unseen",
        choices=["count", "drop"],
        default="count",
        help="count true labels unknown to the model as misses, or drop them (default: count)",
    )
    sub.add_argument("--filter", metavar="FILE", help="file of 'row label' id pairs to remove from the predictions")
    sub.add_argument("--deciles", action="store_true", help="also show metrics by label frequency decile")
    _add_json(sub)
    _add_threads(sub)
    add_data_options(sub)


def _add_inspect(parent: Any) -> None:
    sub = _model_command(parent, "inspect", "Show parameters, arrays and reports of a saved model.", commands.inspect)
    sub.add_argument("--data", metavar="FILE", help="also report how the model's index performs on this data file")
    sub.add_argument("--plots", metavar="DIR", help="write plots of the learned index to this directory, as PNG files")
    sub.add_argument("--verify", action="store_true", help="compare all files with their hashes")
    _add_json(sub)
    add_data_options(sub)


def _add_export_encoder(parent: Any) -> None:
    summary = "Export the transformer encoder of a model to ONNX, so that onnxruntime computes its embeddings."
    sub = _model_command(parent, "export-encoder", summary, commands.export_encoder)
    sub.add_argument("--out", metavar="DIR", help="directory to save the model to (default: overwrite DIR)")
    sub.add_argument("--data", metavar="FILE", help="measure P@1 before and after on this data file")
    sub.add_argument("--int8", action="store_true", help="quantize to int8: faster, less precise; requires --data")
    sub.add_argument(
        "--max-loss",
        type=float,
        default=0.5,
        metavar="POINTS",
        help="maximum loss of P@1 by int8, in percentage points (default: 0.5)",
    )
    _add_threads(sub)
    add_data_options(sub)


def _add_data(parent: Any) -> None:
    summary = "Statistics and conversion of data files."
    data = parent.add_parser("data", help=summary, description=summary)
    children = data.add_subparsers(dest="data_command", metavar="COMMAND", required=True)
    sub = _command(children, "stats", "Show statistics of samples, labels and duplicates.", commands.data_stats)
    sub.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help=f"{FILE_HELP}; the others are compared with the first, the training set",
    )
    _add_json(sub)
    add_data_options(sub)
    sub = _command(
        children, "convert", "Convert a data file to the format given by the suffix of OUT.", commands.data_convert
    )
    sub.add_argument("input", metavar="FILE", help=FILE_HELP)
    sub.add_argument(
        "output", metavar="OUT", help=".jsonl for texts; .txt (XMC text) or .npz for features; optionally .gz or .xz"
    )
    add_data_options(sub)
