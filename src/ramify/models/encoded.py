"""What deep models share: an encoder that reads features or texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify.base.config import param
from ramify.base.mixed import Mixed
from ramify.base.sparse import normalize_rows
from ramify.base.threads import resolve_threads
from ramify.base.types import Csr, FloatArray
from ramify.io.inputs import Inputs
from ramify.io.store import Store, StoreWriter
from ramify.metrics.report import evaluate
from ramify.models.features import FeatureModel
from ramify.nn.encoder import Bag, BagEncoder
from ramify.nn.points import Points, texts_of
from ramify.nn.transformer import Transformer, TransformerEncoder


@dataclass(kw_only=True, eq=False, repr=False)
class EncodedModel(FeatureModel):
    """Base of models that learn from vectors of an encoder."""

    encoder: BagEncoder | TransformerEncoder = param(factory=BagEncoder, doc="how features or texts become vectors")

    def _fit_points(self, inputs: Inputs) -> Points:
        """Features for all parts of the model, and tokens or vectors of the texts where a transformer reads them."""
        self.transformer_: Transformer | None = None
        if isinstance(self.encoder, BagEncoder):
            return Points(self._fit_features(inputs))
        texts = texts_of(inputs)
        X, self.transformer_ = self._fit_features(inputs), Transformer.open(self.encoder)
        if not self.encoder.frozen:
            return Points(X, self.transformer_.cached_tokens(texts))
        vectors = self.transformer_.cached_vectors(texts, resolve_threads(self.threads), self.verbose)
        return Points(Mixed(X.sparse, np.asarray(vectors)))

    def _make_points(self, inputs: Inputs) -> Points:
        if isinstance(self.encoder, BagEncoder) or self.transformer_ is None:
            return Points(self._make_features(inputs))
        tokens = self.transformer_.tokens(texts_of(inputs))
        X = self._make_features(inputs)
        if not self.encoder.frozen:
            return Points(X, tokens)
        threads = resolve_threads(self.threads, len(X))
        return Points(Mixed(X.sparse, self.transformer_.encode_tokens(tokens, threads)))

    def _start_encoder(self, points: Points, Y: Csr, seed: int, threads: int) -> Bag | Transformer:
        if isinstance(self.encoder, BagEncoder):
            features = getattr(self, "features_", None)
            terms = None if features is None else [str(term) for term in features.get_feature_names_out()]
            return Bag.start(points.features, Y, self.encoder, seed=seed, threads=threads, terms=terms)
        if self.encoder.frozen:
            return Bag.start(points.features, Y, None, seed=seed, threads=threads)
        assert self.transformer_ is not None
        return self.transformer_.snapshot()

    def _settings(self) -> dict[str, Any]:
        """Return the parameters that a training depends on."""
        apart = ("threads", "verbose", "checkpoints")
        return {name: value for name, value in self.to_dict().items() if name not in apart}

    def export_encoder(
        self, X: Any = None, y: Any = None, *, int8: bool = False, max_loss: float = 0.5
    ) -> dict[str, float]:
        """Let onnxruntime compute the vectors of texts from now on, also after the model was saved.

        Its vectors are those of torch within 1e-3. With int8 the products are computed with whole numbers, which is
        faster and costs some precision: it is measured on X with labels y, and kept if it is no more than `max_loss`
        points of P@1. Where onnxruntime is not installed, torch computes them as before.

        Returns
        -------
        figures : P@1 in percent before and after, and whether the graph is kept; nothing without data
        """
        self._check_fitted()
        encoders = self._transformers()
        if not encoders:
            raise ValueError("the model has no transformer; there is nothing to export")
        if int8 and X is None:
            raise ValueError("int8 costs precision: give texts X and their labels y to measure how much")
        graphs, figures = [encoder.onnx for encoder in encoders], {}

        def first() -> float:
            return float(evaluate(self.predict_topk(X, 1), y, ks=[1])["P@1"])

        if X is not None:
            figures["before"] = first()
        for encoder in encoders:
            encoder.to_onnx(int8=int8)
        if X is not None:
            figures["after"] = first()
            figures["kept"] = float(not int8 or figures["before"] - figures["after"] <= max_loss)
            if not figures["kept"]:
                for encoder, graph in zip(encoders, graphs, strict=True):
                    encoder.use_onnx(graph)
        return figures

    def _transformers(self) -> list[Transformer]:
        """Return the transformers that compute the vectors of new texts."""
        return [] if self.transformer_ is None else [self.transformer_]

    # ---- files ----

    def _save_points(self, writer: StoreWriter) -> dict[str, Any]:
        return {
            "features": self._save_features(writer),
            "transformer": None if self.transformer_ is None else self.transformer_.save_to(writer, "transformer_"),
        }

    def _load_points(self, store: Store, state: Any) -> tuple[tuple[int, int], TransformerEncoder | None]:
        """Open features and transformer; return a point's sparse and dense features, and what was trained."""
        width = self._load_features(store, state) or 0
        self.transformer_ = None
        if isinstance(self.encoder, BagEncoder):
            return ((0, width) if self.input_kind_ == "dense" else (width, 0)), None
        self.transformer_ = Transformer.load_from(store, state.get("transformer"), "transformer_", self.encoder)
        return (width, self.transformer_.width), None if self.encoder.frozen else self.encoder


def joined(X: Mixed, vectors: FloatArray, weight: float = 1.0) -> Mixed:
    """Features of length 1 and vectors of the given length side by side."""
    dense = normalize_rows(vectors) * np.float32(weight)
    return Mixed(normalize_rows(X.sparse), np.ascontiguousarray(dense, np.float32))
