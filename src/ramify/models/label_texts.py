"""Texts of labels, of their catalogue: in the form of samples, and as further training samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ramify.base.mixed import Mixed
from ramify.base.sparse import as_csr, csr_from_parts
from ramify.base.types import AnyArray, Csr, FloatArray
from ramify.features.concat import Concat, feature_parts
from ramify.features.tfidf import Tfidf
from ramify.index.tree import LabelTree
from ramify.io.catalogue import LabelCatalogue
from ramify.io.inputs import Inputs
from ramify.io.labels import LabelVocabulary

TEXT_COUNT = 3.0
"""Samples of a label at which its text, as a further sample, has half its weight."""


def label_texts(labels: LabelVocabulary, catalogue: LabelCatalogue | None) -> list[str]:
    """Text of each label: its names, synonyms and description; empty without any."""
    texts = []
    for label in labels:
        entry = None if catalogue is None else catalogue.get_entry(label)
        parts = [] if entry is None else [*dict.fromkeys([*entry.names.values(), *entry.synonyms]), entry.description]
        texts.append(" ".join(part for part in parts if part))
    return texts


def as_documents(texts: list[str], inputs: Inputs, features: Tfidf | Concat) -> list[Any]:
    """Return texts in the form of the samples: beside dicts of text fields, as the first field that is read."""
    if inputs.kind == "text":
        return texts
    fields = feature_parts(features)[0].fields
    name = next(iter(fields or dict.fromkeys(name for document in inputs.data for name in document)))
    return [{name: text} for text in texts]


@dataclass(frozen=True, eq=False)
class TextSamples:
    """Texts of labels as further training samples, each of one label: as positives alone.

    They are no negatives of other labels: a text that names one label says nothing against another.

    Attributes
    ----------
    X : features (m × d)
    Y : their labels (m × L)
    weights : (m,)
    """

    X: Csr
    Y: Csr
    weights: FloatArray

    @classmethod
    def of(cls, texts: Csr, counts: AnyArray, weight: float) -> TextSamples:
        """Return the samples of texts (L × d); the weight of one falls with the samples (L,) of its label."""
        n_labels = texts.shape[0]
        ids = np.flatnonzero(np.diff(texts.indptr))  # without any features a text says nothing
        ones = np.ones(len(ids), np.float32)
        Y = csr_from_parts(ones, ids.astype(np.int32), np.arange(len(ids) + 1), (len(ids), n_labels))
        return cls(as_csr(texts[ids]), Y, (weight / (1 + counts[ids] / TEXT_COUNT)).astype(np.float32))

    def below(
        self, X: Mixed, nodes: Sequence[Csr], relevance: Sequence[Csr] | None, weights: AnyArray | None, tree: LabelTree
    ) -> tuple[Mixed, list[Csr], list[Csr] | None, FloatArray]:
        """Features X, nodes (n × nodes) of each level, their relevance and weights (n,) of samples, and of these."""
        own = tree.project(self.Y)
        dense = np.zeros((len(self.weights), X.dense.shape[1]), np.float32)
        given = np.ones(len(X), np.float32) if weights is None else weights
        return (
            Mixed(_stacked(X.sparse, self.X), np.vstack([X.dense, dense])),
            [_stacked(above, below) for above, below in zip(nodes, own, strict=True)],
            None if relevance is None else [_stacked(R, below) for R, below in zip(relevance, own, strict=True)],
            np.concatenate([given, self.weights]).astype(np.float32),
        )

    def no_negatives(self, M: Csr | None, n: int) -> Csr:
        """Negatives M (n × clusters), None: all n samples, with empty rows for the texts below."""
        M = csr_from_parts(np.ones(n, np.float32), np.zeros(n, np.int32), np.arange(n + 1), (n, 1)) if M is None else M
        return _stacked(M, sparse.csr_matrix((len(self.weights), M.shape[1]), dtype=np.float32))


def _stacked(first: Csr, second: Csr) -> Csr:
    return as_csr(sparse.vstack([first, second], format="csr"))
