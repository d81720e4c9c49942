"""Writing of texts with their labels: JSON Lines, TSV, CSV, Annif's short-text TSV, Parquet."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from ramify.base.errors import DataError
from ramify.base.extras import needed_for
from ramify.io.dataset import Dataset
from ramify.io.files import open_for_writing

Writer = Callable[[Dataset, BinaryIO], None]
NAMES = {"jsonl": "JSON Lines", "tsv": "TSV", "csv": "CSV", "annif": "Annif's TSV", "parquet": "Parquet"}


def json_line(value: dict[str, object]) -> str:
    """Format an object as one line of JSON Lines; lone surrogates are escaped, as UTF-8 cannot encode them."""
    line = json.dumps(value, ensure_ascii=False) + "\n"
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:
        line = json.dumps(value) + "\n"
    return line


def rows(data: Dataset) -> Iterator[dict[str, Any]]:
    """Each sample as the object that JSON Lines has: id, text or fields, labels, weights."""
    assert data.texts is not None
    for i, (text, labels) in enumerate(zip(data.texts, data.labels(), strict=True)):
        value: dict[str, Any] = {} if data.ids is None else {"id": data.ids[i]}
        value.update({"text": text} if isinstance(text, str) else text)
        value["labels"] = labels
        if data.relevance is not None:
            value["weights"] = data.relevance.data[data.relevance.indptr[i] : data.relevance.indptr[i + 1]].tolist()
        if data.sample_weight is not None:
            value["sample_weight"] = float(data.sample_weight[i])
        yield value


def write_jsonl(data: Dataset, out: BinaryIO) -> None:
    """Write JSON Lines."""
    for value in rows(data):
        out.write(json_line(value).encode("utf-8"))


def write_csv(data: Dataset, out: BinaryIO) -> None:
    """Write comma-separated values with a header; labels are separated by ``;``, or are a JSON list if unclear."""
    for cells in _cells(data):
        line = io.StringIO(newline="")
        csv.writer(line, lineterminator="\n").writerow(cells)
        out.write(line.getvalue().encode("utf-8"))


def write_tsv(data: Dataset, out: BinaryIO) -> None:
    """Write tab-separated values with a header; tabs and line ends in texts become spaces."""
    for cells in _cells(data):
        out.write(("\t".join(_one_line(cell) for cell in cells) + "\n").encode("utf-8"))


def write_annif(data: Dataset, out: BinaryIO) -> None:
    """Write Annif's short-text corpus format, ``text<TAB><uri> <uri>``."""
    for value in rows(data):
        labels = [str(label) for label in value.pop("labels")]
        wrong = next((label for label in labels if not label or any(c.isspace() or c in "<>" for c in label)), None)
        if wrong is not None:
            raise DataError(f"the label {wrong!r} is no URI: Annif's format needs labels without spaces and brackets")
        text = _one_line(" ".join(v for name, v in value.items() if name not in ("id", "weights", "sample_weight")))
        out.write(f"{text}\t{' '.join(f'<{label}>' for label in labels)}\n".encode())


def write_parquet(data: Dataset, path: str | os.PathLike[str]) -> None:
    """Write Parquet with the columns of JSON Lines; needs the extra ``parquet``."""
    with needed_for("writing Parquet", "pyarrow", "parquet"):
        import pyarrow as pa
        import pyarrow.parquet as parquet
    try:
        table = pa.Table.from_pylist(list(rows(data)))
    except pa.ArrowException as error:
        raise DataError(f"{os.fspath(path)}: Parquet needs ids and labels of one type: {error}") from error
    with open_for_writing(path) as out:
        parquet.write_table(table, out)


def _cells(data: Dataset) -> Iterator[list[str]]:
    header: list[str] = []
    for value in rows(data):
        if not header:
            header = list(value)
            yield header
        yield [_joined(cell) if isinstance(cell, list) else str(cell) for cell in value.values()]


def _joined(values: list[Any]) -> str:
    """Values separated by ``;``; a JSON list if one of them would be read differently."""
    plain = [str(value) for value in values]
    if all(isinstance(v, str) for v in values) and all(
        p == p.strip() and p and ";" not in p and not p.startswith("[") for p in plain
    ):
        return ";".join(plain)
    return json.dumps(values, ensure_ascii=False) if values else ""


def _one_line(text: str) -> str:
    return text.translate(_SPACES)


_SPACES = dict.fromkeys(map(ord, "\t\n\r"), " ")
