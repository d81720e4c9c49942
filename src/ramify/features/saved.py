"""Features that can be saved on their own, or inside the directory of the model that uses them."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ramify.base.config import Config
from ramify.base.errors import ModelFormatError
from ramify.io.store import Store, StoreWriter


@dataclass(kw_only=True, eq=False, repr=False)
class SavedFeatures(Config):
    """Base of feature makers. A subclass sets `kind` and fills in `save_to` and `load_from`."""

    kind: ClassVar[str] = ""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was learned to a directory of its own."""
        with StoreWriter(path) as writer:
            writer.manifest(self.kind, self.to_dict(), self.save_to(writer))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = False) -> Self:
        """Open what `save` wrote."""
        store = Store(path, verify=verify)
        if store.kind != cls.kind:
            raise ModelFormatError(f"{store.path} holds a {store.kind!r}, not a {cls.kind!r}")
        return cls.load_from(store, store.state)

    @abstractmethod
    def save_to(self, writer: StoreWriter, prefix: str = "") -> dict[str, Any]:
        """Write what was learned into a model's directory; returns what `load_from` needs to know."""

    @classmethod
    @abstractmethod
    def load_from(cls, store: Store, info: Any, prefix: str = "") -> Self:
        """Open what `save_to` wrote."""
