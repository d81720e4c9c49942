"""Models with an encoder whose best labels a linear ranker scores, on features of its own."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

from ramify.base.config import param
from ramify.base.mixed import Mixed
from ramify.features.concat import Concat
from ramify.features.defaults import text_features
from ramify.features.tfidf import Tfidf
from ramify.io.inputs import Inputs
from ramify.io.store import Store, StoreWriter
from ramify.models.encoded import EncodedModel
from ramify.models.features import load_features
from ramify.models.memory import DataSizes, Memory, measure_sizes
from ramify.models.training_data import TrainingData
from ramify.nn.encoders.samples import Samples


@dataclass(kw_only=True, eq=False, repr=False)
class RankedModel(EncodedModel):
    """Base of models whose ranker may see more of a text than the encoder.

    A model of texts with a ranker has `ranker_features_`; without, or where both would be the same, the ranker sees the
    features of the encoder.
    """

    ranker_features: Tfidf | Concat | None = param(
        factory=lambda: text_features(long_texts=None),
        doc="feature extraction from texts for the ranker, by default words, stems and parts of words; None: as "
        "`features`",
    )

    @property
    @abstractmethod
    def _has_ranker(self) -> bool:
        """Whether a ranker is trained."""

    def _given_features(self, inputs: Inputs) -> Tfidf | Concat | None:
        """Return the features of the ranker; None if there is no ranker, or it sees those of the encoder."""
        return self.ranker_features if self._has_ranker and inputs.kind in ("text", "fields") else None

    def _training_memory(self, data: TrainingData) -> Memory:
        own, given = super()._training_memory(data), self._given_features(data.inputs)
        if given is None or _are_same(given.suited_to(data.inputs.data), self.features.suited_to(data.inputs.data)):
            return own
        sizes = measure_sizes(data.inputs, data.Y, given)
        return Memory(own.peak + sizes.features, own.kept + sizes.vocabulary)

    def _encoded_bytes(self, sizes: DataSizes) -> int:
        """Add the classifiers of a first stage, and embeddings of all samples."""
        kept = 4 * self._embedding_dim * (sizes.n_labels + 2 * sizes.n_samples)
        return super()._encoded_bytes(sizes) + kept

    def _fit_samples(self, inputs: Inputs) -> Samples:
        samples, given = super()._fit_samples(inputs), self._given_features(inputs)
        self.ranker_features_: Tfidf | Concat | None = None
        if given is None:
            return samples
        suited = given.suited_to(inputs.data)
        if _are_same(suited, self.features_):
            return samples
        self.ranker_features_ = suited
        return replace(samples, ranked=Mixed.of(self.ranker_features_.fit_transform(inputs.data)))

    def _transform_samples(self, inputs: Inputs) -> Samples:
        samples = super()._transform_samples(inputs)
        if self.ranker_features_ is None:
            return samples
        return replace(samples, ranked=Mixed.of(self.ranker_features_.transform(inputs.data)))

    # ---- files ----

    def _save_samples(self, writer: StoreWriter) -> dict[str, Any]:
        own = self.ranker_features_
        info = None if own is None else own.save_to(writer, "ranker_features_")
        return {**super()._save_samples(writer), "ranker_features": info}

    def _load_ranker_features(self, store: Store, state: dict[str, Any], n_features: int) -> int:
        """Open the features of the ranker; return their number, which is `n_features` where they are the encoder's."""
        self.ranker_features_, info = None, state.get("ranker_features")
        if info is None or self.ranker_features is None:
            return n_features
        self.ranker_features_ = load_features(
            store, info, "ranker_features_", type(self.ranker_features), self.input_kind_
        )
        return int(self.ranker_features_.n_features)


def _are_same(one: Tfidf | Concat, other: Tfidf | Concat) -> bool:
    """Whether two extractors that suit the same texts give the same features."""
    suited = {"long_texts": None}  # has been decided
    return type(one) is type(other) and {**one.to_dict(), **suited} == {**other.to_dict(), **suited}
