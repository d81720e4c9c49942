"""Registry of the models, by their key on the command line and in saved files."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from ramify.base.errors import ModelFormatError
from ramify.io.store import Store, read_store

if TYPE_CHECKING:
    from ramify.models.base import Model

REGISTRY: dict[str, tuple[str, str]] = {
    "popular": ("ramify.models.popular", "Popular"),
    "xr-linear": ("ramify.models.xrlinear", "XRLinear"),
    "one-vs-all": ("ramify.models.one_vs_all", "OneVsAll"),
    "elias": ("ramify.models.elias.model", "Elias"),
    "xr-transformer": ("ramify.models.xrtransformer", "XRTransformer"),
    "x-transformer": ("ramify.models.xtransformer", "XTransformer"),
    "neural-one-vs-all": ("ramify.models.neural_one_vs_all", "NeuralOneVsAll"),
    "astec": ("ramify.models.deepxml.astec", "Astec"),
    "lightdxml": ("ramify.models.deepxml.lightdxml", "LightDXML"),
    "knn": ("ramify.models.knn", "KNN"),
    "label-matcher": ("ramify.models.label_matcher", "LabelMatcher"),
    "zest-xml": ("ramify.models.zestxml", "ZestXML"),
    "hybrid": ("ramify.models.hybrid.model", "Hybrid"),
    "ensemble": ("ramify.models.ensemble", "Ensemble"),
}
"""Module and class of each model; modules are imported on first use."""


def model_class(key: str) -> type[Model]:
    """Return the class of a model."""
    if key not in REGISTRY:
        raise ValueError(f"unknown model {key!r}; choose from {', '.join(REGISTRY)}")
    module, name = REGISTRY[key]
    cls: Any = getattr(importlib.import_module(module), name)
    return cls  # type: ignore[no-any-return]


def load(path: str | os.PathLike[str], *, verify: bool = False) -> Model:
    """Open a saved model of any kind; its arrays are memory-mapped. `verify` compares the hashes of all files."""

    def read(store: Store) -> Model:
        if store.kind not in REGISTRY:
            raise ModelFormatError(
                f"{store.path} holds a model of unknown kind {store.kind!r}; this version reads {', '.join(REGISTRY)}"
            )
        return model_class(store.kind).from_store(store)

    return read_store(path, read, verify=verify)
