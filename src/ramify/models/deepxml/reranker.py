"""Re-ranker: a second encoder with label classifiers of its own, trained on the labels that a model ranks highest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify import native
from ramify.base.errors import ModelFormatError
from ramify.base.types import FloatArray, IntArray
from ramify.io.store import Store, StoreWriter
from ramify.nn.encoders import Encoder
from ramify.nn.encoders.samples import Samples
from ramify.nn.heads.classifiers import Classifiers, load_classifiers, save_classifiers
from ramify.rank.blend import append_labels, scores_among

RERANKED_LABELS = 100
"""Labels of a sample that are re-ranked."""


@dataclass(eq=False)
class Reranker:
    """Blends the scores of its own classifiers, with weight `beta`, and those of the first ranking (`rank.blend`)."""

    encoder: Encoder
    classifiers: Classifiers
    beta: float
    by_row: bool

    def rank(
        self, samples: Samples, ids: IntArray, scores: FloatArray, k: int, threads: int
    ) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k) of the best labels, given a ranking (n, m); labels that are not re-ranked follow."""
        best, rest = slice(None, RERANKED_LABELS), slice(RERANKED_LABELS, None)
        first_scores = np.where(ids[:, best] >= 0, scores[:, best], np.float32(0))
        phi = self.encoder.encode(samples, threads)
        ranking = native.neural.rank_blended(
            self.classifiers, self.beta, self.by_row, ids[:, best], first_scores, phi, min(k, RERANKED_LABELS), threads
        )
        if k <= RERANKED_LABELS:
            return ranking
        return append_labels(*ranking, ids[:, rest], scores[:, rest], k, threads)

    def scores_among(
        self, samples: Samples, ids: IntArray, scores: FloatArray, n_among: int, threads: int
    ) -> FloatArray:
        """Scores (n, k) of labels with first scores (n, k), by row relative to the first `n_among` labels."""
        first_scores = np.where(ids >= 0, scores, np.float32(0))
        phi = self.encoder.encode(samples, threads)
        return scores_among(self.classifiers, self.beta, self.by_row, ids, first_scores, phi, n_among, threads)

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the re-ranker into a model directory."""
        save_classifiers(writer, f"{prefix}classifier", self.classifiers)
        return {"encoder": self.encoder.save_to(writer, f"{prefix}encoder_"), "beta": self.beta}

    @classmethod
    def load_from(
        cls, store: Store, info: dict[str, Any], prefix: str, encoder: Encoder, n_labels: int, by_row: bool
    ) -> Reranker:
        """Open what `save_to` wrote, with an encoder that is open already."""
        if not is_fraction(info.get("beta")):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the re-ranker")
        classifiers = load_classifiers(store, f"{prefix}classifier", n_labels, encoder.dim)
        return cls(encoder, classifiers, float(info["beta"]), by_row)


def is_fraction(value: Any) -> bool:
    """Whether a value of a manifest is a number from 0 to 1."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
