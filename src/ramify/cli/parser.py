"""The argument parser of all commands."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ramify.cli import commands, decide
from ramify.cli.card import add_card
from ramify.cli.combine import add_combine
from ramify.cli.completion import add_completion
from ramify.cli.data import add_data
from ramify.cli.engine_options import add_engine_options
from ramify.cli.explain import explain
from ramify.cli.help import add_command, alternatives, examples
from ramify.cli.label_sets import add_label_set_options
from ramify.cli.labels import SHOWN_LABELS, labels
from ramify.cli.new import add_new
from ramify.cli.options import add_catalogue_option, add_data_options
from ramify.cli.output import STYLES
from ramify.cli.predict import predict
from ramify.cli.report import add_report
from ramify.cli.serve import add_serve
from ramify.cli.training import parse_bytes
from ramify.cli.tune import add_tune
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
            for path, cls in alternatives(model_class(key)):
                print(f"\nparameters of {path} if it is a {cls.__name__}:")
                for info in cls.describe(f"{path}."):
                    print(f"  {info.path} = {info.default!r}  ({info.type_name})\n      {info.doc}")
        parser.exit()


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line. The FILE of ``predict`` may follow the options, which argparse alone does not accept."""
    parser = make_parser()
    args, extra = parser.parse_known_args(argv)
    if len(extra) == 1 and args.command == "predict" and args.file == "-" and not extra[0].startswith("-"):
        args.file, extra = extra[0], []
    if extra:
        args.parser.error(_unrecognized(args.parser, extra))  # with the usage of the subcommand
    return args


