"""Models that are made of other models: how members are given, described, saved and opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ramify.base.errors import ModelFormatError
from ramify.io.store import Store, StoreWriter
from ramify.models import model_class
from ramify.models.base import Model


def members_of(values: Any, owner: str) -> tuple[Model, ...]:
    """Return models given as models, as keys, or as keys with parameters (in files and in the shell)."""
    models = []
    for entry in values if isinstance(values, list | tuple) else [values]:
        if isinstance(entry, Model):
            models.append(entry)
        elif isinstance(entry, str):
            models.append(model_class(entry)())
        elif isinstance(entry, dict) and isinstance(entry.get("kind"), str) and set(entry) <= {"kind", "params"}:
            models.append(model_class(entry["kind"]).from_dict(entry.get("params", {})))
        else:
            raise ValueError(f"a model of {owner} is given by its key, or by kind and params; got {entry!r}")
    return tuple(models)


def describe_members(models: Sequence[Model]) -> list[dict[str, Any]]:
    """Return the parameters of models as plain values, each with its kind."""
    return [{"kind": model.kind, "params": model.to_dict()} for model in models]


def save_members(models: Sequence[Model], writer: StoreWriter) -> list[dict[str, Any]]:
    """Write fitted models; return their description for the manifest."""
    return [
        {"kind": model.kind, "params": model.to_dict(), "state": model.write_state(writer.part(f"model{i}_"))}
        for i, model in enumerate(models)
    ]


def load_members(store: Store, parts: Sequence[Any], n_labels: int, owner: str) -> list[Model]:
    """Open what `save_members` wrote: models with `n_labels` labels."""
    models = []
    for i, info in enumerate(parts):
        part = store.part(f"model{i}_", info)
        try:
            cls = model_class(part.kind)
        except ValueError as error:
            raise ModelFormatError(f"{store.path}: {error}") from error
        models.append(cls.from_store(part))
        if models[-1].n_labels != n_labels:
            raise ModelFormatError(f"{store.path}: the models of {owner} have different numbers of labels")
    return models
