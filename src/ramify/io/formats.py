"""Read and write data files; the format is detected by content and name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ramify.base.errors import DataError
from ramify.base.progress import progress
from ramify.base.sparse import csr_from_parts, indicator_from_lists
from ramify.base.types import Csr, FloatArray, Label
from ramify.io.dataset import Dataset
from ramify.io.files import BadLines, decompression_errors, open_binary, open_for_writing, read_lines, stem_suffix
from ramify.io.labels import LabelVocabulary
from ramify.io.npz import read_npz, write_npz
from ramify.io.records import (
    Reader,
    Record,
    RecordOptions,
    read_annif,
    read_csv,
    read_jsonl,
    read_parquet,
    read_tsv,
)
from ramify.io.writers import NAMES, Writer, write_annif, write_csv, write_jsonl, write_parquet, write_tsv
from ramify.io.xmc import pair_of, parse_header, read_xmc, write_xmc

RECORD_READERS: dict[str, Reader] = {
    "jsonl": read_jsonl,
    "tsv": read_tsv,
    "csv": read_csv,
    "annif": read_annif,
    "parquet": read_parquet,
}
FORMATS = (*RECORD_READERS, "xmc", "npz")
_SAMPLED_LINES = 50  # that decide whether a file is Annif's
_MAX_ID_DIGITS = 10  # there are fewer labels than numbers of so many digits


def detect_format(path: str | os.PathLike[str]) -> str:
    """Detect the format of a file by its content, and by its name where the content is ambiguous."""
    with decompression_errors(path), open_binary(path) as file:
        head = file.read(1 << 16)
    head = head.removeprefix(b"\xef\xbb\xbf")
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"PK"):
        return "npz"
    first = next((line for line in head.splitlines() if line.strip()), b"")
    if first.lstrip().startswith(b"{"):
        return "jsonl"
    if parse_header(head.partition(b"\n")[0]) is not None or pair_of(path) is not None:
        return "xmc"
    if first.lstrip().startswith(b"["):
        raise DataError(f"{os.fspath(path)}: JSON arrays are not supported; write one object per line")
    suffix = stem_suffix(path)
    if b"\t" in first:
        return "annif" if _is_annif(head) else "tsv"
    if suffix in (".csv", ".tsv", ".jsonl", ".ndjson"):
        return {".ndjson": "jsonl"}.get(suffix, suffix[1:])
    if b"," in first and b"text" in first:
        return "csv"
    if not first:
        raise DataError(f"{os.fspath(path)}: the file is empty")
    raise DataError(f"{os.fspath(path)}: unknown format; supported: {', '.join(FORMATS)}, each plain, .gz or .xz")


def _is_annif(head: bytes) -> bool:
    """Whether lines have the form ``text<TAB><uri> <uri>``; a text without subjects does not decide."""
    is_annif = False
    for line in [line for line in head.splitlines() if line.strip()][:_SAMPLED_LINES]:
        _, tab, after = line.partition(b"\t")
        subjects = after.split()
        if not tab or not all(uri.startswith(b"<") and uri.endswith(b">") for uri in subjects):
            return is_annif and line == head.splitlines()[-1]  # the last line may be cut
        is_annif = is_annif or bool(subjects)
    return is_annif


def iter_records(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    options: RecordOptions | None = None,
    bad: BadLines | None = None,
) -> Iterator[Record]:
    """Iterate over the records of a text file."""
    found = format or detect_format(path)
    if found not in RECORD_READERS:
        raise DataError(f"{os.fspath(path)} ({found}) contains features, not texts")
    return RECORD_READERS[found](path, options or RecordOptions(), bad or BadLines(path, skip=False))


def read(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    fields: Sequence[str] | None = None,
    label_sep: str = ";",
    label_field: str = "labels",
    encoding: str = "utf-8",
    label_names: Sequence[Label] | None = None,
    skip_bad: bool = False,
    threads: int | None = None,
    verbose: int = 0,
) -> Dataset:
    """Read a data file.

    Parameters
    ----------
    path : plain or compressed file; either file of a split XMC pair or of an X/Y pair of .npz files, or X alone
    format : one of `FORMATS`; None: detected
    fields : text fields to read, in this order; None: ``text`` if present, else every field with a string
    label_sep : separator of labels in TSV and CSV cells
    label_field : field or column of the labels
    encoding : encoding of text files
    label_names : names of the labels, for files with label ids
    skip_bad : skip and count bad lines instead of raising `DataError` at the first
    threads : threads to use; None: RAMIFY_THREADS or all cores
    verbose : 1 shows a progress bar on a terminal
    """
    found = format or detect_format(path)
    if found not in FORMATS:
        raise DataError(f"unknown format {found!r}; supported: {', '.join(FORMATS)}")
    bad = BadLines(path, skip_bad)
    name = Path(path).name
    if found == "npz":
        features, labels, names = read_npz(path)
        return Dataset(labels, _named(names, label_names), X=features, name=name)
    if found == "xmc":
        features, labels, lines = read_xmc(path, bad, threads)
        names = _named(LabelVocabulary(range(labels.shape[1])), label_names)
        return Dataset(
            labels, names, X=features, lines=lines, n_skipped=bad.n_skipped, skipped=tuple(bad.skipped), name=name
        )
    options = RecordOptions(tuple(fields) if fields else None, label_sep, encoding, label_field)
    records = []
    with progress(f"reading {name}", None, verbose, "records") as advance:
        for record in RECORD_READERS[found](path, options, bad):
            records.append(record)
            advance(1)
    return _dataset(records, bad, name, label_names)


def _dataset(records: list[Record], bad: BadLines, name: str, label_names: Sequence[Label] | None) -> Dataset:
    if not records:
        raise DataError(f"{bad.path}: no records" + (f"; {bad.n_skipped} bad lines skipped" if bad.n_skipped else ""))
    texts = [r.text for r in records]
    if isinstance(texts[0], dict) or any(isinstance(t, dict) for t in texts):
        names = list(dict.fromkeys(k for t in texts if isinstance(t, dict) for k in t))
        texts = [
            {k: t.get(k, "") for k in names} if isinstance(t, dict) else {**dict.fromkeys(names, ""), "text": t}
            for t in texts
        ]
    rows = [r.labels for r in records]
    if label_names is None:
        vocabulary = LabelVocabulary.of(rows)
        ids = [[vocabulary.ids[label] for label in row] for row in rows]
    else:
        vocabulary = LabelVocabulary(label_names)
        ids = [[_label_id(label, len(vocabulary)) for label in row] for row in rows]
        for record, row in zip(records, ids, strict=True):
            if -1 in row:
                wrong = record.labels[row.index(-1)]
                raise DataError(
                    f"{bad.path}:{record.line}: label {wrong!r} is not an id of the {len(vocabulary)} label names"
                )
    matrix = indicator_from_lists(ids, len(vocabulary))
    return Dataset(
        matrix,
        vocabulary,
        texts=texts,
        relevance=_relevance(records, ids, matrix) if any(r.weights for r in records) else None,
        sample_weight=_sample_weights(records),
        ids=[r.id if r.id is not None else str(i) for i, r in enumerate(records)]
        if any(r.id is not None for r in records)
        else None,
        lines=np.array([r.line for r in records], np.int64) if bad.n_skipped else None,
        n_skipped=bad.n_skipped,
        skipped=tuple(bad.skipped),
        name=name,
    )


def _sample_weights(records: list[Record]) -> FloatArray | None:
    """Weights (n,) of the samples, 1 for records without one; None if no record has one."""
    if all(r.sample_weight is None for r in records):
        return None
    return np.array([1.0 if r.sample_weight is None else r.sample_weight for r in records], np.float32)


def _label_id(label: Label, n_labels: int) -> int:
    """Return a label that is an id, in a cell of a table also as text; -1 for anything else."""
    if isinstance(label, str) and label.isdecimal() and len(label) <= _MAX_ID_DIGITS:
        label = int(label)
    return label if isinstance(label, int) and 0 <= label < n_labels else -1


def _relevance(records: list[Record], ids: list[list[int]], matrix: Csr) -> Csr:
    """Weights in the pattern of the indicator: 1 for records without weights, the maximum for a repeated label."""
    data: list[float] = []
    for record, row in zip(records, ids, strict=True):
        weight: dict[int, float] = {}
        for label, w in zip(row, record.weights or [1.0] * len(row), strict=True):
            weight[label] = max(w, weight.get(label, 0.0))
        data.extend(weight[label] for label in sorted(weight))
    return csr_from_parts(np.array(data, np.float32), matrix.indices, matrix.indptr, matrix.shape)


def _named(vocabulary: LabelVocabulary, names: Sequence[Label] | None) -> LabelVocabulary:
    if names is None:
        return vocabulary
    if len(names) != len(vocabulary):
        raise DataError(f"{len(names)} label names for {len(vocabulary)} labels")
    return LabelVocabulary(names)


def read_label_names(path: str | os.PathLike[str]) -> list[str]:
    """Read label names, one per line in the order of the ids. The id is appended to a repeated name."""
    names: list[str] = []
    taken: set[str] = set()
    for _, name in read_lines(path, "utf-8", BadLines(path, skip=False)):
        while name in taken:
            name += f" ({len(names)})"
        names.append(name)
        taken.add(name)
    return names


WRITERS: dict[str, Writer] = {"jsonl": write_jsonl, "tsv": write_tsv, "csv": write_csv, "annif": write_annif}
SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".tsv": "tsv",
    ".csv": "csv",
    ".annif": "annif",
    ".parquet": "parquet",
    ".txt": "xmc",
    ".svm": "xmc",
    ".npz": "npz",
}


def write(data: Dataset, path: str | os.PathLike[str], *, format: str | None = None) -> None:
    """Write a data set; the format is given, or by the suffix of the path.

    Texts are written as JSON Lines (.jsonl), TSV, CSV, Parquet, or Annif's short-text TSV (format "annif", or .annif);
    features as XMC text (.txt, .svm) or NPZ (.npz).
    """
    found = format or SUFFIXES.get(stem_suffix(path))
    if found not in FORMATS:
        raise DataError(
            f"{os.fspath(path)}: the suffix names no format; use .jsonl, .tsv, .csv, .parquet or .annif for texts, "
            ".txt (XMC text) or .npz for features"
        )
    if found not in ("xmc", "npz"):
        if data.texts is None:
            raise DataError(
                f"feature vectors cannot be written as {NAMES.get(found, found)}; use .txt (XMC text) or .npz"
            )
        if found == "parquet":
            write_parquet(data, path)
            return
        with open_for_writing(path) as out:
            WRITERS[found](data, out)
        return
    if data.X is None:
        raise DataError("texts cannot be written as a matrix; extract features first")
    if found == "npz":
        write_npz(path, data.X, data.Y, data.label_names)
        return
    if isinstance(data.X, np.ndarray):
        raise DataError("dense features cannot be written as XMC text; use .npz")
    with open_for_writing(path) as out:
        write_xmc(out, data.X, data.Y)
