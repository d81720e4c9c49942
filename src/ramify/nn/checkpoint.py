"""Checkpoints: the state of a training on disk, from which it resumes to the same bits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ramify.base.errors import ModelFormatError
from ramify.io.store import Store, StoreWriter, remove_model
from ramify.nn.optim import Arrays, SavedArrays
from ramify.nn.ranks import Shard, current_ranks

KIND = "checkpoint"


class Checkpoint(NamedTuple):
    """Groups of arrays, and values for JSON."""

    groups: dict[str, Arrays]
    values: dict[str, Any]


def save_checkpoint(path: Path, key: str, groups: Mapping[str, SavedArrays], values: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically; `key` identifies the training.

    Of arrays that are divided among ranks the first rank writes one shard after the other, while the other ranks call
    `send_shards` with the same groups.
    """
    state = {"key": key, "values": dict(values), "groups": {group: list(arrays) for group, arrays in groups.items()}}
    with StoreWriter(path) as writer:
        for group, arrays in groups.items():
            for name, array in arrays.items():
                if isinstance(array, Shard):
                    writer.array_blocks(f"{group}-{name}", array.own.dtype, array.shape, array.blocks())
                else:
                    writer.array(f"{group}-{name}", array)
        writer.manifest(KIND, {}, state)


def send_shards(groups: Mapping[str, SavedArrays]) -> None:
    """Send the shards of this rank to the first one, which writes them."""
    for arrays in groups.values():
        for array in arrays.values():
            if isinstance(array, Shard):
                for _ in array.blocks():
                    raise AssertionError("only the first rank gets blocks")


def load_checkpoint(path: Path, key: str, *, mapped: bool = False) -> Checkpoint | None:
    """Read the checkpoint of a training; None if there is none, an error if it belongs to another training.

    With `mapped` its arrays stay on disk, for ranks that need a part of them.
    """
    if not path.exists():
        return None
    store = Store(path, verify=True)
    check_key(store, key)
    groups, values = store.state.get("groups"), store.state.get("values")
    if not isinstance(values, dict) or not isinstance(groups, dict) or not all(map(_are_names, groups.values())):
        raise ModelFormatError(f"the manifest of {path} does not describe a checkpoint; remove the directory")

    def read(name: str) -> Any:
        entry = store.files.get(f"{name}.npy", {})
        array = store.array(name, entry.get("dtype", "f4"))
        return array if mapped else np.array(array)

    arrays = {group: {name: read(f"{group}-{name}") for name in names} for group, names in groups.items()}
    return Checkpoint(arrays, values)


def check_key(store: Store, key: str) -> None:
    """Refuse what is not a checkpoint of the training that `key` identifies."""
    if store.kind != KIND or store.state.get("key") != key:
        raise ModelFormatError(
            f"{store.path} is the checkpoint of another training (other data or other parameters); remove it, or "
            "choose another directory"
        )


def _are_names(names: Any) -> bool:
    return isinstance(names, list) and all(isinstance(name, str) for name in names)


def remove_checkpoint(path: str | os.PathLike[str]) -> None:
    """Remove a checkpoint, and nothing that is not one or does not belong to it."""
    with contextlib.suppress(ModelFormatError):
        if Store(path).kind == KIND:
            remove_model(Path(path))


class CheckpointDirectory:
    """The checkpoints of the stages of one model; without a directory nothing is written."""

    def __init__(self, directory: str | None) -> None:
        self._directory = None if directory is None else Path(directory)
        self._paths: list[Path] = []

    def path(self, stage: str) -> Path | None:
        """Return the path for a stage's checkpoint."""
        if self._directory is None:
            return None
        self._paths.append(self._directory / stage.replace(" ", "-"))
        return self._paths[-1]

    def clear(self) -> None:
        """Remove the checkpoints of all stages: a finished training needs none. Other files stay."""
        if current_ranks().is_first:
            for path in self._paths:
                remove_checkpoint(path)
