"""The requests of Annif's REST API, version 1, checked as Annif checks them: 400 for everything that is wrong.

Its clients take an error for "no subjects", so that characters which no text has become spaces.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from ramify.serve.bodies import decode_json, shown, without_unwanted
from ramify.serve.problems import Problem
from ramify.serve.served import LoadedModel, to_json
from ramify.serve.suggest_request import Document
from ramify.serve.suggestions import Rows

MAX_DOCUMENTS = 32
_MAX_FIELDS = 1000
_PREFIX = "metadata_"


class Options(NamedTuple):
    """Parameters of a suggestion."""

    limit: int = 10
    threshold: float = 0.0
    language: str | None = None


class AnnifJob:
    """Documents of one request, as a job of the `WorkQueue`."""

    __slots__ = ("_identities", "_key", "_language", "_loaded", "_options", "documents")

    def __init__(
        self,
        loaded: LoadedModel,
        documents: list[Document],
        options: Options,
        max_k: int,
        identities: list[Any] | None = None,
    ) -> None:
        self._loaded, self._options, self._identities = loaded, options, identities
        self.documents = documents
        self._language = options.language
        self._key = ("annif", loaded.name, loaded.version, min(options.limit, max_k))

    @property
    def key(self) -> Hashable:
        """Jobs with the same model and limit are ranked together."""
        return self._key

    def rank(self, documents: list[Any]) -> Rows:
        """Rank the labels of documents: probabilities where the model has them, and scores up to 1 elsewhere.

        A text without a word has none, as in Annif.
        """
        k, model = self._key[3], self._loaded.model
        if not k:
            return [([], [])] * len(documents)
        ranking = model.predict_topk(documents, k, probabilities=model.is_calibrated)
        rows = zip(documents, ranking.ids.tolist(), ranking.scores.tolist(), strict=True)
        return [([], []) if _is_blank(document) else (ids, scores) for document, ids, scores in rows]

    def finish(self, rows: Rows) -> bytes:
        """Answer with a list of results for a batch, and with a single one otherwise."""
        results = [f'"results":[{self._results(*row)}]' for row in rows]
        if self._identities is None:
            return f"{{{results[0]}}}".encode()
        pairs = zip(results, self._identities, strict=True)
        documents = [f'{{{text},"document_id":{to_json(identity)}}}' for text, identity in pairs]
        return f"[{','.join(documents)}]".encode()

    def _results(self, ids: list[int], scores: list[float]) -> str:
        parts = []
        for i, score in zip(ids, scores, strict=True):
            if i < 0 or score <= 0 or score < self._options.threshold:
                break
            parts.append(f"{self._subject(i)}{min(score, 1.0):.9g}}}")
        return ",".join(parts)

    def _subject(self, label_id: int) -> str:
        known = self._loaded.fragments(f"annif:{self._language}")
        found = known.get(label_id)
        if found is None:
            label = self._loaded.model.labels_[label_id]
            entry = self._loaded.entry(label)
            name = (entry and entry.name(self._language)) or str(label)
            subject = {"uri": str(label), "label": name, "notation": entry and entry.notation}
            found = known[label_id] = f'{to_json(subject)[:-1]},"score":'
        return found


def parse_form(body: bytes) -> tuple[str, dict[str, str], Options]:
    """Text, metadata and options of a form."""
    try:
        fields = dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=_MAX_FIELDS))
    except ValueError:
        raise Problem(400, "the form is not valid, or has too many fields") from None
    if "text" not in fields:
        raise Problem(400, "'text' is a required property")
    metadata = {name.removeprefix(_PREFIX): value for name, value in fields.items() if name.startswith(_PREFIX)}
    return fields["text"], metadata, parse_options(fields)


def parse_batch(body: bytes) -> tuple[list[tuple[str, dict[str, str]]], list[Any]]:
    """Texts with metadata of a batch, and the ids of the documents."""
    value = _json(body)
    if not isinstance(value, dict) or "documents" not in value:
        raise Problem(400, "'documents' is a required property")
    documents = value["documents"]
    if not isinstance(documents, list):
        raise Problem(400, f"{shown(documents)} is not of type 'array' - 'documents'")
    if len(documents) > MAX_DOCUMENTS:
        raise Problem(400, "too many items - 'documents'")
    texts, identities = [], []
    for i, document in enumerate(documents):
        text, metadata = _document(document, f"documents.{i}")
        if not isinstance(identity := document.get("document_id", ""), str):
            raise Problem(400, f"{shown(identity)} is not of type 'string' - 'documents.{i}.document_id'")
        texts.append((text, metadata))
        identities.append(document.get("document_id"))
    return texts, identities


def parse_learn(body: bytes) -> None:
    """Check a list of documents with subjects."""
    value = _json(body)
    if not isinstance(value, list):
        raise Problem(400, "the request is not a list of documents")
    for i, document in enumerate(value):
        _document(document, str(i), is_text_needed=False)
        subjects = document.get("subjects", [])
        if not isinstance(subjects, list):
            raise Problem(400, f"{shown(subjects)} is not of type 'array' - '{i}.subjects'")
        for j, subject in enumerate(subjects):
            if not isinstance(subject, dict) or not isinstance(subject.get("uri"), str):
                raise Problem(400, f"'uri' is a required property, of type 'string' - '{i}.subjects.{j}'")
            if not isinstance(subject.get("label", ""), str):
                raise Problem(400, f"{shown(subject['label'])} is not of type 'string' - '{i}.subjects.{j}.label'")


def parse_detect(body: bytes) -> tuple[str, list[str]]:
    """Text and candidate languages."""
    value = _json(body)
    if not isinstance(value, dict) or not {"text", "languages"} <= value.keys():
        raise Problem(400, "'text' and 'languages' are required properties")
    text, languages = value["text"], value["languages"]
    if not isinstance(text, str):
        raise Problem(400, f"{shown(text)} is not of type 'string' - 'text'")
    is_list = isinstance(languages, list) and 1 <= len(languages) <= 5
    if not is_list or not all(isinstance(code, str) and 2 <= len(code) <= 3 for code in languages):
        raise Problem(400, "'languages' must be a list of one to five codes of two or three letters")
    return without_unwanted(text), languages


def parse_options(fields: Mapping[str, str]) -> Options:
    """Options of a form or of a query; other fields are not looked at."""
    limit, threshold = fields.get("limit", "10"), fields.get("threshold", "0")
    try:
        options = Options(int(limit), float(threshold), fields.get("language") or None)
    except ValueError:
        raise Problem(400, "'limit' must be an integer and 'threshold' a number") from None
    if options.limit < 0:
        raise Problem(400, f"{limit} is less than the minimum of 0 - 'limit'")
    if not 0 <= options.threshold <= 1:
        raise Problem(400, "'threshold' must be between 0 and 1")
    return options


def as_document(loaded: LoadedModel, text: str, metadata: dict[str, str]) -> Document:
    """Text of a document; a model of text fields also reads those fields of the metadata that it knows."""
    text = without_unwanted(text)
    if loaded.model.input_kind_ == "text":
        return text
    known = {name: without_unwanted(value) for name, value in metadata.items() if name in loaded.fields}
    return {loaded.fields[0]: text, **known}


def _json(body: bytes) -> Any:
    try:
        return decode_json(body)
    except Problem as problem:
        raise Problem(400, problem.detail) from None


def _document(given: Any, where: str, *, is_text_needed: bool = True) -> tuple[str, dict[str, str]]:
    default = None if is_text_needed else ""
    if not isinstance(given, dict) or not isinstance(given.get("text", default), str):
        raise Problem(400, f"'text' is a required property, of type 'string' - '{where}'")
    metadata = given.get("metadata", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise Problem(400, f"the values must be of type 'string' - '{where}.metadata'")
    return given.get("text", ""), metadata


def _is_blank(document: Document) -> bool:
    if isinstance(document, dict):
        return all(map(_is_blank, document.values()))
    return not document or document.isspace()
