"""Label catalogues: display names, notations, descriptions and synonyms of labels.

A label is an id of any kind, often a URI. A catalogue adds what people read, per language where known. It is stored
with the model as JSON Lines and decoded when it is first used.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ramify.base.errors import DataError, ModelFormatError
from ramify.base.extras import needed_for
from ramify.base.types import AnyArray, Label
from ramify.io.files import BadLines, decompression_errors, open_binary, read_lines, stem_suffix
from ramify.io.store import Store, StoreWriter

_KEYS = ("uri", "label", "id")
_LANGUAGE_FIELD = re.compile(r"(?:label|name|prefLabel)_([A-Za-z]{2,3}(?:-[A-Za-z0-9]+)*)")
_ALLOWED = ("name", "names", "notation", "description", "synonyms")
NO_LANGUAGE = ""
_SKOS_FORMATS = {".ttl": "turtle", ".rdf": "xml", ".xml": "xml", ".owl": "xml", ".nt": "nt"}
"""Parsers of rdflib, by suffix."""


@dataclass(frozen=True)
class LabelEntry:
    """What a catalogue knows about a label; `names` has one name for each language, "" for none in particular."""

    names: dict[str, str] = field(default_factory=dict)
    notation: str | None = None
    description: str | None = None
    synonyms: tuple[str, ...] = ()

    @classmethod
    def of(cls, value: Any, label: Any) -> LabelEntry:
        """Return an entry given as itself, as a name, or as a dict of fields."""
        if isinstance(value, LabelEntry):
            return value
        if isinstance(value, str):
            return cls({NO_LANGUAGE: value})
        if not isinstance(value, Mapping):
            raise DataError(f"the catalogue entry of {label!r} is {type(value).__name__}; expected a name or a dict")
        fields, names = dict(value), dict[str, str]()
        for key in ("name", "names"):
            given = fields.pop(key, None)
            if given is not None:
                names.update(given if isinstance(given, Mapping) else {NO_LANGUAGE: given})
        for key in [key for key in fields if _LANGUAGE_FIELD.fullmatch(str(key))]:
            match = _LANGUAGE_FIELD.fullmatch(str(key))
            assert match is not None
            name = fields.pop(key)
            if name:
                names[match[1]] = name
        unknown = sorted(set(map(str, fields)) - set(_ALLOWED))
        if unknown:
            raise DataError(
                f"the catalogue entry of {label!r} has the unknown field {unknown[0]!r}; known: name, label_en (or "
                "another language), notation, description, synonyms"
            )
        synonyms = fields.get("synonyms") or ()
        if not isinstance(synonyms, str | list | tuple):
            raise DataError(f"the synonyms of {label!r} are {type(synonyms).__name__}; expected a list of texts")
        entry = cls(
            names,
            fields.get("notation") or None,
            fields.get("description") or None,
            (synonyms,) if isinstance(synonyms, str) else tuple(synonyms),
        )
        texts = [*names.values(), *entry.synonyms, entry.notation or "", entry.description or ""]
        if not all(isinstance(text, str) for text in texts):
            raise DataError(f"the catalogue entry of {label!r} has a field that is no text")
        return entry

    def to_dict(self) -> dict[str, Any]:
        """All fields that are set."""
        values = {
            "names": self.names,
            "notation": self.notation,
            "description": self.description,
            "synonyms": list(self.synonyms),
        }
        return {key: value for key, value in values.items() if value}

    def name(self, language: str | None = None) -> str | None:
        """Return the name in a language; without one in it, that of no language, or else the first."""
        if language is not None and language in self.names:
            return self.names[language]
        return self.names.get(NO_LANGUAGE) or next(iter(self.names.values()), None)


class LabelCatalogue(Mapping[Label, LabelEntry]):
    """Entries by label; `label_catalogue=` of `fit` takes one, a mapping, or the path of a file.

    >>> catalogue = LabelCatalogue({"http://ex.org/1": {"label_en": "whale", "label_de": "Wal"}})
    >>> catalogue.display_name("http://ex.org/1", "de")
    'Wal'
    """

    def __init__(self, entries: Mapping[Label, Any] | None = None) -> None:
        self._entries = {label: LabelEntry.of(value, label) for label, value in (entries or {}).items()}
        self._stored: AnyArray | None = None

    @classmethod
    def of(cls, given: Any) -> LabelCatalogue:
        """Return a catalogue given as itself, as a mapping, or as the path of a file."""
        if isinstance(given, LabelCatalogue):
            return given
        if isinstance(given, Mapping):
            return cls(given)
        if isinstance(given, str | os.PathLike):
            return cls.read(given)
        raise DataError(f"a label catalogue is a mapping or the path of a file; got {type(given).__name__}")

    @classmethod
    def for_labels(cls, given: Any, labels: Iterable[Label]) -> LabelCatalogue | None:
        """Return `of` what is given, if anything; warns if it knows none of the labels, as their ids are others."""
        if given is None:
            return None
        catalogue = cls.of(given)
        if len(catalogue) and not any(map(catalogue.get_entry, labels)):
            shown = f"labels such as {next(iter(labels))!r}, the catalogue such as {next(iter(catalogue))!r}"
            warnings.warn(f"the label catalogue names none of the labels: the model has {shown}", stacklevel=4)
        return catalogue

    # ---- the entries ----

    @property
    def entries(self) -> dict[Label, LabelEntry]:
        """All entries; those of a saved model are decoded on first use."""
        if self._stored is not None:
            self._entries, self._stored = _decode(self._stored), None
        return self._entries

    def __getitem__(self, label: Label) -> LabelEntry:
        found = self.get_entry(label)
        if found is None:
            raise KeyError(label)
        return found

    def __iter__(self) -> Iterator[Label]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        return f"<LabelCatalogue of {len(self):,} labels>"

    def get_entry(self, label: Label) -> LabelEntry | None:
        """Return the entry of a label; files have texts, so 7 is found as "7" too."""
        found = self.entries.get(label)
        return self.entries.get(str(label)) if found is None and not isinstance(label, str) else found

    def display_name(self, label: Label, language: str | None = None) -> str:
        """Return the name of a label in a language, in any language, or the label itself."""
        entry = self.get_entry(label)
        return str(label) if entry is None else entry.name(language) or str(label)

    def languages(self) -> list[str]:
        """Languages of the names, the most frequent first."""
        counts: dict[str, int] = {}
        for entry in self.entries.values():
            for language in entry.names:
                counts[language] = counts.get(language, 0) + 1
        return sorted((x for x in counts if x), key=lambda language: -counts[language])

    @cached_property
    def by_name(self) -> dict[str, list[Label]]:
        """Labels by each of their names and synonyms, in lower case."""
        index: dict[str, list[Label]] = {}
        for label, entry in self.entries.items():
            for name in dict.fromkeys([*entry.names.values(), *entry.synonyms]):
                index.setdefault(name.casefold(), []).append(label)
        return index

    # ---- files ----

    @classmethod
    def read(cls, path: str | os.PathLike[str], encoding: str = "utf-8") -> LabelCatalogue:
        """Read a TSV (uri, name, notation), a CSV with a header, JSON Lines, or SKOS (extra `skos`).

        Files may be compressed (.gz, .xz).
        """
        suffix = stem_suffix(path)
        if suffix in _SKOS_FORMATS:
            return cls(_read_skos(path))
        lines = list(read_lines(path, encoding, BadLines(os.fspath(path), skip=False)))
        readers: dict[str, Callable[[list[tuple[int, str]], str], dict[Label, Any]]] = {
            ".csv": _read_csv,
            ".jsonl": _read_json_lines,
            ".json": _read_json_lines,
        }
        return cls(readers.get(suffix, _read_tsv)(lines, os.fspath(path)))

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the catalogue into a model directory; return its description for the manifest."""
        lines = (json.dumps([label, entry.to_dict()], ensure_ascii=False) for label, entry in self.entries.items())
        text = "\n".join(lines).encode("utf-8", "surrogatepass")
        writer.array(f"{prefix}text", np.frombuffer(text, np.uint8))
        return {"n": len(self)}

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str) -> LabelCatalogue:
        """Open what `save_to` wrote."""
        if not isinstance(info, dict):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the label catalogue")
        catalogue = cls()
        catalogue._stored = store.array(f"{prefix}text", np.uint8, ndim=1)
        return catalogue


