"""Opening plain and compressed files, and what happens to bad lines."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import lzma
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from ramify.base.errors import DataError
from ramify.io.dataset import SkippedLine

MAX_REMEMBERED = 100


class BadLines:
    """Decides about bad lines: the first one is an error, or all are counted and left out."""

    def __init__(self, path: str | os.PathLike[str], skip: bool) -> None:
        self.path = os.fspath(path)
        self.skip = skip
        self.n_skipped = 0
        self.skipped: list[SkippedLine] = []

    def report(self, line: int, reason: str, count: int = 1) -> None:
        """Raise `DataError` with file, line and reason, or remember it."""
        if not self.skip:
            raise DataError(f"{self.path}:{line}: {reason}")
        self.n_skipped += count
        if len(self.skipped) < MAX_REMEMBERED:
            self.skipped.append(SkippedLine(line, reason))


def open_binary(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a plain, gzip or xz file, by its first bytes and not by its name."""
    file = Path(path)
    if not file.exists():
        raise DataError(f"{file}: there is no such file")
    if file.is_dir():
        raise DataError(f"{file} is a directory, not a data file")
    with file.open("rb") as raw:
        magic = raw.read(6)
    if magic.startswith(b"\x1f\x8b"):
        return cast(BinaryIO, gzip.open(file, "rb"))
    if magic == b"\xfd7zXZ\x00":
        return cast(BinaryIO, lzma.open(file, "rb"))
    return file.open("rb")


@contextlib.contextmanager
def named_damage(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what decompressors raise on a damaged file into a `DataError` that names the file."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{os.fspath(path)}: the compressed file is damaged or cut off: {error}") from error


@contextlib.contextmanager
def open_for_writing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing, compressed if its name ends in .gz or .xz; it takes its place only when it is whole."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file if file.exists() and not file.is_file() else file.with_name(f".{file.name}.part")  # a device: as it is
    try:
        with part.open("wb") as raw:
            if file.suffix == ".gz":
                with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:  # no name, no time: same data, same bytes
                    yield cast(BinaryIO, packed)
            elif file.suffix == ".xz":
                with lzma.open(raw, "wb") as packed_xz:
                    yield cast(BinaryIO, packed_xz)
            else:
                yield raw
        if part != file:
            part.replace(file)
    except BaseException:
        if part != file:
            part.unlink(missing_ok=True)
        raise


def stem_suffix(path: str | os.PathLike[str]) -> str:
    """Name ending without .gz or .xz, in lower case: ".jsonl" for "a.jsonl.xz"."""
    file = Path(path)
    if file.suffix.lower() in (".gz", ".xz"):
        file = file.with_suffix("")
    return file.suffix.lower()


def check_encoding(encoding: str) -> None:
    """Refuse encodings that Python does not know, and those whose line ends are not the byte 10."""
    try:
        name = codecs.lookup(encoding).name
    except LookupError:
        raise DataError(f"unknown encoding {encoding!r}") from None
    if name.startswith(("utf-16", "utf-32")):
        raise DataError(f"{encoding} files cannot be read line by line; convert the file to UTF-8")


def read_lines(path: str | os.PathLike[str], encoding: str, bad: BadLines) -> Iterator[tuple[int, str]]:
    """Lines with their numbers from 1, without line ends. A line that is not in the encoding is bad."""
    check_encoding(encoding)
    with named_damage(bad.path), open_binary(path) as file:
        for number, raw in enumerate(file, 1):
            line = _check_mark(raw, bad.path) if number == 1 else raw
            line = line.rstrip(b"\r\n")
            try:
                text = line.decode(encoding)
            except UnicodeDecodeError as error:
                bad.report(number, describe_decoding(error, line, encoding))
                continue
            yield number, text


def describe_decoding(error: UnicodeDecodeError, line: bytes, encoding: str) -> str:
    """Why a line is not in its encoding."""
    where = f"byte 0x{line[error.start]:02x} in column {error.start + 1}"
    return f"not {encoding}: {where}; convert the file or name its encoding"


def _check_mark(line: bytes, path: str) -> bytes:
    """Drop a UTF-8 byte order mark; refuse those of encodings that are not read."""
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)):
        raise DataError(f"{path}: the file is UTF-16 or UTF-32; convert it to UTF-8")
    return line.removeprefix(codecs.BOM_UTF8)
