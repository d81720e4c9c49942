"""Small model directories, and damage to them that sizes do not betray."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ramify.io.store import MANIFEST, StoreWriter

ARRAY = np.arange(12, dtype=np.int32).reshape(3, 4)


def write_store(path: Path, array: np.ndarray = ARRAY, state: dict[str, Any] | None = None) -> None:
    """Write a directory with one array."""
    with StoreWriter(path) as writer:
        writer.array("a", array)
        writer.manifest("x", {"p": 1}, state or {})


def edit_manifest(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest of a model directory."""
    manifest = json.loads((path / MANIFEST).read_text())
    change(manifest)
    (path / MANIFEST).write_text(json.dumps(manifest))


def change_array(directory: Path, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Replace an array of a model directory; the manifest has the size of the new file."""
    file = directory / f"{name}.npy"
    np.save(file, change(np.load(file)))
    edit_manifest(directory, lambda manifest: manifest["files"][file.name].update(size=file.stat().st_size))
