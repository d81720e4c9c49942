"""What is done to texts in Python before the native analyzer reads them."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from typing import Any

from ramify.base.errors import DataError

SEPARATOR = "\x1f"
"""Stands between the words of a text that a user's function has split."""


def strip_accents_unicode(text: str) -> str:
    """Decompose characters and remove combining marks."""
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


def strip_accents_ascii(text: str) -> str:
    """Decompose characters and keep only ASCII."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")


def preprocess(texts: Iterable[str], function: Callable[[str], Any]) -> list[str]:
    """Apply a user's function from text to text."""
    return [_checked(function(text), "preprocessor") for text in texts]


def tokenize(texts: Iterable[str], function: Callable[[str], Any]) -> list[str]:
    """Apply a user's function from text to words; the words are joined with `SEPARATOR`."""
    return [
        SEPARATOR.join(_checked(word, "tokenizer").replace(SEPARATOR, " ") for word in function(text)) for text in texts
    ]


def _checked(value: Any, name: str) -> str:
    if not isinstance(value, str):
        expected = "a text" if name == "preprocessor" else "a list of words"
        raise DataError(f"the function Tfidf.{name} must return {expected}; got {type(value).__name__}")
    return value
