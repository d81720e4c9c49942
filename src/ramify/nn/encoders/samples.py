"""Input of encoders: the features of samples, and the tokens of their texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ramify.base.mixed import Mixed
from ramify.base.sparse import normalize_rows
from ramify.base.types import FloatArray, LongArray
from ramify.nn.encoders.tokens import Tokens


@dataclass(frozen=True, eq=False)
class Samples:
    """Features of n samples, their tokens if a transformer reads them, and the features of a ranker of its own."""

    features: Mixed
    tokens: Tokens | None = None
    ranked: Mixed | None = None

    @property
    def ranker_features(self) -> Mixed:
        """Features that a ranker sees."""
        return self.features if self.ranked is None else self.ranked

    def __len__(self) -> int:
        return len(self.features)

    def take(self, rows: LongArray) -> Samples:
        """Select rows."""
        return Samples(
            self.features.take(rows),
            None if self.tokens is None else self.tokens.take(rows),
            None if self.ranked is None else self.ranked.take(rows),
        )


def with_embeddings(X: Mixed, embeddings: FloatArray, weight: float = 1.0) -> Mixed:
    """Concatenate sparse features of unit norm with embeddings scaled to the given norm."""
    dense = normalize_rows(embeddings) * np.float32(weight)
    return Mixed(normalize_rows(X.sparse), np.ascontiguousarray(dense, np.float32))
