"""Validation of X, the input of models: texts, text fields, sparse or dense features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import sparse

from ramify import native
from ramify.base.errors import DataError
from ramify.base.frames import as_array, column, column_names, is_frame, is_missing, numeric_matrix, to_list, to_python
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
    """Validate X and convert it to one of the four kinds; raises `DataError` with the row at fault.

    X is a list or column of texts, a list of dicts of text fields, a data frame of texts (its columns are the fields)
    or of numbers, or a matrix.
    """
    if isinstance(X, str | bytes):
        raise DataError("X is a single text; pass a list: [text]")
    if isinstance(X, dict):
        raise DataError(f"X is a dict; pass a list with one dict per sample: {_example_of_rows(X)}")
    if (
        type(X) is Csr
        and X.data.dtype == np.float32
        and X.indices.dtype == X.indptr.dtype
        and X.shape[1] <= MAX_COLUMNS
        and native.matrix.is_canonical(X, MAX_FEATURE)
    ):
        X.has_canonical_format = X.has_sorted_indices = True  # saves scipy a check
        return Inputs("sparse", X, X.shape[1])  # the common case: ten times faster than as_csr
    if type(X) is list:
        return _documents(X)
    if sparse.issparse(X):
        csr = as_csr(X)
        if csr.nnz and max(csr.data.max(), -csr.data.min()) > MAX_FEATURE:
            entry = int(np.flatnonzero(np.abs(csr.data) > MAX_FEATURE)[0])
            raise _too_large(int(np.searchsorted(csr.indptr, entry, side="right")) - 1, csr.data[entry])
        return Inputs("sparse", csr, csr.shape[1])
    if is_frame(X):
        return _frame(X)
    X = as_array(X)
    if isinstance(X, np.ndarray) and X.dtype.kind in "biufc":
        return _dense(X)
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUST":
        return _array(X)
    X = to_list(X)
    if not hasattr(X, "__iter__"):
        raise DataError(
            f"X must be a list of texts, a list of dicts of text fields, a data frame or a matrix; got "
            f"{type(X).__name__}"
        )
    return _documents(list(X))


def _documents(documents: list[Any]) -> Inputs:
    """A list of texts, of dicts of text fields, or of rows of numbers."""
    if documents and isinstance(documents[0], dict):
        return Inputs("fields", [_fields(i, d) for i, d in enumerate(documents)], None)
    if documents and isinstance(documents[0], list | tuple | np.ndarray):
        try:
            return _dense(np.asarray(documents, np.float64))
        except (TypeError, ValueError) as error:
            raise DataError(f"X contains lists that are not rows of numbers: {error}") from None
    if set(map(type, documents)) != {str}:  # several times faster than the loop, which names the row at fault
        documents = [_text(document, f"row {i} of X") for i, document in enumerate(documents)]
    return Inputs("text", documents, None)


def _text(value: Any, location: str) -> str:
    value = to_python(value)
    if isinstance(value, str):
        return value
    if is_missing(value):
        raise DataError(f"{location} is missing ({value!r}), expected a text; remove the row or replace it, as by ''")
    raise DataError(f"{location} is {type(value).__name__}, expected a text")


def _frame(X: Any) -> Inputs:
    """Columns of numbers are dense features; columns of texts are text fields."""
    matrix = numeric_matrix(X)
    if matrix is not None:
        return check_inputs(matrix)
    names = column_names(X)
    if not names:
        raise DataError("X is a data frame without columns")
    fields: dict[str, list[str]] = {}
    for i, name in enumerate(names):
        values = to_list(column(X, i))
        wrong = next((v for v in values if not isinstance(to_python(v), str) and not is_missing(v)), None)
        if wrong is not None or not isinstance(name, str):
            raise DataError(
                f"X is a data frame, but its column {name!r} does not hold texts ({type(wrong or name).__name__}); "
                "pass the columns of texts only, as in X[['title', 'body']], or combine columns of several kinds with "
                "a ColumnTransformer"
            )
        fields[name] = [_text(value, f"row {row} of column {name!r} of X") for row, value in enumerate(values)]
    return Inputs("fields", [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)], None)


def _array(X: Any) -> Inputs:
    """Two-dimensional arrays of objects: numbers, or a single column of texts."""
    if X.shape[1] == 1 and X.size and isinstance(X[0, 0], str):
        return check_inputs(X[:, 0])
    try:
        return _dense(X.astype(np.float64))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"X is an array of {X.shape[1]} columns that are not numbers: {str(error)[:80]}; for several columns of "
            "texts pass a data frame, whose columns are text fields, or use a ColumnTransformer"
        ) from error


def _example_of_rows(X: dict[Any, Any]) -> str:
    shown = ", ".join(f"{name!r}: …" for name in list(X)[:3])
    return f"[{{{shown}}}, …]"


def take_rows(inputs: Inputs, rows: LongArray) -> Inputs:
    """Select rows."""
    if len(rows) == len(inputs) and np.array_equal(rows, np.arange(len(inputs))):
        return inputs
    data = inputs.data
    taken = [data[row] for row in rows] if isinstance(data, list) else data[rows]
    return Inputs(inputs.kind, taken, inputs.n_features)


def _dense(X: Any) -> Inputs:
    if X.ndim != 2:
        hint = ". Reshape your data: for a single row pass X[None, :]" if X.ndim == 1 else ""
        raise DataError(f"X must be two-dimensional, (n, d); got {X.ndim} dimensions{hint}")
    if X.shape[1] == 0 and len(X):
        raise DataError(f"X has 0 feature(s) (shape=({len(X)}, 0)) while a minimum of 1 is required.")
    if X.dtype.kind == "c":
        raise DataError("Complex data not supported: X contains complex numbers")
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
            missing = "; remove the field or replace it, as by ''" if is_missing(text) else ""
            raise DataError(f"row {i} of X: field {name!r} is {type(text).__name__}, expected a text{missing}")
    return document
