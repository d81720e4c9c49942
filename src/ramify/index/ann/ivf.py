"""Inverted file index (IVF) over int8 codes: faiss runs the k-means, a native kernel searches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import DTypeLike

from ramify import native
from ramify.base.errors import ModelFormatError
from ramify.base.sparse import ascends, indptr_from_counts
from ramify.base.types import AnyArray, FloatArray, IntArray, LongArray
from ramify.index.ann.faiss_index import import_faiss, single_threaded
from ramify.native.ann import Codes

KMEANS_ITERATIONS = 4
"""More iterations do not improve the recall at a given nprobe."""
ARRAYS: dict[str, DTypeLike] = {
    "centroid_codes": np.int8,
    "centroid_scales": np.float32,
    "indptr": np.int64,
    "vectors": np.float32,
    "codes": np.int8,
    "scales": np.float32,
}
"""Arrays of a saved index."""
MAX_SINGLE_LIST = 20_000
"""Vectors that a restricted index searches exhaustively: about as many as an index of a million compares."""
CODE_ALIGNMENT = 32
"""Codes are padded with zeros to a multiple of so many bytes."""


@dataclass(frozen=True, eq=False)
class IvfIndex:
    """Vectors grouped by their nearest centroid, searched by inner product.

    Attributes
    ----------
    centroids : int8 codes and scales of the nlist centroids
    indptr : (nlist + 1,) inverted list c holds the vectors from indptr[c] to indptr[c + 1]
    vectors : (n, D) in the order of the lists, to rescore candidates with; (0, D) if products of codes are final
    codes : int8 codes and scales of the vectors, which select the candidates
    """

    centroids: Codes
    indptr: LongArray
    vectors: FloatArray
    codes: Codes

    method = "ivf"

    @classmethod
    def build(cls, vectors: FloatArray, nlist: int, *, seed: int, threads: int) -> tuple[IvfIndex, LongArray]:
        """Index vectors (n, D) in nlist lists; return the index, and the row (n,) of `vectors` at each position."""
        faiss = import_faiss()
        dim = vectors.shape[1]
        clustering, quantizer = faiss.Clustering(dim, nlist), faiss.IndexFlatIP(dim)
        clustering.seed, clustering.niter, clustering.spherical = seed % 2**31, KMEANS_ITERATIONS, True
        clustering.min_points_per_centroid = 1
        with single_threaded(faiss):  # the centroids depend on the order of summation
            clustering.train(vectors, quantizer)
            _, nearest = quantizer.search(vectors, 1)
        order = np.argsort(nearest[:, 0], kind="stable")
        indptr = indptr_from_counts(np.bincount(nearest[:, 0], minlength=nlist))
        ordered = np.ascontiguousarray(vectors[order])
        centroids = native.ann.quantize(quantizer.reconstruct_n(0, nlist), threads)
        return cls(centroids, indptr, ordered, native.ann.quantize(ordered, threads)), order

    def __len__(self) -> int:
        return len(self.codes[1])

    @property
    def dim(self) -> int:
        """Dimension D of the vectors."""
        return int(self.vectors.shape[1])

    @property
    def nlist(self) -> int:
        """Number of inverted lists."""
        return len(self.indptr) - 1

    @property
    def max_search_width(self) -> int:
        """Largest useful nprobe."""
        return self.nlist

    def without_vectors(self) -> IvfIndex:
        """Return the index with codes only, which does not rescore."""
        return replace(self, vectors=np.empty((0, self.dim), np.float32))

    def restricted(self, rows: LongArray) -> IvfIndex:
        """Return an index of some of the vectors, in their order; few of them are in a single list."""
        codes, scales = self.codes
        kept = codes[rows], scales[rows]
        vectors = self.vectors[rows] if len(self.vectors) else self.vectors
        if len(rows) <= MAX_SINGLE_LIST:
            first = self.centroids[0][:1], self.centroids[1][:1]
            return IvfIndex(first, np.array([0, len(rows)]), vectors, kept)
        return IvfIndex(self.centroids, np.searchsorted(rows, self.indptr), vectors, kept)

    def search(
        self, queries: FloatArray, ids: IntArray, k: int, search_width: int, threads: int, *, ordered: bool = True
    ) -> tuple[IntArray, FloatArray]:
        """Ids and inner products (m, k) of the best vectors in the nprobe = `search_width` nearest lists."""
        parts = self.centroids, self.indptr, ids, self.vectors, self.codes
        return native.ann.search_ivf(*parts, queries, max(1, search_width), k, ordered, threads)

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays of `ARRAYS`, by name."""
        return dict(zip(ARRAYS, (*self.centroids, self.indptr, self.vectors, *self.codes), strict=True))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> IvfIndex:
        """Restore an index from `to_arrays`, after a check that shapes and types are consistent."""
        centroid_codes, centroid_scales, indptr, vectors, codes, scales = (arrays[name] for name in ARRAYS)
        n, dim = scales.size, vectors.shape[1] if vectors.ndim == 2 else 0
        n_vectors = n if vectors.size else 0
        nlist, code_size = indptr.size - 1, -(-dim // CODE_ALIGNMENT) * CODE_ALIGNMENT
        shapes = (nlist, code_size), (nlist,), (nlist + 1,), (n_vectors, dim), (n, code_size), (n,)
        consistent = all(
            arrays[name].dtype == dtype and arrays[name].shape == shape
            for (name, dtype), shape in zip(ARRAYS.items(), shapes, strict=True)
        )
        if not consistent or n < 1 or nlist < 1 or not ascends(indptr, n):
            raise ModelFormatError("the arrays of the IVF index have inconsistent shapes or types")
        return cls((centroid_codes, centroid_scales), indptr, vectors, (codes, scales))
