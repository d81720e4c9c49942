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
from ramify.base.extras import needed_for
from ramify.base.sparse import indptr_from_counts
from ramify.base.types import AnyArray, FloatArray, IntArray, LongArray

QUERY_BLOCK = 16
"""Queries per call of faiss. From 20 on it computes a matrix product, whose bits differ from those of one query."""

FLAT_ARRAYS: dict[str, DTypeLike] = {"vectors": np.float32}
HNSW_ARRAYS: dict[str, DTypeLike] = {
    "vectors": np.float32,
    "levels": np.int32,
    "neighbors": np.int32,
    "header": np.int64,
}
"""Arrays of a saved index: vectors (n, D); for HNSW the levels (n,) of each vector, the links of all vectors one after
the other, -1 for none, and [M, entry point].
"""
MAX_LINKS, MAX_LEVELS = 512, 32


class FaissIndex:
    """A flat or HNSW index of faiss over vectors (n, D), searched by inner product."""

    def __init__(self, index: Any) -> None:
        self._index = index

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
        found = np.where(rows >= 0, ids[rows], np.int32(-1))
        return native.matrix.list_topk(found, products, k, threads)  # breaks ties by id

    def restricted(self, rows: LongArray) -> FaissIndex:
        """Return a flat index of some of the vectors."""
        vectors = self._storage.reconstruct_n(0, len(self))[rows]
        return FaissIndex.build(np.ascontiguousarray(vectors), None, 0)

    @property
    def _storage(self) -> Any:
        return import_faiss().downcast_index(self._index.storage) if self.method == "hnsw" else self._index

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays of `FLAT_ARRAYS`, and for HNSW those of `HNSW_ARRAYS`, by name."""
        faiss, n = import_faiss(), len(self)
        vectors = self._storage.reconstruct_n(0, n)
        if self.method == "flat":
            return {"vectors": vectors}
        hnsw = self._index.hnsw
        arrays = [faiss.vector_to_array(vector) for vector in (hnsw.levels, hnsw.neighbors)]
        header = np.array([hnsw.nb_neighbors(1), hnsw.entry_point], np.int64)
        return dict(zip(HNSW_ARRAYS, (vectors, *arrays, header), strict=True))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> FaissIndex:
        """Restore an index from `to_arrays`. faiss gets vectors and a checked graph; it never reads a file itself."""
        faiss, vectors = import_faiss(), arrays["vectors"]
        if vectors.dtype != np.float32 or vectors.ndim != 2 or 0 in vectors.shape or not np.isfinite(vectors).all():
            raise ModelFormatError("the vectors of the nearest neighbor index are missing, or not finite numbers")
        vectors = np.ascontiguousarray(vectors)
        if "levels" not in arrays:
            return cls.build(vectors, None, 0)
        levels, neighbors, header = (np.array(arrays[name]) for name in ("levels", "neighbors", "header"))
        M, entry_point = _check_graph(len(vectors), levels, neighbors, header)
        index = faiss.IndexHNSWFlat(vectors.shape[1], M, faiss.METRIC_INNER_PRODUCT)
        index.storage.add(vectors)
        index.ntotal = len(vectors)
        hnsw = index.hnsw
        faiss.copy_array_to_vector(levels, hnsw.levels)
        faiss.copy_array_to_vector(indptr_from_counts((levels + 1) * M).astype(np.uint64), hnsw.offsets)
        hnsw.neighbors.resize(len(neighbors))
        faiss.rev_swig_ptr(hnsw.neighbors.data(), len(neighbors))[:] = neighbors
        hnsw.entry_point, hnsw.max_level = entry_point, int(levels.max()) - 1
        return cls(index)


def _check_graph(n: int, levels: IntArray, neighbors: IntArray, header: LongArray) -> tuple[int, int]:
    """Check an HNSW graph of n vectors; return M and the entry point.

    A vector with m levels has 2·M links on level 0 and M on each of the others. A link leads to a vector that has the
    level, else the search would read the links of another one.
    """
    M, entry_point = (int(x) for x in header) if header.shape == (2,) else (0, 0)
    valid = (
        2 <= M <= MAX_LINKS
        and levels.shape == (n,)
        and neighbors.ndim == 1
        and levels.min() >= 1
        and levels.max() <= MAX_LEVELS
        and len(neighbors) == M * int((levels.astype(np.int64) + 1).sum())
        and 0 <= entry_point < n
        and levels[entry_point] == levels.max()
        and (len(neighbors) == 0 or (neighbors.min() >= -1 and neighbors.max() < n))
    )
    if valid:
        counts = (levels.astype(np.int64) + 1) * M
        slots = np.arange(len(neighbors)) - np.repeat(indptr_from_counts(counts)[:-1], counts)
        level_of_link = np.maximum(slots // M - 1, 0)
        valid = bool(np.all((neighbors < 0) | (levels[np.maximum(neighbors, 0)] > level_of_link)))
    if not valid:
        raise ModelFormatError("the HNSW graph does not match its vectors")
    return M, entry_point


def import_faiss() -> Any:
    """Import faiss, or raise an `ImportError` that says how to install it."""
    with needed_for("approximate nearest neighbor search", "faiss", "ann"):
        import faiss
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
