"""``ramify combine``: an ensemble of saved models."""

from __future__ import annotations

import argparse
from typing import Any

from ramify.base.errors import DataError
from ramify.cli.decide import model_inputs
from ramify.cli.help import add_command
from ramify.cli.options import add_data_options, read_labelled_data
from ramify.cli.output import print_message
from ramify.cli.training import check_output
from ramify.models import load
from ramify.models.ensemble import Ensemble


def add_combine(parent: Any) -> None:
    """Add the command."""
    sub = add_command(parent, "combine", "Combine saved models into an ensemble.", combine_models)
    sub.add_argument("models", nargs="+", metavar="DIR", help="directories of saved models, trained on the same labels")
    sub.add_argument("--out", required=True, metavar="DIR", help="directory to save the ensemble to")
    sub.add_argument(
        "--weights",
        metavar="A,B",
        help="weight of each model, or 'validation': chosen on --data (default: equal weights)",
    )
    sub.add_argument(
        "--data",
        metavar="FILE",
        help="data file that no model was trained on: calibrates models of different kinds, whose scores cannot be "
        "averaged otherwise",
    )
    sub.add_argument("--combine", default="mean", metavar="HOW", help="combination of the scores (default: mean)")
    add_data_options(sub)


def combine_models(args: argparse.Namespace) -> None:
    """Load, combine and save."""
    check_output(args.out)
    params: dict[str, Any] = {"combine": args.combine}
    if args.weights:
        is_chosen = args.weights == "validation"
        params["weights"] = args.weights if is_chosen else tuple(float(part) for part in args.weights.split(","))
    models = [load(path) for path in args.models]
    if args.data is None:
        try:
            ensemble = Ensemble.of(models, **params)
        except DataError:  # the models do not fit together, whatever the options
            raise
        except ValueError as error:
            raise ValueError(f"{error}; in the shell: --data FILE, ramify calibrate, or --combine rank") from None
    else:
        data = read_labelled_data(args.data, args)
        ensemble = Ensemble.of(models, model_inputs(models[0], data), data.labels(), **params)
    ensemble.save(args.out)
    print_message(f"combined {len(args.models)} models with {ensemble.n_labels:,} labels; saved to {args.out}")
