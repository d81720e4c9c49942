"""Disk cache for embeddings and tokens, keyed by a digest of what they were computed from.

An entry is a directory like that of a model, with hashes. Entries that are damaged or belong to another user are
computed again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ramify.base.errors import ModelFormatError
from ramify.base.types import AnyArray
from ramify.io.store import Store, StoreWriter

KIND = "cache"
Arrays = dict[str, AnyArray]


def digest_of(*parts: str) -> str:
    """Hash a sequence of strings."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def cache_directory(path: str | None) -> Path:
    """Return the cache directory, private to its owner: the given one, else RAMIFY_CACHE, else ~/.cache/ramify."""
    directory = Path(path or os.environ.get("RAMIFY_CACHE") or "~/.cache/ramify").expanduser()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return directory


def cached(path: Path, compute: Callable[[], Arrays], is_valid: Callable[[Arrays], bool]) -> Arrays:
    """Return the arrays of a cache entry, memory-mapped; compute and store them if there is no valid entry."""
    found = _read(path, is_valid)
    if found is not None:
        return found
    arrays = compute()
    try:
        if path.exists() or path.is_symlink():  # damaged
            path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path)
        with StoreWriter(path) as writer:
            for name, array in arrays.items():
                writer.array(name, array)
            writer.manifest(KIND, {}, {})
    except OSError:  # a full disk, or a directory of somebody else: the cache only saves time
        return arrays
    return _read(path, is_valid) or arrays


def _read(path: Path, is_valid: Callable[[Arrays], bool]) -> Arrays | None:
    try:
        if path.is_symlink() or path.stat().st_uid != os.geteuid():
            return None
        store = Store(path, verify=True)
        arrays = {
            file.removesuffix(".npy"): store.array(file.removesuffix(".npy"), str(entry.get("dtype")))
            for file, entry in store.files.items()
        }
    except (OSError, ModelFormatError, ValueError, TypeError):
        return None
    return arrays if store.kind == KIND and is_valid(arrays) else None
