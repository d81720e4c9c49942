"""Nearest neighbours, approximately: one small interface over faiss, and over lists that we read ourselves.

What is built depends on the data, the settings and the seed, never on the number of threads; what is found for a row
does not depend on the rows beside it. How much of the exact answer is found is measured when the index is built.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ramify import native
from ramify.base.config import Config, param
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.threads import blas_threads
from ramify.base.types import AnyArray, FloatArray, IntArray
from ramify.index.ann import faiss_index, ivf
from ramify.index.ann.faiss_index import ROWS_AT_ONCE, FaissVectors
from ramify.index.ann.ivf import VectorLists
from ramify.io.store import Store, StoreWriter

FEW = 1024
"""Vectors up to which every one is looked at: an index would cost more than it saves."""
SAMPLE = 256
"""Queries that recall is measured on."""
ARRAYS = {"flat": faiss_index.ARRAYS, "hnsw": faiss_index.ARRAYS, "ivf": ivf.ARRAYS}
"""What an index is stored as, by method."""


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
    rescore: bool = param(
        True,
        "'ivf': compute the similarities of what is nearest by codes, one byte a number, again with the vectors; "
        "False: codes have to do, and no vectors are stored, for a fifth of the size",
    )
    recall: float = param(0.9, "share of the nearest vectors that a search has to find, in the mean", low=0, high=1)


class AnnIndex:
    """Vectors in which the nearest ones of a query are found.

    Attributes
    ----------
    names : (n,) what a search answers with: the number of each vector, in the order in which they are stored
    recall : share of the true neighbours that were found for some queries when the index was built
    effort : lists that a search reads, or vectors of the graph that it follows; 0 where it reads everything
    """

    def __init__(
        self, stored: FaissVectors | VectorLists, names: IntArray, metric: str, effort: int, recall: float
    ) -> None:
        self._stored, self.names, self.metric, self.effort, self.recall = stored, names, metric, effort, recall

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
        n = len(vectors)
        if n == 0:
            raise DataError("an index needs vectors")
        if not np.isfinite(vectors).all():
            raise DataError("the vectors of an index have to be finite numbers")
        names = np.arange(n, dtype=np.int32) if names is None else np.ascontiguousarray(names, np.int32)
        method = config.method if config.method != "auto" else "flat" if n <= FEW else "ivf"
        vectors = of_metric(vectors, config.metric, threads)
        stored: FaissVectors | VectorLists
        if method == "ivf":
            n_lists = min(n, config.lists or 2 ** round(math.log2(2 * math.sqrt(n))))
            lists, order = VectorLists.build(vectors, n_lists, seed=seed, threads=threads)
            stored = lists if config.rescore else lists.codes_only()
        else:
            order = np.arange(n)
            stored = FaissVectors.build(vectors, config.links if method == "hnsw" else None, config.build_width)
        made = cls(stored, np.ascontiguousarray(names[order]), config.metric, 0, 1.0)
        if method != "flat":
            made._tune(vectors, order.astype(np.int32), config, min(k, n), queries, seed, threads)
        return made

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
        """Search as widely as the wanted recall asks for; `order` (n,) says which vector is stored where."""
        asked = vectors if queries is None else queries
        sample = np.random.default_rng(seed).permutation(len(asked))[:SAMPLE]
        asked = of_metric(asked[np.sort(sample)], self.metric, threads)
        place = len(vectors) - k
        blocks = [asked[start : start + ROWS_AT_ONCE] for start in range(0, len(asked), ROWS_AT_ONCE)]
        with blas_threads(1):  # what is chosen here must not depend on how products are shared out
            worst = np.concatenate([np.partition(block @ vectors.T, place, axis=1)[:, place] for block in blocks])
        worst -= 1e-5 * np.maximum(1e-5, np.abs(worst))  # as near as this is near enough

        def measured(effort: int) -> float:
            found, _ = self._stored.search(asked, order, k, effort, threads)
            pairs = native.neural.group_pairs(found, len(vectors))
            products = native.neural.gather_dot(pairs, k, vectors, np.zeros(len(vectors), np.float32), asked, threads)
            near = (found >= 0) & (products >= worst[:, None])
            return float(np.mean(np.minimum(near.sum(axis=1), k) / k))

        most = self._stored.most
        least = max(16, k) if self.method == "hnsw" else max(4, most // 64)
        self.effort = min(config.effort or least, most)
        self.recall = measured(self.effort)
        too_little = 0
        while config.effort is None and self.recall < config.recall and self.effort < most:
            too_little, self.effort = self.effort, min(most, 2 * self.effort)
            self.recall = measured(self.effort)
        for _ in range(3 if too_little else 0):  # perhaps less than twice as much is enough
            between = (too_little + self.effort) // 2
            recall = measured(between)
            if recall < config.recall:
                too_little = between
            else:
                self.effort, self.recall = between, recall
        if self.recall < config.recall and not (self.method == "ivf" and self.effort == most):
            raise DataError(
                f"the index finds {self.recall:.0%} of the nearest {k} vectors, less than recall={config.recall:g} "
                f"asks for: give more than effort={self.effort}, leave effort out, or choose method='flat'"
            )

    def __len__(self) -> int:
        return len(self.names)

    @property
    def width(self) -> int:
        """Numbers D in a vector."""
        return self._stored.width

    @property
    def method(self) -> str:
        """How it searches: 'flat', 'ivf' or 'hnsw'."""
        return self._stored.method

    def search(
        self, queries: FloatArray, k: int, threads: int = 1, *, ordered: bool = True
    ) -> tuple[IntArray, FloatArray]:
        """Names and similarities (m, k) of the nearest vectors, -1 and -inf where there are no more.

        Best first, unless whoever asks does not mind: that takes a little less time.
        """
        return self.search_alike(of_metric(queries, self.metric, threads), k, threads, ordered=ordered)

    def search_alike(
        self, queries: FloatArray, k: int, threads: int, *, ordered: bool = True
    ) -> tuple[IntArray, FloatArray]:
        """Do the same for queries that `of_metric` has seen already."""
        return self._stored.search(queries, self.names, k, self.effort, threads, ordered=ordered)

    # ---- files ----

    def to_arrays(self) -> tuple[dict[str, AnyArray], dict[str, Any]]:
        """Everything as arrays, and what is to be known about them."""
        info = {"method": self.method, "metric": self.metric, "effort": self.effort, "recall": self.recall}
        return {"names": self.names, **self._stored.to_arrays()}, info

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray], info: Any) -> AnnIndex:
        """Make what `to_arrays` took apart; the arrays may lie on disk, and stay there until they are read."""
        method, names = _method_of(info), arrays["names"]
        if not (
            info.get("metric") in ("cosine", "product")
            and type(info.get("effort")) is int
            and 0 <= info["effort"] <= len(names)
            and isinstance(info.get("recall"), float)
        ):
            raise ModelFormatError("the index is not described")
        stored = VectorLists.from_arrays(arrays) if method == "ivf" else FaissVectors.from_arrays(arrays)
        if len(stored) != len(names) or stored.method != method:
            raise ModelFormatError("the index is not one of its names, or of another kind")
        return cls(stored, names, info["metric"], info["effort"], info["recall"])

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the index into a model's directory."""
        arrays, info = self.to_arrays()
        for name, array in arrays.items():
            writer.array(f"{prefix}{name}", array)
        return info

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, width: int, n_names: int) -> AnnIndex:
        """Open what `save_to` wrote, vectors (n, width) with names below `n_names`; they stay on disk until read."""
        try:
            arrays = {name: store.array(prefix + name, dtype) for name, dtype in ARRAYS[_method_of(info)].items()}
            arrays["names"] = store.array(f"{prefix}names", np.int32, ndim=1, bounds=(0, max(1, n_names)))
            made = cls.from_arrays(arrays, info)
        except ModelFormatError as error:
            raise ModelFormatError(f"{store.path}: {error}") from error
        if made.width != width:
            raise ModelFormatError(f"{store.path}: the index does not fit the model")
        return made


def _method_of(info: Any) -> str:
    method = info.get("method") if isinstance(info, dict) else None
    if not isinstance(method, str) or method not in ARRAYS:
        raise ModelFormatError("the index is not described")
    return method


def of_metric(vectors: FloatArray, metric: str, threads: int) -> FloatArray:
    """Vectors (n, D) whose inner products are the similarities."""
    vectors = np.ascontiguousarray(vectors, np.float32)
    return vectors if metric == "product" else native.matrix.unit_rows(vectors, threads)
