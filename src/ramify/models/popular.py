"""The most frequent labels for every point: the floor that every other model must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ramify.base.errors import ModelFormatError
from ramify.base.types import Csr, FloatArray, IntArray
from ramify.io.inputs import Inputs
from ramify.io.labels import LabelVocabulary
from ramify.io.store import Store, StoreWriter
from ramify.models.base import Model, refuse_given


@dataclass(kw_only=True, eq=False, repr=False)
class Popular(Model):
    """Names the labels with the most training points, whatever the input.

    The score of a label is the share of training points that have it: its true probability, if the input tells nothing.
    """

    kind: ClassVar[str] = "popular"

    def _fit(self, inputs: Inputs, labels: Csr, names: LabelVocabulary, **given: Any) -> None:
        refuse_given(self, given)
        counts = np.bincount(labels.indices, minlength=labels.shape[1])
        self.order_ = np.argsort(-counts, kind="stable").astype(np.int32)  # equal counts by label number
        self.shares_ = (counts[self.order_] / labels.shape[0]).astype(np.float32)

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        n = len(inputs)
        return np.tile(self.order_[:k], (n, 1)), np.tile(self.shares_[:k], (n, 1))

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        writer.array("order", self.order_)
        writer.array("shares", self.shares_)
        return {}

    def _load(self, store: Store, state: Any) -> None:
        n = self.n_labels
        self.order_ = store.array("order", np.int32, shape=(n,), bounds=(0, n))
        self.shares_ = store.array("shares", np.float32, shape=(n,))
        if not np.isfinite(self.shares_).all():
            raise ModelFormatError(f"{store.path}: the label shares are not numbers")
