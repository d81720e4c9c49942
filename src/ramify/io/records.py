"""Text formats with one sample per record: JSON Lines, TSV and CSV with a header, Annif's short-text TSV, Parquet."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ramify.base.errors import DataError
from ramify.base.extras import needed_for
from ramify.base.types import Document, Label
from ramify.io.files import BadLines, read_lines

SAMPLE_WEIGHT = "sample_weight"
"""Field or column of the weights of samples; ``weights`` are those of the labels of a sample."""
RESERVED = ("id", "labels", "weights", SAMPLE_WEIGHT)
ANNIF_COLUMN = "subject_uris"
"""Column of the subjects in Annif's CSV files, whose subjects are separated by spaces."""
FLOAT_MAX = 3.4e38  # weights are stored in single precision


@dataclass(frozen=True)
class Record:
    """One sample of a text file."""

    text: Document
    labels: list[Label]
    weights: list[float] | None = None
    id: str | int | None = None
    line: int = 0
    sample_weight: float | None = None


@dataclass(frozen=True)
class RecordOptions:
    """How records are read.

    Attributes
    ----------
    fields : names of the text fields; None: ``text`` if present, else every field with a string
    label_sep : separator of labels in TSV and CSV cells
    encoding : encoding of the file
    label_field : field or column of the labels
    """

    fields: tuple[str, ...] | None = None
    label_sep: str = ";"
    encoding: str = "utf-8"
    label_field: str = "labels"

    def __post_init__(self) -> None:
        if not self.label_sep:
            raise DataError("label_sep must not be empty")

    def after(self, first: Record) -> RecordOptions:
        """Options for the records after the first: if it has a ``text``, all others must have one."""
        return replace(self, fields=("text",)) if self.fields is None and isinstance(first.text, str) else self


class RecordError(Exception):
    """An invalid record; the message is the reason."""


Reader = Callable[[str | os.PathLike[str], RecordOptions, BadLines], Iterator[Record]]


def record_from_object(value: Any, options: RecordOptions, line: int = 0) -> Record:
    """Build a record from a decoded JSON object; raises `RecordError`."""
    if not isinstance(value, dict):
        raise RecordError(f"expected a JSON object, found {type(value).__name__}")
    labels = [_label(x) for x in _list(value.get(options.label_field, []), options.label_field)]
    weights = None
    if value.get("weights") is not None:
        weights = [_weight(w) for w in _list(value["weights"], "weights")]
        if len(weights) != len(labels):
            raise RecordError(f"{len(weights)} weights for {len(labels)} labels")
    sample_weight = value.get(SAMPLE_WEIGHT)
    if sample_weight is not None:
        sample_weight = _weight(sample_weight, may_be_zero=True)  # which leaves the sample out
    identity = value.get("id")
    if identity is not None and (isinstance(identity, bool) or not isinstance(identity, str | int)):
        raise RecordError("'id' must be a string or an integer")
    return Record(_text(value, options), labels, weights, identity, line, sample_weight)


def _text(value: dict[str, Any], options: RecordOptions) -> Document:
    names = options.fields
    if names is None:
        if "text" in value:
            names = ("text",)
        else:
            taken = (*RESERVED, options.label_field)
            names = tuple(k for k, v in value.items() if isinstance(v, str) and k not in taken)
            if not names:
                raise RecordError("no field 'text' and no other field with a string")
            return {k: value[k] for k in names}
    for name in names:
        if not isinstance(value.get(name, ""), str):
            raise RecordError(f"{name!r} must be a string, found {type(value[name]).__name__}")
    if len(names) == 1:
        if names[0] not in value:
            raise RecordError(f"no field {names[0]!r}")
        return str(value[names[0]])
    if not any(name in value for name in names):
        raise RecordError(f"none of the fields {', '.join(names)} is present")
    return {name: value.get(name, "") for name in names}


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise RecordError(f"{name!r} must be a list, found {type(value).__name__}")
    return value


def _label(value: Any) -> Label:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise RecordError(f"label {value!r} is neither a string nor an integer")
    if value == "":
        raise RecordError("a label is empty")
    return value


def _weight(weight: Any, may_be_zero: bool = False) -> float:
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if is_number and (0 < weight <= FLOAT_MAX or (may_be_zero and weight == 0)):
        return float(weight)
    raise RecordError(f"weight {str(weight)[:40]} is not a finite number {'from' if may_be_zero else 'above'} 0")


def _no_constant(name: str) -> Any:
    raise RecordError(f"{name} is not allowed")


def parse_json_line(text: str, options: RecordOptions, line: int) -> Record:
    """Parse one line of JSON Lines; raises `RecordError`."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not valid JSON: {error}") from None
    return record_from_object(value, options, line)


def _nonblank_lines(path: str | os.PathLike[str], options: RecordOptions, bad: BadLines) -> Iterator[tuple[int, str]]:
    return ((line, text) for line, text in read_lines(path, options.encoding, bad) if text.strip())


def read_jsonl(path: str | os.PathLike[str], options: RecordOptions, bad: BadLines) -> Iterator[Record]:
    """Read JSON Lines: ``text`` or several text fields, ``labels``, optional ``id``, ``weights``, ``sample_weight``."""
    for line, text in _nonblank_lines(path, options, bad):
        try:
            record = parse_json_line(text, options, line)
        except RecordError as error:
            bad.report(line, str(error))
            continue
        options = options.after(record)
        yield record


def read_annif(path: str | os.PathLike[str], options: RecordOptions, bad: BadLines) -> Iterator[Record]:
    """Read Annif's short-text corpus format: ``text<TAB><uri> <uri>``."""
    for line, row in _nonblank_lines(path, options, bad):
        text, tab, uris = row.partition("\t")
        names = uris.split()
        if not tab:
            bad.report(line, "no tab between text and subjects")
        elif wrong := next((n for n in names if len(n) < 3 or n[0] != "<" or n[-1] != ">"), None):
            bad.report(line, f"{wrong!r} is not a subject in angle brackets")
        else:
            yield Record(text, [n[1:-1] for n in names], line=line)


