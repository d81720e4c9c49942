"""Tasks that read data files: texts and labels as arrays, the vocabulary of the labels, the indicator Y by rows.

A data file is read by one task. Later tasks take blocks of its rows, so that a large file is worked on by many.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ramify import native
from ramify.base.errors import DataError
from ramify.base.sparse import csr_from_parts, indptr_from_counts, normalize_rows, pattern
from ramify.base.threads import resolve_threads
from ramify.base.types import AnyArray, Csr, Label, LongArray
from ramify.distributed.task import Job, Shard
from ramify.io.dataset import Dataset
from ramify.io.files import BadLines
from ramify.io.formats import RECORD_READERS, detect_format, iter_records, read
from ramify.io.labels import LabelVocabulary
from ramify.io.records import RecordOptions


def digest(job: Job) -> dict[str, Any]:
    """Return the hash of a data file, so that tasks depend on its content and not on its name."""
    with Path(job.paths[0]).open("rb") as file:
        return {"sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def read_file(job: Job) -> dict[str, Any]:
    """Texts or features, and labels, of a data file."""
    path, options = job.paths[0], dict(job.params["options"])
    found, skip_bad = options.pop("format", None) or detect_format(path), options.pop("skip_bad", False)
    if found not in RECORD_READERS:
        return _write_features(job, read(path, format=found, skip_bad=skip_bad))
    fields = options.pop("fields", None)
    bad = BadLines(path, skip_bad)
    record_options = RecordOptions(fields=tuple(fields) if fields else None, **options)
    texts: list[Any] = []
    seen: dict[Label, int] = {}
    ids: list[int] = []
    weights: list[float] = []
    is_graded = has_sample_weights = False
    counts: list[int] = []
    keys: list[str | int | None] = []
    for record in iter_records(path, format=found, options=record_options, bad=bad):
        texts.append(record.text)
        keys.append(record.id)
        row: dict[int, float] = {}
        for label, weight in zip(record.labels, record.weights or [1.0] * len(record.labels), strict=True):
            i = seen.setdefault(label, len(seen))
            row[i] = max(weight, row.get(i, 0.0))
        ids.extend(row)
        weights.extend(row.values())
        counts.append(len(row))
        is_graded = is_graded or bool(record.weights)
        has_sample_weights = has_sample_weights or record.sample_weight is not None
    if not texts:
        raise DataError(f"{path}: no records")
    names = list(dict.fromkeys(name for text in texts if isinstance(text, dict) for name in text))
    columns = names or [""]
    if names and any(isinstance(text, str) for text in texts) and "text" not in names:
        columns = [*names, "text"]
    encoded = [part.encode("utf-8", "surrogatepass") for text in texts for part in _columns(text, columns)]
    job.writer.array("text_bytes", np.frombuffer(b"".join(encoded), np.uint8))
    job.writer.array("text_offsets", indptr_from_counts([len(part) for part in encoded]))
    _write_labels(job, np.array(ids, np.int32), indptr_from_counts(counts), weights if is_graded else None)
    labels = LabelVocabulary(seen).save(job.writer)
    has_keys = any(key is not None for key in keys)
    if has_keys:
        job.writer.array("keys", np.frombuffer(json.dumps(keys).encode(), np.uint8))
    return {
        "kind": "fields" if names else "text",
        "n": len(texts),
        "columns": columns if names else None,
        "labels": labels,
        "is_graded": is_graded,
        "has_sample_weights": has_sample_weights,
        "n_skipped": bad.n_skipped,
        "has_keys": has_keys,
    }


def _columns(text: Any, columns: Sequence[str]) -> list[str]:
    if isinstance(text, dict):
        return [text.get(name, "") for name in columns]
    return [text if name in ("", "text") else "" for name in columns]


def _write_labels(job: Job, ids: AnyArray, indptr: AnyArray, weights: AnyArray | list[float] | None) -> None:
    """Labels of all rows, with their weights if they have some."""
    job.writer.array("label_ids", ids.astype(np.int32, copy=False))
    job.writer.array("label_indptr", indptr.astype(np.int64, copy=False))
    if weights is not None:
        job.writer.array("label_weights", np.asarray(weights, np.float32))


def _write_features(job: Job, data: Dataset) -> dict[str, Any]:
    X: Any = data.X  # sparse: `read_files` refuses others
    job.write_csr("X", X)
    weights = None if data.relevance is None else data.relevance.data
    _write_labels(job, data.Y.indices, data.Y.indptr, weights)
    labels = data.label_names.save(job.writer)
    return {
        "kind": "sparse",
        "n": len(data),
        "n_features": int(X.shape[1]),
        "labels": labels,
        "is_graded": weights is not None,
        "has_sample_weights": data.sample_weight is not None,
        "n_skipped": data.n_skipped,
    }


def labels_of(shard: Shard, begin: int, end: int) -> list[list[Label]]:
    """Labels of some rows of a file."""
    vocabulary = LabelVocabulary.load(shard.store, shard.result["labels"], may_be_empty=True)
    indptr = shard.array("label_indptr")[begin : end + 1]
    ids = shard.array("label_ids")[int(indptr[0]) : int(indptr[-1])].tolist()
    ends = (indptr - indptr[0]).tolist()
    return [[vocabulary[i] for i in ids[a:b]] for a, b in itertools.pairwise(ends)]


def keys_of(shard: Shard) -> list[Any] | None:
    """Ids of the samples of a file; None if it has none."""
    return json.loads(shard.array("keys").tobytes()) if shard.result.get("has_keys") else None


class Block(NamedTuple):
    """Rows of a data file.

    Attributes
    ----------
    file : index of the file
    begin, end : rows of the file
    first : index of the first row among those of all files
    """

    file: int
    begin: int
    end: int
    first: int


def make_blocks(sizes: Sequence[int], rows_per_block: int) -> list[Block]:
    """Divide files with these numbers of rows into blocks of nearly the same size, in order."""
    blocks, first = [], 0
    for file, n in enumerate(sizes):
        bounds = np.linspace(0, n, -(-n // rows_per_block) + 1).astype(int).tolist()
        for begin, end in itertools.pairwise(bounds):
            blocks.append(Block(file, begin, end, first + begin))
        first += n
    return blocks


def group_blocks(blocks: Sequence[Block], n_rows: int) -> list[list[int]]:
    """Indices of blocks that follow each other, grouped so that a group of several has at most so many rows."""
    groups: list[list[int]] = []
    size = n_rows
    for i, block in enumerate(blocks):
        size += block.end - block.begin
        if size > n_rows:
            groups.append([])
            size = block.end - block.begin
        groups[-1].append(i)
    return groups


def documents(shard: Shard, begin: int, end: int, names: Sequence[str] | None, step: int = 1) -> list[Any]:
    """Texts of some rows of a file, one of `step`; with the names of all text fields, dicts of them."""
    columns: list[str] = shard.result["columns"] or [""]
    width = len(columns)
    offsets = shard.array("text_offsets")
    texts = shard.array("text_bytes")
    parts = []
    for first, last in [(begin, end)] if step == 1 else [(row, row + 1) for row in range(begin, end, step)]:
        ends = offsets[first * width : last * width + 1].tolist()
        content = texts[ends[0] : ends[-1]].tobytes()
        parts += [
            content[a - ends[0] : b - ends[0]].decode("utf-8", "surrogatepass") for a, b in itertools.pairwise(ends)
        ]
    if names is None:
        return parts
    columns = ["text"] if columns == [""] else columns
    empty = dict.fromkeys(names, "")
    return [{**empty, **dict(zip(columns, parts[i : i + width], strict=True))} for i in range(0, len(parts), width)]


def merge_labels(job: Job) -> dict[str, Any]:
    """Vocabulary of the labels of all files, and of each file of texts the ids of its labels."""
    files = job.inputs["files"]
    vocabularies = [LabelVocabulary.load(file.store, file.result["labels"], may_be_empty=True) for file in files]
    if files[0].result["kind"] == "sparse":  # labels are columns, the same of all files
        for file, vocabulary in zip(files, vocabularies, strict=True):
            if file.result["n_features"] != files[0].result["n_features"] or vocabulary != vocabularies[0]:
                raise DataError("the files differ in their numbers of features, or in their labels")
        merged = vocabularies[0]
    else:
        merged = LabelVocabulary.of(vocabularies)
        for i, vocabulary in enumerate(vocabularies):
            job.writer.array(f"map{i}", np.array([merged.ids[label] for label in vocabulary], np.int32))
    return {"labels": merged.save(job.writer), "n_labels": len(merged)}


def encode_labels(job: Job) -> dict[str, Any]:
    """Y (rows × L) of a block, with the weights of the labels, and what PIFA multiplies with X.

    The latter are the rows of Yᵀ without weights, each sample with norm 1.
    """
    file, labels = job.inputs["file"][0], job.inputs["labels"][0]
    begin, end = job.params["begin"], job.params["end"]
    indptr = file.array("label_indptr")[begin : end + 1]
    entries = slice(int(indptr[0]), int(indptr[-1]))
    ids = file.array("label_ids")[entries]
    weights = file.array("label_weights")[entries] if file.result["is_graded"] else np.ones(len(ids), np.float32)
    if file.result["kind"] != "sparse":
        ids = labels.array(f"map{job.params['file']}")[ids]
    shape = (end - begin, labels.result["n_labels"])
    Y = csr_from_parts(np.array(weights), ids, (indptr - indptr[0]).astype(np.int32), shape)
    Y.sort_indices()
    job.write_csr("Y", Y)
    job.write_rows("by_label", normalize_rows(pattern(Y)).T.tocsr())
    return {"n_entries": int(Y.nnz)}


def take_rows(shards: Sequence[Shard], first_rows: Sequence[int], rows: LongArray | None, n_features: int) -> Csr:
    """Rows of X, ascending, from the shards of its blocks; None: all. Only the rows that are needed are read."""
    bounds = [*first_rows, np.iinfo(np.int64).max]
    if rows is None:
        rows = np.arange(first_rows[-1] + shards[-1].result["n"], dtype=np.int64)
    n_rows = np.diff(np.searchsorted(rows, bounds))
    needed = np.flatnonzero(n_rows)
    if not len(needed):
        return sparse.csr_matrix((0, n_features), dtype=np.float32)
    parts = [shards[i].csr("X", int(n_rows[i])) for i in needed.tolist()]
    # The rows of the blocks that are needed, as if there were no others.
    begins = indptr_from_counts([part.shape[0] for part in parts])[:-1]
    firsts = np.asarray(first_rows, np.int64)[needed]
    rows = rows + (begins - firsts)[np.searchsorted(firsts, rows, side="right") - 1]
    return native.matrix.take_rows(parts, rows, resolve_threads(None))
