"""Checkpoints of models that are made of other models: the members whose training is finished."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from ramify.base.errors import ModelFormatError
from ramify.base.types import AnyArray, Csr
from ramify.io.catalogue import LabelCatalogue
from ramify.io.store import Store, StoreWriter
from ramify.models.base import Model
from ramify.models.level_checkpoints import training_key
from ramify.models.members import load_members, save_members
from ramify.models.training_data import TrainingData
from ramify.nn.checkpoint import KIND, CheckpointDirectory, check_key

IRRELEVANT = ("threads", "verbose", "checkpoint_dir")
"""Parameters that the bits of a model do not depend on."""


class MemberCheckpoints:
    """Trains members, or opens what an interrupted training of `owner` has finished of them.

    Without a directory nothing is read or written. A member that writes checkpoints of its own has them in a directory
    of its own: in that of the owner, or where its parameter says.
    """

    def __init__(self, directory: str | None, owner: Model, data: TrainingData) -> None:
        self._paths = CheckpointDirectory(directory)
        names = None if data.catalogue is None else dict(data.catalogue)
        everything = [data.inputs.data, data.Y, data.sample_weight, names]
        self._key = training_key(directory, _relevant(owner.to_dict()), everything)

    def fit(
        self, member: Model, stage: str, X: Any, Y: Csr, sample_weight: AnyArray | None, names: LabelCatalogue | None
    ) -> Model:
        """Return a copy of a member, trained on X and Y (n × L); `stage` is the name of this training."""
        path, model = self._paths.path(stage), member.clone()
        found = None if path is None else load_member(path, self._key, member, Y.shape[1])
        if found is not None:
            return found
        parts = self._directory_of(member, stage, path)
        if parts is None:
            model.fit(X, Y, sample_weight=sample_weight, label_catalogue=names)
        else:
            model.set_params(checkpoint_dir=str(parts)).fit(X, Y, sample_weight=sample_weight, label_catalogue=names)
            model.set_params(checkpoint_dir=member.get_params(deep=False)["checkpoint_dir"])
            with contextlib.suppress(OSError):  # there is none, or it has files that are not ours
                parts.rmdir()
        if path is not None:
            save_member(path, self._key, model)
        return model

    @staticmethod
    def _directory_of(member: Model, stage: str, path: Path | None) -> Path | None:
        """Return the directory for the checkpoints that the training of a member writes itself."""
        if not hasattr(member, "checkpoint_dir"):
            return None
        if member.checkpoint_dir is not None:
            return Path(member.checkpoint_dir) / stage.replace(" ", "-")
        return None if path is None else path.with_name(f"{path.name}-parts")

    def clear(self) -> None:
        """Remove all checkpoints: a finished training needs none."""
        self._paths.clear()


def save_member(path: Path, key: str, model: Model) -> None:
    """Write a trained member atomically; `key` identifies the training of its owner."""
    with StoreWriter(path) as writer:
        writer.manifest(KIND, {}, {"key": key, "members": save_members([model], writer)})


def load_member(path: Path, key: str, member: Model, n_labels: int) -> Model | None:
    """Open what `save_member` wrote: `member`, trained. None if there is nothing, an error if it is something else."""
    if not path.exists():
        return None
    store = Store(path, verify=True)
    check_key(store, key)
    parts = store.state.get("members")
    if not isinstance(parts, list) or len(parts) != 1:
        raise ModelFormatError(f"the manifest of {path} does not describe a checkpoint; remove the directory")
    (model,) = load_members(store, parts, n_labels, "a checkpoint")
    if type(model) is not type(member) or _relevant(model.to_dict()) != _relevant(member.to_dict()):
        raise ModelFormatError(f"the checkpoint {path} is damaged: it holds another model; remove it")
    return model.set_params(**{name: getattr(member, name) for name in IRRELEVANT if hasattr(member, name)})


def _relevant(values: Any) -> Any:
    """Return parameters, also nested ones, without those that the bits of a model do not depend on."""
    if isinstance(values, dict):
        return {name: _relevant(value) for name, value in values.items() if name not in IRRELEVANT}
    return [_relevant(value) for value in values] if isinstance(values, list | tuple) else values
