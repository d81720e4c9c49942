"""Disk cache for embeddings and tokens, keyed by a digest of what they were computed from."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import numpy as np

from ramify.base.types import AnyArray


def digest_of(*parts: str) -> str:
    """Hash a sequence of strings."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def cache_directory(path: str | None) -> Path:
    """Return the cache directory: the given one, else RAMIFY_CACHE, else ~/.cache/ramify."""
    directory = Path(path or os.environ.get("RAMIFY_CACHE") or "~/.cache/ramify").expanduser()
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def write_array(path: Path, array: AnyArray) -> None:
    """Write an array atomically: another process sees all of it or nothing."""
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".npy", delete=False) as out:
        np.save(out, array, allow_pickle=False)
    Path(out.name).replace(path)
