"""Vectors that faiss searches: all of them, or along a graph of neighbours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ramify import native
from ramify.base.errors import ModelFormatError
from ramify.base.types import AnyArray, ByteArray, FloatArray, IntArray

ROWS_AT_ONCE = 16
"""Queries that faiss gets together: from 20 on it multiplies matrices, which gives other bits than a single row."""

ARRAYS: dict[str, DTypeLike] = {"faiss": np.uint8}
"""What an index is stored as."""


class FaissVectors:
    """An index of faiss for inner products, flat or with a graph."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self._kept: Any = None  # memory that the index looks into

    @classmethod
    def build(cls, vectors: FloatArray, links: int | None, build_width: int) -> FaissVectors:
        """Index vectors (n, D), with a graph of so many links; None: without."""
        faiss = import_faiss()
        n, width = vectors.shape
        before = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)  # with several, the order of insertion would be up to them
        try:
            if links is None:
                index = faiss.IndexFlatIP(width)
            else:
                index = faiss.IndexHNSWFlat(width, min(links, max(2, n - 1)), faiss.METRIC_INNER_PRODUCT)
                index.hnsw.efConstruction = build_width
            index.add(vectors)
        finally:
            faiss.omp_set_num_threads(before)
        return cls(index)

    @property
    def method(self) -> str:
        """'flat' or 'hnsw'."""
        return "hnsw" if hasattr(self._index, "hnsw") else "flat"

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def width(self) -> int:
        """Numbers D in a vector."""
        return int(self._index.d)

    @property
    def most(self) -> int:
        """Vectors that a search can follow."""
        return len(self)

    def search(
        self, queries: FloatArray, names: IntArray, k: int, effort: int, threads: int, *, ordered: bool = True
    ) -> tuple[IntArray, FloatArray]:
        """Names and products (m, k) of the vectors with the largest ones, `effort` of which are followed in a graph.

        They are in order, whether that is asked for or not.

        Block by block, on threads of our own: those of faiss would outlive the call, and break in a fork.
        """
        width = min(k, len(self))
        found = np.empty((len(queries), width), np.int64)
        scores = np.empty((len(queries), width), np.float32)
        faiss = import_faiss()
        one_thread: Callable[[int], None] = faiss.omp_set_num_threads
        own: dict[str, Any] = {}
        if self.method == "hnsw":
            own["params"] = faiss.SearchParametersHNSW(efSearch=max(1, effort))

        def block(start: int) -> None:
            one_thread(1)
            part = slice(start, start + ROWS_AT_ONCE)
            self._index.search(queries[part], width, D=scores[part], I=found[part], **own)

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
        if found.size and found.max() >= len(self):
            raise ModelFormatError("the index names vectors that it does not have")
        ids = np.where(found >= 0, names[found], np.int32(-1))
        return native.matrix.list_topk(ids, scores, k, threads)  # equal ones by their number

    def to_arrays(self) -> dict[str, AnyArray]:
        """Everything as bytes."""
        return {"faiss": import_faiss().serialize_index(self._index)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> FaissVectors:
        """Make an index of what `to_arrays` gave; it looks into the array, which may lie on disk."""
        faiss = import_faiss()
        data: ByteArray = arrays["faiss"]
        if data.dtype != np.uint8 or data.ndim != 1:
            raise ModelFormatError("the index is not made of bytes")
        try:
            reader = faiss.ZeroCopyIOReader(faiss.swig_ptr(data), data.size)
            index = faiss.read_index(reader)
        except RuntimeError as error:
            raise ModelFormatError(f"the index cannot be read: {error}") from error
        # faiss reads many more kinds than `build` makes, and trusts what it reads
        ours = isinstance(index, faiss.IndexFlat | faiss.IndexHNSWFlat)
        if not ours or index.ntotal < 1 or index.metric_type != faiss.METRIC_INNER_PRODUCT:
            raise ModelFormatError("the index is not one of ours")
        made = cls(index)
        made._kept = data, reader
        return made


def import_faiss() -> Any:
    """Return faiss, or say how to get it."""
    try:
        import faiss
    except ImportError as error:
        raise ImportError("nearest neighbours need faiss: pip install 'ramify[deep]'") from error
    return faiss
