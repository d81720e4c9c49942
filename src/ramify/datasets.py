"""Data sets that need no file and no network."""

from __future__ import annotations

from collections.abc import Callable

from ramify.base.errors import DataError
from ramify.io.dataset import Dataset
from ramify.io.pydoc import load_pydoc

_LOADERS: dict[str, Callable[[], Dataset]] = {"pydoc": load_pydoc}


def names() -> list[str]:
    """Names that `load` knows."""
    return list(_LOADERS)


def load(name: str) -> Dataset:
    """Make a data set by name; "pydoc" has the parts "train" and "test"."""
    if name not in _LOADERS:
        raise DataError(f"there is no data set {name!r}; there are: {', '.join(_LOADERS)}")
    return _LOADERS[name]()
