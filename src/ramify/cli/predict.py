"""``ramify predict``: JSON Lines in, JSON Lines out, as a stream."""

from __future__ import annotations

import argparse
import codecs
import contextlib
import dataclasses
import io
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from ramify.base.progress import progress
from ramify.base.ranking import Ranking
from ramify.cli.label_sets import predictor
from ramify.cli.options import is_built_in, load_model, read_data, record_options, regular_file
from ramify.cli.output import report_skipped
from ramify.io.dataset import Dataset
from ramify.io.files import BadLines, check_encoding, describe_decode_error, open_for_writing, read_lines
from ramify.io.formats import RECORD_READERS, detect_format, iter_records, json_line
from ramify.io.records import Record, RecordError, RecordOptions, parse_json_line
from ramify.models.base import Model

MAX_BATCH = 1024
MAX_LABELS = 100_000  # per batch


def predict(args: argparse.Namespace) -> None:
    """``ramify predict``."""
    model = load_model(args)
    rank = predictor(model, args)
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(_output(args.out))
        if args.file != "-":
            args.file = stack.enter_context(regular_file(args.file))
        if not _is_stream(args):
            data = read_data(args.file, args)
            ids = iter(data.ids or [])
            for ranking in predict_batches(model, data, args.k, rank):
                _write_ranking(out, ranking, [next(ids, None) for _ in range(len(ranking))], args.names)
            return
        bad = BadLines("<stdin>" if args.file == "-" else args.file, args.skip_bad)
        for records in _record_batches(args, model, bad):
            documents = _documents(model, [r.text for r in records])
            _write_ranking(out, rank(documents), [r.id for r in records], args.names)
        report_skipped(bad.path, bad.n_skipped, bad.skipped)


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
    with progress("predicting", len(data)) as advance:
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
            parsed = [r for number, line in lines if (r := _parse_line(line, number, args.text, options, bad))]
            yield from _batches(parsed, args.k)
        return
    records: Iterable[Record]
    if args.text:
        records = (Record(line, [], line=number) for number, line in read_lines(args.file, options.encoding, bad))
    else:
        records = iter_records(args.file, format=args.format, options=options, bad=bad)
    yield from _batches(records, args.k)


def _batches(records: Iterable[Record], k: int) -> Iterator[list[Record]]:
    iterator = iter(records)
    while batch := list(itertools.islice(iterator, _batch_size(k))):
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
                bad.report(number, describe_decode_error(error, line, encoding))
        yield decoded
        if not chunk:
            return


@contextlib.contextmanager
def _output(path: str | None) -> Iterator[IO[str]]:
    if path is None:
        yield sys.stdout
        return
    with open_for_writing(path) as file, io.TextIOWrapper(file, encoding="utf-8", write_through=True) as text:
        yield text


def _write_ranking(out: IO[str], ranking: Ranking, ids: list[str | None], language: str | None) -> None:
    for labels, sample_id in zip(ranking.labels(), ids, strict=True):
        value: dict[str, Any] = {} if sample_id is None else {"id": sample_id}
        value["labels"] = [{"label": label, "score": round(score, 6) + 0.0} for label, score in labels]
        if ranking.catalogue is not None:
            for entry in value["labels"]:
                entry["name"] = ranking.catalogue.display_name(entry["label"], language)
        out.write(json_line(value))
    out.flush()
