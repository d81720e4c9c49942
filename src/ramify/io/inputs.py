"""Validation of X, the input of models: texts, text fields, sparse or dense features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import sparse

from ramify import native
from ramify.base.errors import DataError
from ramify.base.sparse import MAX_COLUMNS, as_csr
from ramify.base.types import Csr, LongArray

MAX_FEATURE = 1e15
"""Largest magnitude of a feature. The squares of larger ones, or their sums, overflow in single precision: one of them
would ruin the classifiers of all samples."""

Kind = Literal["text", "fields", "sparse", "dense"]


@dataclass(frozen=True)
class Inputs:
    """Validated input.

    Attributes
    ----------
    kind : "text" (list of str), "fields" (list of dicts of str), "sparse" (CSR) or "dense" (ndarray), both float32
    n_features : number of features d; None for texts
    """

    kind: Kind
    data: Any
    n_features: int | None

    def __len__(self) -> int:
        return len(self.data) if self.kind in ("text", "fields") else int(self.data.shape[0])


def check_inputs(X: Any) -> Inputs:
    """Validate X and convert it to one of the four kinds; raises `DataError` with the row at fault."""
    if isinstance(X, str | bytes | dict):
        raise DataError("X is a single text; pass a list: [text]")
    if (
        type(X) is Csr
        and X.data.dtype == np.float32
        and X.indices.dtype == X.indptr.dtype
        and X.shape[1] <= MAX_COLUMNS
        and native.matrix.is_canonical(X, MAX_FEATURE)
    ):
        X.has_canonical_format = X.has_sorted_indices = True  # saves scipy a check
        return Inputs("sparse", X, X.shape[1])  # the common case: ten times faster than as_csr
    if sparse.issparse(X):
        csr = as_csr(X)
        if csr.nnz and max(csr.data.max(), -csr.data.min()) > MAX_FEATURE:
            entry = int(np.flatnonzero(np.abs(csr.data) > MAX_FEATURE)[0])
            raise _too_large(int(np.searchsorted(csr.indptr, entry, side="right")) - 1, csr.data[entry])
        return Inputs("sparse", csr, csr.shape[1])
    if isinstance(X, np.ndarray) and X.dtype.kind in "biufc":
        return _dense(X)
    if hasattr(X, "tolist") and not isinstance(X, list):  # arrays of strings, columns of a data frame
        X = X.tolist()
    if not hasattr(X, "__iter__"):
        raise DataError(
            f"X must be a list of texts, a list of dicts of text fields, or a matrix; got {type(X).__name__}"
        )
    documents = list(X)
    if documents and isinstance(documents[0], dict):
        return Inputs("fields", [_fields(i, d) for i, d in enumerate(documents)], None)
    if documents and isinstance(documents[0], list | tuple | np.ndarray):
        try:
            return _dense(np.asarray(documents, np.float64))
        except ValueError as error:
            raise DataError(f"X contains lists that are not rows of numbers: {error}") from None
    if set(map(type, documents)) != {str}:  # several times faster than the loop, which names the row at fault
        for i, document in enumerate(documents):
            if not isinstance(document, str):
                raise DataError(f"row {i} of X is {type(document).__name__}, expected a text")
    return Inputs("text", documents, None)


def take_rows(inputs: Inputs, rows: LongArray) -> Inputs:
    """Select rows."""
    if len(rows) == len(inputs) and np.array_equal(rows, np.arange(len(inputs))):
        return inputs
    data = inputs.data
    taken = [data[row] for row in rows] if isinstance(data, list) else data[rows]
    return Inputs(inputs.kind, taken, inputs.n_features)


def _dense(X: Any) -> Inputs:
    if X.ndim != 2:
        hint = "; for a single row pass X[None, :]" if X.ndim == 1 else ""
        raise DataError(f"X must be two-dimensional, (n, d); got {X.ndim} dimensions{hint}")
    if X.dtype.kind == "c":
        raise DataError("X contains complex numbers")
    with np.errstate(over="ignore"):  # what does not fit is infinite, and reported below
        dense = np.ascontiguousarray(X, np.float32)
    if not np.isfinite(dense).all():
        row = int(np.flatnonzero(~np.isfinite(dense).all(axis=1))[0])
        raise DataError(f"X contains NaN or infinity (first in row {row}); remove or replace it")
    if dense.size and max(dense.max(), -dense.min()) > MAX_FEATURE:
        row, column = np.argwhere(np.abs(dense) > MAX_FEATURE)[0]
        raise _too_large(int(row), dense[row, column])
    return Inputs("dense", dense, dense.shape[1])


def _too_large(row: int, value: np.float32) -> DataError:
    return DataError(
        f"X contains {value:.3g} (first in row {row}), and magnitudes above {MAX_FEATURE:g} overflow when they are "
        "squared; scale the features, or replace fill values"
    )


def _fields(i: int, document: Any) -> dict[str, str]:
    if not isinstance(document, dict):
        raise DataError(f"row {i} of X is {type(document).__name__}, but the previous rows are dicts of text fields")
    for name, text in document.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise DataError(f"row {i} of X: field {name!r} is {type(text).__name__}, expected a text")
    return document
