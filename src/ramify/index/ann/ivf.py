"""Vectors in lists around middles: lists are made by faiss, and read by a search of our own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import DTypeLike

from ramify import native
from ramify.base.errors import ModelFormatError
from ramify.base.sparse import indptr_from_counts
from ramify.base.types import AnyArray, FloatArray, IntArray, LongArray
from ramify.index.ann.faiss_index import import_faiss
from ramify.native.ann import Codes

ROUNDS = 4
"""Of k-means; more make lists that are no better to search."""
ARRAYS: dict[str, DTypeLike] = {
    "middles": np.int8,
    "middle_steps": np.float32,
    "begin": np.int64,
    "vectors": np.float32,
    "codes": np.int8,
    "steps": np.float32,
}
"""What lists are stored as."""


@dataclass(frozen=True, eq=False)
class VectorLists:
    """Vectors, each in the list of its nearest middle.

    Attributes
    ----------
    middles : codes of the C middles
    begin : (C + 1,) where the vectors of each list begin
    vectors : (n, D) in the order of the lists; (0, D): codes have to do
    codes : codes of the vectors, which a search looks at first
    """

    middles: Codes
    begin: LongArray
    vectors: FloatArray
    codes: Codes

    method = "ivf"

    @classmethod
    def build(cls, vectors: FloatArray, n_lists: int, *, seed: int, threads: int) -> tuple[VectorLists, LongArray]:
        """Lists of vectors (n, D), and which of them stands where (n,)."""
        faiss = import_faiss()
        width = vectors.shape[1]
        clusters, middles = faiss.Clustering(width, n_lists), faiss.IndexFlatIP(width)
        clusters.seed, clusters.niter, clusters.spherical = seed % 2**31, ROUNDS, True
        clusters.min_points_per_centroid = 1
        before = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)  # with several, the order of sums would be up to them
        try:
            clusters.train(vectors, middles)
            _, own = middles.search(vectors, 1)
        finally:
            faiss.omp_set_num_threads(before)
        order = np.argsort(own[:, 0], kind="stable")
        begin = indptr_from_counts(np.bincount(own[:, 0], minlength=n_lists))
        ordered = np.ascontiguousarray(vectors[order])
        middle_codes = native.ann.quantize(middles.reconstruct_n(0, n_lists), threads)
        return cls(middle_codes, begin, ordered, native.ann.quantize(ordered, threads)), order

    def __len__(self) -> int:
        return len(self.codes[1])

    @property
    def width(self) -> int:
        """Numbers D in a vector."""
        return int(self.vectors.shape[1])

    @property
    def most(self) -> int:
        """Lists that a search can read."""
        return len(self.begin) - 1

    def codes_only(self) -> VectorLists:
        """Leave out the vectors."""
        return replace(self, vectors=np.empty((0, self.width), np.float32))

    def search(
        self, queries: FloatArray, names: IntArray, k: int, effort: int, threads: int, *, ordered: bool = True
    ) -> tuple[IntArray, FloatArray]:
        """Names and products (m, k) of the vectors with the largest ones in the `effort` nearest lists."""
        parts = self.middles, self.begin, names, self.vectors, self.codes
        return native.ann.search_ivf(*parts, queries, max(1, effort), k, ordered, threads)

    def to_arrays(self) -> dict[str, AnyArray]:
        """Everything by name."""
        return dict(zip(ARRAYS, (*self.middles, self.begin, self.vectors, *self.codes), strict=True))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> VectorLists:
        """Make what `to_arrays` took apart, if the arrays fit together."""
        middles, middle_steps, begin, vectors, codes, steps = (arrays[name] for name in ARRAYS)
        n, width = steps.size, vectors.shape[1] if vectors.ndim == 2 else 0
        n_vectors = n if vectors.size else 0
        n_lists, bytes_each = begin.size - 1, -(-width // 32) * 32
        shapes = (n_lists, bytes_each), (n_lists,), (n_lists + 1,), (n_vectors, width), (n, bytes_each), (n,)
        fits = all(
            arrays[name].dtype == dtype and arrays[name].shape == shape
            for (name, dtype), shape in zip(ARRAYS.items(), shapes, strict=True)
        )
        if not fits or n < 1 or n_lists < 1 or begin[0] != 0 or begin[-1] != n or np.any(np.diff(begin) < 0):
            raise ModelFormatError("the lists of the index do not fit its vectors")
        return cls((middles, middle_steps), begin, vectors, (codes, steps))
