"""``ramify``: the parser and the exit codes.

0: done. 1: the data, the model or a setting is at fault, and a sentence on the error stream says how. 2: the command
line itself cannot be understood. 130: interrupted.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from ramify.version import __version__


class _ModelHelp(argparse.Action):
    """``--help`` of ``ramify train MODEL``: the command's options, then each parameter of the model."""

    def __init__(self, option_strings: Sequence[str], dest: str, **_: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, help="show this help; after a MODEL, also its parameters")

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        from ramify.models import REGISTRY, model_class

        parser.print_help()
        key = getattr(namespace, "model", None) or next((word for word in sys.argv if word in REGISTRY), None)
        if key:
            cls = model_class(key)
            print(f"\nparameters of {key}, set with --set NAME=VALUE or in a TOML file:")
            for info in cls.describe():
                print(f"  {info.path} = {info.default!r}  ({info.type_name})\n      {info.doc}")
        parser.exit()


def _cutoffs(text: str) -> list[int]:
    values = [int(part) for part in text.split(",")]
    if not all(1 <= k < 2**31 for k in values):
        raise ValueError
    return values


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; a FILE may also stand behind the options, which argparse alone does not take."""
    parser = make_parser()
    args, extra = parser.parse_known_args(argv)
    if len(extra) == 1 and args.command == "predict" and args.file == "-" and not extra[0].startswith("-"):
        args.file, extra = extra[0], []
    if extra:
        parser.error(f"unrecognized arguments: {' '.join(extra)}")
    return args


FILE_HELP = (
    "data file (JSON Lines, TSV, CSV, Annif TSV, XMC text, NPZ, Parquet; plain, .gz or .xz), - for standard input, "
    "or pydoc:train, pydoc:test"
)


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="ramify", description="Extreme multi-label classification: find the few right labels out of millions."
    )
    parser.add_argument("--version", action="version", version=f"ramify {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add in (_add_train, _add_predict, _add_evaluate, _add_inspect, _add_export_encoder, _add_data):
        add(commands)
    return parser


def _command(parent: Any, name: str, help: str, run: Any, **options: Any) -> argparse.ArgumentParser:
    sub: argparse.ArgumentParser = parent.add_parser(name, help=help, description=help, **options)
    sub.set_defaults(run=run)
    return sub


def _add_threads(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--threads", type=int, metavar="N", help="threads to use (default: RAMIFY_THREADS or all cores)")


def _add_train(parent: Any) -> None:
    from ramify.cli.commands import train
    from ramify.cli.options import add_data_options
    from ramify.models import REGISTRY

    sub = _command(parent, "train", "Train a model and save it.", train, add_help=False)
    sub.add_argument("model", choices=list(REGISTRY), metavar="MODEL", help=f"one of: {', '.join(REGISTRY)}")
    sub.add_argument("-h", "--help", action=_ModelHelp)
    sub.add_argument("file", metavar="FILE", help=FILE_HELP)
    sub.add_argument("--out", required=True, metavar="DIR", help="where to save the model")
    sub.add_argument("--dev", metavar="FILE", help="evaluate on these data after training")
    sub.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="set a parameter; nested ones as part.name"
    )
    sub.add_argument("--config", metavar="FILE", help="TOML file of parameters; --set wins over it")
    sub.add_argument("--quiet", action="store_true", help="say nothing unless something is wrong")
    _add_threads(sub)
    add_data_options(sub)


def _add_predict(parent: Any) -> None:
    from ramify.cli.options import add_data_options
    from ramify.cli.predict import predict

    sub = _command(parent, "predict", "Rank labels: JSON Lines in, JSON Lines out, as they arrive.", predict)
    sub.add_argument("model", metavar="DIR", help="a saved model")
    sub.add_argument("file", nargs="?", default="-", metavar="FILE", help=f"{FILE_HELP}; nothing: standard input")
    sub.add_argument("--k", type=int, default=10, help="labels for each row (default: 10)")
    sub.add_argument("--text", action="store_true", help="the input holds plain texts, one a line")
    sub.add_argument("--out", metavar="FILE", help="write there instead of to standard output")
    _add_threads(sub)
    add_data_options(sub)


def _add_evaluate(parent: Any) -> None:
    from ramify.cli.commands import evaluate_model
    from ramify.cli.options import add_data_options
    from ramify.metrics import FAMILIES

    sub = _command(parent, "evaluate", "Measure a model on labelled data.", evaluate_model)
    sub.add_argument("model", metavar="DIR", help="a saved model")
    sub.add_argument("file", metavar="FILE", help=FILE_HELP)
    sub.add_argument("--ks", type=_cutoffs, metavar="1,3,5", help="cutoffs (default: 1,3,5,10,100)")
    sub.add_argument(
        "--propensity", choices=list(FAMILIES), default="default", help="family of data set for PSP (default: default)"
    )
    sub.add_argument(
        "--unseen", choices=["count", "drop"], default="count", help="labels unknown to the model: misses, or dropped"
    )
    sub.add_argument("--filter", metavar="FILE", help="pairs 'row label' of numbers that must not count as predicted")
    sub.add_argument("--deciles", action="store_true", help="also by decile of label frequency")
    sub.add_argument("--json", action="store_true", help="print JSON")
    _add_threads(sub)
    add_data_options(sub)


def _add_inspect(parent: Any) -> None:
    from ramify.cli.commands import inspect
    from ramify.cli.options import add_data_options

    sub = _command(parent, "inspect", "Show what is in a saved model.", inspect)
    sub.add_argument("model", metavar="DIR", help="a saved model")
    sub.add_argument("--data", metavar="FILE", help="also show what the model's index makes of these data")
    sub.add_argument("--plots", metavar="DIR", help="draw what was learned, as PNG files in this folder")
    sub.add_argument("--verify", action="store_true", help="compare the content of every file with its hash")
    sub.add_argument("--json", action="store_true", help="print JSON")
    add_data_options(sub)


def _add_export_encoder(parent: Any) -> None:
    from ramify.cli.commands import export_encoder
    from ramify.cli.options import add_data_options

    words = "Let onnxruntime compute a model's vectors of texts."
    sub = _command(parent, "export-encoder", words, export_encoder)
    sub.add_argument("model", metavar="DIR", help="a saved model with a transformer")
    sub.add_argument("--out", metavar="DIR", help="save it there (default: in its place)")
    sub.add_argument("--data", metavar="FILE", help="measure P@1 before and after on these data")
    sub.add_argument(
        "--int8", action="store_true", help="compute with whole numbers: faster, less precise; needs --data"
    )
    sub.add_argument(
        "--max-loss", type=float, default=0.5, metavar="POINTS", help="P@1 that int8 may cost to be kept (default: 0.5)"
    )
    _add_threads(sub)
    add_data_options(sub)


def _add_data(parent: Any) -> None:
    from ramify.cli.commands import data_convert, data_stats
    from ramify.cli.options import add_data_options

    words = "Look at data files and convert them."
    data = parent.add_parser("data", help=words, description=words)
    children = data.add_subparsers(dest="data_command", metavar="COMMAND", required=True)
    sub = _command(children, "stats", "Count points, labels and what train and test share.", data_stats)
    sub.add_argument(
        "files", nargs="+", metavar="FILE", help=f"{FILE_HELP}; the first is the training data of the others"
    )
    sub.add_argument("--json", action="store_true", help="print JSON")
    add_data_options(sub)
    sub = _command(children, "convert", "Write a data file in another format, by its name.", data_convert)
    sub.add_argument("input", metavar="FILE", help=FILE_HELP)
    sub.add_argument(
        "output", metavar="OUT", help=".jsonl for texts; .txt (XMC text) or .npz for features; also .gz and .xz"
    )
    add_data_options(sub)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    try:
        args = _parse(argv)
        args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        print("ramify: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except (ValueError, OSError, MemoryError) as error:  # RamifyError among them
        print(f"ramify: error: {error or type(error).__name__}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
