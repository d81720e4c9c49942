"""Tokenization, TF-IDF and the XMC text parser."""

from __future__ import annotations

from collections.abc import Sequence

from ramify import _core
from ramify._core import Analyzer, CorpusCounts, Tfidf, XmcText

__all__ = [
    "Analyzer",
    "CorpusCounts",
    "Tfidf",
    "XmcText",
    "make_analyzer",
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
