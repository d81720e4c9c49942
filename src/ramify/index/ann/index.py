"""Approximate nearest neighbor search by cosine similarity.

An index depends on the vectors, the configuration and the seed, never on the number of threads; the result of a query
does not depend on the other queries of the batch. The recall is measured when the index is built.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ramify import native
from ramify.base.config import Config, param
from ramify.base.errors import DataError, ModelFormatError, check_integer
from ramify.base.threads import blas_threads, resolve_threads
from ramify.base.types import AnyArray, BoolArray, FloatArray, IntArray
from ramify.index.ann import faiss_index, ivf
from ramify.index.ann.faiss_index import QUERY_BLOCK, FaissIndex
from ramify.index.ann.ivf import IvfIndex
from ramify.io.store import Store, StoreWriter

MAX_FLAT_SIZE = 1024
"""Vectors up to which method 'auto' searches exhaustively: an index would cost more than it saves."""
N_TUNING_QUERIES = 256
"""Queries on which the recall is measured."""
MAX_PADDED = 1 << 16
"""Neighbors that may be asked for even if there are fewer vectors."""
ARRAYS = {"flat": faiss_index.FLAT_ARRAYS, "hnsw": faiss_index.HNSW_ARRAYS, "ivf": ivf.ARRAYS}
"""Arrays of a saved index, by method."""


@dataclass(kw_only=True, eq=False, repr=False)
class AnnConfig(Config):
    """Parameters of approximate nearest neighbor search by cosine similarity."""

    method: Literal["auto", "flat", "ivf", "hnsw"] = param(
        "auto",
        "'flat': exhaustive search; 'ivf': inverted lists of int8 codes; 'hnsw': graph of neighbors, without "
        f"quantization; 'auto': flat up to {MAX_FLAT_SIZE} vectors, ivf beyond",
    )
    nlist: int | None = param(
        None,
        "ivf: number of inverted lists; raising it makes the lists shorter, and needs a larger nprobe; None: about "
        "2·√n for n vectors, as a power of two",
        low=1,
    )
    nprobe: int | None = param(
        None,
        "ivf: inverted lists searched per query; raising it raises recall and time; None: tuned to reach `recall`",
        low=1,
    )
    M: int = param(
        32,
        "hnsw: links of a vector in the graph; raising it raises recall, memory and the time to build",
        low=2,
        high=faiss_index.MAX_LINKS,
    )
    ef_construction: int = param(
        128,
        "hnsw: candidates considered when a vector is inserted; raising it raises recall and the time to build",
        low=1,
        high=2**20,
    )
    ef_search: int | None = param(
        None,
        "hnsw: candidates kept during a search; raising it raises recall and time; None: tuned to reach `recall`",
        low=1,
    )
    rescore: bool = param(
        True,
        "ivf: compute the similarities of the best candidates again in float32; False: similarities of int8 codes "
        "are final and the vectors are not stored, for a fifth of the size",
    )
    recall: float = param(
        0.9, "fraction of the true nearest neighbors that a search has to find on average", low=0, high=1
    )

    def search_width(self, method: str) -> int | None:
        """Return the nprobe or ef_search that a method uses; None: to be tuned."""
        return self.nprobe if method == "ivf" else self.ef_search


class AnnIndex:
    """Vectors, searched by cosine similarity.

    Attributes
    ----------
    ids : (n,) id of each vector, in the order in which the vectors are stored
    search_width : nprobe (ivf) or ef_search (hnsw) of a search; 0 for flat
    recall : fraction of the true nearest neighbors that were found when the index was built
    """

    def __init__(self, backend: FaissIndex | IvfIndex, ids: IntArray, search_width: int, recall: float) -> None:
        self._backend, self.ids, self.search_width, self.recall = backend, ids, search_width, recall

    @classmethod
    def build(
        cls,
        vectors: FloatArray,
        config: AnnConfig,
        *,
        k: int,
        ids: IntArray | None = None,
        queries: FloatArray | None = None,
        seed: int = 0,
        threads: int = 1,
    ) -> AnnIndex:
        """Index vectors (n, D) for searches of k neighbors, and measure the recall.

        Parameters
        ----------
        ids : (n,) ids of the vectors; None: 0 … n - 1
        queries : (m, D) queries like those to come, on which the recall is measured; None: the vectors themselves
        """
        n, threads = len(vectors), resolve_threads(threads)
        if n == 0:
            raise DataError("a nearest neighbor index needs at least one vector")
        k, seed = check_integer(k, "k"), check_integer(seed, "seed", 0)
        if not np.isfinite(vectors).all():
            raise DataError("the vectors of a nearest neighbor index contain NaN or infinity")
        ids = np.arange(n, dtype=np.int32) if ids is None else np.ascontiguousarray(ids, np.int32)
        method = config.method if config.method != "auto" else "flat" if n <= MAX_FLAT_SIZE else "ivf"
        vectors = _unit(vectors, threads)
        backend: FaissIndex | IvfIndex
        if method == "ivf":
            nlist = min(n, config.nlist or 2 ** round(math.log2(2 * math.sqrt(n))))
            full, order = IvfIndex.build(vectors, nlist, seed=seed, threads=threads)
            backend = full if config.rescore else full.without_vectors()
        else:
            order = np.arange(n)
            backend = FaissIndex.build(vectors, config.M if method == "hnsw" else None, config.ef_construction)
        index = cls(backend, np.ascontiguousarray(ids[order]), 0, 1.0)
        if method != "flat":
            index._tune(vectors, order.astype(np.int32), config, min(k, n), queries, seed, threads)
        return index

    def _tune(
        self,
        vectors: FloatArray,
        order: IntArray,
        config: AnnConfig,
        k: int,
        queries: FloatArray | None,
        seed: int,
        threads: int,
    ) -> None:
        """Find the smallest search width that reaches the recall; `order` (n,) is the row of each stored vector."""
        queries = vectors if queries is None else queries
        sample = np.random.default_rng(seed).permutation(len(queries))[:N_TUNING_QUERIES]
        queries = _unit(queries[np.sort(sample)], threads)
        kth = len(vectors) - k
        blocks = [queries[start : start + QUERY_BLOCK] for start in range(0, len(queries), QUERY_BLOCK)]
        with blas_threads(1):  # the bits of a product depend on how BLAS divides it among threads
            kth_best = np.concatenate([np.partition(block @ vectors.T, kth, axis=1)[:, kth] for block in blocks])
        kth_best -= 1e-5 * np.maximum(1e-5, np.abs(kth_best))  # ties up to rounding count as found

        def recall_at(search_width: int) -> float:
            found, _ = self._backend.search(queries, order, k, search_width, threads)
            pairs = native.neural.group_pairs(found, len(vectors))
            zero_bias = np.zeros(len(vectors), np.float32)
            products = native.neural.gather_dot(pairs, k, vectors, zero_bias, queries, threads)
            correct = (found >= 0) & (products >= kth_best[:, None])
            return float(np.mean(np.minimum(correct.sum(axis=1), k) / k))

        given, largest = config.search_width(self.method), self._backend.max_search_width
        smallest = max(16, k) if self.method == "hnsw" else max(4, largest // 64)
        self.search_width = min(given or smallest, largest)
        self.recall = recall_at(self.search_width)
        too_small = 0
        while given is None and self.recall < config.recall and self.search_width < largest:
            too_small, self.search_width = self.search_width, min(largest, 2 * self.search_width)
            self.recall = recall_at(self.search_width)
        for _ in range(3 if too_small else 0):  # bisect between the last two widths
            middle = (too_small + self.search_width) // 2
            recall = recall_at(middle)
            if recall < config.recall:
                too_small = middle
            else:
                self.search_width, self.recall = middle, recall
        if self.recall < config.recall and not (self.method == "ivf" and self.search_width == largest):
            name = "nprobe" if self.method == "ivf" else "ef_search"
            raise DataError(
                f"the index finds {self.recall:.0%} of the {k} nearest vectors with {name}={self.search_width}, less "
                f"than recall={config.recall:g}: raise {name}, set it to None to have it tuned, or use method='flat'"
            )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dim(self) -> int:
        """Dimension D of the vectors."""
        return self._backend.dim

    @property
    def method(self) -> str:
        """'flat', 'ivf' or 'hnsw'."""
        return self._backend.method

    def search(
        self, queries: FloatArray, k: int, threads: int = 1, *, ordered: bool = True
    ) -> tuple[IntArray, FloatArray]:
        """Ids and cosine similarities (m, k) of the nearest vectors, padded with -1 and -inf.

        Best first; with ``ordered=False`` in any order, which is a little faster.
        """
        if isinstance(k, bool) or not 1 <= k <= max(len(self), MAX_PADDED):
            raise ValueError(f"k must be between 1 and {max(len(self), MAX_PADDED):,}; got {k!r}")
        return self.search_unit(_unit(queries, threads), k, threads, ordered=ordered)

    def search_unit(
        self, queries: FloatArray, k: int, threads: int, *, ordered: bool = True
    ) -> tuple[IntArray, FloatArray]:
        """`search` for queries that already have unit norm."""
        return self._backend.search(queries, self.ids, k, self.search_width, threads, ordered=ordered)

    def restricted(self, allowed: BoolArray) -> AnnIndex | None:
        """Return an index of the vectors whose ids are allowed (a mask over all ids); None if there are none.

        Few vectors are searched exhaustively, more in proportionally more lists.
        """
        rows = np.flatnonzero(allowed[self.ids])
        if len(rows) == 0:
            return None
        backend = self._backend.restricted(rows)
        width = min(math.ceil(self.search_width * len(self) / len(rows)), backend.max_search_width)
        return AnnIndex(backend, np.ascontiguousarray(self.ids[rows]), width, self.recall)

    # ---- saving ----

    def to_arrays(self) -> tuple[dict[str, AnyArray], dict[str, Any]]:
        """Return the index as arrays by name, and its description for the manifest."""
        info = {"method": self.method, "search_width": self.search_width, "recall": self.recall}
        return {"ids": self.ids, **self._backend.to_arrays()}, info

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray], info: Any) -> AnnIndex:
        """Restore an index from `to_arrays`; the arrays may be memory-mapped."""
        method = _method_of(info)
        if not {"ids", *ARRAYS[method]} <= set(arrays):
            raise ModelFormatError(f"the nearest neighbor index ({method}) lacks some of its arrays")
        for name, dtype in ARRAYS[method].items():
            if arrays[name].dtype != dtype:
                raise ModelFormatError(
                    f"{name} of the nearest neighbor index has type {arrays[name].dtype}, not {np.dtype(dtype)}"
                )
        ids = arrays["ids"]
        if not (
            type(info.get("search_width")) is int
            and 0 <= info["search_width"] <= len(ids)
            and isinstance(info.get("recall"), float)
        ):
            raise ModelFormatError("the description of the nearest neighbor index is incomplete or invalid")
        backend = IvfIndex.from_arrays(arrays) if method == "ivf" else FaissIndex.from_arrays(arrays)
        if len(backend) != len(ids) or backend.method != method:
            raise ModelFormatError(
                f"the nearest neighbor index ({backend.method}, {len(backend)} vectors) does not match its description "
                f"({method}, {len(ids)} ids)"
            )
        return cls(backend, ids, info["search_width"], info["recall"])

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the index to a model directory; return its description for the manifest."""
        arrays, info = self.to_arrays()
        for name, array in arrays.items():
            writer.array(f"{prefix}{name}", array)
        return info

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, dim: int, n_ids: int) -> AnnIndex:
        """Open an index that `save_to` wrote, memory-mapped; it must have vectors (n, dim) and ids below `n_ids`."""
        try:
            arrays = {name: store.array(prefix + name, dtype) for name, dtype in ARRAYS[_method_of(info)].items()}
            arrays["ids"] = store.array(f"{prefix}ids", np.int32, ndim=1, bounds=(0, max(1, n_ids)))
            index = cls.from_arrays(arrays, info)
        except ModelFormatError as error:
            raise ModelFormatError(f"{store.path}: {error}") from error
        if index.dim != dim:
            raise ModelFormatError(
                f"{store.path}: the nearest neighbor index has vectors of dimension {index.dim}; the model needs {dim}"
            )
        return index


def _method_of(info: Any) -> str:
    method = info.get("method") if isinstance(info, dict) else None
    if not isinstance(method, str) or method not in ARRAYS:
        raise ModelFormatError("the manifest does not describe the nearest neighbor index")
    return method


def _unit(vectors: FloatArray, threads: int) -> FloatArray:
    """Scale vectors (n, D) to unit norm, so that inner products are cosine similarities."""
    return native.matrix.unit_rows(np.ascontiguousarray(vectors, np.float32), threads)
