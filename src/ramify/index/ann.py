"""Nearest neighbours, approximately: one small interface over faiss.

What is built depends on the data, the settings and the seed, never on the number of threads; what is found for a row
does not depend on the rows beside it. How much of the exact answer is found is measured when the index is built.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ramify.base import native
from ramify.base.config import Config, param
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.threads import blas_threads
from ramify.base.types import ByteArray, FloatArray, IntArray
from ramify.io.store import Store, StoreWriter

FEW = 8192
"""Vectors up to which every one is looked at: an index would cost more than it saves."""
ROWS_AT_ONCE = 16
"""Queries that faiss gets together: from 20 on it multiplies matrices, which gives other bits than a single row."""
SAMPLE = 256
"""Queries that recall is measured on."""


@dataclass(kw_only=True, eq=False, repr=False)
class AnnConfig(Config):
    """How nearest neighbours are found."""

    method: Literal["auto", "flat", "ivf", "hnsw"] = param(
        "auto",
        "'flat': look at every vector; 'ivf': at those in the nearest lists; 'hnsw': follow a graph of neighbours; "
        "'auto': flat up to some thousand vectors, then lists",
    )
    metric: Literal["cosine", "product"] = param("cosine", "'cosine': by angle; 'product': by inner product")
    lists: int | None = param(None, "'ivf': lists; None: about twice the root of the number of vectors", low=1)
    links: int = param(32, "'hnsw': neighbours of a vector in the graph", low=2, high=512)
    build_width: int = param(128, "'hnsw': vectors that are looked at to find them", low=1)
    effort: int | None = param(
        None,
        "'ivf': lists that a search reads; 'hnsw': vectors that it follows; None: as many as `recall` asks for",
        low=1,
    )
    recall: float = param(0.9, "share of the nearest vectors that a search has to find, in the mean", low=0, high=1)


class AnnIndex:
    """Vectors in which the nearest ones of a query are found.

    Attributes
    ----------
    names : (n,) what a search answers with: the number of each vector
    recall : share of the true neighbours that were found for some queries when the index was built
    effort : lists that a search reads, or vectors of the graph that it follows; 0 where it reads everything
    """

    def __init__(self, index: Any, names: IntArray, metric: str, effort: int, recall: float) -> None:
        self._index, self.names, self.metric, self.recall = index, names, metric, recall
        self._kept: Any = None  # memory that the index looks into
        self.effort = effort
        self._apply(effort)

    @classmethod
    def build(
        cls,
        vectors: FloatArray,
        config: AnnConfig,
        *,
        k: int,
        names: IntArray | None = None,
        queries: FloatArray | None = None,
        seed: int = 0,
        threads: int = 1,
    ) -> AnnIndex:
        """Build an index over vectors (n, D) for searches of k neighbours, and measure what they find.

        Parameters
        ----------
        names : (n,) numbers of the vectors; None: 0 … n - 1
        queries : (m, D) what will be searched for, to measure with; None: the vectors themselves
        """
        faiss = import_faiss()
        n, width = vectors.shape
        if n == 0:
            raise DataError("an index needs vectors")
        if not np.isfinite(vectors).all():
            raise DataError("the vectors of an index have to be finite numbers")
        names = np.arange(n, dtype=np.int32) if names is None else np.ascontiguousarray(names, np.int32)
        method = config.method if config.method != "auto" else "flat" if n <= FEW else "ivf"
        vectors = of_metric(vectors, config.metric)
        before = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)  # with several, the order of insertion would be up to them
        if method == "hnsw":
            index = faiss.IndexHNSWFlat(width, min(config.links, max(2, n - 1)), faiss.METRIC_INNER_PRODUCT)
            index.hnsw.efConstruction = config.build_width
        elif method == "ivf":
            lists = min(n, config.lists or 2 ** round(math.log2(2 * math.sqrt(n))))
            index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, lists, faiss.METRIC_INNER_PRODUCT)
            index.cp.seed, index.cp.niter, index.cp.min_points_per_centroid = seed % 2**31, 10, 1
            index.train(vectors)
        else:
            index = faiss.IndexFlatIP(width)
        index.add(vectors)
        faiss.omp_set_num_threads(before)
        made = cls(index, names, config.metric, 0, 1.0)
        if method != "flat":
            made._tune(vectors, config, min(k, n), queries, seed, threads)
        return made

    def _tune(
        self, vectors: FloatArray, config: AnnConfig, k: int, queries: FloatArray | None, seed: int, threads: int
    ) -> None:
        """Search as widely as the wanted recall asks for."""
        asked = vectors if queries is None else queries
        sample = np.random.default_rng(seed).permutation(len(asked))[:SAMPLE]
        asked = of_metric(asked[np.sort(sample)], self.metric)
        place = len(vectors) - k
        blocks = [asked[start : start + ROWS_AT_ONCE] for start in range(0, len(asked), ROWS_AT_ONCE)]
        with blas_threads(1):  # what is chosen here must not depend on how products are shared out
            worst = np.concatenate([np.partition(block @ vectors.T, place, axis=1)[:, place] for block in blocks])
        worst -= 1e-5 * np.maximum(1e-5, np.abs(worst))  # as near as this is near enough

        def measured(effort: int) -> float:
            self._apply(effort)
            _, scores = self._blocks(asked, k, threads)
            return float(np.mean(np.minimum((scores >= worst[:, None]).sum(axis=1), k) / k))

        most = self._most()
        least = max(16, k) if self.method == "hnsw" else max(4, most // 64)
        self.effort = min(config.effort or least, most)
        self.recall = measured(self.effort)
        too_little = 0
        while config.effort is None and self.recall < config.recall and self.effort < most:
            too_little, self.effort = self.effort, min(most, 2 * self.effort)
            self.recall = measured(self.effort)
        for _ in range(2 if too_little else 0):  # perhaps less than twice as much is enough
            between = (too_little + self.effort) // 2
            recall = measured(between)
            if recall < config.recall:
                too_little = between
            else:
                self.effort, self.recall = between, recall
        self._apply(self.effort)
        if self.recall < config.recall and not (self.method == "ivf" and self.effort == most):
            raise DataError(
                f"the index finds {self.recall:.0%} of the nearest {k} vectors, less than recall={config.recall:g} "
                f"asks for: give more than effort={self.effort}, leave effort out, or choose method='flat'"
            )

    def _most(self) -> int:
        return int(self._index.nlist) if hasattr(self._index, "nlist") else len(self.names)

    def _apply(self, effort: int) -> None:
        if hasattr(self._index, "nprobe"):
            self._index.nprobe = max(1, effort)
        elif hasattr(self._index, "hnsw"):
            self._index.hnsw.efSearch = max(1, effort)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def width(self) -> int:
        """Numbers D in a vector."""
        return int(self._index.d)

    @property
    def method(self) -> str:
        """How it searches: 'flat', 'ivf' or 'hnsw'."""
        return "ivf" if hasattr(self._index, "nlist") else "hnsw" if hasattr(self._index, "hnsw") else "flat"

    def search(
        self, queries: FloatArray, k: int, threads: int = 1, *, effort: int | None = None
    ) -> tuple[IntArray, FloatArray]:
        """Names and similarities (m, k) of the nearest vectors, best first; -1 and -inf where there are no more.

        `effort` is what this search does, in place of what the index was built for.
        """
        found, scores = self._blocks(of_metric(queries, self.metric), min(k, len(self)), threads, effort)
        if found.size and found.max() >= len(self):
            raise ModelFormatError("the index names vectors that it does not have")
        ids = np.where(found >= 0, self.names[found], np.int32(-1))
        return native.list_topk(ids, scores, k, threads)  # equal ones by their number

    def _blocks(self, queries: FloatArray, k: int, threads: int, effort: int | None = None) -> tuple[Any, FloatArray]:
        """Search block by block, on threads of our own: those of faiss would outlive the call, and break in a fork."""
        found = np.empty((len(queries), k), np.int64)
        scores = np.empty((len(queries), k), np.float32)
        faiss = import_faiss()
        one_thread: Callable[[int], None] = faiss.omp_set_num_threads
        own: dict[str, Any] = {}
        if effort is not None and self.method != "flat":
            is_ivf = self.method == "ivf"
            own["params"] = (
                faiss.SearchParametersIVF(nprobe=effort) if is_ivf else faiss.SearchParametersHNSW(efSearch=effort)
            )

        def block(start: int) -> None:
            one_thread(1)
            part = slice(start, start + ROWS_AT_ONCE)
            self._index.search(queries[part], k, D=scores[part], I=found[part], **own)

        starts = range(0, len(queries), ROWS_AT_ONCE)
        if threads == 1 or len(starts) < 2:
            before = faiss.omp_get_max_threads()  # what the caller does with faiss is none of our business
            try:
                for start in starts:
                    block(start)
            finally:
                one_thread(before)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(block, starts))
        return found, scores

    # ---- files ----

    def to_array(self) -> tuple[ByteArray, dict[str, Any]]:
        """Everything but the names as bytes, and what is to be known about them."""
        data: ByteArray = import_faiss().serialize_index(self._index)
        return data, {"metric": self.metric, "effort": self.effort, "recall": self.recall}

    @classmethod
    def from_array(cls, data: ByteArray, names: IntArray, info: Any) -> AnnIndex:
        """Make an index of what `to_array` gave; it looks into the array, which may lie on disk."""
        faiss = import_faiss()
        if not isinstance(info, dict) or not (
            info.get("metric") in ("cosine", "product")
            and type(info.get("effort")) is int
            and 0 <= info["effort"] <= len(names)
            and isinstance(info.get("recall"), float)
        ):
            raise ModelFormatError("the index is not described")
        try:
            reader = faiss.ZeroCopyIOReader(faiss.swig_ptr(data), data.size)
            index = faiss.read_index(reader)
        except RuntimeError as error:
            raise ModelFormatError(f"the index cannot be read: {error}") from error
        if not _is_ours(index, faiss) or index.ntotal != len(names):
            raise ModelFormatError("the index is not one of ours, or not one of its names")
        made = cls(index, names, info["metric"], info["effort"], info["recall"])
        made._kept = data, reader
        return made

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the index into a model's directory."""
        data, info = self.to_array()
        writer.array(f"{prefix}faiss", data)
        writer.array(f"{prefix}names", self.names)
        return info

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, width: int, n_names: int) -> AnnIndex:
        """Open what `save_to` wrote, vectors (n, width) with names below `n_names`; they stay on disk until read."""
        data = store.array(f"{prefix}faiss", np.uint8, ndim=1)
        names = store.array(f"{prefix}names", np.int32, ndim=1, bounds=(0, max(1, n_names)))
        try:
            made = cls.from_array(data, names, info)
        except ModelFormatError as error:
            raise ModelFormatError(f"{store.path}: {error}") from error
        if made.width != width:
            raise ModelFormatError(f"{store.path}: the index does not fit the model")
        return made


