"""Arrays that were computed once and lie on disk, by a digest of what they were computed from."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np


def digest_of(*parts: str) -> str:
    """Tell texts apart from others."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def cache_folder(wish: str | None) -> Path:
    """Folder of computed arrays: the wish, else RAMIFY_CACHE, else the user's."""
    folder = Path(wish or os.environ.get("RAMIFY_CACHE") or "~/.cache/ramify").expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_array(place: Path, array: Any) -> None:
    """Write an array beside its place and move it there: another process sees all of it or nothing."""
    with tempfile.NamedTemporaryFile(dir=place.parent, suffix=".npy", delete=False) as out:
        np.save(out, array, allow_pickle=False)
    Path(out.name).replace(place)
