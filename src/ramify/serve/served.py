"""Models that are served: loaded, named, and replaced while requests are running."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ramify.base.errors import DataError
from ramify.base.types import Label
from ramify.io.catalogue import LabelEntry
from ramify.io.store import MANIFEST, Store
from ramify.models import model_class
from ramify.models.base import Model
from ramify.rank.filters import LabelFilter
from ramify.serve.problems import Problem
from ramify.serve.suggest_request import Document

log = logging.getLogger("ramify.serve")
_MAX_FILTERS = 64
_MAX_FRAGMENTS = 1 << 20


class LoadedModel:
    """A model with what answers are made of; immutable, so that running requests keep the one they began with."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path
        self.identity = identity(path)
        store = Store(path)
        self.model: Model = model_class(store.kind).from_store(store).set_params(threads=1, verbose=0)
        if self.model.input_kind_ not in ("text", "fields"):
            raise DataError(f"{path} was trained on features, not on texts; only models of texts can be served")
        self.kind, self.library_version = store.kind, store.library_version
        self.size = sum(int(entry["size"]) for entry in store.files.values())
        self.version = hashlib.sha256((path / MANIFEST).read_bytes()).hexdigest()[:12]
        self.answer_head = f'{{"model":{to_json(name)},"version":"{self.version}"'
        self.modified = (path / MANIFEST).stat().st_mtime
        self.fields = _text_fields(self.model)
        self._lock = threading.Lock()
        self._filters: OrderedDict[Any, LabelFilter] = OrderedDict()
        self._fragments: dict[str | None, dict[int, str]] = {}
        # The catalogue is decoded now, by one thread.
        self.languages: list[str] = [] if self.model.catalogue_ is None else self.model.catalogue_.languages()

    # ---- texts ----

    def document(self, given: Document) -> Document:
        """Convert a text or a record to what the model was trained on."""
        if self.model.input_kind_ == "text":
            return given if type(given) is str else "\n".join(given.values())  # type: ignore[union-attr]
        return {self.fields[0]: given} if type(given) is str else given

    # ---- labels ----

    def entry(self, label: Label) -> LabelEntry | None:
        """What the catalogue knows about a label."""
        return None if self.model.catalogue_ is None else self.model.catalogue_.get_entry(label)

    def language(self, wanted: str | None) -> str | None:
        """Return a language if there are names in it."""
        return wanted if wanted in self.languages else None

    def fragments(self, language: str | None) -> dict[int, str]:
        """JSON of a label up to its score, by label id, as far as it has been asked for; see `fragment`."""
        return self._fragments.setdefault(language, {})

    def fragment(self, label_id: int, language: str | None) -> str:
        """JSON of a label with its name, up to its score."""
        label = self.model.labels_[label_id]
        entry = self.entry(label)
        name = None if entry is None else entry.name(language)
        text = f'{{"label":{to_json(label)},"name":{to_json(name)},"score":'
        fragments = self.fragments(language)
        if len(fragments) < _MAX_FRAGMENTS:
            fragments[label_id] = text
        return text

    def label_filter(self, allow: Sequence[Label] | None, deny: Sequence[Label] | None) -> LabelFilter:
        """Return the filter of a request; those of the last requests are kept."""
        key = (None if allow is None else frozenset(allow), None if deny is None else frozenset(deny))
        with self._lock:
            found = self._filters.get(key)
            if found is None:
                try:
                    found = self.model.label_filter(allow=self.known(allow), deny=self.known(deny))
                except DataError as error:
                    raise Problem(422, str(error)) from None
                self._filters[key] = found
                if len(self._filters) > _MAX_FILTERS:
                    self._filters.popitem(last=False)
            else:
                self._filters.move_to_end(key)
        return found

    def known(self, labels: Iterable[Label] | None) -> list[Label] | None:
        """Labels that may be written as texts: "7" is 7 where the labels are integers."""
        if labels is None:
            return None
        ids = self.model.labels_.ids
        return [
            int(label)
            if label not in ids and isinstance(label, str) and _is_int(label) and int(label) in ids
            else label
            for label in labels
        ]


class ModelRegistry:
    """Models by name; the first one is the default."""

    def __init__(self, paths: dict[str, Path]) -> None:
        if not paths:
            raise DataError("there is no model to serve")
        self._models = {name: LoadedModel(name, path) for name, path in paths.items()}
        self._failed: dict[str, Any] = {}

    def __iter__(self) -> Any:
        return iter(self._models.values())

    def __len__(self) -> int:
        return len(self._models)

    def get(self, name: str | None) -> LoadedModel:
        """Return a model by name; None: the first one."""
        if name is None:
            return next(iter(self._models.values()))
        found = self._models.get(name)
        if found is None:
            raise Problem(404, f"there is no model {json.dumps(name[:60])}; there are {', '.join(self._models)}")
        return found

    def reload(self) -> list[str]:
        """Load the models whose directory was replaced; a directory that cannot be loaded changes nothing."""
        changed = []
        for name, loaded in list(self._models.items()):
            found = identity(loaded.path)
            if found is None or found in (loaded.identity, self._failed.get(name)):
                continue
            try:
                self._models[name] = LoadedModel(name, loaded.path)
                changed.append(name)
                log.info("reloaded", extra={"facts": {"model": name, "version": self._models[name].version}})
            except Exception as error:  # whatever it is, the service goes on with the model it has
                self._failed[name] = found
                log.error("not reloaded", extra={"facts": {"model": name, "reason": str(error)}})
        return changed


def identity(path: Path) -> tuple[int, int, int] | None:
    """What changes when a model directory is replaced; None while there is none."""
    try:
        found = (path / MANIFEST).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def to_json(value: Any) -> str:
    """JSON that is valid UTF-8 even where a label is not."""
    text = json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, default=str)
    return text


def _text_fields(model: Model) -> tuple[str, ...]:
    """Names of the fields that a model reads, as far as it tells; a plain text is taken for the first of them."""
    features: Any = getattr(model, "features_", None)
    parts = getattr(features, "parts", (features,))
    names = dict.fromkeys(name for part in parts for name in (getattr(part, "fields_", None) or ()))
    return ("text",) if "text" in names or not names else tuple(names)


def _is_int(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
