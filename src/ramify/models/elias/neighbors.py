"""Training texts that a model keeps, so that an explanation can show those nearest to a new text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify.base.errors import ModelFormatError
from ramify.base.sparse import indptr_from_counts, normalize_rows
from ramify.base.types import AnyArray, ByteArray, Csr, FloatArray, IntArray, LongArray
from ramify.io.labels import LabelVocabulary
from ramify.io.store import Store, StoreWriter
from ramify.rank.explanation import Neighbor

SHOWN_NEIGHBORS = 5


@dataclass(frozen=True, eq=False)
class TrainingTexts:
    """Texts of n training samples, their labels and embeddings.

    Attributes
    ----------
    embeddings : (n, D) of unit norm, in half precision
    text, offsets : the texts, or text fields as JSON, one after the other; text i ends at offsets[i + 1]
    labels, label_indptr : label ids of all samples; those of sample i end at label_indptr[i + 1]
    """

    embeddings: AnyArray
    text: ByteArray
    offsets: LongArray
    labels: IntArray
    label_indptr: LongArray

    @classmethod
    def of(cls, documents: list[Any], Y: Csr, embeddings: FloatArray) -> TrainingTexts:
        """Keep texts, or dicts of text fields, with labels Y (n × L) and embeddings (n, D)."""
        encoded = [json.dumps(d, ensure_ascii=False).encode("utf-8", "surrogatepass") for d in documents]
        return cls(
            normalize_rows(embeddings).astype(np.float16),
            np.frombuffer(b"".join(encoded), np.uint8),
            indptr_from_counts([len(text) for text in encoded]),
            Y.indices.astype(np.int32),
            Y.indptr.astype(np.int64),
        )

    def nearest(self, embedding: FloatArray, label_id: int, labels: LabelVocabulary) -> list[Neighbor]:
        """Return the training texts with embeddings nearest to that of a text (D,), the nearest first."""
        norm = float(np.linalg.norm(embedding)) or 1.0
        similarities = self.embeddings.astype(np.float32) @ (embedding / np.float32(norm))
        best = np.argsort(-similarities, kind="stable")[:SHOWN_NEIGHBORS]
        return [self._neighbor(int(i), float(similarities[i]), label_id, labels) for i in best]

    def _neighbor(self, i: int, similarity: float, label_id: int, labels: LabelVocabulary) -> Neighbor:
        ids = self.labels[self.label_indptr[i] : self.label_indptr[i + 1]]
        try:
            text = json.loads(bytes(self.text[self.offsets[i] : self.offsets[i + 1]]).decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise ModelFormatError(f"training text {i} of the model is damaged: {error}") from error
        return Neighbor(text, similarity, [labels[int(j)] for j in ids], bool(np.any(ids == label_id)))

    # ---- files ----

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write everything into a model directory."""
        for name in ("embeddings", "text", "offsets", "labels", "label_indptr"):
            writer.array(f"{prefix}{name}", getattr(self, name))
        return {"n": len(self.embeddings)}

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, dim: int, n_labels: int) -> TrainingTexts | None:
        """Open what `save_to` wrote; None if the model has kept nothing."""
        if info is None:
            return None
        n = info.get("n") if isinstance(info, dict) else None
        if not isinstance(n, int) or n < 0:
            raise ModelFormatError(f"the manifest of {store.path} does not describe the training texts")
        text = store.array(f"{prefix}text", np.uint8, ndim=1)
        labels = store.array(f"{prefix}labels", np.int32, ndim=1, bounds=(0, max(1, n_labels)))
        offsets = store.array(f"{prefix}offsets", np.int64, shape=(n + 1,), bounds=(0, len(text) + 1))
        indptr = store.array(f"{prefix}label_indptr", np.int64, shape=(n + 1,), bounds=(0, len(labels) + 1))
        embeddings = store.array(f"{prefix}embeddings", np.float16, shape=(n, dim))
        if np.any(np.diff(offsets) < 0) or np.any(np.diff(indptr) < 0):
            raise ModelFormatError(f"{store.path}: the training texts overlap")
        return cls(embeddings, text, offsets, labels, indptr)
