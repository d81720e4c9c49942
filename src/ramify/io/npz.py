"""Matrices in .npz files, without pickle.

A file has the CSR arrays of X and Y and the label names. A pair of files written by `scipy.sparse.save_npz`, `X….npz`
and `Y….npz`, is read too; a matrix without such a second file is features without labels.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ramify.base.errors import DataError
from ramify.base.sparse import as_csr, indicator
from ramify.base.types import Csr, FloatArray
from ramify.io.files import open_for_writing
from ramify.io.labels import LabelVocabulary

_PARTS = ("data", "indices", "indptr", "shape")


def read_npz(path: str | os.PathLike[str]) -> tuple[Csr | FloatArray, Csr, LabelVocabulary]:
    """Read features (n × d), label indicator (n × L) and label names."""
    file = Path(path)
    arrays = _arrays(file)
    if "Y_indptr" in arrays and ("X_indptr" in arrays or "X" in arrays):
        features = _dense(arrays["X"], file) if "X" in arrays else as_csr(_csr(arrays, "X_", file), f"{file}: X")
        labels = indicator(_csr(arrays, "Y_", file), f"{file}: Y")
        return features, labels, _names(arrays, labels.shape[1], file)
    features_file, labels_file = _pair(file, is_matrix=set(_PARTS) <= arrays.keys())
    features = as_csr(_csr(_arrays(features_file), "", features_file), str(features_file))
    if labels_file is None:
        return features, indicator(sparse.csr_matrix((features.shape[0], 0), dtype=np.float32)), LabelVocabulary([])
    labels = indicator(_csr(_arrays(labels_file), "", labels_file), str(labels_file))
    return features, labels, LabelVocabulary(range(labels.shape[1]))


def has_dense_features(path: str | os.PathLike[str]) -> bool:
    """Whether a file has dense features, without reading them; damaged files are left to `read_npz`."""
    try:
        with zipfile.ZipFile(path) as opened:
            return "X.npy" in opened.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def write_npz(path: str | os.PathLike[str], features: Csr | FloatArray, labels: Csr, names: LabelVocabulary) -> None:
    """Write features, label indicator and label names, which must be strings or integers."""
    arrays: dict[str, Any] = {f"Y_{part}": getattr(labels, part) for part in _PARTS}
    if isinstance(features, np.ndarray):
        arrays["X"] = features
    else:
        arrays.update({f"X_{part}": getattr(features, part) for part in _PARTS})
    if not names.is_range():
        types = {type(name) for name in names}
        if types not in ({str}, {int}):
            raise DataError("an .npz file can only store label names that are all strings or all integers")
        array = np.array(list(names))
        if array.dtype.kind not in "Uiu" or array.tolist() != list(names):
            raise DataError("an .npz file cannot store integer labels beyond 64 bits or strings that end with NUL")
        arrays["label_names"] = array
    with open_for_writing(path) as out:
        np.savez(out, **arrays)


def _arrays(file: Path) -> dict[str, Any]:
    try:
        with np.load(file, allow_pickle=False) as opened:
            return {name: opened[name] for name in opened.files}
    except Exception as error:  # a damaged zip file or .npy header can raise nearly anything
        raise DataError(f"{file}: not a readable .npz file: {error}") from error


def _csr(arrays: dict[str, Any], prefix: str, file: Path) -> Csr:
    missing = [f"{prefix}{part}" for part in _PARTS if f"{prefix}{part}" not in arrays]
    if missing:
        raise DataError(f"{file}: no array {', '.join(missing)}; expected a file of scipy.sparse.save_npz, or X and Y")
    data, indices, indptr, shape = (np.asarray(arrays[f"{prefix}{part}"]) for part in _PARTS)
    if "format" in arrays and arrays["format"].astype(str).tolist() != "csr":
        raise DataError(f"{file}: the sparse matrix is not in CSR format")
    if any(a.dtype.kind not in "iu" for a in (indices, indptr, shape)) or shape.shape != (2,) or shape.min() < 0:
        raise DataError(f"{file}: a damaged sparse matrix: its indices or its shape are not integers")
    try:
        return sparse.csr_matrix((data, indices, indptr), shape=tuple(shape.tolist()))
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"{file}: a damaged sparse matrix: {error}") from error


def _names(arrays: dict[str, Any], n_labels: int, file: Path) -> LabelVocabulary:
    if "label_names" not in arrays:
        return LabelVocabulary(range(n_labels))
    names = arrays["label_names"]
    if names.shape != (n_labels,) or names.dtype.kind not in "Uiu":
        raise DataError(f"{file}: label_names must be {n_labels} strings or integers")
    return LabelVocabulary(names.tolist())


def _dense(matrix: Any, file: Path) -> FloatArray:
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf" or not np.isfinite(matrix).all():
        raise DataError(f"{file}: X must be a two-dimensional array of finite numbers")
    return np.ascontiguousarray(matrix, np.float32)


def _pair(file: Path, is_matrix: bool) -> tuple[Path, Path | None]:
    """Files of features and labels; None for the labels of a matrix that is alone."""
    for mine, other in (("X", "Y"), ("Y", "X")):
        if file.name.startswith(mine):
            sibling = file.with_name(other + file.name[1:])
            if sibling.exists():
                return (file, sibling) if mine == "X" else (sibling, file)
    if is_matrix and not file.name.startswith("Y"):
        return file, None
    raise DataError(f"{file}: no arrays X and Y, and no second file of an X…/Y… pair next to it")