def _unrecognized(parser: argparse.ArgumentParser, extra: list[str]) -> str:
    options = [name for action in parser._actions for name in action.option_strings]
    near = difflib.get_close_matches(extra[0].partition("=")[0], options, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"unrecognized arguments: {' '.join(extra)}{hint}"


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="ramify",
        description="Extreme multi-label classification: find the few relevant labels among millions.",
        epilog=examples("ramify"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ramify {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    adders = (_add_train, _add_predict, _add_evaluate, _add_calibrate, _add_compare, _add_explain, _add_labels,
              _add_inspect, _add_export_encoder)  # fmt: skip
    data, report = (partial(add, file_help=FILE_HELP) for add in (add_data, add_report))
    for add in (*adders, data, report, add_tune, add_new, add_card, add_combine, add_serve, add_completion):
        add(subparsers)
    return parser


def _command(
    parent: Any, name: str, help: str, run: Callable[[argparse.Namespace], None], **options: Any
) -> argparse.ArgumentParser:
    return add_command(parent, name, help, run, **options)


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


def _propensity(text: str) -> str | tuple[float, float]:
    if text in FAMILIES:
        return text
    try:
        a, b = (float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither of {', '.join(FAMILIES)} nor two numbers A,B") from None
    return a, b


def _add_train(parent: Any) -> None:
    sub = _command(parent, "train", "Train a model and save it.", commands.train, add_help=False)
    sub.add_argument("model", choices=list(REGISTRY), metavar="MODEL", help=f"one of: {', '.join(REGISTRY)}")
    sub.add_argument("-h", "--help", action=_ModelHelp)
    sub.add_argument("file", metavar="FILE", help=FILE_HELP)
    sub.add_argument("--out", metavar="DIR", help="directory to save the model to; checked before training")
    sub.add_argument("--dev", metavar="FILE", help="evaluate on this data file after training")
    sub.add_argument("--dry-run", action="store_true", help="read the data and estimate time, memory and size only")
    sub.add_argument(
        "--memory-limit",
        type=parse_bytes,
        metavar="SIZE",
        help="such as 8G or 500M; do not start if training is estimated to take more memory",
    )
    sub.add_argument(
        "--seeds", type=int, default=1, metavar="N", help="with --dev: train N times, show mean and deviation"
    )
    sub.add_argument(
        "--preset", metavar="NAME", help="settings of a paper, for xr-linear: pecos, parabel, bonsai or dismec"
    )
    sub.add_argument(
        "--label-features",
        metavar="FILE",
        help="texts of the labels, for clustering: lines 'label<TAB>text', or JSON Lines with label and text",
    )
    sub.add_argument(
        "--tree",
        metavar="FILE",
        help="label tree to use: lines 'label<TAB>a/b/c', or JSON Lines with label and path, a list of names",
    )
    add_catalogue_option(sub)
    sub.add_argument(
        "--calibrate",
        metavar="FILE",
        help="fit probabilities and label sets on this data file after training; auto: on a tenth of the training "
        "data, by training twice",
    )
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
    add_engine_options(sub)


def _add_predict(parent: Any) -> None:
    sub = _model_command(parent, "predict", "Rank labels: JSON Lines in, JSON Lines out, as a stream.", predict)
    sub.add_argument("file", nargs="?", default="-", metavar="FILE", help=f"{FILE_HELP} (default: standard input)")
    sub.add_argument("-k", "--k", type=int, default=10, help="labels per row (default: 10)")
    sub.add_argument("--text", action="store_true", help="the input is plain text, one text per line")
    sub.add_argument(
        "--out",
        metavar="FILE",
        help="output file: .jsonl, .tsv, .csv, .parquet or .npz by its suffix (default: JSON Lines to standard output)",
    )
    add_label_set_options(sub)
    _add_threads(sub)
    add_data_options(sub)
    add_engine_options(sub)


def _add_evaluate(parent: Any) -> None:
    summary = "Evaluate models, or saved predictions, on labeled data."
    sub = _command(parent, "evaluate", summary, commands.evaluate_model)
    sub.add_argument(
        "models", nargs="+", metavar="DIR", help="directory of a saved model, or a file of ramify predict; or several"
    )
    sub.add_argument("file", metavar="FILE", help=FILE_HELP)
    sub.add_argument("--train", metavar="FILE", help="training data of saved predictions, for PSP and deciles")
    sub.add_argument("--table", choices=list(STYLES), default="text", help="how the table is printed (default: text)")
    sub.add_argument("--ks", type=_cutoffs, metavar="1,3,5", help="cutoffs (default: 1,3,5,10,100)")
    sub.add_argument(
        "--propensity",
        type=_propensity,
        default="default",
        metavar="NAME",
        help=f"propensities of PSP and PSnDCG: {', '.join(FAMILIES)}, or the constants A,B (default: default)",
    )
    sub.add_argument(
        "--unseen",
        choices=["count", "drop"],
        default="count",
        help="count true labels unknown to the model as misses, or drop them (default: count)",
    )
    sub.add_argument(
        "--protocol", choices=["all", "seen"], help="all: count unseen labels as misses; seen: drop them; as --unseen"
    )
    sub.add_argument("--rule", metavar="RULE", help="evaluate the label sets that a rule chooses, as annif eval does")
    sub.add_argument("--by", metavar="FIELD", help="also by the values of a field of a JSON Lines file, such as lang")
    sub.add_argument(
        "--ci", type=float, nargs="?", const=0.95, metavar="C", help="bootstrap confidence intervals (default: 0.95)"
    )
    sub.add_argument("--annif", action="store_true", help="the metrics of annif eval in place of the others")
    sub.add_argument("--limit", type=int, default=10, metavar="K", help="--annif: suggestions per row (default: 10)")
    sub.add_argument("--annif-threshold", type=float, default=0.0, metavar="T", help="--annif: minimum score")
    sub.add_argument("--results-file", metavar="FILE", help="--annif: write a TSV with the metrics of each label")
    sub.add_argument("--filter", metavar="FILE", help="file of 'row label' id pairs to remove from the predictions")
    sub.add_argument("--deciles", action="store_true", help="also show metrics by label frequency decile")
    sub.add_argument("--report", metavar="FILE", help="write a report with plots and sample errors, as one HTML file")
    sub.add_argument("--against", metavar="OTHER", help="--report: another model or its predictions, side by side")
    _add_json(sub)
    _add_threads(sub)
    add_data_options(sub)
    add_engine_options(sub)


def _add_calibrate(parent: Any) -> None:
    summary = "Fit probabilities and a decision rule on data that the model was not trained on."
    sub = _model_command(parent, "calibrate", summary, decide.calibrate)
    sub.add_argument("file", metavar="FILE", help=FILE_HELP)
    sub.add_argument("--rule", default="maximize-f1", metavar="RULE", help="decision rule (default: maximize-f1)")
    sub.add_argument("--out", metavar="DIR", help="directory to save the model to (default: overwrite DIR)")
    _add_threads(sub)
    add_data_options(sub)


def _add_compare(parent: Any) -> None:
    summary = "Compare two models on the same data, row by row, with confidence intervals."
    sub = _model_command(parent, "compare", summary, decide.compare_models)
    sub.add_argument("other", metavar="OTHER", help="directory of another saved model")
    sub.add_argument("file", metavar="FILE", help=FILE_HELP)
    sub.add_argument("-k", "--k", type=int, default=5, help="largest cutoff (default: 5)")
    sub.add_argument("--confidence", type=float, default=0.95, metavar="C", help="of the intervals (default: 0.95)")
    _add_json(sub)
    _add_threads(sub)
    add_data_options(sub)


def _add_explain(parent: Any) -> None:
    sub = _model_command(parent, "explain", "Explain why a label has its score.", explain)
    sub.add_argument("text", metavar="TEXT", help="the text")
    sub.add_argument("--label", action="append", metavar="LABEL", help="label or name (default: the best label)")
    sub.add_argument("--without", action="append", default=[], metavar="WORD", help="also the score without this word")
    sub.add_argument("--html", metavar="FILE", help="write the text with highlighted words to this file")
    _add_json(sub)
    _add_threads(sub)


def _add_labels(parent: Any) -> None:
    sub = _model_command(parent, "labels", "Show the labels of a model, or give them names.", labels)
    sub.add_argument("--set", metavar="FILE", help="store this label catalogue (TSV, CSV, JSON Lines, SKOS)")
    sub.add_argument("--out", metavar="DIR", help="--set: directory to save the model to (default: overwrite DIR)")
    sub.add_argument("--find", metavar="TEXT", help="only labels with this text in the label, a name or a synonym")
    sub.add_argument("--language", metavar="LANG", help="language of the names")
    sub.add_argument("--n", type=int, default=SHOWN_LABELS, help=f"labels to show (default: {SHOWN_LABELS})")
    _add_json(sub)
    _add_threads(sub)


def _add_inspect(parent: Any) -> None:
    sub = _model_command(parent, "inspect", "Show parameters, arrays and reports of a saved model.", commands.inspect)
    sub.add_argument("--data", metavar="FILE", help="also report how the model performs on this data file")
    sub.add_argument("--arrays", action="store_true", help="also list the arrays of the model")
    sub.add_argument("--plots", metavar="DIR", help="write plots of the learned index to this directory, as PNG files")
    sub.add_argument("--verify", action="store_true", help="compare all files with their hashes")
    _add_json(sub)
    _add_threads(sub)
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
