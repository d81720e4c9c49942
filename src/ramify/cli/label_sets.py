"""Options of ``ramify predict`` for label sets, probabilities and filters."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ramify.base.errors import DataError
from ramify.base.ranking import Ranking
from ramify.models.base import Model
from ramify.rank.decisions import OWN_RULE, RULES, Threshold
from ramify.rank.filters import LabelFilter


def add_label_set_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for label sets, probabilities and filters."""
    group = parser.add_argument_group("label sets and filters")
    group.add_argument("--probabilities", action="store_true", help="probabilities in place of raw scores")
    group.add_argument(
        "--rule",
        metavar="RULE",
        help=f"choose the labels of each row by a rule: {OWN_RULE} (the one that was fitted), {', '.join(RULES)}, "
        "top-k=5, …",
    )
    group.add_argument(
        "--threshold", type=float, metavar="T", help="labels from this probability on (score, if not calibrated)"
    )
    group.add_argument("--allow", action="append", metavar="LABEL", help="only these labels or names; may be repeated")
    group.add_argument("--deny", action="append", metavar="LABEL", help="none of these labels; may be repeated")
    group.add_argument(
        "--allow-prefix", action="append", metavar="P", help="only labels that start so; may be repeated"
    )
    group.add_argument("--names", metavar="LANG", help="language of the names of the label catalogue, such as en")


def predictor(model: Model, args: argparse.Namespace) -> Callable[[Any], Ranking]:
    """Return what predicts a batch: a ranking of k labels, or label sets by a rule, with the filters of the command."""
    if args.rule is not None and args.threshold is not None:
        raise ValueError("--rule and --threshold both choose the labels of a row; leave out one of them")
    if args.names is not None and model.catalogue_ is None:
        raise DataError(f"{args.model} has no label names; add them with `ramify labels {args.model} --set FILE`")
    rule = args.rule if args.rule is not None or args.threshold is None else _threshold_rule(model, args.threshold)
    allow = _filter(model, args)
    if rule is None:
        return lambda X: model.predict_topk(X, args.k, probabilities=args.probabilities, allow=allow)
    return lambda X: model.predict_sets(X, rule=rule, allow=allow)


def _threshold_rule(model: Model, threshold: float) -> Any:
    return Threshold(threshold, of="probability" if model.is_calibrated else "score")


def _filter(model: Model, args: argparse.Namespace) -> LabelFilter | None:
    if not (args.allow or args.deny or args.allow_prefix):
        return None
    for prefix in args.allow_prefix or ():
        if not len(model.label_filter(allow_prefix=prefix)):
            raise DataError(f"no label starts with {prefix!r}, but there is {str(model.labels_[0])!r}, for example")
    return model.label_filter(
        allow=given_labels(model, args.allow) if args.allow else None,
        deny=given_labels(model, args.deny) if args.deny else None,
        allow_prefix=tuple(args.allow_prefix) if args.allow_prefix else None,
    )


def given_labels(model: Model, given: list[str]) -> list[Any]:
    """Labels of the command line; integers where the labels of the model are integers."""
    return [model.labels_.from_text(text) for text in given]