def _is_ours(index: Any, faiss: Any) -> bool:
    """Whether an index that was read is one that `build` makes: faiss reads many more, and trusts what it reads."""
    kinds = (faiss.IndexFlat, faiss.IndexIVFFlat, faiss.IndexHNSWFlat)
    if not isinstance(index, kinds) or index.ntotal < 1 or index.metric_type != faiss.METRIC_INNER_PRODUCT:
        return False
    if not isinstance(index, faiss.IndexIVFFlat):
        return True
    middles, lists = faiss.downcast_index(index.quantizer), faiss.downcast_InvertedLists(index.invlists)
    return (
        isinstance(middles, faiss.IndexFlat)
        and middles.metric_type == faiss.METRIC_INNER_PRODUCT
        and (middles.d, middles.ntotal) == (index.d, index.nlist)
        and isinstance(lists, faiss.ArrayInvertedLists)
        and lists.nlist == index.nlist
        and lists.code_size == index.code_size
    )


def of_metric(vectors: FloatArray, metric: str) -> FloatArray:
    """Vectors (n, D) whose inner products are the similarities."""
    vectors = np.ascontiguousarray(vectors, np.float32)
    if metric == "product":
        return vectors
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0)  # squares of small numbers would vanish
    vectors = np.asarray(vectors / np.where(largest > 0, largest, 1), np.float32)
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))[:, None]
    return np.ascontiguousarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)


def import_faiss() -> Any:
    """Return faiss, or say how to get it."""
    try:
        import faiss
    except ImportError as error:
        raise ImportError("nearest neighbours need faiss: pip install 'ramify[deep]'") from error
    return faiss
