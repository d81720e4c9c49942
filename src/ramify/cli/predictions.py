"""Files of predictions: written by ``ramify predict --out``, read by ``ramify evaluate``.

JSON Lines have an object for each sample: ``id`` (if it has one) and ``labels``, a list of ``label`` and ``score``. TSV
and CSV have a line for each predicted label; that of a sample without any has only its id. Parquet has the columns
``id``, ``labels`` and ``scores``. All of them have the names of the labels with ``--names``; JSON Lines also without
it, if the model has a label catalogue. NPZ has the scores as a CSR matrix (n × L), as `scipy.sparse.save_npz` writes
it, and ``label_names``.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from ramify.base.errors import DataError
from ramify.base.extras import needed_for
from ramify.base.ranking import Ranking
from ramify.io.files import BadLines, open_for_writing, read_lines, stem_suffix
from ramify.io.labels import LabelVocabulary
from ramify.io.writers import json_line

FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".tsv": "tsv", ".csv": "csv", ".npz": "npz", ".parquet": "parquet"}
Key = dict[str, str | int]
"""What identifies a sample: its id, its line, or nothing."""


class PredictionWriter(Protocol):
    """Writes rankings as they come."""

    def write(self, ranking: Ranking, keys: list[Key]) -> None:
        """Write the rows of a ranking."""


def prediction_format(path: str | None) -> str:
    """Format of a file of predictions by its suffix; JSON Lines on standard output and for a device."""
    if path is None or (Path(path).exists() and not Path(path).is_file()):
        return "jsonl"
    suffix = stem_suffix(path)
    if suffix and suffix not in FORMATS:
        raise DataError(
            f"{path}: predictions are not written as {suffix}; use {', '.join(dict.fromkeys(FORMATS))} (or .gz, .xz)"
        )
    return FORMATS.get(suffix, "jsonl")


@contextlib.contextmanager
def open_predictions(
    path: str | None, kind: str, language: str | None = None, *, has_names: bool = False
) -> Iterator[PredictionWriter]:
    """Open a file for predictions, None: standard output, of a model that has names for its labels or not."""
    if path is None:
        yield _Lines(sys.stdout, language)
        return
    with open_for_writing(path) as file:
        if kind in ("npz", "parquet"):
            table = _Table(language)
            yield table
            (table.save_npz if kind == "npz" else table.save_parquet)(file)
            return
        with io.TextIOWrapper(file, encoding="utf-8", write_through=True, newline="") as text:
            delimiter = "\t" if kind == "tsv" else ","
            yield _Lines(text, language) if kind == "jsonl" else _Cells(text, delimiter, language, has_names)


class _Lines:
    """JSON Lines."""

    def __init__(self, out: IO[str], language: str | None) -> None:
        self._out, self._language = out, language

    def write(self, ranking: Ranking, keys: list[Key]) -> None:
        for labels, key in zip(ranking.labels(), keys, strict=True):
            found: list[dict[str, Any]] = [{"label": label, "score": round(score, 6) + 0.0} for label, score in labels]
            if ranking.catalogue is not None:
                for entry in found:
                    entry["name"] = ranking.catalogue.display_name(entry["label"], self._language)
            self._out.write(json_line({**key, "labels": found}))
        self._out.flush()


class _Cells:
    """TSV or CSV: a line for each label of each sample."""

    def __init__(self, out: IO[str], delimiter: str, language: str | None, has_names: bool) -> None:
        self._writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
        self._language, self._has_names = language, has_names
        self._writer.writerow(["id", "rank", "label", "score", *(["name"] if has_names else [])])
        self._row = 0

    def write(self, ranking: Ranking, keys: list[Key]) -> None:
        for labels, key in zip(ranking.labels(), keys, strict=True):
            name = next(iter(key.values()), self._row)
            shown = _names(ranking, [label for label, _ in labels], self._language)
            if not labels:  # a label set may be empty; the reader must know of the sample
                self._writer.writerow([name, "", "", "", *([""] if self._has_names else [])])
            for i, (label, score) in enumerate(labels):
                self._writer.writerow([name, i + 1, label, f"{score:.6g}", *shown[i : i + 1]])
            self._row += 1


def _names(ranking: Ranking, labels: list[Any], language: str | None) -> list[str]:
    """Names of labels in a language, if the model knows names."""
    if ranking.catalogue is None:
        return []
    return [ranking.catalogue.display_name(label, language) for label in labels]


class _Table:
    """Rankings of all samples, written at the end."""

    def __init__(self, language: str | None) -> None:
        self._language = language
        self._rankings: list[Ranking] = []
        self._keys: list[Key] = []

    def write(self, ranking: Ranking, keys: list[Key]) -> None:
        self._rankings.append(ranking)
        self._keys += keys

    def _all(self) -> Ranking:
        if not self._rankings:
            raise DataError("there are no predictions to write")
        width = max(ranking.k for ranking in self._rankings)  # label sets differ in size
        return Ranking.concat([ranking.padded(width) for ranking in self._rankings])

    def save_npz(self, file: Any) -> None:
        ranking = self._all()
        scores = ranking.to_csr()
        labels = list(ranking.names or range(ranking.n_labels))
        is_int = all(type(label) is int for label in labels)
        names = np.array(labels if is_int else [str(label) for label in labels])
        parts = {name: getattr(scores, name) for name in ("data", "indices", "indptr", "shape")}
        np.savez(file, format=np.array("csr"), label_names=names, **parts)

    def save_parquet(self, file: Any) -> None:
        with needed_for("writing Parquet", "pyarrow", "parquet"):
            import pyarrow as pa
            import pyarrow.parquet as parquet
        ranking = self._all()
        rows = ranking.labels()
        columns: dict[str, Any] = {"labels": [[x for x, _ in row] for row in rows]}
        columns["scores"] = pa.array([[score for _, score in row] for row in rows], pa.list_(pa.float32()))
        if ranking.catalogue is not None:
            columns["names"] = [_names(ranking, labels, self._language) for labels in columns["labels"]]
        if any(self._keys):
            columns = {"id": [next(iter(key.values()), None) for key in self._keys], **columns}
        parquet.write_table(pa.table(columns), file)


def read_predictions(path: str) -> tuple[Ranking, list[Any] | None]:
    """Read a file of predictions; returns the ranking and the ids of its rows, if it has any."""
    kind = prediction_format(path)
    if kind == "npz":
        return _read_npz(path), None
    rows, ids = {"jsonl": _read_jsonl, "parquet": _read_parquet}.get(kind, _read_cells)(path)
    names = LabelVocabulary.of([[label for label, _ in row] for row in rows])
    if not len(names):
        raise DataError(f"{path}: no predicted labels; expected the output of ramify predict")
    k = max(1, max(len(row) for row in rows))
    found, scores = np.full((len(rows), k), -1, np.int32), np.full((len(rows), k), -np.inf, np.float32)
    for i, row in enumerate(rows):
        row.sort(key=lambda pair: -pair[1])
        found[i, : len(row)] = [names.ids[label] for label, _ in row]
        scores[i, : len(row)] = [score for _, score in row]
    return Ranking(found, scores, len(names), names), ids if any(i is not None for i in ids) else None


_Rows = tuple[list[list[tuple[Any, float]]], list[Any]]


def _read_jsonl(path: str) -> _Rows:
    rows, ids = [], []
    for number, line in read_lines(path, "utf-8", BadLines(path, skip=False)):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            rows.append([(entry["label"], float(entry["score"])) for entry in value["labels"]])
            ids.append(value.get("id"))
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{path}:{number}: not a prediction as ramify predict writes it: {error!r}") from None
    return rows, ids


def _read_cells(path: str) -> _Rows:
    lines = read_lines(path, "utf-8", BadLines(path, skip=False))
    delimiter = "\t" if stem_suffix(path) == ".tsv" else ","
    reader = csv.DictReader((line for _, line in lines), delimiter=delimiter)
    rows: dict[str, list[tuple[Any, float]]] = {}
    try:
        for cells in reader:
            row = rows.setdefault(cells["id"], [])
            if cells["label"] or cells["score"]:
                row.append((cells["label"], float(cells["score"])))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}:{reader.line_num}: expected the columns id, rank, label and score: {error}") from None
    return list(rows.values()), list(rows)


def _read_parquet(path: str) -> _Rows:
    with needed_for("reading Parquet", "pyarrow", "parquet"):
        import pyarrow.parquet as parquet
    columns = parquet.read_table(path).to_pydict()
    if not {"labels", "scores"} <= set(columns):
        raise DataError(f"{path}: expected the columns labels and scores, found {', '.join(columns)}")
    pairs = zip(columns["labels"], columns["scores"], strict=True)
    rows = [list(zip(labels, scores, strict=True)) for labels, scores in pairs]
    return rows, columns.get("id", [None] * len(rows))


def _read_npz(path: str) -> Ranking:
    from scipy import sparse

    try:
        with np.load(path, allow_pickle=False) as arrays:
            parts = [arrays[name] for name in ("data", "indices", "indptr")]
            names = arrays["label_names"].tolist()
            scores = sparse.csr_matrix(tuple(parts), shape=tuple(arrays["shape"].tolist()))
    except (KeyError, ValueError, OSError) as error:
        raise DataError(f"{path}: not a file of predictions: {error}") from error
    k = max(1, int(np.diff(scores.indptr).max(initial=1)))
    return Ranking.from_csr(scores, k, LabelVocabulary(names))
