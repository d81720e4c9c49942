"""``ramify report`` and ``ramify evaluate --report``: an evaluation as one HTML file."""

from __future__ import annotations

import argparse
import dataclasses
import time
from functools import partial
from pathlib import Path
from typing import Any

from ramify.base.errors import DataError
from ramify.base.ranking import Ranking
from ramify.cli.decide import model_inputs
from ramify.cli.evaluations import align_predictions, unseen, with_labels
from ramify.cli.help import add_command
from ramify.cli.options import add_data_options, read_labelled_data
from ramify.cli.output import print_message
from ramify.cli.predict import predict_batches
from ramify.io.dataset import Dataset
from ramify.io.labels import LabelVocabulary
from ramify.io.store import Store
from ramify.metrics.propensity import LabelCounts
from ramify.models import load
from ramify.models.base import Model
from ramify.report.about import single_query_times
from ramify.report.contents import Subject, make_report, with_model

N_LABELS = 100
"""Labels of a row that a report ranks."""


def add_report(parent: Any, file_help: str) -> None:
    """Add the command."""
    summary = "Write an evaluation report from saved predictions, as one HTML file."
    sub = add_command(parent, "report", summary, write_saved_report)
    sub.add_argument("predictions", metavar="PREDICTIONS", help="file of ramify predict, best with --k 100")
    sub.add_argument("file", metavar="FILE", help=file_help)
    sub.add_argument("--out", metavar="FILE", default="report.html", help="file to write (default: report.html)")
    sub.add_argument("--against", metavar="OTHER", help="predictions of another model for the same rows, side by side")
    sub.add_argument("--model", metavar="DIR", help="model of the predictions: facts, index, training, explanations")
    sub.add_argument("--against-model", metavar="DIR", help="model of the predictions of --against")
    sub.add_argument("--train", metavar="FILE", help="training data, for PSP and deciles, if there is no --model")
    sub.add_argument("--probabilities", action="store_true", help="the scores are probabilities")
    sub.add_argument("--confidence", type=float, default=0.95, metavar="C", help="of the intervals (default: 0.95)")
    sub.add_argument("--threads", type=int, metavar="N", help="threads to use (default: all cores)")
    add_data_options(sub)


def write_saved_report(args: argparse.Namespace) -> None:
    """``ramify report``: nothing is predicted again."""
    if args.against_model and not args.against:
        raise ValueError("--against-model is the model of --against PREDICTIONS; name them, too")
    _check_target(args.out)
    data = read_labelled_data(args.file, args)
    counts = read_labelled_data(args.train, args).labels() if args.train else None
    given = [(args.predictions, args.model), *([(args.against, args.against_model)] if args.against else [])]
    subjects = []
    for path, directory in given:
        model = None if directory is None else load(directory).set_params(threads=args.threads, verbose=0)
        subjects.append(_saved(path, model, data, counts, args.probabilities))
    _write(subjects, data, args.out, confidence=args.confidence)


def write_model_report(args: argparse.Namespace, data: Dataset) -> None:
    """``ramify evaluate --report``: one model, or two with ``--against``; both may be files of predictions."""
    names = [args.models[0], *([args.against] if args.against else [])]
    counts = read_labelled_data(args.train, args).labels() if args.train else None
    subjects = []
    for name in names:
        if Path(name).is_file():
            subjects.append(_saved(name, None, data, counts, probabilities=False))
        else:
            subjects.append(_measured(name, data, args))
    _write(subjects, data, args.report, confidence=args.ci or 0.95, unseen=unseen(args), propensity=args.propensity)


def check_report_options(args: argparse.Namespace) -> None:
    """Raise for options of ``ramify evaluate`` that a report would ignore."""
    if args.against and not args.report:
        raise ValueError("--against is the second model of a report: add --report FILE, or use ramify compare")
    if not args.report:
        return
    if len(args.models) > 1:
        raise ValueError("a report is about one model; name the second one with --against")
    given = {"--by": args.by, "--filter": args.filter, "--rule": args.rule, "--annif": args.annif, "--ks": args.ks}
    for option in [name for name, value in given.items() if value]:
        raise ValueError(f"{option} has no effect on a report; leave out one of them")
    _check_target(args.report)


def _check_target(path: str) -> None:
    """Report what is wrong with the output before the work."""
    folder = Path(path).resolve().parent
    if not folder.is_dir():
        raise DataError(f"{folder} does not exist; make it, or name another file")
    if Path(path).is_dir():
        raise DataError(f"{path} is a directory; name a file, such as {Path(path) / 'report.html'}")


def _write(subjects: list[Subject], data: Dataset, path: str, **options: Any) -> None:
    documents = data.texts
    models = [subject.model for subject in subjects if subject.model is not None]
    if documents is not None and models:
        documents = model_inputs(models[0], data)
    report = make_report(subjects, data.labels(), documents=documents, ids=data.ids, data_name=data.name, **options)
    report.save(path)
    print_message(f"wrote {path} ({Path(path).stat().st_size / 1000:,.0f} kB)")


def _measured(name: str, data: Dataset, args: argparse.Namespace) -> Subject:
    """Rank all rows with a model, and measure the times."""
    started = time.perf_counter()
    model = load(name).set_params(threads=args.threads, verbose=0)
    times = {"loading (ms)": 1000 * (time.perf_counter() - started)}
    k = min(N_LABELS, model.n_labels)
    started = time.perf_counter()
    rank = partial(model.predict_topk, k=k, probabilities=True) if model.is_calibrated else None
    ranking = Ranking.concat(list(predict_batches(model, data, k, rank)))
    seconds = max(1e-9, time.perf_counter() - started)
    times |= {f"all samples, top {k} (s)": seconds, "samples per second": len(data) / seconds}
    times |= single_query_times(model, model_inputs(model, data))
    times["size on disk (MB)"] = sum(entry["size"] for entry in Store(name).files.values()) / 1e6
    return Subject(_short_name(name), ranking, model.label_counts_, model, times)


def _saved(path: str, model: Model | None, data: Dataset, y_train: Any, probabilities: bool) -> Subject:
    """Return saved predictions, with the labels of their model if it is given."""
    ranking = align_predictions(path, data)
    ranking = dataclasses.replace(ranking, are_probabilities=probabilities)
    if model is not None:
        return Subject(_short_name(path), with_model(ranking, model), model.label_counts_, model)
    if y_train is None:
        return Subject(_short_name(path), ranking)
    ranking = with_labels(ranking, y_train)
    assert isinstance(ranking.names, LabelVocabulary)
    return Subject(_short_name(path), ranking, LabelCounts.of(y_train, ranking.names))


def _short_name(path: str) -> str:
    return Path(path).resolve().name
