"""Model directories as bytes: how fitted models are pickled and copied to other processes."""

from __future__ import annotations

import contextlib
import io
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path


def pack(save: Callable[[Path], None]) -> bytes:
    """Return the files that `save` writes to a directory, as an uncompressed zip archive."""
    with tempfile.TemporaryDirectory(prefix="ramify-") as temporary:
        directory = Path(temporary) / "model"
        save(directory)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
            for file in sorted(directory.iterdir()):
                archive.writestr(zipfile.ZipInfo(file.name), file.read_bytes())  # without a time: the same bytes
        return packed.getvalue()


@contextlib.contextmanager
def unpacked(packed: bytes) -> Iterator[Path]:
    """Directory with the files of `pack`, for the duration of the block; maps of its files stay valid after it."""
    with tempfile.TemporaryDirectory(prefix="ramify-") as temporary:
        directory = Path(temporary) / "model"
        directory.mkdir()
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            for name in archive.namelist():
                (directory / Path(name).name).write_bytes(archive.read(name))
        yield directory
