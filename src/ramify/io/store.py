"""Model directories: versioned data, no code.

A directory contains `manifest.json` (format, library version, model kind, parameters, and for each file its size, hash,
dtype and shape) and one `.npy` file per array. It is written to a temporary directory next to its path, synced, and
renamed atomically.
"""

from __future__ import annotations

import copy
import ctypes
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ramify.base.errors import ModelFormatError
from ramify.base.types import AnyArray

FORMAT = "ramify-model"
FORMAT_VERSION = 3
OLDEST_FORMAT_VERSION = 3
MANIFEST = "manifest.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")
_MAX_MANIFEST = 64 << 20


class StoreWriter:
    """Writes a model directory; it appears at its path only when the `with` block ends without an error.

    >>> with StoreWriter("model") as writer:          # doctest: +SKIP
    ...     writer.array("weights", weights)
    ...     writer.manifest(kind="popular", params={}, state={})
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not os.fspath(path):
            raise ModelFormatError("the path to save to is empty")
        self._path = Path(path).resolve()
        self._files: dict[str, dict[str, Any]] = {}
        self._manifest: dict[str, Any] | None = None
        self._prefix = ""
        if self._path.exists() and not self._path.is_dir():
            raise ModelFormatError(f"{self._path} is a file; a model is saved to a directory")
        if self._path.exists() and any(self._path.iterdir()) and not _is_model(self._path):
            raise ModelFormatError(
                f"{self._path} contains files that are not part of a model; choose another path or delete them"
            )

    def __enter__(self) -> StoreWriter:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._temporary = Path(tempfile.mkdtemp(prefix=f".{self._path.name}.", suffix=".saving", dir=self._path.parent))
        return self

    def part(self, prefix: str) -> Self:
        """Return a writer to the same directory for a part of the model; it prefixes the names of its arrays."""
        part = copy.copy(self)
        part._prefix = f"{self._prefix}{prefix}"
        return part

    def array(self, name: str, array: AnyArray) -> None:
        """Write an array to `name.npy`."""
        file = f"{self._prefix}{name}.npy"
        if not _NAME.fullmatch(file) or file in self._files:
            raise ValueError(f"{name!r} is not a valid name for an array or is already used")
        array = np.ascontiguousarray(array)
        if array.dtype.hasobject or array.dtype.byteorder == ">":
            raise ValueError(f"arrays of dtype {array.dtype} cannot be stored")
        with (self._temporary / file).open("wb") as out:
            np.lib.format.write_array(out, array, version=(1, 0), allow_pickle=False)
            os.fsync(out.fileno())
        self._files[file] = {
            "size": (self._temporary / file).stat().st_size,
            "sha256": _hash(self._temporary / file),
            "dtype": array.dtype.str,
            "shape": list(array.shape),
        }

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
            with (self._temporary / MANIFEST).open("w", encoding="utf-8") as out:
                json.dump(self._manifest, out, indent=1, ensure_ascii=False, allow_nan=False)
                out.write("\n")
                out.flush()
                os.fsync(out.fileno())
            self._temporary.chmod(0o777 & ~_umask())
            _sync_directory(self._temporary)
            _replace_directory(self._temporary, self._path)
            _sync_directory(self._path.parent)
        finally:
            shutil.rmtree(self._temporary, ignore_errors=True)


class Store:
    """An opened model directory. Arrays are memory-mapped and read-only."""

    def __init__(self, path: str | os.PathLike[str], *, verify: bool = False) -> None:
        self.path = Path(path)
        self._prefix = ""
        manifest = self._read_manifest()
        self.kind: str = _typed(manifest, "kind", str)
        self.params: dict[str, Any] = _typed(manifest, "params", dict)
        self.state: dict[str, Any] = _typed(manifest, "state", dict)
        self.library_version: str = _typed(manifest, "library_version", str)
        self.files: dict[str, dict[str, Any]] = _typed(manifest, "files", dict)
        for name, entry in self.files.items():
            self._check_file(name, entry)
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
        if file.is_symlink() or not file.is_file():
            raise ModelFormatError(f"{self.path} is not a model directory: it has no {MANIFEST}")
        if file.stat().st_size > _MAX_MANIFEST:
            raise ModelFormatError(f"{file} is too large to be a manifest")
        try:
            manifest = json.loads(file.read_bytes().decode("utf-8"))
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

    def _check_file(self, name: str, entry: Any) -> None:
        if not _NAME.fullmatch(name) or name == MANIFEST:
            raise ModelFormatError(f"the manifest lists {name!r}, which is not a plain file name")
        if not isinstance(entry, dict):
            raise ModelFormatError(f"the manifest has no valid entry for {name}")
        try:
            found = (self.path / name).lstat()
        except OSError as error:
            raise ModelFormatError(f"{self.path / name} is missing") from error
        if not stat.S_ISREG(found.st_mode):
            raise ModelFormatError(f"{self.path / name} is not a regular file (links are not followed)")
        if found.st_size != entry.get("size"):
            raise ModelFormatError(
                f"{self.path / name} has {found.st_size} bytes, but the manifest says {entry.get('size')}"
            )

    def verify(self, names: Iterable[str]) -> None:
        """Compare files with their hashes in the manifest."""
        for name in names:
            if _hash(self.path / name) != self.files[name].get("sha256"):
                raise ModelFormatError(f"{self.path / name} is damaged: its content does not match its hash")

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
        file = f"{self._prefix}{name}.npy"
        entry = self.files.get(file)
        if entry is None:
            raise ModelFormatError(f"{self.path} has no array {name!r}")
        array = _map_npy(self.path / file, entry)
        if array.dtype != np.dtype(dtype):
            raise ModelFormatError(f"{self.path / file} has dtype {array.dtype}, expected {np.dtype(dtype)}")
        if (ndim is not None and array.ndim != ndim) or (shape is not None and array.shape != shape):
            raise ModelFormatError(
                f"{self.path / file} has shape {array.shape}, expected {shape or f'{ndim} dimensions'}"
            )
        if bounds is not None and array.size and not (bounds[0] <= array.min() and array.max() < bounds[1]):
            raise ModelFormatError(f"{self.path / file} has values outside {bounds[0]} to {bounds[1] - 1}")
        return array


def _is_model(path: Path) -> bool:
    """Whether a directory contains a model and nothing else, so that it may be replaced."""
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        ours = manifest["format"] == FORMAT
        listed = {MANIFEST, *manifest["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return ours and {entry.name for entry in path.iterdir()} <= listed


def _map_npy(path: Path, entry: dict[str, Any]) -> AnyArray:
    """Memory-map a .npy file whose header agrees with the manifest."""
    try:
        with path.open("rb") as file:
            if np.lib.format.read_magic(file) != (1, 0):
                raise ValueError("unsupported version of the .npy format")
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file, max_header_size=10_000)
            offset, size = file.tell(), os.fstat(file.fileno()).st_size
            if fortran or dtype.hasobject or any(n < 0 for n in shape):
                raise ValueError("not a plain array")
            count = 1
            for n in shape:
                count *= n
            if offset + count * dtype.itemsize != size:
                raise ValueError(f"its header says {count} × {dtype}, but it has {size - offset} bytes of data")
            if list(shape) != entry.get("shape") or dtype.str != entry.get("dtype"):
                raise ValueError("its header does not match the manifest")
            if count == 0:
                return np.empty(shape, dtype)
            array = np.memmap(file, dtype, "r", offset, shape).view(np.ndarray)
            if not array.flags.aligned:
                raise ValueError("its data are not aligned")
            return array
    except ModelFormatError:
        raise
    except Exception as error:  # NumPy parses the header as Python syntax: damage can raise nearly anything
        raise ModelFormatError(f"{path} is damaged: {error}") from error


def _typed(manifest: dict[str, Any], key: str, kind: type) -> Any:
    value = manifest.get(key)
    if not isinstance(value, kind):
        raise ModelFormatError(f"the manifest has no valid {key!r}")
    return value


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:  # some file systems cannot sync directories
        pass
    finally:
        os.close(descriptor)


def _replace_directory(new: Path, target: Path) -> None:
    """Rename `new` to `target`; an existing directory is exchanged atomically and left at `new`."""
    if not target.exists():
        new.rename(target)
    elif not _exchange(new, target):
        # Without the system call there is a moment without a model at `target`; the old one is restored on failure.
        old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".old", dir=target.parent))
        target.rename(old / target.name)
        try:
            new.rename(target)
        except OSError:
            (old / target.name).rename(target)
            raise
        shutil.rmtree(old, ignore_errors=True)


def _exchange(a: Path, b: Path) -> bool:
    """Exchange two directories atomically; False if the system does not support it."""
    libc = ctypes.CDLL(None, use_errno=True)
    source, target = os.fsencode(a), os.fsencode(b)
    if sys.platform == "darwin" and hasattr(libc, "renamex_np"):
        return bool(libc.renamex_np(source, target, 2) == 0)
    if hasattr(libc, "renameat2"):
        at_current_directory, swap = -100, 2
        return bool(libc.renameat2(at_current_directory, source, at_current_directory, target, swap) == 0)
    return False
