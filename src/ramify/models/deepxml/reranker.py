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
from ramify.rank.blend import row_normalized

RERANKED_LABELS = 100
"""Labels of a sample that are re-ranked."""

Classifiers = tuple[FloatArray, FloatArray]
"""Weights (L, D) and bias (L,)."""


@dataclass(eq=False)
class Reranker:
    """Blends the scores of its own classifiers, with weight `beta`, and those of the first ranking."""

    encoder: Encoder
    classifiers: Classifiers
    beta: float

    def rank(
        self, samples: Samples, ids: IntArray, scores: FloatArray, k: int, threads: int
    ) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k) of the best labels, given a ranking (n, m); labels that are not re-ranked follow."""
        best, rest = slice(None, RERANKED_LABELS), slice(RERANKED_LABELS, None)
        evidence = np.where(ids[:, best] >= 0, scores[:, best], np.float32(0))
        phi = self.encoder.encode(samples, threads)
        found = native.neural.rank_blended(
            self.classifiers, self.beta, ids[:, best], evidence, phi, min(k, RERANKED_LABELS), threads
        )
        return found if k <= RERANKED_LABELS else append_labels(*found, ids[:, rest], scores[:, rest], k, threads)

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the re-ranker into a model directory."""
        save_classifiers(writer, prefix, self.classifiers)
        return {"encoder": self.encoder.save_to(writer, f"{prefix}encoder_"), "beta": self.beta}

    @classmethod
    def load_from(cls, store: Store, info: dict[str, Any], prefix: str, encoder: Encoder, n_labels: int) -> Reranker:
        """Open what `save_to` wrote, with an encoder that is open already."""
        if not is_fraction(info.get("beta")):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the re-ranker")
        return cls(encoder, load_classifiers(store, prefix, n_labels, encoder.dim), float(info["beta"]))


def append_labels(
    ids: IntArray, scores: FloatArray, more_ids: IntArray, more_scores: FloatArray, k: int, threads: int
) -> tuple[IntArray, FloatArray]:
    """Ids and scores (n, k) of a ranking followed by further labels, whose scores are scaled to lie below."""
    last = scores.min(axis=1, keepdims=True, initial=1.0, where=ids >= 0)
    scaled = last * row_normalized(np.where(more_ids >= 0, more_scores, np.float32(0))) * np.float32(0.999)
    return native.matrix.list_topk(np.hstack([ids, more_ids]), np.hstack([scores, scaled]), k, threads)


def save_classifiers(writer: StoreWriter, prefix: str, classifiers: Classifiers) -> None:
    """Write weights and bias into a model directory."""
    for name, array in zip(("weights", "bias"), classifiers, strict=True):
        writer.array(f"{prefix}{name}", array)


def load_classifiers(store: Store, prefix: str, n_labels: int, dim: int) -> Classifiers:
    """Open what `save_classifiers` wrote."""
    return (
        store.array(f"{prefix}weights", np.float32, shape=(n_labels, dim)),
        store.array(f"{prefix}bias", np.float32, shape=(n_labels,)),
    )


def is_fraction(value: Any) -> bool:
    """Whether a value of a manifest is a number from 0 to 1."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
