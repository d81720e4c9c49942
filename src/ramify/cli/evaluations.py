"""Evaluation of saved predictions, of several models side by side, and over several seeds."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ramify.base.errors import DataError
from ramify.base.ranking import Ranking
from ramify.cli.options import read_labelled_data
from ramify.cli.predictions import read_predictions
from ramify.io.dataset import Dataset
from ramify.io.labels import LabelVocabulary
from ramify.metrics.report import Evaluation, evaluate

SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@10", "R@100", "micro-F1")
"""Metrics of a comparison, as far as they were computed."""


def unseen(args: argparse.Namespace) -> str:
    """What happens to true labels that the model does not know: --protocol, or --unseen."""
    protocol = getattr(args, "protocol", None)
    return {"all": "count", "seen": "drop"}.get(protocol or "", getattr(args, "unseen", "count"))


def check_evaluate_options(args: argparse.Namespace) -> None:
    """Raise for options of ``ramify evaluate`` that would have no effect."""
    is_annif = args.annif or args.rule is not None
    ignored = {"--deciles": args.deciles, "--ci": args.ci is not None}
    ignored |= {"--filter": args.filter, "--ks": args.ks}
    for option in [name for name, value in ignored.items() if value and is_annif]:
        raise ValueError(f"{option} has no effect on the metrics of Annif, which --annif and --rule print")
    if args.limit < 1:
        raise ValueError(f"--limit must be at least 1; got {args.limit}")
    if args.results_file and not is_annif:
        raise ValueError("--results-file is a table of Annif's metrics: add --annif or --rule")
    if args.by and args.filter:
        raise ValueError("--by cannot be combined with --filter, whose pairs name rows of the whole file")
    if len(args.models) > 1 and not args.json and (args.deciles or args.ci is not None):
        raise ValueError("--deciles and --ci of several models are printed with --json only; or name one model")


def evaluate_predictions(path: str, data: Dataset, args: argparse.Namespace) -> Evaluation:
    """Compare a file of predictions with labeled data, row by row, or by id where both have ids."""
    if args.filter:
        raise ValueError("--filter is for models; saved predictions are evaluated as they are")
    if unseen(args) == "drop" and not args.train:
        raise ValueError(
            "saved predictions do not tell which labels the model has seen: add --train, or leave out --protocol seen"
        )
    ranking, y_train = saved_ranking(path, data, args)
    result = evaluate(
        ranking,
        data.labels(),
        y_train,
        ks=args.ks,
        propensity=args.propensity,
        unseen=unseen(args),
        confidence=args.ci,
        threads=args.threads,
    )
    # Without the training labels, those that occur in no prediction would pass for labels that the model does not know.
    return result if y_train is not None else dataclasses.replace(result, unseen_fraction=0.0)


def saved_ranking(path: str, data: Dataset, args: argparse.Namespace) -> tuple[Ranking, list[list[Any]] | None]:
    """Read a file of predictions and the labels of ``--train``, which are labels of the ranking, too."""
    ranking = align_predictions(path, data)
    y_train = read_labelled_data(args.train, args).labels() if args.train else None
    return ranking if y_train is None else with_labels(ranking, y_train), y_train


def align_predictions(path: str, data: Dataset) -> Ranking:
    """Read a file of predictions in the order of the rows of the data: by id where both have ids."""
    ranking, ids = read_predictions(path)
    if ids is not None and data.ids is not None and [str(i) for i in ids] != [str(i) for i in data.ids]:
        row_of = {str(i): row for row, i in enumerate(ids)}
        if len(row_of) < len(ids):
            repeated = next(i for row, i in enumerate(ids) if row_of[str(i)] != row)
            raise DataError(
                f"{path}: the id {repeated!r} occurs twice, so the rows of {data.name} cannot be told apart"
            )
        missing = next((i for i in data.ids if str(i) not in row_of), None)
        if missing is not None:
            raise DataError(f"{path}: no prediction for the id {missing!r} of {data.name}")
        ranking = ranking[np.array([row_of[str(i)] for i in data.ids])]
    if len(ranking) != len(data):
        raise DataError(f"{path} has predictions for {len(ranking):,} samples, {data.name} has {len(data):,}")
    if all(isinstance(label, int) for row in data.labels() for label in row):
        ranking = _with_integer_labels(ranking)
    return ranking


def with_labels(ranking: Ranking, y_train: list[list[Any]]) -> Ranking:
    """Add the training labels that no prediction has: they, too, are labels of the model."""
    names = LabelVocabulary([*(ranking.names or ()), *(set().union(*y_train) - set(ranking.names or ()))])
    return dataclasses.replace(ranking, names=names, n_labels=len(names))


def _with_integer_labels(ranking: Ranking) -> Ranking:
    """TSV and CSV have no types: labels that all look like integers are compared with integers."""
    names = list(ranking.names or ())
    if not all(isinstance(n, str) and n.lstrip("-").isdecimal() for n in names):
        return ranking
    return dataclasses.replace(ranking, names=LabelVocabulary(int(str(name)) for name in names))


def comparison(results: Mapping[str, Evaluation]) -> list[list[str]]:
    """Table of several evaluations, one row each."""
    values = {name: result.to_dict() for name, result in results.items()}
    shown = [metric for metric in SHOWN if any(metric in v for v in values.values())]
    rows = [[name, *(f"{v[metric]:.2f}" if metric in v else "" for metric in shown)] for name, v in values.items()]
    return [["", *shown], *rows]


def seeds_table(results: Sequence[Evaluation]) -> list[list[str]]:
    """Mean and standard deviation of each metric over several seeds."""
    values: list[dict[str, Any]] = [result.to_dict() for result in results]
    rows = [["", "mean", "deviation", "minimum", "maximum"]]
    for metric in values[0]:
        found = np.array([v[metric] for v in values])
        numbers = (found.mean(), found.std(ddof=1), found.min(), found.max())
        rows.append([metric, *(f"{number:.2f}" for number in numbers)])
    return rows
