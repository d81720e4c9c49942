"""Models over features: TF-IDF of texts and fields, or the user's own matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scipy import sparse

from ramify.base.config import param
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.mixed import Mixed
from ramify.base.progress import progress
from ramify.base.sparse import as_csr
from ramify.features.concat import Concat
from ramify.features.defaults import text_features
from ramify.features.tfidf import Tfidf
from ramify.io.inputs import Inputs
from ramify.io.store import Store, StoreWriter
from ramify.models.base import Model


@dataclass(kw_only=True, eq=False, repr=False)
class FeatureModel(Model):
    """Base of models that are trained on features; `features_` extracts them from texts and fields."""

    features: Tfidf | Concat = param(
        factory=text_features,
        doc="feature extraction from texts, by default words, stems and parts of words, of long English texts "
        "words alone; not used for matrices",
    )

    def _fit_features(self, inputs: Inputs) -> Mixed:
        self.__dict__.pop("features_", None)
        if inputs.kind in ("sparse", "dense"):
            return Mixed.of(inputs.data)
        with progress(f"features of {len(inputs):,} texts", None, self.verbose):
            self.features_ = self.features.suited_to(inputs.data)
            return Mixed.of(self.features_.fit_transform(inputs.data))

    def _transform_features(self, inputs: Inputs) -> Mixed:
        if inputs.kind in ("text", "fields"):
            return Mixed.of(self.features_.transform(inputs.data))
        if inputs.kind == "sparse" and self.input_kind_ == "dense":
            return Mixed.of(inputs.data.toarray())
        if inputs.kind == "dense" and self.input_kind_ == "sparse":
            return Mixed.of(as_csr(sparse.csr_matrix(inputs.data)))
        return Mixed.of(inputs.data)

    def _save_features(self, writer: StoreWriter) -> Any:
        features = getattr(self, "features_", None)
        return None if features is None else features.save_to(writer, "features_")

    def _load_features(self, store: Store, state: dict[str, Any]) -> int | None:
        """Open the feature extraction, if the model has one; return the number of features."""
        if self.input_kind_ not in ("text", "fields"):
            return self.n_features_in_
        self.features_ = load_features(store, state.get("features"), "features_", type(self.features), self.input_kind_)
        return int(self.features_.n_features)


def load_features(
    store: Store, info: Any, prefix: str, cls: type[Tfidf] | type[Concat], input_kind: str
) -> Tfidf | Concat:
    """Open an extractor of texts, or of text fields, that a model has saved."""
    features = cls.load_from(store, info, prefix)
    try:
        features.transform([""] if input_kind == "text" else [{}])
    except DataError as error:
        raise ModelFormatError(f"{store.path}: the features do not fit the input of the model: {error}") from error
    return features
