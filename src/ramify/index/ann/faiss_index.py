"""Flat and HNSW indexes of faiss for inner products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ramify import native
from ramify.base.errors import ModelFormatError
from ramify.base.types import AnyArray, ByteArray, FloatArray, IntArray

QUERY_BLOCK = 16
"""Queries per call of faiss. From 20 on it computes a matrix product, whose bits differ from those of one query."""

ARRAYS: dict[str, DTypeLike] = {"faiss": np.uint8}
"""Arrays of a saved index."""


class FaissIndex:
    """A flat or HNSW index of faiss over vectors (n, D), searched by inner product."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self._buffer: Any = None  # memory that a deserialized index reads from

    @classmethod
    def build(cls, vectors: FloatArray, M: int | None, ef_construction: int) -> FaissIndex:
        """Index vectors (n, D): HNSW with M links per vector and level, or flat if M is None."""
        faiss = import_faiss()
        n, dim = vectors.shape
        with single_threaded(faiss):  # the graph depends on the order of insertion
            if M is None:
                index = faiss.IndexFlatIP(dim)
            else:
                index = faiss.IndexHNSWFlat(dim, min(M, max(2, n - 1)), faiss.METRIC_INNER_PRODUCT)
                index.hnsw.efConstruction = ef_construction
            index.add(vectors)
        return cls(index)

    @property
    def method(self) -> str:
        """'flat' or 'hnsw'."""
        return "hnsw" if hasattr(self._index, "hnsw") else "flat"

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def dim(self) -> int:
        """Dimension D of the vectors."""
        return int(self._index.d)

    @property
    def max_search_width(self) -> int:
        """Largest useful ef_search."""
        return len(self)

    def search(
        self, queries: FloatArray, ids: IntArray, k: int, search_width: int, threads: int, *, ordered: bool = True
    ) -> tuple[IntArray, FloatArray]:
        """Ids and inner products (m, k) of the nearest vectors, best first; HNSW uses ef_search = `search_width`.

        faiss always sorts its results, so `ordered` has no effect. Blocks of queries run on threads of our own: the
        OpenMP threads of faiss would outlive the call and break in a forked process.
        """
        n_found = min(k, len(self))
        rows = np.empty((len(queries), n_found), np.int64)
        products = np.empty((len(queries), n_found), np.float32)
        faiss = import_faiss()
        set_threads: Callable[[int], None] = faiss.omp_set_num_threads
        options: dict[str, Any] = {}
        if self.method == "hnsw":
            options["params"] = faiss.SearchParametersHNSW(efSearch=max(1, search_width))

        def search_block(start: int) -> None:
            set_threads(1)  # the setting is per thread
            block = slice(start, start + QUERY_BLOCK)
            self._index.search(queries[block], n_found, D=products[block], I=rows[block], **options)

        starts = range(0, len(queries), QUERY_BLOCK)
        if threads == 1 or len(starts) < 2:
            with single_threaded(faiss):
                for start in starts:
                    search_block(start)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(search_block, starts))
        if rows.size and rows.max() >= len(self):
            raise ModelFormatError("the HNSW graph refers to vectors that the index does not have")
        found = np.where(rows >= 0, ids[rows], np.int32(-1))
        return native.matrix.list_topk(found, products, k, threads)  # breaks ties by id

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays of `ARRAYS`, by name."""
        return {"faiss": import_faiss().serialize_index(self._index)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> FaissIndex:
        """Restore an index from `to_arrays`. It reads from the array in place, which may be memory-mapped."""
        faiss = import_faiss()
        data: ByteArray = arrays["faiss"]
        if data.dtype != np.uint8 or data.ndim != 1:
            raise ModelFormatError("the serialized faiss index is not an array of bytes")
        try:
            reader = faiss.ZeroCopyIOReader(faiss.swig_ptr(data), data.size)
            index = faiss.read_index(reader)
        except RuntimeError as error:
            raise ModelFormatError(f"the faiss index cannot be read: {error}") from error
        # faiss reads many more kinds of index than `build` creates, and trusts their content.
        supported = isinstance(index, faiss.IndexFlat | faiss.IndexHNSWFlat)
        if not supported or index.ntotal < 1 or index.metric_type != faiss.METRIC_INNER_PRODUCT:
            raise ModelFormatError("the faiss index is empty, or neither a flat nor an HNSW index for inner products")
        restored = cls(index)
        restored._buffer = data, reader
        return restored


def import_faiss() -> Any:
    """Import faiss, or raise an `ImportError` that says how to install it."""
    try:
        import faiss
    except ImportError as error:
        raise ImportError("approximate nearest neighbor search needs faiss: pip install 'ramify[ann]'") from error
    return faiss


@contextmanager
def single_threaded(faiss: Any) -> Iterator[None]:
    """Run faiss on one thread, for results that do not depend on scheduling; restore the caller's setting after."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
