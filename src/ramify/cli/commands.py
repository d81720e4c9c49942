"""What each command does."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from ramify.base.errors import DataError
from ramify.base.progress import progress
from ramify.base.ranking import Ranking
from ramify.cli.options import configured_model, read_data, record_options
from ramify.cli.output import print_table, report_skipped, say
from ramify.io.dataset import Dataset
from ramify.io.files import BadLines
from ramify.io.formats import RECORD_READERS, detect_format, iter_records, write
from ramify.io.records import Record, RecordError, parse_json_line
from ramify.io.store import Store
from ramify.metrics.report import Evaluation, evaluate
from ramify.models import load, model_class
from ramify.models.base import Model

BATCH = 1024


def train(args: argparse.Namespace) -> None:
    """``ramify train``."""
    model = configured_model(model_class(args.model), args.config, args.set)
    if args.threads is not None:
        model.set_params(threads=args.threads)
    if args.quiet:
        model.set_params(verbose=0)
    data = read_data(args.file, args)
    report_skipped(data)
    dev = read_data(args.dev, args) if args.dev else None
    started = time.perf_counter()
    model.fit(data.inputs, data.labels())
    seconds = time.perf_counter() - started
    model.save(args.out)
    if not args.quiet:
        size = sum(f.stat().st_size for f in Path(args.out).iterdir())
        say(f"trained {args.model} on {len(data):,} points with {model.n_labels:,} labels in {seconds:.1f} s; "
            f"saved to {args.out} ({size / 1e6:.1f} MB)")  # fmt: skip
    if dev is not None:
        print_evaluation(_evaluate(model, dev, args))


def predict(args: argparse.Namespace) -> None:
    """``ramify predict``: JSON Lines in, JSON Lines out."""
    model = load(args.model)
    model.set_params(threads=args.threads, verbose=0)
    with _output(args.out) as out:
        if args.file != "-" and detect_format(args.file) not in RECORD_READERS:
            data = read_data(args.file, args)
            report_skipped(data)
            for ranking in _ranked(model, data, args.k):
                _write_ranking(out, ranking, [None] * len(ranking))
            return
        bad = BadLines("<stdin>" if args.file == "-" else args.file, args.skip_bad)
        for records in _record_batches(args, bad):
            documents = _documents(model, [r.text for r in records])
            _write_ranking(out, model.predict_topk(documents, args.k), [r.id for r in records])
        if bad.n_skipped:
            say(
                f"{bad.path}: {bad.n_skipped:,} bad lines were left out; "
                f"first: line {bad.skipped[0].line}: {bad.skipped[0].reason}"
            )


def _ranked(model: Model, data: Dataset, k: int) -> Iterator[Ranking]:
    """Rankings of all points, batch by batch, with a progress bar."""
    inputs = data.inputs if data.texts is None else _documents(model, data.texts)
    with progress("predicting", len(data)) as advance:
        for start in range(0, len(data), BATCH):
            ranking = model.predict_topk(inputs[start : start + BATCH], k)
            yield ranking
            advance(len(ranking))


def _documents(model: Model, texts: list[Any]) -> list[Any]:
    """Texts as the model wants them: a model of fields takes a plain text as its field ``text``."""
    if model.input_kind_ == "fields":
        return [t if isinstance(t, dict) else {"text": t} for t in texts]
    return texts


def _record_batches(args: argparse.Namespace, bad: BadLines) -> Iterator[list[Record]]:
    options = record_options(args)
    if args.file == "-":
        for lines in _stdin_lines():
            batch = []
            for number, line in lines:
                if args.text:
                    batch.append(Record(line, []))
                    continue
                if not line.strip():
                    continue
                try:
                    batch.append(parse_json_line(line, options, number))
                except RecordError as error:
                    bad.report(number, f"{error} (plain texts, one a line, are read with --text)")
            if batch:
                yield batch
        return
    records = iter_records(args.file, format=args.format, options=options, bad=bad)
    while batch := [r for _, r in zip(range(BATCH), records, strict=False)]:
        yield batch


def _stdin_lines() -> Iterator[list[tuple[int, str]]]:
    """Whole lines as they arrive: one by one from a slow writer, many at a time from a fast one."""
    rest, number = b"", 0
    while True:
        chunk = os.read(sys.stdin.fileno(), 1 << 20)
        *lines, rest = (rest + chunk).split(b"\n")
        if not chunk and rest:
            lines, rest = [rest], b""
        decoded = []
        for line in lines:
            number += 1
            try:
                decoded.append((number, line.rstrip(b"\r").decode("utf-8")))
            except UnicodeDecodeError as error:
                raise DataError(f"<stdin>:{number}: not UTF-8: {error.reason}") from error
        for start in range(0, len(decoded), BATCH):
            yield decoded[start : start + BATCH]
        if not chunk:
            return


@contextlib.contextmanager
def _output(path: str | None) -> Iterator[IO[str]]:
    if path is None:
        yield sys.stdout
        return
    with Path(path).open("w", encoding="utf-8") as file:
        yield file


def _write_ranking(out: IO[str], ranking: Ranking, ids: list[str | None]) -> None:
    for labels, identity in zip(ranking.labels(), ids, strict=True):
        value: dict[str, Any] = {} if identity is None else {"id": identity}
        value["labels"] = [{"label": name, "score": round(score, 6)} for name, score in labels]
        out.write(json.dumps(value, ensure_ascii=False) + "\n")
    out.flush()


def evaluate_model(args: argparse.Namespace) -> None:
    """``ramify evaluate``."""
    model = load(args.model)
    model.set_params(threads=args.threads, verbose=0)
    data = read_data(args.file, args)
    report_skipped(data)
    result = _evaluate(model, data, args)
    if args.json:
        values: dict[str, Any] = dict(result.to_dict())
        if args.deciles:
            values["deciles"] = result.deciles()
        print(json.dumps(values))
        return
    print_evaluation(result)
    if args.deciles:
        deciles = result.deciles()
        shown = [name for name in ("P@1", "P@5", "nDCG@5", "PSP@5", "R@10", "R@100", "macro-F1") if name in deciles]
        rows = [["decile", *shown], *([str(i + 1), *(f"{deciles[name][i]:.2f}" for name in shown)] for i in range(10))]
        print_table(rows, title="by decile of labels, the most frequent first; parts add up to the whole, but for F1")


def _evaluate(model: Model, data: Dataset, args: argparse.Namespace) -> Evaluation:
    ks = [int(k) for k in args.ks.split(",")] if getattr(args, "ks", None) else None
    width = max(ks) if ks else 100
    filter_file = getattr(args, "filter", None)
    return evaluate(
        Ranking.concat(list(_ranked(model, data, width))),
        data.labels(),
        model.label_counts_,
        ks=ks,
        threshold=model.threshold,
        propensity=getattr(args, "propensity", "default"),
        unseen=getattr(args, "unseen", "count"),
        filter_pairs=np.loadtxt(filter_file, dtype=np.int64, ndmin=2) if filter_file else None,
        threads=args.threads,
    )


def print_evaluation(result: Evaluation) -> None:
    """Print the table of an evaluation with its notes."""
    print_table(result.table())
    for note in result.notes():
        print(note)


def inspect(args: argparse.Namespace) -> None:
    """``ramify inspect``."""
    store = Store(args.model, verify=args.verify)
    model = load(args.model)
    facts = {
        "kind": store.kind,
        "written by": f"Ramify {store.library_version}",
        "takes": model.input_kind_
        if model.n_features_in_ is None
        else f"{model.input_kind_}, {model.n_features_in_:,} features",
        "labels": f"{model.n_labels:,}",
        "training points": f"{model.label_counts_.n_points:,}",
        "size": f"{sum(e['size'] for e in store.files.values()) / 1e6:.2f} MB in {len(store.files)} arrays",
    }
    if args.verify:
        facts["content"] = "fits its hashes"
    if args.json:
        print(json.dumps({**facts, "params": store.params, "files": store.files}, ensure_ascii=False))
        return
    print_table([[k, v] for k, v in facts.items()], header=False)
    print_table(
        [["parameter", "value"], *([p.path, json.dumps(_value(store.params, p.path))] for p in type(model).describe())]
    )
    arrays = [
        [name, entry["dtype"], " × ".join(map(str, entry["shape"])), f"{entry['size']:,}"]
        for name, entry in store.files.items()
    ]
    print_table([["array", "type", "shape", "bytes"], *arrays])


def _value(params: dict[str, Any], path: str) -> Any:
    for part in path.split("."):
        params = params[part]
    return params


def data_stats(args: argparse.Namespace) -> None:
    """``ramify data stats``: the first file is the training data of the others."""
    train_set: Dataset | None = None
    results = {}
    for name in args.files:
        data = read_data(name, args)
        report_skipped(data)
        results[name] = data.stats(train_set)
        train_set = train_set or data
    if args.json:
        print(json.dumps({name: stats.to_dict() for name, stats in results.items()}))
        return
    for name, stats in results.items():
        print_table([list(row) for row in stats.rows()], title=name, header=False)


def data_convert(args: argparse.Namespace) -> None:
    """``ramify data convert``."""
    data = read_data(args.input, args)
    report_skipped(data)
    write(data, args.output)
    say(f"{len(data):,} points with {data.n_labels:,} labels written to {args.output}")