def _decode(stored: AnyArray) -> dict[Label, LabelEntry]:
    try:
        text = bytes(stored).decode("utf-8", "surrogatepass")
        pairs = [json.loads(line) for line in text.split("\n") if line]
        return {_hashable(label): LabelEntry.of(entry, label) for label, entry in pairs}
    except (ValueError, TypeError, RecursionError) as error:
        raise ModelFormatError(f"the label catalogue is damaged: {error}") from error


def _hashable(label: Any) -> Label:
    return tuple(map(_hashable, label)) if isinstance(label, list) else label


def _uri(text: str) -> str:
    text = text.strip()
    return text[1:-1] if text.startswith("<") and text.endswith(">") else text


def _add(entries: dict[Label, Any], label: Label, entry: Any, place: str) -> None:
    if label in entries:
        raise DataError(f"{place}: the label {label!r} occurs twice")
    entries[label] = entry


def _read_tsv(lines: list[tuple[int, str]], path: str) -> dict[Label, Any]:
    entries: dict[Label, Any] = {}
    for number, line in lines:
        if not line.strip():
            continue
        uri, *rest = line.split("\t")
        if not rest or not uri.strip():
            raise DataError(f"{path}:{number}: expected a label, a tab and its name; found {line[:60]!r}")
        entry = {"name": rest[0].strip(), "notation": rest[1].strip() if len(rest) > 1 else None}
        _add(entries, _uri(uri), entry, f"{path}:{number}")
    return entries


