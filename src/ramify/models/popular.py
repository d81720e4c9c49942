"""The most frequent labels for every sample: the baseline that every other model must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ramify.base.errors import ModelFormatError
from ramify.base.types import FloatArray, IntArray
from ramify.io.inputs import Inputs
from ramify.io.store import Store, StoreWriter
from ramify.models.base import Model
from ramify.models.training_data import TrainingData
from ramify.rank.filters import LabelFilter


@dataclass(kw_only=True, eq=False, repr=False)
class Popular(Model):
    """Predicts the labels with the most training samples, whatever the input.

    The score of a label is the fraction of training samples that have it: its prior probability.
    """

    kind: ClassVar[str] = "popular"
    scores_are_probabilities: ClassVar[bool] = True

    def _fit(self, data: TrainingData) -> None:
        n, n_labels = data.Y.shape
        sample_weight = data.sample_weight
        of_entries = None if sample_weight is None else np.repeat(sample_weight, np.diff(data.Y.indptr))
        counts = np.bincount(data.Y.indices, of_entries, minlength=n_labels)
        self.order_ = np.argsort(-counts, kind="stable").astype(np.int32)  # ties by label id
        total = n if sample_weight is None else sample_weight.sum()
        self.priors_ = (counts[self.order_] / total).astype(np.float32)

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        n = len(inputs)
        return np.tile(self.order_[:k], (n, 1)), np.tile(self.priors_[:k], (n, 1))

    def _predict_allowed(self, inputs: Inputs, k: int, label_filter: LabelFilter) -> tuple[IntArray, FloatArray]:
        best, shape = np.flatnonzero(label_filter.allowed[self.order_])[:k], (len(inputs), k)
        ids, scores = np.full(shape, -1, np.int32), np.full(shape, -np.inf, np.float32)
        ids[:, : len(best)], scores[:, : len(best)] = self.order_[best], self.priors_[best]
        return ids, scores

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        writer.array("order", self.order_)
        writer.array("priors", self.priors_)
        return {}

    def _load(self, store: Store, state: Any) -> None:
        n = self.n_labels
        self.order_ = store.array("order", np.int32, shape=(n,), bounds=(0, n))
        self.priors_ = store.array("priors", np.float32, shape=(n,))
        if not np.isfinite(self.priors_).all():
            raise ModelFormatError(f"{store.path}: the priors are not finite")
