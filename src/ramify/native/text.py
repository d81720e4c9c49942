"""Tokenization, TF-IDF and the XMC text parser."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from ramify import _core
from ramify._core import Analyzer, CorpusCounts, Tfidf, XmcText, term_slots
from ramify.base.types import AnyArray

__all__ = [
    "Analyzer",
    "CorpusCounts",
    "Tfidf",
    "XmcText",
    "make_analyzer",
    "term_hash_key",
    "term_slots",
]


def make_analyzer(
    unit: str, ngram_range: tuple[int, int], lowercase: bool, min_token: int, stop_words: Sequence[str]
) -> Analyzer:
    """Analyzer that splits texts into terms; unit is "word", "char" or "char_wb"."""
    if unit not in ("word", "char", "char_wb"):
        raise ValueError(f"unit must be word, char or char_wb; got {unit!r}")
    low, high = ngram_range
    if not 1 <= low <= high <= 100:
        raise ValueError(f"ngram_range must be (low, high) with 1 <= low <= high <= 100; got {ngram_range!r}")
    return _core.Analyzer(unit, low, high, lowercase, min_token, list(stop_words))


def term_hash_key(offsets: AnyArray, term_bytes: AnyArray) -> AnyArray:
    """Key (3,) uint64 of the hash of a finished vocabulary: a digest of its terms.

    The same terms have the same key, so a model has the same bits each time; but nobody can choose terms that collide,
    because each choice has another key.
    """
    digest = hashlib.blake2b(offsets.data, digest_size=24)
    digest.update(term_bytes.data)
    return np.frombuffer(digest.digest(), "<u8")
