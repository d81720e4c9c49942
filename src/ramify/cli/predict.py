"""``ramify predict``: JSON Lines in, JSON Lines out, as a stream."""

from __future__ import annotations

import argparse
import codecs
import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ramify.base.errors import DataError
from ramify.base.progress import progress
from ramify.base.ranking import Ranking
from ramify.cli.label_sets import predictor
from ramify.cli.options import is_built_in, load_model, read_data, record_options, regular_file
from ramify.cli.output import report_skipped
from ramify.cli.predictions import Key, open_predictions, prediction_format
from ramify.io.dataset import Dataset
from ramify.io.files import BadLines, check_encoding, describe_decode_error, read_lines
from ramify.io.formats import RECORD_READERS, detect_format, iter_records, read_label_names
from ramify.io.records import Record, RecordError, RecordOptions, parse_json_line
from ramify.models.base import Model

MAX_BATCH = 1024
MAX_LABELS = 100_000  # per batch


def predict(args: argparse.Namespace) -> None:
    """``ramify predict``."""
    if args.engine is not None:
        from ramify.cli.distributed import predict_to_files  # what it needs is not loaded otherwise

        predict_to_files(args)
        return
    kind = prediction_format(args.out)
    model = load_model(args)
    names = _label_names(args, model)
    rank = predictor(model, args)
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(open_predictions(args.out, kind, args.names, has_names=model.catalogue_ is not None))
        is_spooled = args.file == "-" and not args.text and args.format not in (None, "jsonl")
        if args.file != "-" or is_spooled:
            args.file = stack.enter_context(regular_file(args.file))
        if not _is_stream(args):
            data = read_data(args.file, args)
            keys = _keys(data)
            for ranking in predict_batches(model, data, args.k, rank):
                out.write(_renamed(ranking, names), [next(keys) for _ in range(len(ranking))])
            return
        bad = BadLines("<stdin>" if args.file == "-" or is_spooled else args.file, args.skip_bad)
        for records in _record_batches(args, model, bad):
            documents = _documents(model, [r.text for r in records])
            out.write(_renamed(rank(documents), names), [_key(r, args.skip_bad) for r in records])
        report_skipped(bad.path, bad.n_skipped, bad.skipped)


def _keys(data: Dataset) -> Iterator[Key]:
    """Id of each sample; where lines are missing, the line of a sample without an id."""
    if data.ids is not None:
        return ({"id": i} for i in data.ids)
    return ({} for _ in range(len(data))) if data.lines is None else ({"line": int(line)} for line in data.lines)


def _key(record: Record, skip_bad: bool) -> Key:
    """Id of a record; where lines may be missing, the line of a record without an id."""
    if record.id is not None:
        return {"id": record.id}
    return {"line": record.line} if skip_bad else {}


def _label_names(args: argparse.Namespace, model: Model) -> list[str] | None:
    """Names of the labels of a model that was trained on label ids, by ``--label-names``."""
    if not args.label_names:
        return None
    names = read_label_names(args.label_names)
    labels = list(model.labels_)
    if not all(isinstance(label, int) and 0 <= label < len(names) for label in labels):
        raise DataError(
            f"the labels of {args.model} are not ids of the {len(names):,} names in {args.label_names}, but such as "
            f"{labels[0]!r}; --label-names is for models that were trained on label ids"
        )
    return [names[label] for label in labels]  # type: ignore[call-overload]


def _renamed(ranking: Ranking, names: list[str] | None) -> Ranking:
    return ranking if names is None else dataclasses.replace(ranking, names=names)


def _is_stream(args: argparse.Namespace) -> bool:
    """Whether the input is texts, which are predicted as they arrive."""
    if args.file == "-" or args.text:
        return True
    return not is_built_in(args.file) and (args.format or detect_format(args.file)) in RECORD_READERS


def _batch_size(k: int) -> int:
    """Rows per batch: fewer for a large k, so that output is not delayed."""
    return max(1, min(MAX_BATCH, MAX_LABELS // max(1, k)))


def predict_batches(
    model: Model, data: Dataset, k: int, rank: Callable[[Any], Ranking] | None = None
) -> Iterator[Ranking]:
    """Yield the rankings of all samples in batches, with a progress bar; `rank` replaces `predict_topk`."""
    inputs = data.inputs if data.texts is None else _documents(model, data.texts)
    size = _batch_size(k)
    with progress("predicting", len(data), unit="samples") as advance:
        for start in range(0, max(1, len(data)), size):
            batch = inputs[start : start + size]
            ranking = model.predict_topk(batch, k) if rank is None else rank(batch)
            yield ranking
            advance(len(ranking))


def _documents(model: Model, texts: list[Any]) -> list[Any]:
    """Convert texts to the input of the model: for a model of text fields, a plain text is the field ``text``."""
    if model.input_kind_ == "fields":
        return [t if isinstance(t, dict) else {"text": t} for t in texts]
    return texts


def _record_batches(args: argparse.Namespace, model: Model, bad: BadLines) -> Iterator[list[Record]]:
    """Yield batches of records as they arrive. A line without the text field of the model is bad."""
    options = record_options(args)
    if options.fields is None and model.input_kind_ == "text":
        options = dataclasses.replace(options, fields=("text",))
    if args.file == "-":
        for lines in _stdin_lines(options.encoding, bad):
            parsed = (_parse_line(line, number, args.text, options, bad) for number, line in lines)
            yield from _batches((record for record in parsed if record is not None), args.k)
        return
    records: Iterable[Record]
    if args.text:
        records = (Record(line, [], line=number) for number, line in read_lines(args.file, options.encoding, bad))
    else:
        records = iter_records(args.file, format=args.format, options=options, bad=bad)
    yield from _batches(records, args.k)


def _batches(records: Iterable[Record], k: int) -> Iterator[list[Record]]:
    """Yield records in batches; those before a bad line also if it ends the program."""
    batch: list[Record] = []
    try:
        for record in records:
            batch.append(record)
            if len(batch) == _batch_size(k):
                yield batch
                batch = []
    except DataError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def _parse_line(line: str, number: int, as_text: bool, options: RecordOptions, bad: BadLines) -> Record | None:
    if as_text:
        return Record(line, [], line=number)
    if not line.strip():
        return None
    try:
        return parse_json_line(line, options, number)
    except RecordError as error:
        bad.report(number, f"{error} (for plain text, one text per line, use --text)")
        return None


def _stdin_lines(encoding: str, bad: BadLines) -> Iterator[list[tuple[int, str]]]:
    """Yield batches of complete lines as they arrive: single lines from a slow writer, many from a fast one."""
    check_encoding(encoding)
    rest, number = b"", 0
    while True:
        chunk = os.read(sys.stdin.fileno(), 1 << 20)
        *lines, rest = (rest + chunk).split(b"\n")
        if not chunk and rest:
            lines, rest = [rest], b""
        decoded = []
        for line in lines:
            number += 1
            line = line.rstrip(b"\r").removeprefix(codecs.BOM_UTF8 if number == 1 else b"")
            try:
                decoded.append((number, line.decode(encoding)))
            except UnicodeDecodeError as error:
                if not bad.skip:
                    yield decoded  # the lines before it
                bad.report(number, describe_decode_error(error, line, encoding))
        yield decoded
        if not chunk:
            return
