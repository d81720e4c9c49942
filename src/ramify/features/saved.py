"""Saving of feature extractors, to a directory of their own or within that of a model."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ramify.base.config import Config
from ramify.base.errors import ModelFormatError
from ramify.base.estimators import text_transformer_tags
from ramify.io.store import Store, StoreWriter


@dataclass(kw_only=True, eq=False, repr=False)
class SavedFeatures(Config):
    """Base class of feature extractors. A subclass sets `kind` and implements `save_to` and `load_from`."""

    kind: ClassVar[str] = ""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted extractor to a directory."""
        with StoreWriter(path) as writer:
            writer.manifest(self.kind, self.to_dict(), self.save_to(writer))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = False) -> Self:
        """Open an extractor written by `save`."""
        store = Store(path, verify=verify)
        if store.kind != cls.kind:
            raise ModelFormatError(f"{store.path} contains {store.kind!r}, expected {cls.kind!r}")
        return cls.load_from(store, store.state)

    def suited_to(self, documents: Any) -> Self:
        """Return the extractor to fit to these documents, unfitted: a clone, unless its parameters say otherwise."""
        return self.clone()

    def __sklearn_tags__(self) -> Any:
        return text_transformer_tags()

    def set_output(self, *, transform: str | None = None) -> Self:
        """Accept scikit-learn's choice of the output, which is sparse in any case."""
        if transform not in (None, "default"):
            raise ValueError(f"{type(self).__name__} returns sparse matrices; transform={transform!r} is not supported")
        return self

    @abstractmethod
    def save_to(self, writer: StoreWriter, prefix: str = "") -> dict[str, Any]:
        """Write the fitted extractor to the directory of a model; returns the information for `load_from`."""

    @classmethod
    @abstractmethod
    def load_from(cls, store: Store, info: Any, prefix: str = "") -> Self:
        """Open an extractor written by `save_to`."""
