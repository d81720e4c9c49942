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
    from ramify import datasets, features, metrics, report
    from ramify.base.errors import DataError, ModelFormatError, NotCalibratedError, NotFittedError, RamifyError
    from ramify.base.ranking import Ranking
    from ramify.distributed.prediction import predict_files
    from ramify.distributed.training import fit_files
    from ramify.features.concat import Concat
    from ramify.features.tfidf import Tfidf
    from ramify.index.ann import AnnConfig, AnnIndex
    from ramify.index.graph_report import GraphReport
    from ramify.index.kmeans import TreeConfig
    from ramify.index.label_graph import LabelGraph
    from ramify.index.tree import LabelTree
    from ramify.io.catalogue import LabelCatalogue
    from ramify.io.dataset import Dataset
    from ramify.io.formats import read, write
    from ramify.io.labels import LabelVocabulary
    from ramify.metrics.report import Evaluation, evaluate
    from ramify.models import load
    from ramify.models.base import Model
    from ramify.models.deepxml.astec import Astec
    from ramify.models.deepxml.lightdxml import LightDXML
    from ramify.models.elias.model import Elias
    from ramify.models.ensemble import Ensemble
    from ramify.models.hybrid.model import Hybrid
    from ramify.models.knn import KNN
    from ramify.models.label_matcher import LabelMatcher
    from ramify.models.neural_one_vs_all import NeuralOneVsAll
    from ramify.models.one_vs_all import OneVsAll
    from ramify.models.popular import Popular
    from ramify.models.xrlinear import XRLinear
    from ramify.models.xrtransformer import XRTransformer
    from ramify.models.xtransformer import XTransformer
    from ramify.models.zestxml import ZestXML
    from ramify.nn.config import TrainingConfig
    from ramify.nn.encoders.bag import BagEncoder
    from ramify.nn.encoders.transformer import TransformerEncoder
    from ramify.nn.label_embeddings import LabelEncoderConfig
    from ramify.rank.bilinear import BilinearConfig
    from ramify.rank.decision_rule import DecisionRule
    from ramify.rank.decisions import (
        ExpectedCount,
        MaximizeF1,
        PerLabelThreshold,
        TargetPrecision,
        TargetRecall,
        Threshold,
        TopK,
    )
    from ramify.rank.explanation import Explanation
    from ramify.rank.filters import LabelFilter
    from ramify.rank.linear import LinearConfig, fit_ovr
    from ramify.version import __version__

# Every name is imported on first use, so that `import ramify` costs nothing.
_MODULE_OF = {
    "DataError": "ramify.base.errors",
    "ModelFormatError": "ramify.base.errors",
    "NotCalibratedError": "ramify.base.errors",
    "NotFittedError": "ramify.base.errors",
    "RamifyError": "ramify.base.errors",
    "Ranking": "ramify.base.ranking",
    "predict_files": "ramify.distributed.prediction",
    "fit_files": "ramify.distributed.training",
    "Concat": "ramify.features.concat",
    "Tfidf": "ramify.features.tfidf",
    "AnnConfig": "ramify.index.ann",
    "AnnIndex": "ramify.index.ann",
    "GraphReport": "ramify.index.graph_report",
    "TreeConfig": "ramify.index.kmeans",
    "LabelGraph": "ramify.index.label_graph",
    "LabelTree": "ramify.index.tree",
    "Dataset": "ramify.io.dataset",
    "read": "ramify.io.formats",
    "write": "ramify.io.formats",
    "LabelVocabulary": "ramify.io.labels",
    "evaluate": "ramify.metrics.report",
    "Evaluation": "ramify.metrics.report",
    "load": "ramify.models",
    "Model": "ramify.models.base",
    "Astec": "ramify.models.deepxml.astec",
    "LightDXML": "ramify.models.deepxml.lightdxml",
    "Elias": "ramify.models.elias.model",
    "Ensemble": "ramify.models.ensemble",
    "Hybrid": "ramify.models.hybrid.model",
    "KNN": "ramify.models.knn",
    "LabelMatcher": "ramify.models.label_matcher",
    "NeuralOneVsAll": "ramify.models.neural_one_vs_all",
    "OneVsAll": "ramify.models.one_vs_all",
    "Popular": "ramify.models.popular",
    "XRLinear": "ramify.models.xrlinear",
    "XRTransformer": "ramify.models.xrtransformer",
    "XTransformer": "ramify.models.xtransformer",
    "ZestXML": "ramify.models.zestxml",
    "BagEncoder": "ramify.nn.encoders.bag",
    "TransformerEncoder": "ramify.nn.encoders.transformer",
    "LabelEncoderConfig": "ramify.nn.label_embeddings",
    "TrainingConfig": "ramify.nn.config",
    "DecisionRule": "ramify.rank.decision_rule",
    "ExpectedCount": "ramify.rank.decisions",
    "MaximizeF1": "ramify.rank.decisions",
    "PerLabelThreshold": "ramify.rank.decisions",
    "TargetPrecision": "ramify.rank.decisions",
    "TargetRecall": "ramify.rank.decisions",
    "Threshold": "ramify.rank.decisions",
    "TopK": "ramify.rank.decisions",
    "Explanation": "ramify.rank.explanation",
    "LabelCatalogue": "ramify.io.catalogue",
    "LabelFilter": "ramify.rank.filters",
    "BilinearConfig": "ramify.rank.bilinear",
    "LinearConfig": "ramify.rank.linear",
    "fit_ovr": "ramify.rank.linear",
    "__version__": "ramify.version",
}
_MODULES = ("datasets", "features", "metrics", "report")

__all__ = [  # noqa: RUF022 (in the order of sorted())
    "AnnConfig",
    "AnnIndex",
    "Astec",
    "BagEncoder",
    "BilinearConfig",
    "Concat",
    "DataError",
    "Dataset",
    "DecisionRule",
    "Elias",
    "Ensemble",
    "Evaluation",
    "ExpectedCount",
    "Explanation",
    "GraphReport",
    "Hybrid",
    "KNN",
    "LabelCatalogue",
    "LabelEncoderConfig",
    "LabelFilter",
    "LabelGraph",
    "LabelMatcher",
    "LabelTree",
    "LabelVocabulary",
    "LightDXML",
    "LinearConfig",
    "MaximizeF1",
    "Model",
    "ModelFormatError",
    "NeuralOneVsAll",
    "NotCalibratedError",
    "NotFittedError",
    "OneVsAll",
    "PerLabelThreshold",
    "Popular",
    "RamifyError",
    "Ranking",
    "TargetPrecision",
    "TargetRecall",
    "Tfidf",
    "Threshold",
    "TopK",
    "TrainingConfig",
    "TransformerEncoder",
    "TreeConfig",
    "XRLinear",
    "XRTransformer",
    "XTransformer",
    "ZestXML",
    "__version__",
    "datasets",
    "evaluate",
    "features",
    "fit_files",
    "fit_ovr",
    "load",
    "metrics",
    "predict_files",
    "read",
    "report",
    "write",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"ramify.{name}")
    else:
        raise AttributeError(f"module 'ramify' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
