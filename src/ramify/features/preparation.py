"""What is done to texts in Python before the native analyzer reads them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ramify.base.errors import DataError
from ramify.features.stemmers import load_stemmer

SEPARATOR = "\x1f"
"""Stands between the words of a text that a user's function has split."""


_WORD = re.compile(r"\w+")
_WORD_PATTERN = re.compile(r"\(\?u\)\\b(\\w\\w\+|\\w\+|\\w\{([1-9][0-9]{0,5}),\})\\b")
_FIELD_WEIGHTS = (1e-3, 1e6)  # range that counts in single precision resolve


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What Python does to texts before the native analyzer: nothing, if there is no function, accent or stemmer."""

    preprocessor: Callable[[str], Any] | None
    tokenizer: Callable[[str], Any] | None
    strip_accents: str | None
    lowercase: bool
    stemmer: str | None  # of PyStemmer
    min_token: int
    stop_words: frozenset[str]

    @property
    def splits(self) -> bool:
        """Whether the result is words, joined with `SEPARATOR`."""
        return self.tokenizer is not None or self.stemmer is not None

    @property
    def is_needed(self) -> bool:
        """Whether texts are changed."""
        return self.splits or self.preprocessor is not None or self.strip_accents is not None

    def apply(self, texts: list[str]) -> list[str]:
        """Input of the native analyzer."""
        if not self.is_needed:
            return texts
        if self.preprocessor is not None:
            texts = preprocess(texts, self.preprocessor)
        else:
            texts = [str.lower(t) for t in texts] if self.lowercase else texts
            if self.strip_accents is not None:
                strip = strip_accents_unicode if self.strip_accents == "unicode" else strip_accents_ascii
                texts = [strip(t) for t in texts]
        if self.stemmer is not None:
            return tokenize(texts, self._stems)
        return texts if self.tokenizer is None else tokenize(texts, self.tokenizer)

    def _stems(self, text: str) -> list[str]:
        """Stems of the words that are no stop words."""
        words = (
            _WORD.findall(text) if self.tokenizer is None else [checked(w, "tokenizer") for w in self.tokenizer(text)]
        )
        kept = [word for word in words if len(word) >= self.min_token and word not in self.stop_words]
        stems: list[str] = load_stemmer(str(self.stemmer)).stemWords(kept)
        return stems


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
    return [checked(function(text), "preprocessor") for text in texts]


def tokenize(texts: Iterable[str], function: Callable[[str], Any]) -> list[str]:
    """Apply a user's function from text to words; the words are joined with `SEPARATOR`."""
    return [
        SEPARATOR.join(checked(word, "tokenizer").replace(SEPARATOR, " ") for word in function(text)) for text in texts
    ]


def checked(value: Any, name: str) -> str:
    """Text that a user's function has returned."""
    if not isinstance(value, str):
        expected = "a text" if name == "preprocessor" else "a list of words"
        raise DataError(f"the function Tfidf.{name} must return {expected}; got {type(value).__name__}")
    return value


def shortest_word(token_pattern: str) -> int:
    """Minimum word length of a pattern of words."""
    match = _WORD_PATTERN.fullmatch(token_pattern)
    if match is None:
        raise ValueError(
            r"Tfidf.token_pattern must be (?u)\b\w\w+\b, (?u)\b\w+\b or (?u)\b\w{n,}\b; " f"got {token_pattern!r}"
        )
    return int(match[2]) if match[2] else match[1].count(r"\w")


def stop_word_set(stop_words: str | Iterable[str] | None) -> frozenset[str]:
    """Words to ignore; 'english' for scikit-learn's list."""
    if stop_words == "english":
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        return frozenset(ENGLISH_STOP_WORDS)
    return frozenset(stop_words or ())


def check_field_weights(fields: dict[str, float]) -> None:
    """Check the weights of text fields."""
    low, high = _FIELD_WEIGHTS
    if not fields or not all(low <= weight <= high for weight in fields.values()):
        raise ValueError(f"Tfidf.fields must have a weight from {low:g} to {high:g} for each field; got {fields!r}")
