"""XMC text: the format of the Extreme Classification Repository.

Either one file with the header `n d L` and lines `l1,l2 f:v f:v`, or a pair: `NAME_X_Xf.txt` with the header `n d` and
features `f:v`, and `NAME_X_Y.txt` with the header `n L` and labels `l:1`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ramify import native
from ramify.base.errors import DataError
from ramify.base.sparse import csr_from_parts
from ramify.base.threads import resolve_threads
from ramify.base.types import AnyArray, Csr, LongArray
from ramify.io.files import BadLines, decompression_errors, open_binary

CHUNK = 8 << 20
FIRST_LINE = 2
"""Line of the first sample, after the header."""


def parse_header(line: bytes) -> tuple[int, ...] | None:
    """Integers of a header line; None if the line is not a header."""
    parts = line.split()
    if len(parts) in (2, 3) and all(p.isdigit() and len(p) < 16 for p in parts):
        return tuple(int(p) for p in parts)
    return None


def pair_of(path: str | os.PathLike[str]) -> tuple[Path, Path] | None:
    """Paths (features, labels) of a pair, given either of them; None if the path is not one of a pair."""
    file = Path(path)
    for ending, other in (("_X_Xf.txt", "_X_Y.txt"), ("_X_Y.txt", "_X_Xf.txt")):
        stem, found, compression = file.name.partition(ending)
        if not found or compression not in ("", ".gz", ".xz"):
            continue
        for candidate in (compression, "", ".gz", ".xz"):
            sibling = file.with_name(f"{stem}{other}{candidate}")
            if sibling.exists():
                return (file, sibling) if ending == "_X_Xf.txt" else (sibling, file)
        raise DataError(f"{file} is one file of a pair, but {stem}{other} is missing")
    return None


def read_xmc(
    path: str | os.PathLike[str], bad: BadLines, threads: int | None = None
) -> tuple[Csr, Csr, LongArray | None]:
    """Read features (n × d), label indicator (n × L) and lines (n,), None if none was skipped, of a file or a pair.

    Feature ids are sorted, values of a repeated id summed, zeros dropped; a repeated label counts once. A line with a
    feature or label id out of range, NaN or infinity is bad.
    """
    pair = pair_of(path)
    if pair is None:
        features, labels, bad_rows = _read(path, bad, threads, with_labels=True)
        if not len(bad_rows):
            return features, labels, None
        return features, labels, _good_rows(features.shape[0], bad_rows) + FIRST_LINE
    # The lines of the files correspond: a line that is bad in one of them is skipped in both.
    parts, good, total = [], [], []
    for file in pair:
        part_bad = BadLines(file, bad.skip)
        part, _, bad_rows = _read(file, part_bad, threads, with_labels=False)
        bad.skipped += part_bad.skipped
        parts.append(part)
        total.append(part.shape[0] + len(bad_rows))
        good.append(_good_rows(part.shape[0], bad_rows))
    if total[0] != total[1]:
        raise DataError(f"{pair[0]} has {total[0]} samples, but {pair[1]} has {total[1]}")
    rows, of_features, of_labels = np.intersect1d(good[0], good[1], assume_unique=True, return_indices=True)
    bad.n_skipped += total[0] - len(of_features)
    features, labels = parts
    if bad.n_skipped:
        features, labels = features[of_features], labels[of_labels]
    labels.data[:] = 1.0
    return features, labels, rows + FIRST_LINE if bad.n_skipped else None


def _good_rows(n: int, bad_rows: LongArray) -> LongArray:
    """Indices (n,) of the n rows that were read among all rows of a file."""
    return np.setdiff1d(np.arange(n + len(bad_rows)), bad_rows, assume_unique=True)


def _read(
    path: str | os.PathLike[str], bad: BadLines, threads: int | None, with_labels: bool
) -> tuple[Csr, Csr, LongArray]:
    """Read features, labels and the row indices of skipped lines."""
    with decompression_errors(path), open_binary(path) as file:
        first = file.readline(200)
        header = parse_header(first.removeprefix(b"\xef\xbb\xbf"))
        if header is None or len(header) != (3 if with_labels else 2):
            wanted = "'samples features labels'" if with_labels else "'samples columns'"
            found = first[:60].decode("utf-8", "replace").strip()
            raise DataError(f"{bad.path}:1: expected a header {wanted}, found {found!r}")
        n, n_features, n_labels = header if with_labels else (*header, 0)
        if max(n_features, n_labels) > np.iinfo(np.int32).max:
            raise DataError(f"{bad.path}:1: more than {np.iinfo(np.int32).max:,} columns are not supported")
        parser = native.text.XmcText(n_features, n_labels, with_labels, 2, resolve_threads(threads))
        _feed(parser, file, stop_at_bad=not bad.skip)
    bad_rows = parser.bad_rows()
    n_bad = len(bad_rows)
    for line, reason in parser.bad_lines():
        bad.report(line, reason)
    bad.n_skipped += n_bad - len(parser.bad_lines())
    label_ends, labels, feature_ends, features, values = parser.finish()
    n_found = _without_trailing_blanks(n - n_bad, label_ends, feature_ends)
    if n_found + n_bad != n:
        reason = f"the header says {n} samples, but the file has {n_found + n_bad}"
        if not bad.skip:
            raise DataError(f"{bad.path}:1: {reason}")
        bad.report(1, reason, count=0)
    return (
        _matrix(values, features, feature_ends[:n_found], n_features),
        _matrix(np.ones(len(labels), np.float32), labels, label_ends[:n_found], n_labels),
        bad_rows,
    )


def _feed(parser: native.text.XmcText, file: BinaryIO, stop_at_bad: bool) -> None:
    """Pass the rest of a file to the parser in chunks; an incomplete last line is kept for the next chunk."""
    buffer = np.empty(CHUNK, np.uint8)
    filled = 0
    while not (stop_at_bad and parser.n_bad() > 0):
        if filled == len(buffer):  # a line longer than the buffer
            buffer = np.concatenate([buffer, np.empty(len(buffer), np.uint8)])
        read: int = file.readinto(buffer[filled:].data)  # type: ignore[attr-defined]
        filled += read
        if read and b"\n" not in buffer[filled - read : filled].data.tobytes():
            continue  # a long line: the parser would search all of it again
        used = parser.feed(buffer[:filled], read == 0, stop_at_bad)
        if read == 0:
            return
        buffer[: filled - used] = buffer[used:filled].copy()
        filled -= used


def _without_trailing_blanks(n: int, label_ends: AnyArray, feature_ends: AnyArray) -> int:
    """Number of rows without blank lines after the last of n samples."""
    found = len(feature_ends)
    while found > n and found > 0:
        before = (label_ends[found - 2], feature_ends[found - 2]) if found > 1 else (0, 0)
        if (label_ends[found - 1], feature_ends[found - 1]) != before:
            break
        found -= 1
    return found


def _matrix(data: AnyArray, indices: AnyArray, ends: AnyArray, n_columns: int) -> Csr:
    indptr = np.zeros(len(ends) + 1, np.int32 if len(indices) <= np.iinfo(np.int32).max else np.int64)
    indptr[1:] = ends
    return csr_from_parts(data, indices, indptr, (len(ends), n_columns))


def write_xmc(file: BinaryIO, features: Csr, labels: Csr) -> None:
    """Write features (n × d) and labels (n × L) in the one-file format to a binary file."""
    write = file.write
    write(f"{features.shape[0]} {features.shape[1]} {labels.shape[1]}\n".encode())
    for row in range(features.shape[0]):
        a, b = features.indptr[row], features.indptr[row + 1]
        label_ids = ",".join(map(str, labels.indices[labels.indptr[row] : labels.indptr[row + 1]].tolist()))
        pairs = zip(features.indices[a:b].tolist(), features.data[a:b], strict=True)
        write(f"{label_ids} {' '.join(f'{f}:{v}' for f, v in pairs)}\n".encode())
