"""Model directories: versioned data, no code.

A directory contains `manifest.json` (format, library version, model kind, parameters, and for each file its size, hash,
dtype and shape) and one `.npy` file per array. It is written to a temporary directory next to its path, synced, and
renamed atomically.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, BinaryIO, Self, TypeVar

import numpy as np
import numpy.typing as npt

from ramify.base.errors import ModelFormatError
from ramify.base.types import AnyArray
from ramify.io.directories import StagingDirectory, remove_directory
from ramify.io.npy import map_npy

FORMAT = "ramify-model"
FORMAT_VERSION = 4
OLDEST_FORMAT_VERSION = 4
MANIFEST = "manifest.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")
_MAX_MANIFEST = 64 << 20
_MAX_REPLACED = 20  # times that a model may be replaced while it is opened
T = TypeVar("T")


class StoreWriter:
    """Writes a model directory; it appears at its path only when the `with` block ends without an error.

    >>> with StoreWriter("model") as writer:          # doctest: +SKIP
    ...     writer.array("weights", weights)
    ...     writer.manifest(kind="popular", params={}, state={})

    Unless `durable`, the system writes it to disk when it likes: a power failure may damage it.
    """

    def __init__(self, path: str | os.PathLike[str], *, durable: bool = True) -> None:
        if not os.fspath(path):
            raise ModelFormatError("the path to save to is empty")
        self._path = Path(path).resolve()
        self._files: dict[str, dict[str, Any]] = {}
        self._manifest: dict[str, Any] | None = None
        self._prefix = ""
        self._durable = durable
        if self._path.exists() and not self._path.is_dir():
            raise ModelFormatError(f"{self._path} is a file; a model is saved to a directory")
        if self._path.exists() and any(self._path.iterdir()) and not _is_model(self._path):
            raise ModelFormatError(
                f"{self._path} contains files that are not part of a model; choose another path or delete them"
            )

    def __enter__(self) -> StoreWriter:
        with self._explained():
            self._staging = StagingDirectory(self._path)
        self._temporary = self._staging.path
        return self

    @property
    def n_bytes(self) -> int:
        """Size of the arrays that were written."""
        return sum(entry["size"] for entry in self._files.values())

    def part(self, prefix: str) -> Self:
        """Return a writer to the same directory for a part of the model; it prefixes the names of its arrays."""
        part = copy.copy(self)
        part._prefix = f"{self._prefix}{prefix}"
        return part

    def array(self, name: str, array: AnyArray) -> None:
        """Write an array to `name.npy`."""
        array = np.ascontiguousarray(array)
        self._write(
            name,
            array.dtype,
            array.shape,
            lambda out: np.lib.format.write_array(out, array, version=(1, 0), allow_pickle=False),
        )

    def _write(
        self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], write: Callable[[BinaryIO], None]
    ) -> None:
        file = f"{self._prefix}{name}.npy"
        if not _NAME.fullmatch(file) or file in self._files:
            raise ValueError(f"{name!r} is not a valid name for an array or is already used")
        if dtype.hasobject or dtype.byteorder == ">":
            raise ValueError(f"arrays of dtype {dtype} cannot be stored")
        with self._explained(), (self._temporary / file).open("w+b") as out:
            write(out)
            self._sync(out)
            self._files[file] = {"size": out.tell(), "sha256": _hash(out), "dtype": dtype.str, "shape": list(shape)}

    def array_parts(self, name: str, parts: Sequence[AnyArray]) -> None:
        """Write one-dimensional arrays, such as memory-mapped ones, as a single one, without holding it in memory."""
        self.array_blocks(name, parts[0].dtype, (sum(map(len, parts)),), parts)

    def array_blocks(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], blocks: Iterable[AnyArray]) -> None:
        """Write an array of this shape whose rows come block by block, so that only one block is in memory."""
        header = {"descr": dtype.str, "fortran_order": False, "shape": shape}

        def write(out: BinaryIO) -> None:
            np.lib.format.write_array_header_1_0(out, header)
            for block in blocks:
                np.ascontiguousarray(block, dtype).tofile(out)

        self._write(name, dtype, shape, write)

    def manifest(self, kind: str, params: dict[str, Any], state: dict[str, Any]) -> None:
        """Set the content of the manifest; it is written at the end of the `with` block."""
        from ramify.version import __version__

        self._manifest = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "library_version": __version__,
            "kind": kind,
            "params": params,
            "state": state,
            "files": self._files,
        }

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None:
                return
            if self._manifest is None:
                raise ValueError("a model directory needs a manifest")
            with self._explained():
                with (self._temporary / MANIFEST).open("w", encoding="utf-8") as out:
                    json.dump(self._manifest, out, indent=1, ensure_ascii=False, allow_nan=False)
                    out.write("\n")
                    self._sync(out)
                self._staging.publish(durable=self._durable)
        finally:
            self._staging.close()

    def _sync(self, file: IO[Any]) -> None:
        file.flush()
        if self._durable:
            os.fsync(file.fileno())

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say in errors of the system, such as a full disk, what could not be written and that nothing was lost."""
        try:
            yield
        except OSError as error:
            message = f"{error.strerror or error}; {self._path} could not be saved, and is as it was before"
            raise OSError(error.errno, message) from error


