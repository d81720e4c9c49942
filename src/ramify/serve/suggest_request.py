"""The request of ``POST /v1/suggest``: checked by hand, in a few microseconds; `schemas` documents it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

from ramify.serve.bodies import check_characters, decode_json, shown
from ramify.serve.problems import Problem
from ramify.serve.settings import Settings

Document = str | dict[str, str]
OWN_RULE = "default"
"""Name of the decision rule that a model was calibrated with."""
FIELDS = (
    "input", "model", "k", "probabilities", "rule", "threshold", "allow", "deny", "explain", "without", "language",
)  # fmt: skip


@dataclass(slots=True)
class SuggestRequest:
    """What a client asks for; `k` is None if it was not given."""

    documents: list[Document]
    model: str | None = None
    k: int | None = None
    probabilities: bool = False
    rule: str | None = None
    threshold: float | None = None
    allow: list[Any] | None = None
    deny: list[Any] | None = None
    explain: int | list[Any] = 0
    without: tuple[str, ...] = ()
    language: str | None = None


def parse_suggest(body: bytes, settings: Settings) -> SuggestRequest:
    """Check a request; raises `Problem` with the field at fault."""
    value = decode_json(body)
    if type(value) is not dict:
        raise Problem(422, f'the request must be an object such as {{"input": "a text"}}; got {shown(value)}')
    if "input" not in value:
        raise Problem(422, 'the field "input" is missing: a text, an object of text fields, or a list of them')
    # Valid UTF-8 has no surrogates, and JSON no control characters: they come as escapes only.
    request = SuggestRequest(_documents(value["input"], settings, has_escapes=b"\\u" in body))
    if len(value) > 1:
        _options(request, value, settings)
    return request


def _documents(given: Any, settings: Settings, *, has_escapes: bool) -> list[Document]:
    documents = given if type(given) is list else [given]
    if not documents:
        raise Problem(422, '"input" is an empty list; send at least one text')
    if len(documents) > settings.max_texts:
        raise Problem(422, f'"input" has {len(documents):,} texts; send at most {settings.max_texts:,} at once')
    for i, document in enumerate(documents):
        if type(document) is str:
            size = len(document)
        elif type(document) is dict and document and all(type(text) is str for text in document.values()):
            size = sum(map(len, document.values()))
        else:
            message = "must be a text, or an object of text fields"
            raise Problem(422, f"{_where(i, given)} {message}; got {shown(document)}")
        if size > settings.max_text:
            message = f"has {size:,} characters; the limit is {settings.max_text:,}"
            raise Problem(422, f"{_where(i, given)} {message}")
        if has_escapes:
            for text in (document,) if type(document) is str else (*document, *document.values()):
                check_characters(text, _where(i, given))
    return documents


def _where(i: int, given: Any) -> str:
    return f'"input"[{i}]' if type(given) is list else '"input"'


def _options(request: SuggestRequest, value: dict[str, Any], settings: Settings) -> None:
    for name, given in value.items():
        if name not in FIELDS:
            near = difflib.get_close_matches(name, FIELDS, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else f"; known are {', '.join(FIELDS)}"
            raise Problem(422, f"unknown field {shown(name)}{hint}")
        if given is None or name == "input":
            continue
        if name == "k":
            request.k = check_integer(given, "k", 1, settings.max_k)
        elif name == "probabilities":
            request.probabilities = _check(given, name, bool, "true or false")
        elif name in ("model", "rule", "language"):
            setattr(request, name, _check(given, name, str, "a text"))
            check_characters(given, f'"{name}"')
        elif name == "threshold":
            if type(given) not in (int, float) or not -1e300 < given < 1e300:
                raise Problem(422, f'"threshold" must be a number; got {shown(given)}')
            request.threshold = float(given)
        elif name in ("allow", "deny"):
            setattr(request, name, _labels(given, name, settings.max_filter))
        elif name == "explain":
            request.explain = _explain(given, settings)
        elif name == "without":
            words = _check(given, name, list, "a list of words")
            if len(words) > settings.max_words or not all(type(word) is str for word in words):
                raise Problem(422, f'"without" must be a list of at most {settings.max_words:,} words')
            request.without = tuple(words)
    if request.explain and len(request.documents) > 1:
        raise Problem(422, '"explain" takes a single input; send the texts one by one')


def _explain(given: Any, settings: Settings) -> int | list[Any]:
    """Number of labels to explain, or the labels."""
    if type(given) is bool:
        return settings.max_explained if given else 0
    if type(given) is list:
        return _labels(given, "explain", settings.max_explained)
    return check_integer(given, "explain", 0, settings.max_explained)


def check_integer(given: Any, name: str, low: int, high: int) -> int:
    """Check that a value is an integer between two limits, both included."""
    if type(given) is not int:
        raise Problem(422, f'"{name}" must be an integer; got {shown(given)}')
    if not low <= given <= high:
        raise Problem(422, f'"{name}" must be between {low:,} and {high:,}; got {shown(given)}')
    return given


def _check(given: Any, name: str, kind: type, words: str) -> Any:
    if type(given) is not kind:
        raise Problem(422, f'"{name}" must be {words}; got {shown(given)}')
    return given


def _labels(given: Any, name: str, limit: int) -> list[Any]:
    labels = [as_label(label, name) for label in _check(given, name, list, "a list of labels or names")]
    if len(labels) > limit:
        raise Problem(422, f'"{name}" has {len(labels):,} labels; the limit is {limit:,}')
    return labels


def as_label(given: Any, name: str, depth: int = 0) -> Any:
    """Label that a client has written as JSON; a list is a tuple."""
    if type(given) is list and depth < 8:
        return tuple(as_label(part, name, depth + 1) for part in given)
    if type(given) in (dict, list) or given is None:
        raise Problem(422, f'"{name}" must be a list of labels or names; got {shown(given)} in it')
    return given
