"""Inverted index of sparse samples: exact nearest neighbors by cosine similarity or inner product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ramify import native
from ramify.base.errors import ModelFormatError
from ramify.base.sparse import ascends, normalize_rows
from ramify.base.types import Csr, FloatArray, IntArray, LongArray
from ramify.io.store import Store, StoreWriter


@dataclass(frozen=True, eq=False)
class Postings:
    """Samples by column: those with a value in column c stand from indptr[c] to indptr[c + 1].

    Attributes
    ----------
    indptr : (d + 1,)
    samples : (nnz,) ids of samples, ascending within a column
    values : (nnz,)
    n_samples : int
    """

    indptr: LongArray
    samples: IntArray
    values: FloatArray
    n_samples: int

    @classmethod
    def build(cls, X: Csr) -> Postings:
        """Index samples X (n × d), in the order of their rows, scaled to unit norm."""
        return cls.of(normalize_rows(X))

    @classmethod
    def of(cls, X: Csr) -> Postings:
        """Index samples X (n × d) as they are."""
        return cls._of(X.tocsc(), X.shape[0])

    @classmethod
    def _of(cls, columns: Any, n_samples: int) -> Postings:
        return cls(
            columns.indptr.astype(np.int64),
            columns.indices.astype(np.int32, copy=False),
            columns.data.astype(np.float32, copy=False),
            n_samples,
        )

    def __len__(self) -> int:
        return self.n_samples

    @property
    def n_columns(self) -> int:
        """Number of features d."""
        return len(self.indptr) - 1

    def _columns(self) -> sparse.csc_matrix:
        shape = self.n_samples, self.n_columns
        return sparse.csc_matrix((self.values, self.samples, self.indptr), shape=shape)

    def joined(self, other: Postings) -> Postings:
        """Return an index of the samples of both, those of `other` behind."""
        both = sparse.vstack([self._columns(), other._columns()], format="csc")
        both.sort_indices()
        return self._of(both, self.n_samples + other.n_samples)

    def search(self, queries: Csr, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and cosine similarities (m, k) of the nearest samples, best first, padded with -1 and -inf.

        Samples without a common feature are not found.
        """
        return self.products(normalize_rows(queries), k, threads)

    def products(self, queries: Csr, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and inner products (m, k), only those above 0, of the samples with the largest ones, as `search`."""
        return native.matrix.nearest_rows(self.indptr, self.samples, self.values, self.n_samples, queries, k, threads)

    # ---- files ----

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the index to a model directory; return its description for the manifest."""
        for name in ("indptr", "samples", "values"):
            writer.array(f"{prefix}{name}", getattr(self, name))
        return {"n_samples": self.n_samples}

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, n_columns: int) -> Postings:
        """Open what `save_to` wrote, memory-mapped; samples have `n_columns` features."""
        n = info.get("n_samples") if isinstance(info, dict) else None
        if not isinstance(n, int) or isinstance(n, bool) or not 0 <= n < 2**31:
            raise ModelFormatError(f"the manifest of {store.path} does not describe the inverted index")
        samples = store.array(f"{prefix}samples", np.int32, ndim=1, bounds=(0, max(1, n)))
        values = store.array(f"{prefix}values", np.float32, shape=samples.shape)
        indptr = store.array(f"{prefix}indptr", np.int64, shape=(n_columns + 1,))
        if not ascends(indptr, len(samples)):
            raise ModelFormatError(f"{store.path}: the lists of the inverted index overlap")
        if not np.isfinite(values).all():
            raise ModelFormatError(f"{store.path}: the inverted index has values that are not finite")
        return cls(indptr, samples, values, n)
