"""Built-in data sets, available without files or network access."""

from __future__ import annotations

from collections.abc import Callable

from ramify.base.errors import DataError
from ramify.io.dataset import Dataset
from ramify.io.pydoc import load_pydoc

_LOADERS: dict[str, Callable[[], Dataset]] = {"pydoc": load_pydoc}


def names() -> list[str]:
    """Names of the built-in data sets."""
    return list(_LOADERS)


def load(name: str) -> Dataset:
    """Load a data set by name; "pydoc" has the splits "train" and "test"."""
    if name not in _LOADERS:
        raise DataError(f"unknown data set {name!r}; available: {', '.join(_LOADERS)}")
    return _LOADERS[name]()
