"""Tokenization, TF-IDF and the XMC text parser."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from ramify import _core
from ramify._core import (
    Analyzer,
    CorpusCounts,
    NameMatcher,
    Tfidf,
    XmcText,
    find_subwords,
    name_trie,
    term_slots,
)
from ramify.base.types import AnyArray

__all__ = [
    "LANGUAGES",
    "STEMMERS",
    "Analyzer",
    "CorpusCounts",
    "NameMatcher",
    "Tfidf",
    "XmcText",
    "detect_languages",
    "find_subwords",
    "make_analyzer",
    "merge_terms",
    "name_trie",
    "stem_words",
    "term_hash_key",
    "term_slots",
]


LANGUAGES: tuple[str, ...] = tuple(name for name, _ in _core.stemmer_languages())
"""Names of the languages that are detected, by index; the first stands for an unknown one."""

STEMMERS: tuple[str, ...] = tuple(name for name, has_stemmer in _core.stemmer_languages() if has_stemmer)
"""Names of the languages with a stemmer."""


def make_analyzer(
    unit: str,
    ngram_range: tuple[int, int],
    lowercase: bool,
    min_token: int,
    stop_words: Sequence[str],
    *,
    drop_numbers: bool = False,
    split_unspaced: bool = False,
    detect_language: bool = False,
    stemmer: str | None = None,
    n_lead: int = 0,
    lead_weight: float = 1.0,
) -> Analyzer:
    """Analyzer that splits texts into terms; unit is "word", "char", "char_wb" or "token" (split by U+001F).

    The rest concerns words only: drop numbers, cut scripts without spaces into pairs of characters, detect the language
    of each document, stem words (`stemmer`: where the language is not detected, or not certain), count the first
    `n_lead` words of a document `lead_weight` times.
    """
    if unit not in ("word", "char", "char_wb", "token"):
        raise ValueError(f"unit must be word, char, char_wb or token; got {unit!r}")
    low, high = ngram_range
    if not 1 <= low <= high <= 100:
        raise ValueError(f"ngram_range must be (low, high) with 1 <= low <= high <= 100; got {ngram_range!r}")
    return _core.Analyzer(
        unit,
        low,
        high,
        lowercase,
        min_token,
        list(stop_words),
        drop_numbers,
        split_unspaced,
        detect_language,
        stemmer or "",
        n_lead,
        lead_weight,
    )


def detect_languages(texts: list[str], n_fields: int = 1, threads: int = 1) -> AnyArray:
    """Index in `LANGUAGES` (n,) of the language of each document of `n_fields` texts; 0 where it cannot be told."""
    if n_fields < 1 or len(texts) % n_fields:
        raise ValueError(f"every document needs {n_fields} texts; got {len(texts)} texts")
    return np.asarray(_core.detect_languages(texts, n_fields, threads))


def stem_words(language: str, words: Sequence[str]) -> list[str]:
    """Stems of words, which must be in lower case, by the Snowball stemmer of a language."""
    if language not in STEMMERS:
        raise ValueError(f"there is no stemmer for {language!r}; languages: {', '.join(STEMMERS)}")
    return _core.stem_words(language, list(words))


def merge_terms(
    parts: Sequence[tuple[AnyArray, AnyArray, AnyArray, AnyArray | None]],
) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
    """Sorted terms of several parts of a corpus as one; sums of their frequencies.

    A part, and the result, are offsets (m + 1,) and bytes of the terms, the documents (m,) and the occurrences (m,) of
    each; without occurrences in some part there are none in the result.
    """
    return _core.merge_terms(list(parts))


def term_hash_key(offsets: AnyArray, term_bytes: AnyArray) -> AnyArray:
    """Key (3,) uint64 of the hash of a finished vocabulary: a digest of its terms.

    The same terms have the same key, so a model has the same bits each time; but nobody can choose terms that collide,
    because each choice has another key.
    """
    digest = hashlib.blake2b(offsets.data, digest_size=24)
    digest.update(term_bytes.data)
    return np.frombuffer(digest.digest(), "<u8")
