"""Labels in their places among the vectors of points: what a search for near labels looks through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ramify import native
from ramify.base.errors import ModelFormatError
from ramify.base.types import AnyArray, FloatArray, IntArray, LongArray
from ramify.index.ann import AnnConfig, AnnIndex
from ramify.io.store import Store, StoreWriter
from ramify.nn.tables import Arrays, arrays_of, named_arrays

FREQUENT = 50
"""Labels, the most frequent ones, that every search finds, unless there are few: what half of the points have in common
lies in the middle of them all, near none.
"""


class LabelPlaces:
    """Labels that have points, each with a place; the most frequent ones are near everything.

    Attributes
    ----------
    index : all but the frequent ones
    frequent : (F,) numbers of the frequent ones, the most frequent first
    vectors : (F, D) their places, as similarities are computed with them
    """

    def __init__(self, index: AnnIndex, frequent: IntArray, vectors: FloatArray) -> None:
        self.index, self.frequent, self.vectors = index, frequent, vectors

    @classmethod
    def build(
        cls,
        places: FloatArray,
        names: IntArray,
        counts: LongArray,
        config: AnnConfig,
        *,
        k: int,
        queries: FloatArray,
        seed: int,
        threads: int,
    ) -> LabelPlaces:
        """Index places (m, D) of labels for searches of k, given their numbers (m,) and counts of points (m,)."""
        n_frequent = min(FREQUENT, len(names) // 10, k // 4)
        order = np.lexsort((names, -counts))
        often, others = order[:n_frequent], np.sort(order[n_frequent:])
        index = AnnIndex.build(
            places[others],
            config,
            k=k - n_frequent,
            ids=names[others],
            queries=queries,
            seed=seed,
            threads=threads,
        )
        return cls(index, names[often], native.matrix.unit_rows(places[often], threads))

    def __len__(self) -> int:
        return len(self.index) + len(self.frequent)

    def search(self, vectors: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Numbers and similarities (n, k) of labels near vectors (n, D): the frequent ones and the nearest others."""
        n_frequent = min(len(self.frequent), k // 4)
        queries = native.matrix.unit_rows(vectors, threads)
        ids, near = self.index.search_unit(queries, k - n_frequent, threads, ordered=False)
        if n_frequent == 0:
            return ids, near
        often = native.matrix.dense_products(self.vectors[:n_frequent], queries, threads)
        frequent = np.empty(often.shape, np.int32)
        frequent[:] = self.frequent[:n_frequent]
        return np.concatenate([frequent, ids], axis=1), np.concatenate([often, near], axis=1)

    # ---- files ----

    def to_arrays(self) -> tuple[Arrays, dict[str, Any]]:
        """Everything as arrays, and what is to be known about them."""
        index, info = self.index.to_arrays()
        return {**named_arrays("index", index), "frequent": self.frequent, "vectors": self.vectors}, info

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray], info: Any) -> LabelPlaces:
        """Make what `to_arrays` took apart."""
        return cls(AnnIndex.from_arrays(arrays_of("index", arrays), info), arrays["frequent"], arrays["vectors"])

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write everything into a model's directory."""
        writer.array(f"{prefix}frequent", self.frequent)
        writer.array(f"{prefix}frequent_vectors", self.vectors)
        return self.index.save_to(writer, prefix)

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, width: int, n_labels: int) -> LabelPlaces:
        """Open what `save_to` wrote, for labels with places (n_labels, width)."""
        index = AnnIndex.load_from(store, info, prefix, width, n_labels)
        frequent = store.array(f"{prefix}frequent", np.int32, ndim=1, bounds=(0, max(1, n_labels)))
        if len(np.unique(np.concatenate([index.ids, frequent]))) != len(index) + len(frequent):
            raise ModelFormatError(f"{store.path}: the index names a label twice")
        vectors = store.array(f"{prefix}frequent_vectors", np.float32, shape=(len(frequent), width))
        return cls(index, frequent, vectors)


def list_products(
    weights: FloatArray, offset: FloatArray, ids: IntArray, vectors: FloatArray, threads: int
) -> FloatArray:
    """Products (n, k) of vectors (n, D) with the rows of a table (L, D) on their lists (n, k); 0 behind the last."""
    pairs = native.neural.group_pairs(np.ascontiguousarray(ids), len(weights))
    return native.neural.gather_dot(pairs, ids.shape[1], weights, offset, vectors, threads)
