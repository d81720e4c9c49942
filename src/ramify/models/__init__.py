"""The models, by the key that names them on the command line and in saved files."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from ramify.base.errors import ModelFormatError
from ramify.io.store import Store

if TYPE_CHECKING:
    from ramify.models.base import Model

REGISTRY: dict[str, tuple[str, str]] = {
    "popular": ("ramify.models.popular", "Popular"),
    "xr-linear": ("ramify.models.xrlinear", "XRLinear"),
    "one-vs-all": ("ramify.models.one_vs_all", "OneVsAll"),
    "elias": ("ramify.models.elias", "Elias"),
    "xr-transformer": ("ramify.models.xrtransformer", "XRTransformer"),
    "x-transformer": ("ramify.models.xtransformer", "XTransformer"),
    "neural-one-vs-all": ("ramify.models.neural", "NeuralOneVsAll"),
    "astec": ("ramify.models.astec", "Astec"),
    "lightdxml": ("ramify.models.lightdxml", "LightDXML"),
    "ensemble": ("ramify.models.ensemble", "Ensemble"),
}
"""Key of each model → module and class. Modules are imported when their model is first used."""


def model_class(key: str) -> type[Model]:
    """Class of a model by its key."""
    if key not in REGISTRY:
        raise ValueError(f"there is no model {key!r}; there are: {', '.join(REGISTRY)}")
    module, name = REGISTRY[key]
    cls: Any = getattr(importlib.import_module(module), name)
    return cls  # type: ignore[no-any-return]


def load(path: str | os.PathLike[str], *, verify: bool = False) -> Model:
    """Open a saved model of any kind; its arrays stay on disk until they are read. `verify` compares all hashes."""
    store = Store(path, verify=verify)
    if store.kind not in REGISTRY:
        raise ModelFormatError(
            f"{store.path} holds a model of the unknown kind {store.kind!r}; this Ramify knows {', '.join(REGISTRY)}"
        )
    return model_class(store.kind).from_store(store)
