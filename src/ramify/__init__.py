"""Ramify: extreme multi-label classification.

Find and rank the few right labels out of thousands to millions, for a text or any feature vector.

>>> import ramify
>>> model = ramify.Popular().fit(["red fox", "red hen"], [["animal", "fox"], ["animal"]])
>>> model.predict_topk(["blue whale"], k=1).labels()
[[('animal', 1.0)]]
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ramify import datasets, features, metrics
    from ramify.base.errors import DataError, ModelFormatError, NotFittedError, RamifyError
    from ramify.base.ranking import Ranking
    from ramify.index.ann import AnnConfig
    from ramify.io.dataset import Dataset
    from ramify.io.formats import read, write
    from ramify.metrics.report import evaluate
    from ramify.models import load
    from ramify.models.astec import Astec
    from ramify.models.elias import Elias
    from ramify.models.ensemble import Ensemble
    from ramify.models.lightdxml import LightDXML
    from ramify.models.neural import NeuralOneVsAll
    from ramify.models.one_vs_all import OneVsAll
    from ramify.models.popular import Popular
    from ramify.models.xrlinear import XRLinear
    from ramify.models.xrtransformer import XRTransformer
    from ramify.models.xtransformer import XTransformer
    from ramify.nn.encoder import BagEncoder
    from ramify.nn.transformer import TransformerEncoder
    from ramify.version import __version__

# Everything is imported when it is first used, so that `import ramify` costs nothing.
_WHERE = {
    "DataError": "ramify.base.errors",
    "ModelFormatError": "ramify.base.errors",
    "NotFittedError": "ramify.base.errors",
    "RamifyError": "ramify.base.errors",
    "Ranking": "ramify.base.ranking",
    "Dataset": "ramify.io.dataset",
    "read": "ramify.io.formats",
    "write": "ramify.io.formats",
    "evaluate": "ramify.metrics.report",
    "load": "ramify.models",
    "AnnConfig": "ramify.index.ann",
    "Astec": "ramify.models.astec",
    "BagEncoder": "ramify.nn.encoder",
    "Elias": "ramify.models.elias",
    "Ensemble": "ramify.models.ensemble",
    "LightDXML": "ramify.models.lightdxml",
    "NeuralOneVsAll": "ramify.models.neural",
    "OneVsAll": "ramify.models.one_vs_all",
    "Popular": "ramify.models.popular",
    "TransformerEncoder": "ramify.nn.transformer",
    "XRLinear": "ramify.models.xrlinear",
    "XRTransformer": "ramify.models.xrtransformer",
    "XTransformer": "ramify.models.xtransformer",
    "__version__": "ramify.version",
}
_MODULES = ("datasets", "features", "metrics")

__all__ = [
    "AnnConfig",
    "Astec",
    "BagEncoder",
    "DataError",
    "Dataset",
    "Elias",
    "Ensemble",
    "LightDXML",
    "ModelFormatError",
    "NeuralOneVsAll",
    "NotFittedError",
    "OneVsAll",
    "Popular",
    "RamifyError",
    "Ranking",
    "TransformerEncoder",
    "XRLinear",
    "XRTransformer",
    "XTransformer",
    "__version__",
    "datasets",
    "evaluate",
    "features",
    "load",
    "metrics",
    "read",
    "write",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(importlib.import_module(_WHERE[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"ramify.{name}")
    else:
        raise AttributeError(f"module 'ramify' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
