"""Checkpoints of linear models: the finished levels of each tree, from which an interrupted training resumes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ramify.base.errors import ModelFormatError
from ramify.index.tree import LabelTree
from ramify.nn.checkpoint import CheckpointDirectory, load_checkpoint, save_checkpoint
from ramify.rank.beam import ARRAYS, LinearTree, PackedLevel
from ramify.rank.score_transforms import ScoreTransform

Levels = tuple[PackedLevel, PackedLevel | None]
"""A level as the model keeps it, and as it proposes negatives (None for labels)."""


class LevelCheckpoints:
    """The checkpoints of all trees of a training; without a directory nothing is read or written.

    Parameters
    ----------
    settings : parameters that the result depends on
    data : everything else that it depends on: matrices, arrays and plain values
    """

    def __init__(self, directory: str | None, settings: dict[str, Any], data: Any) -> None:
        self._paths = CheckpointDirectory(directory)
        self._key = "" if directory is None else json.dumps(settings, sort_keys=True) + _digest(data)

    def load(self, index: int, tree: LabelTree, above: Sequence[PackedLevel], n_sparse: int) -> Levels | None:
        """Return the level of tree `index` below the levels `above`, if it is finished; None: it has to be trained."""
        level = len(above)
        path = self._paths.path(f"tree {index} level {level}")
        checkpoint = None if path is None else load_checkpoint(path, self._key_of(tree))
        if checkpoint is None:
            return None
        kept, mining = (_level(path, checkpoint.groups.get(group)) for group in ("kept", "mining"))
        if kept is None or (mining is None) != (level == tree.depth - 1):
            raise ModelFormatError(f"the checkpoint {path} is damaged: it lacks weights of the level; remove it")
        try:
            for part in (kept, mining or kept):  # checks that the weights fit the tree
                LinearTree(tree, [*above, part], [ScoreTransform.parse("noop")] * (level + 1), n_sparse)
        except (ValueError, TypeError) as error:
            raise ModelFormatError(f"the checkpoint {path} is damaged: {error}; remove it") from error
        return kept, mining

    def save(self, index: int, tree: LabelTree, level: int, levels: Levels) -> None:
        """Write a finished level."""
        path = self._paths.path(f"tree {index} level {level}")
        if path is None:
            return
        groups = {
            group: {} if part is None else {name: getattr(part, name) for name in ARRAYS}
            for group, part in zip(("kept", "mining"), levels, strict=True)
        }
        save_checkpoint(path, self._key_of(tree), groups, {})

    def clear(self) -> None:
        """Remove all checkpoints: a finished training needs none."""
        self._paths.clear()

    def _key_of(self, tree: LabelTree) -> str:
        return self._key + _digest([tree.levels, tree.labels, tree.n_labels])


def _level(path: Path | None, arrays: Any) -> PackedLevel | None:
    """Return a level of a checkpoint; the search checks how its weights fit together."""
    if not arrays:
        return None
    found = {name: (array.dtype, array.ndim) for name, array in arrays.items()}
    if found != {name: (np.dtype(dtype), ndim) for name, (dtype, ndim) in ARRAYS.items()}:
        raise ModelFormatError(f"the checkpoint {path} is damaged: its arrays are not those of a level; remove it")
    return PackedLevel(**arrays)


def _digest(data: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)

    def add(value: Any) -> None:
        if sparse.issparse(value):
            add([value.shape, value.indptr, value.indices, value.data])
        elif isinstance(value, np.ndarray):
            digest.update(f"{value.dtype}{value.shape}".encode())
            digest.update(np.ascontiguousarray(value).data)
        elif dataclasses.is_dataclass(value):
            add(vars(value))
        elif isinstance(value, dict):
            add(list(value.items()))
        elif isinstance(value, list | tuple):
            digest.update(f"[{len(value)}".encode())
            for part in value:
                add(part)
        else:
            digest.update(repr(value).encode())

    add(data)
    return digest.hexdigest()