class _Directory:
    """An open directory. Its files are opened relative to it, so that they are all of one model, and never links."""

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def open(self, name: str) -> BinaryIO:
        """Open a regular file for reading; raises `OSError` for anything else."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not block
        descriptor = os.open(name, flags, dir_fd=self._descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError("not a regular file")
        return os.fdopen(descriptor, "rb")

    def size(self, name: str) -> int:
        """Size of a regular file; raises `OSError` for anything else."""
        status = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        return status.st_size

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class Store:
    """An opened model directory. Arrays are memory-mapped and read-only.

    All files are checked against the manifest at once; with `lazy`, each when it is read.
    """

    def __init__(self, path: str | os.PathLike[str], *, verify: bool = False, lazy: bool = False) -> None:
        self.path = Path(path)
        self._prefix = ""
        manifest = self._read_manifest()
        self.kind: str = _typed(manifest, "kind", str)
        self.params: dict[str, Any] = _typed(manifest, "params", dict)
        self.state: dict[str, Any] = _typed(manifest, "state", dict)
        self.library_version: str = _typed(manifest, "library_version", str)
        self.files: dict[str, dict[str, Any]] = _typed(manifest, "files", dict)
        for name, entry in self.files.items():
            self._check_entry(name, entry)
            if not lazy:
                self._check_size(name)
        if verify:
            self.verify(self.files)

    def part(self, prefix: str, info: Any) -> Self:
        """View a part of the model as a model directory of its own; `info` has its kind, params and state."""
        if not isinstance(info, dict):
            raise ModelFormatError(f"the manifest of {self.path} has no valid description of the part {prefix!r}")
        part = copy.copy(self)
        part._prefix = f"{self._prefix}{prefix}"
        part.kind, part.params, part.state = (
            _typed(info, key, kind) for key, kind in (("kind", str), ("params", dict), ("state", dict))
        )
        return part

    def _read_manifest(self) -> dict[str, Any]:
        if not self.path.is_dir():
            raise ModelFormatError(f"{self.path} is not a model directory: no such directory")
        file = self.path / MANIFEST
        try:
            self._directory = _Directory(self.path)
            with self._directory.open(MANIFEST) as opened:
                size = os.fstat(opened.fileno()).st_size
                content = opened.read(min(size, _MAX_MANIFEST) + 1)
        except OSError as error:
            raise ModelFormatError(f"{self.path} is not a model directory: it has no {MANIFEST} ({error})") from error
        if len(content) > _MAX_MANIFEST:
            raise ModelFormatError(f"{file} is too large to be a manifest")
        try:
            manifest = json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise ModelFormatError(f"{file} is damaged: {error}") from error
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise ModelFormatError(f"{file} was not written by Ramify")
        version = manifest.get("format_version")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise ModelFormatError(f"{file} has no valid format version")
        if version < OLDEST_FORMAT_VERSION:
            raise ModelFormatError(
                f"{self.path} has format version {version}: it was written by an earlier development version of "
                "Ramify; train it again"
            )
        if version > FORMAT_VERSION:
            raise ModelFormatError(
                f"{self.path} has format version {version}, written by Ramify {manifest.get('library_version')}, but "
                f"this version of Ramify reads format version {FORMAT_VERSION}; upgrade Ramify"
            )
        return manifest

    def _check_entry(self, name: str, entry: Any) -> None:
        if not _NAME.fullmatch(name) or name == MANIFEST:
            raise ModelFormatError(f"the manifest lists {name!r}, which is not a plain file name")
        if not isinstance(entry, dict):
            raise ModelFormatError(f"the manifest has no valid entry for {name}")

    @contextmanager
    def _open(self, name: str) -> Iterator[BinaryIO]:
        """Open a file of the manifest that has the size which the manifest says."""
        with self._explained(name):
            file = self._directory.open(name)
        with file:
            self._compare_size(name, os.fstat(file.fileno()).st_size)
            yield file

    def _check_size(self, name: str) -> None:
        """Refuse a file that is missing, not regular, or of another size; when it is read, it is checked again."""
        with self._explained(name):
            size = self._directory.size(name)
        self._compare_size(name, size)

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise ModelFormatError(f"{self.path / name} is missing") from error
        except OSError as error:
            raise ModelFormatError(f"{self.path / name} is not a regular file (links are not followed)") from error

    def _compare_size(self, name: str, size: int) -> None:
        expected = self.files[name].get("size")
        if size != expected:
            raise ModelFormatError(f"{self.path / name} has {size} bytes, but the manifest says {expected}")

    def verify(self, names: Iterable[str]) -> None:
        """Compare files with their hashes in the manifest."""
        for name in names:
            with self._open(name) as file:
                if _hash(file) != self.files[name].get("sha256"):
                    raise ModelFormatError(f"{self.path / name} is damaged: its content does not match its hash")

    def file_of(self, name: str) -> str:
        """Return the name of the file of an array."""
        return f"{self._prefix}{name}.npy"

    def array(
        self,
        name: str,
        dtype: npt.DTypeLike,
        *,
        ndim: int | None = None,
        shape: tuple[int, ...] | None = None,
        bounds: tuple[int, int] | None = None,
    ) -> AnyArray:
        """Memory-map an array after checking dtype, shape and, with `bounds` (low, high), that low <= values < high."""
        file = self.file_of(name)
        entry = self.files.get(file)
        if entry is None:
            raise ModelFormatError(f"{self.path} has no array {name!r}")
        with self._open(file) as opened:
            array = map_npy(opened, self.path / file, entry)
        if array.dtype != np.dtype(dtype):
            raise ModelFormatError(f"{self.path / file} has dtype {array.dtype}, expected {np.dtype(dtype)}")
        if (ndim is not None and array.ndim != ndim) or (shape is not None and array.shape != shape):
            raise ModelFormatError(
                f"{self.path / file} has shape {array.shape}, expected {shape or f'{ndim} dimensions'}"
            )
        if bounds is not None and array.size and not (bounds[0] <= array.min() and array.max() < bounds[1]):
            raise ModelFormatError(f"{self.path / file} has values outside {bounds[0]} to {bounds[1] - 1}")
        return array


def read_store(path: str | os.PathLike[str], read: Callable[[Store], T], *, verify: bool = False) -> T:
    """Open a model directory and read it; once more if a save replaces it meanwhile."""
    for _ in range(_MAX_REPLACED):
        before = _identity(path)
        try:
            return read(Store(path, verify=verify))
        except ModelFormatError:
            if _identity(path) == before:
                raise
            time.sleep(0.001)
    return read(Store(path, verify=verify))


def _identity(path: str | os.PathLike[str]) -> tuple[int, int, int] | None:
    """Return what tells a directory from another one at the same path; None if there is none."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def _is_model(path: Path) -> bool:
    """Whether a directory contains a model and nothing else, so that it may be replaced."""
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        ours = manifest["format"] == FORMAT
        listed = {MANIFEST, *manifest["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return ours and {entry.name for entry in path.iterdir()} <= listed


def remove_model(path: Path) -> None:
    """Remove the files of a model directory, and the directory itself if nothing else is in it.

    A process that is killed meanwhile leaves the whole model, or none.
    """
    if _is_model(path):
        remove_directory(path)
        return
    for name in (MANIFEST, *Store(path).files):
        (path / name).unlink(missing_ok=True)


def _typed(manifest: dict[str, Any], key: str, kind: type) -> Any:
    value = manifest.get(key)
    if not isinstance(value, kind):
        raise ModelFormatError(f"the manifest has no valid {key!r}")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _hash(file: Any) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()
