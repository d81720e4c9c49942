"""Checkpoints of linear models: finished levels of trees, or parts of the labels, from which a training resumes."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ramify import native
from ramify.base.errors import ModelFormatError
from ramify.base.types import Csr
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
        self._key = training_key(directory, settings, data)

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


class PartCheckpoints:
    """The checkpoints of a training without a tree: weights W (L × (d + 1)) of ranges of labels, one after the other.

    Parameters as of `LevelCheckpoints`; `n_parts` ranges are trained one by one if there is a directory, else all at
    once.
    """

    def __init__(self, directory: str | None, settings: dict[str, Any], data: Any, n_parts: int) -> None:
        self._paths = CheckpointDirectory(directory)
        self._key = training_key(directory, settings, data)
        self.n_parts = 1 if directory is None else n_parts

    def load(self, part: int, shape: tuple[int, int]) -> Csr | None:
        """Return the weights of a part, if it is finished; None: it has to be trained."""
        path = self._paths.path(f"part {part} of {self.n_parts}")
        checkpoint = None if path is None else load_checkpoint(path, self._key)
        if checkpoint is None:
            return None
        arrays = checkpoint.groups.get("weights", {})
        W, dtypes = None, {name: array.dtype for name, array in arrays.items()}
        if dtypes == {"data": np.float32, "indices": np.int32, "indptr": np.int64}:
            with contextlib.suppress(ValueError, IndexError):
                W = sparse.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)
        if W is None or not native.matrix.is_canonical(W, float(np.finfo(np.float32).max)):
            raise ModelFormatError(f"the checkpoint {path} is damaged: its arrays are not weights; remove it")
        return W

    def save(self, part: int, W: Csr) -> None:
        """Write a finished part."""
        path = self._paths.path(f"part {part} of {self.n_parts}")
        if path is not None:
            arrays = {"data": W.data, "indices": W.indices.astype(np.int32), "indptr": W.indptr.astype(np.int64)}
            save_checkpoint(path, self._key, {"weights": arrays}, {})

    def join(self, parts: list[Csr]) -> Csr:
        """Return the weights of all labels, from those of the parts."""
        if len(parts) == 1:
            return parts[0]
        rows = np.concatenate([np.flatnonzero(np.diff(part.indptr)) for part in parts])
        if np.any(np.diff(rows) <= 0):
            raise ModelFormatError(
                "the checkpoints are damaged: two of them have weights of the same label; remove them"
            )
        data, indices = (np.concatenate([getattr(part, name) for part in parts]) for name in ("data", "indices"))
        indptr = np.sum([part.indptr for part in parts], axis=0)
        return sparse.csr_matrix((data, indices, indptr), shape=parts[0].shape)

    def clear(self) -> None:
        """Remove all checkpoints: a finished training needs none."""
        self._paths.clear()


def training_key(directory: str | None, settings: dict[str, Any], data: Any) -> str:
    """Return what identifies a training: parameters and data that its result depends on."""
    return "" if directory is None else json.dumps(settings, sort_keys=True) + _digest(data)


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
