"""Training texts that a model keeps, so that an explanation can show those nearest to a new text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify.base.errors import ModelFormatError
from ramify.base.sparse import ascends, indptr_from_counts
from ramify.base.types import ByteArray, Csr, IntArray, LongArray
from ramify.io.labels import LabelVocabulary
from ramify.io.store import Store, StoreWriter
from ramify.rank.explanation import Neighbor

SHOWN_NEIGHBORS = 5


def encode_texts(documents: list[Any]) -> tuple[ByteArray, LongArray]:
    """Texts, or dicts of text fields, as JSON one after the other, and their offsets (n + 1,)."""
    encoded = [json.dumps(d, ensure_ascii=False).encode("utf-8", "surrogatepass") for d in documents]
    return np.frombuffer(b"".join(encoded), np.uint8), indptr_from_counts([len(text) for text in encoded])


@dataclass(frozen=True, eq=False)
class KeptTexts:
    """Texts of n training samples, and their labels.

    Attributes
    ----------
    text, offsets : the texts, or text fields as JSON, one after the other; text i ends at offsets[i + 1]
    labels, label_indptr : label ids of all samples; those of sample i end at label_indptr[i + 1]
    """

    text: ByteArray
    offsets: LongArray
    labels: IntArray
    label_indptr: LongArray

    @classmethod
    def of(cls, documents: list[Any], Y: Csr) -> KeptTexts:
        """Keep texts, or dicts of text fields, with labels Y (n × L)."""
        return cls(*encode_texts(documents), Y.indices.astype(np.int32), Y.indptr.astype(np.int64))

    def neighbor(self, i: int, similarity: float, label_id: int, labels: LabelVocabulary) -> Neighbor:
        """Training sample i as a neighbor of an explained text."""
        ids = self.labels[self.label_indptr[i] : self.label_indptr[i + 1]]
        try:
            text = json.loads(bytes(self.text[self.offsets[i] : self.offsets[i + 1]]).decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise ModelFormatError(f"training text {i} of the model is damaged: {error}") from error
        return Neighbor(text, similarity, [labels[int(j)] for j in ids], bool(np.any(ids == label_id)))

    def joined(self, other: KeptTexts) -> KeptTexts:
        """Return the texts of both, those of `other` behind."""
        return KeptTexts(
            np.concatenate([self.text, other.text]),
            np.concatenate([self.offsets, other.offsets[1:] + self.offsets[-1]]),
            np.concatenate([self.labels, other.labels]),
            np.concatenate([self.label_indptr, other.label_indptr[1:] + self.label_indptr[-1]]),
        )

    # ---- files ----

    def save_to(self, writer: StoreWriter, prefix: str) -> None:
        """Write everything into a model directory."""
        for name in ("text", "offsets", "labels", "label_indptr"):
            writer.array(f"{prefix}{name}", getattr(self, name))

    @classmethod
    def load_from(cls, store: Store, prefix: str, n: int, n_labels: int) -> KeptTexts:
        """Open what `save_to` wrote for n samples."""
        text = store.array(f"{prefix}text", np.uint8, ndim=1)
        labels = store.array(f"{prefix}labels", np.int32, ndim=1, bounds=(0, max(1, n_labels)))
        offsets = store.array(f"{prefix}offsets", np.int64, shape=(n + 1,), bounds=(0, len(text) + 1))
        indptr = store.array(f"{prefix}label_indptr", np.int64, shape=(n + 1,), bounds=(0, len(labels) + 1))
        if not (ascends(offsets) and ascends(indptr)):
            raise ModelFormatError(f"{store.path}: the training texts overlap")
        return cls(text, offsets, labels, indptr)
