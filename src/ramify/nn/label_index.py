"""Label index: label embeddings with their ANN index, from which shortlists are retrieved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ramify import native
from ramify.base.errors import ModelFormatError
from ramify.base.types import AnyArray, FloatArray, IntArray, LongArray
from ramify.index.ann import AnnConfig, AnnIndex
from ramify.io.store import Store, StoreWriter
from ramify.nn.optim import Arrays, add_prefix, restored, select_prefix
from ramify.rank.filters import LabelFilter

N_FREQUENT = 50
"""Most frequent labels that are candidates of every sample: the embedding of a label with very many samples is close to
none of them. They are at most a tenth of the labels and a quarter of the candidates.
"""


class LabelIndex:
    """An ANN index of label embeddings; the most frequent labels are candidates of every query.

    Attributes
    ----------
    index : all labels but the frequent ones
    frequent : (F,) ids of the frequent labels, the most frequent first
    frequent_embeddings : (F, D) their label embeddings, of unit norm
    """

    def __init__(self, index: AnnIndex, frequent: IntArray, frequent_embeddings: FloatArray) -> None:
        self.index, self.frequent, self.frequent_embeddings = index, frequent, frequent_embeddings

    @classmethod
    def build(
        cls,
        embeddings: FloatArray,
        ids: IntArray,
        counts: LongArray,
        config: AnnConfig,
        *,
        k: int,
        queries: FloatArray,
        seed: int,
        threads: int,
    ) -> LabelIndex:
        """Index label embeddings (m, D) for searches of k labels.

        Parameters
        ----------
        ids, counts : (m,) label ids, and the number of training samples of each label
        queries : (n, D) embeddings of samples, on which recall is measured
        """
        n_frequent = min(N_FREQUENT, len(ids) // 10, _max_frequent(k))
        order = np.lexsort((ids, -counts))
        frequent, others = order[:n_frequent], np.sort(order[n_frequent:])
        index = AnnIndex.build(
            embeddings[others],
            config,
            k=k - n_frequent,
            ids=ids[others],
            queries=queries,
            seed=seed,
            threads=threads,
        )
        return cls(index, ids[frequent], native.matrix.unit_rows(embeddings[frequent], threads))

    def __len__(self) -> int:
        return len(self.index) + len(self.frequent)

    def search(self, embeddings: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and cosine similarities (n, k) of candidates for embeddings (n, D): frequent labels, then the nearest."""
        n_frequent = min(len(self.frequent), _max_frequent(k))
        queries = native.matrix.unit_rows(np.ascontiguousarray(embeddings, np.float32), threads)
        ids, similarities = self.index.search_unit(queries, k - n_frequent, threads, ordered=False)
        if n_frequent == 0:
            return ids, similarities
        to_frequent = native.matrix.dense_products(self.frequent_embeddings[:n_frequent], queries, threads)
        frequent = np.empty(to_frequent.shape, np.int32)
        frequent[:] = self.frequent[:n_frequent]
        return np.concatenate([frequent, ids], axis=1), np.concatenate([to_frequent, similarities], axis=1)

    def search_allowed(
        self, embeddings: FloatArray, k: int, threads: int, label_filter: LabelFilter
    ) -> tuple[IntArray, FloatArray]:
        """Ids and cosine similarities (n, k) of the nearest allowed labels; fewer columns if there are fewer labels."""
        index = label_filter.prepared(self.index, lambda: self.index.restricted(label_filter.allowed))
        queries = native.matrix.unit_rows(np.ascontiguousarray(embeddings, np.float32), threads)
        frequent = np.flatnonzero(label_filter.allowed[self.frequent])
        if index is not None and len(frequent) == 0:
            return index.search_unit(queries, min(k, len(index)), threads)
        embeddings = np.ascontiguousarray(self.frequent_embeddings[frequent])
        similarities = native.matrix.dense_products(embeddings, queries, threads)
        ids: IntArray = np.broadcast_to(self.frequent[frequent], similarities.shape)
        if index is not None:
            nearest = index.search_unit(queries, min(k, len(index)), threads)
            ids, similarities = np.hstack([ids, nearest[0]]), np.hstack([similarities, nearest[1]])
        ids = np.ascontiguousarray(ids)
        return native.matrix.list_topk(ids, similarities, max(1, min(k, ids.shape[1])), threads)

    # ---- files ----

    def to_arrays(self) -> tuple[Arrays, dict[str, Any]]:
        """Return everything as arrays, and their description."""
        index, info = self.index.to_arrays()
        arrays = {"frequent": self.frequent, "frequent_embeddings": self.frequent_embeddings}
        return {**add_prefix("index", index), **arrays}, info

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray], info: Any, dim: int, n_labels: int) -> LabelIndex:
        """Restore what `to_arrays` returned, for labels with embeddings (n_labels, dim)."""
        parts, frequent = select_prefix("index", arrays), arrays.get("frequent", np.empty(0))
        n = len(parts.get("ids", ())), len(frequent)
        ids = restored(parts, "ids", np.int32, (n[0],), (0, n_labels))
        frequent = restored(arrays, "frequent", np.int32, (n[1],), (0, n_labels))
        embeddings = restored(arrays, "frequent_embeddings", np.float32, (n[1], dim))
        index = AnnIndex.from_arrays({**parts, "ids": ids}, info)
        if index.dim != dim:
            raise ModelFormatError(f"the index has vectors of dimension {index.dim}; the encoder {dim}")
        _check_distinct(index, frequent)
        return cls(index, frequent, embeddings)

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write everything into a model directory."""
        writer.array(f"{prefix}frequent", self.frequent)
        writer.array(f"{prefix}frequent_embeddings", self.frequent_embeddings)
        return self.index.save_to(writer, prefix)

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, dim: int, n_labels: int) -> LabelIndex:
        """Open what `save_to` wrote, for labels with embeddings (n_labels, dim)."""
        index = AnnIndex.load_from(store, info, prefix, dim, n_labels)
        frequent = store.array(f"{prefix}frequent", np.int32, ndim=1, bounds=(0, max(1, n_labels)))
        _check_distinct(index, frequent)
        embeddings = store.array(f"{prefix}frequent_embeddings", np.float32, shape=(len(frequent), dim))
        return cls(index, frequent, embeddings)


def _check_distinct(index: AnnIndex, frequent: IntArray) -> None:
    if len(np.unique(np.concatenate([index.ids, frequent]))) != len(index) + len(frequent):
        raise ModelFormatError("the index of label embeddings contains a label twice")


def _max_frequent(k: int) -> int:
    """Maximum number of frequent labels among k candidates."""
    return k // 4
