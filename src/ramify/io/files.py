"""Plain and compressed files: opening, reading line by line, handling of bad lines."""

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

MAX_RECORDED = 100


class BadLines:
    """Policy for bad lines of a file: raise at the first one, or skip and count them."""

    def __init__(self, path: str | os.PathLike[str], skip: bool) -> None:
        self.path = os.fspath(path)
        self.skip = skip
        self.n_skipped = 0
        self.skipped: list[SkippedLine] = []

    def report(self, line: int, reason: str, count: int = 1) -> None:
        """Raise `DataError` with path, line and reason; or, if bad lines are skipped, record it."""
        if not self.skip:
            raise DataError(f"{self.path}:{line}: {reason}")
        self.n_skipped += count
        if len(self.skipped) < MAX_RECORDED:
            self.skipped.append(SkippedLine(line, reason))


def open_binary(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a plain, gzip or xz file for reading; the compression is detected by content, not by name."""
    file = Path(path)
    if not file.exists():
        raise DataError(f"{file}: no such file")
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
def decompression_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Convert errors of the decompressors within the block into a `DataError` with the path."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{os.fspath(path)}: the compressed file is damaged or truncated: {error}") from error


@contextlib.contextmanager
def open_for_writing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing, compressed if its name ends in .gz or .xz; it appears at `path` only when complete."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    is_device = file.exists() and not file.is_file()  # such as /dev/stdout: written directly
    part = file if is_device else file.with_name(f".{file.name}.part")
    try:
        with part.open("wb") as raw:
            if file.suffix == ".gz":
                with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:  # reproducible: no name, no time
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
    """Lower-case suffix of a path, ignoring .gz and .xz: ".jsonl" for "a.jsonl.xz"."""
    file = Path(path)
    if file.suffix.lower() in (".gz", ".xz"):
        file = file.with_suffix("")
    return file.suffix.lower()


def check_encoding(encoding: str) -> None:
    """Raise `DataError` for unknown encodings and for those whose line ends are not the single byte 10."""
    try:
        name = codecs.lookup(encoding).name
    except LookupError:
        raise DataError(f"unknown encoding {encoding!r}") from None
    if name.startswith(("utf-16", "utf-32")):
        raise DataError(f"{encoding} is not supported; convert the file to UTF-8")


def read_lines(path: str | os.PathLike[str], encoding: str, bad: BadLines) -> Iterator[tuple[int, str]]:
    """Yield line numbers (from 1) and lines without line ends. A line that cannot be decoded is bad."""
    check_encoding(encoding)
    with decompression_errors(bad.path), open_binary(path) as file:
        for number, raw in enumerate(file, 1):
            line = _strip_bom(raw, bad.path) if number == 1 else raw
            line = line.rstrip(b"\r\n")
            try:
                text = line.decode(encoding)
            except UnicodeDecodeError as error:
                bad.report(number, describe_decode_error(error, line, encoding))
                continue
            yield number, text


def describe_decode_error(error: UnicodeDecodeError, line: bytes, encoding: str) -> str:
    """Explain why a line cannot be decoded."""
    location = f"byte 0x{line[error.start]:02x} in column {error.start + 1}"
    return f"not {encoding}: {location}; convert the file or specify its encoding"


def _strip_bom(line: bytes, path: str) -> bytes:
    """Strip a UTF-8 byte order mark; raise `DataError` for those of other encodings."""
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)):
        raise DataError(f"{path}: the file is UTF-16 or UTF-32; convert it to UTF-8")
    return line.removeprefix(codecs.BOM_UTF8)
