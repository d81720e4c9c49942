"""Columns and data frames of pandas, polars and Arrow, recognized by their methods: none of them is imported.

A column (pandas or polars Series, Arrow array, NumPy array of strings) becomes a list of Python values. A frame (pandas
or polars DataFrame, Arrow table) becomes a dict of columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from ramify.base.types import AnyArray


def is_frame(values: Any) -> bool:
    """Whether values have named columns: a pandas or polars DataFrame, an Arrow table or record batch."""
    is_pandas_or_polars = hasattr(values, "columns") and hasattr(values, "dtypes")
    return is_pandas_or_polars or hasattr(values, "column_names")


def column_names(frame: Any) -> list[Any]:
    """Names of the columns of a frame."""
    return list(frame.column_names if hasattr(frame, "column_names") else frame.columns)


def column(frame: Any, index: int) -> Any:
    """One column of a frame, by position."""
    if hasattr(frame, "column_names"):
        return frame.column(index)
    return frame.iloc[:, index] if hasattr(frame, "iloc") else frame[:, index]


def to_list(values: Any) -> Any:
    """Python values of a column; anything else is returned as it is."""
    if isinstance(values, list | tuple | dict | str | bytes):
        return values
    for method in ("to_pylist", "to_list", "tolist"):  # Arrow; polars and pandas; NumPy and pandas arrays
        if hasattr(values, method):
            return getattr(values, method)()
    return values


def as_array(values: Any) -> Any:
    """NumPy array of an object that only offers `__array__`, or of a two-dimensional tensor; others as they are."""
    if isinstance(values, np.ndarray | list) or is_frame(values) or not hasattr(values, "__array__"):
        return values
    is_column = any(hasattr(values, method) for method in ("to_pylist", "to_list", "tolist"))
    return values if is_column and getattr(values, "ndim", 1) != 2 else np.asarray(values)


def to_python(value: Any) -> Any:
    """Python value of a NumPy or Arrow scalar; anything else is returned as it is."""
    if isinstance(value, np.generic):
        return value.item()
    return value.as_py() if hasattr(value, "as_py") else value


def is_missing(value: Any) -> bool:
    """Whether a value stands for a missing one: None, NaN, pandas' NA or NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def numeric_matrix(frame: Any) -> Any:
    """Matrix (n, d) of a frame whose columns are all numbers, missing ones as NaN; None for other frames.

    A pandas frame of sparse columns becomes a sparse matrix.
    """
    columns = [column(frame, i) for i in range(len(column_names(frame)))]
    if not columns:
        return None
    if hasattr(frame, "sparse") and all(type(c.dtype).__name__ == "SparseDtype" for c in columns):
        return sparse.csr_matrix(frame.sparse.to_coo())
    arrays = [_numbers(c) for c in columns]
    return None if any(a is None for a in arrays) else np.column_stack(arrays)  # type: ignore[arg-type]


def _numbers(values: Any) -> AnyArray | None:
    kind = getattr(getattr(values, "dtype", None), "kind", None)
    if kind is not None and kind not in "biuf":
        return None
    listed = values if kind is not None and isinstance(values.dtype, np.dtype) else to_list(values)
    if isinstance(listed, list):
        if not all(isinstance(v, int | float) or is_missing(v) for v in listed) or all(is_missing(v) for v in listed):
            return None
        listed = [np.nan if is_missing(v) else v for v in listed]
    return np.asarray(listed, np.float64)
