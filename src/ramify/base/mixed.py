"""Features with a sparse and a dense part, such as TF-IDF beside the vector of an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify.base.errors import DataError
from ramify.base.sparse import as_csr, csr_from_parts
from ramify.base.types import Csr, FloatArray, LongArray


@dataclass(frozen=True, eq=False)
class Mixed:
    """The columns of a sparse matrix (n × s), then those of a dense array (n, e); either may have none."""

    sparse: Csr
    dense: FloatArray

    def __post_init__(self) -> None:
        if self.sparse.shape[0] != self.dense.shape[0]:
            raise DataError(f"{self.sparse.shape[0]} sparse rows beside {self.dense.shape[0]} dense ones")

    @classmethod
    def of(cls, X: Any) -> Mixed:
        """View features of any kind as mixed ones; nothing is copied, and dense features stay dense."""
        if isinstance(X, cls):
            return X
        if isinstance(X, np.ndarray):
            if X.ndim != 2:
                raise DataError(f"X must have two dimensions, rows and features; it has {X.ndim}")
            n = X.shape[0]
            empty = csr_from_parts(np.empty(0, np.float32), np.empty(0, np.int32), np.zeros(n + 1, np.int32), (n, 0))
            return cls(empty, np.ascontiguousarray(X, np.float32))
        csr = X if _is_plain(X) else as_csr(X)
        return cls(csr, np.empty((csr.shape[0], 0), np.float32))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, sparse and dense together."""
        return self.sparse.shape[0], self.sparse.shape[1] + self.dense.shape[1]

    def __len__(self) -> int:
        return int(self.sparse.shape[0])

    def take(self, rows: LongArray) -> Mixed:
        """Select rows."""
        return Mixed(self.sparse[rows], self.dense[rows])


def _is_plain(X: Any) -> bool:
    """Whether this is a CSR matrix that our own code made or has checked."""
    return type(X) is Csr and X.data.dtype == np.float32 and X.has_canonical_format