def read_tsv(path: str | os.PathLike[str], options: RecordOptions, bad: BadLines) -> Iterator[Record]:
    """Read tab-separated values with a header; quotes have no special meaning."""
    rows = ((line, row.split("\t")) for line, row in _nonblank_lines(path, options, bad))
    return _from_cells(rows, options, bad)


def read_csv(path: str | os.PathLike[str], options: RecordOptions, bad: BadLines) -> Iterator[Record]:
    """Read comma-separated values with a header; quoted cells may contain line ends."""
    csv.field_size_limit(sys.maxsize)
    lines: list[int] = []  # line numbers of the current row

    def source() -> Iterator[str]:
        for number, text in read_lines(path, options.encoding, bad):
            lines.append(number)
            yield text + "\n"

    def rows() -> Iterator[tuple[int, list[str]]]:
        reader = csv.reader(source(), strict=True)
        while True:
            lines.clear()
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                bad.report(lines[0] if lines else 0, f"not valid CSV: {error}", count=max(1, len(lines)))
                continue
            if row:
                yield lines[0], row

    return _from_cells(rows(), options, bad)


def _from_cells(rows: Iterable[tuple[int, list[str]]], options: RecordOptions, bad: BadLines) -> Iterator[Record]:
    iterator = iter(rows)
    first = next(iterator, None)
    if first is None:
        return
    header = [cell.strip() for cell in first[1]]
    if len(set(header)) != len(header):
        raise DataError(f"{bad.path}:{first[0]}: the header has duplicate column names")
    wanted = options.fields or (("text",) if "text" in header else ())
    missing = [name for name in wanted if name not in header]
    if options.label_field == "labels" and "labels" not in header and ANNIF_COLUMN in header:
        options = replace(options, label_field=ANNIF_COLUMN, label_sep=" ")  # a CSV file of Annif
    if not wanted and options.label_field not in header:
        missing = ["text"]  # probably a file without a header
    if options.label_field != "labels" and options.label_field not in header:
        missing = [options.label_field]
    if missing or not any(name not in RESERVED for name in header):
        raise DataError(
            f"{bad.path}:{first[0]}: no column {', '.join(missing) or 'text'!r} in the header, the first line, which "
            f"names the columns: {', '.join(header)[:99]}"
        )
    for line, row in iterator:
        if len(row) != len(header):
            bad.report(line, f"{len(row)} cells, but the header has {len(header)}")
            continue
        cells: dict[str, Any] = dict(zip(header, row, strict=True))
        try:
            cells[options.label_field] = _cell_labels(cells.get(options.label_field, ""), options)
            if "weights" in cells:
                cells["weights"] = [_number(w) for w in _cell_list(cells["weights"], options.label_sep)] or None
            if SAMPLE_WEIGHT in cells:
                cells[SAMPLE_WEIGHT] = _number(cells[SAMPLE_WEIGHT]) if cells[SAMPLE_WEIGHT].strip() else None
            if not cells.get("id", "x"):
                del cells["id"]
            record = record_from_object(cells, options, line)
        except RecordError as error:
            bad.report(line, str(error))
            continue
        yield record


def _cell_labels(cell: str, options: RecordOptions) -> list[Any]:
    """Labels of a cell; subjects in angle brackets, as Annif writes them, lose the brackets."""
    labels = _cell_list(cell, options.label_sep)
    if options.label_field == ANNIF_COLUMN:
        return [x[1:-1] if isinstance(x, str) and x.startswith("<") and x.endswith(">") else x for x in labels]
    return labels


def _cell_list(cell: str, separator: str) -> list[Any]:
    if cell.lstrip().startswith("["):
        try:
            return _list(json.loads(cell), "labels")
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{cell[:40]!r} is not a valid JSON list: {error}") from None
    return [part.strip() for part in cell.split(separator) if part.strip()]


def _number(text: Any) -> float:
    try:
        return float(text)
    except (ValueError, TypeError):
        raise RecordError(f"weight {text!r} is not a number") from None


def read_parquet(path: str | os.PathLike[str], options: RecordOptions, bad: BadLines) -> Iterator[Record]:
    """Read Parquet with the columns of the JSON Lines format; rows are numbered from 1."""
    with needed_for(f"{bad.path}: reading Parquet", "pyarrow", "parquet"):
        import pyarrow as pa
        import pyarrow.parquet as parquet
    row = 0
    try:
        with parquet.ParquetFile(os.fspath(path)) as file:
            for batch in file.iter_batches(4096):
                for value in batch.to_pylist():
                    row += 1
                    try:
                        record = record_from_object({k: v for k, v in value.items() if v is not None}, options, row)
                    except RecordError as error:
                        bad.report(row, str(error))
                        continue
                    options = options.after(record)
                    yield record
    except pa.ArrowException as error:
        raise DataError(f"{bad.path}: not a readable Parquet file: {error}") from error