def _read_csv(lines: list[tuple[int, str]], path: str) -> dict[Label, Any]:
    csv.field_size_limit(sys.maxsize)  # of the process; descriptions may be long
    reader = csv.DictReader(io.StringIO("\n".join(line for _, line in lines), newline=""), strict=True)
    try:
        return _csv_entries(reader, path)
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: not valid CSV: {error}") from None


def _csv_entries(reader: csv.DictReader[str], path: str) -> dict[Label, Any]:
    entries: dict[Label, Any] = {}
    key = next((name for name in _KEYS if name in (reader.fieldnames or ())), None)
    if key is None:
        raise DataError(f"{path}: the header of a label catalogue needs one of the columns {', '.join(_KEYS)}")
    for record in reader:
        place = f"{path}:{reader.line_num}"
        if None in record or None in record.values():
            raise DataError(f"{place}: expected {len(reader.fieldnames or ())} cells as in the header")
        label = _uri(record.pop(key))
        synonyms = [part.strip() for part in (record.pop("synonyms", "") or "").split(";") if part.strip()]
        _add(entries, label, {**record, "synonyms": synonyms}, place)
    return entries


def _read_json_lines(lines: list[tuple[int, str]], path: str) -> dict[Label, Any]:
    entries: dict[Label, Any] = {}
    for number, line in lines:
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}:{number}: invalid JSON: {error}") from None
        key = next((name for name in _KEYS if isinstance(record, dict) and name in record), None)
        if key is None:
            raise DataError(f"{path}:{number}: expected an object with one of the keys {', '.join(_KEYS)}")
        label = record.pop(key)
        try:
            label = _hashable(label)
            hash(label)
        except (TypeError, RecursionError):
            raise DataError(f"{path}:{number}: {str(label)[:60]} cannot be a label") from None
        _add(entries, _uri(label) if isinstance(label, str) else label, record, f"{path}:{number}")
    return entries


def _read_skos(path: str | os.PathLike[str]) -> dict[Label, Any]:
    """Concepts with their preferred and alternative names, notation and definition, in an order of their own.

    Names in the language that most concepts have a name in come first.
    """
    with needed_for("reading SKOS", "rdflib", "skos"):
        import rdflib
        from rdflib.namespace import SKOS
    graph = rdflib.Graph()
    try:
        with decompression_errors(path), open_binary(path) as file:  # rdflib would fetch what looks like a URL
            graph.parse(file, format=_SKOS_FORMATS[stem_suffix(path)], publicID=Path(path).absolute().as_uri())
    except (OSError, DataError):
        raise
    except Exception as error:  # each parser of rdflib has exceptions of its own
        raise DataError(f"{os.fspath(path)}: cannot be read as {stem_suffix(path)[1:]}: {error}") from error

    def values(predicate: Any) -> list[tuple[str, str, str]]:
        """Concept, language and text of each value; in order, since a graph has none."""
        found = graph.subject_objects(predicate)
        return sorted((str(a), getattr(b, "language", None) or NO_LANGUAGE, str(b)) for a, b in found)

    preferred = values(SKOS.prefLabel)
    usage = Counter(language for _, language, _ in preferred)  # the first name of an entry is shown by default
    entries: dict[Label, Any] = {}
    for concept, language, name in sorted(preferred, key=lambda value: (value[0], -usage[value[1]], *value[1:])):
        entries.setdefault(concept, {"names": {}, "synonyms": []})["names"].setdefault(language, name)
    for field_name, predicate in (("notation", SKOS.notation), ("description", SKOS.definition)):
        for concept, _, text in values(predicate):
            if concept in entries:
                entries[concept].setdefault(field_name, text)
    for predicate in (SKOS.altLabel, SKOS.hiddenLabel):
        for concept, _, text in values(predicate):
            if concept in entries and text not in entries[concept]["synonyms"]:
                entries[concept]["synonyms"].append(text)
    if not entries:
        raise DataError(f"{os.fspath(path)} has no concept with a skos:prefLabel")
    return entries
