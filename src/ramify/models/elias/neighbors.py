"""Training texts that a model keeps with their embeddings, to show those nearest to a new text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify.base.errors import ModelFormatError
from ramify.base.sparse import normalize_rows
from ramify.base.types import AnyArray, Csr, FloatArray
from ramify.io.labels import LabelVocabulary
from ramify.io.store import Store, StoreWriter
from ramify.models.kept_texts import SHOWN_NEIGHBORS, KeptTexts
from ramify.rank.explanation import Neighbor


@dataclass(frozen=True, eq=False)
class TrainingTexts:
    """Texts of n training samples, their labels and embeddings.

    Attributes
    ----------
    embeddings : (n, D) of unit norm, in half precision
    texts : of the same samples
    """

    embeddings: AnyArray
    texts: KeptTexts

    @classmethod
    def of(cls, documents: list[Any], Y: Csr, embeddings: FloatArray) -> TrainingTexts:
        """Keep texts, or dicts of text fields, with labels Y (n × L) and embeddings (n, D)."""
        return cls(normalize_rows(embeddings).astype(np.float16), KeptTexts.of(documents, Y))

    def nearest(self, embedding: FloatArray, label_id: int, labels: LabelVocabulary) -> list[Neighbor]:
        """Return the training texts with embeddings nearest to that of a text (D,), the nearest first."""
        norm = float(np.linalg.norm(embedding)) or 1.0
        similarities = self.embeddings.astype(np.float32) @ (embedding / np.float32(norm))
        best = np.argsort(-similarities, kind="stable")[:SHOWN_NEIGHBORS]
        return [self.texts.neighbor(int(i), float(similarities[i]), label_id, labels) for i in best]

    # ---- files ----

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write everything into a model directory."""
        writer.array(f"{prefix}embeddings", self.embeddings)
        self.texts.save_to(writer, prefix)
        return {"n": len(self.embeddings)}

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, dim: int, n_labels: int) -> TrainingTexts | None:
        """Open what `save_to` wrote; None if the model has kept nothing."""
        if info is None:
            return None
        n = info.get("n") if isinstance(info, dict) else None
        if not isinstance(n, int) or n < 0:
            raise ModelFormatError(f"the manifest of {store.path} does not describe the training texts")
        embeddings = store.array(f"{prefix}embeddings", np.float16, shape=(n, dim))
        return cls(embeddings, KeptTexts.load_from(store, prefix, n, n_labels))
