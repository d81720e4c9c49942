"""``ramify combine``: an ensemble of saved models."""

from __future__ import annotations

import argparse
from typing import Any

from ramify.cli.help import add_command
from ramify.cli.output import print_message
from ramify.cli.training import check_output
from ramify.models import load
from ramify.models.ensemble import Ensemble


def add_combine(parent: Any) -> None:
    """Add the command."""
    sub = add_command(parent, "combine", "Combine saved models into an ensemble.", combine_models)
    sub.add_argument("models", nargs="+", metavar="DIR", help="directories of saved models, trained on the same labels")
    sub.add_argument("--out", required=True, metavar="DIR", help="directory to save the ensemble to")
    sub.add_argument("--weights", metavar="A,B", help="weight of each model (default: equal weights)")
    sub.add_argument("--combine", default="mean", metavar="HOW", help="combination of the scores (default: mean)")


def combine_models(args: argparse.Namespace) -> None:
    """Load, combine and save."""
    check_output(args.out)
    params: dict[str, Any] = {"combine": args.combine}
    if args.weights:
        params["weights"] = tuple(float(part) for part in args.weights.split(","))
    ensemble = Ensemble.of([load(path) for path in args.models], **params)
    ensemble.save(args.out)
    print_message(f"combined {len(args.models)} models with {ensemble.n_labels:,} labels; saved to {args.out}")
