"""TF-IDF of a corpus in parts: counts of the parts, merged, give the vocabulary and the weights of the whole.

In order: `count_languages` (if the language of the stems is to be found), `count_terms`, `merge_counts`, `set_terms`,
`document_frequency` (only with subwords), `set_weights`, `features_of`. The results have the bits of
`Tfidf.fit_transform`, and texts are analyzed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ramify import native
from ramify.base.sparse import csr_from_parts, indptr_from_counts
from ramify.base.threads import resolve_threads
from ramify.base.types import AnyArray, Csr, LongArray
from ramify.features import languages
from ramify.features.selection import df_range, most_frequent
from ramify.features.tfidf import MIN_PART_DF, Tfidf
from ramify.io.inputs import Inputs, check_inputs


class TermCounts(NamedTuple):
    """Terms of documents in the order of their code points.

    Attributes
    ----------
    offsets, bytes : (m + 1,) and their text, as in a vocabulary
    df : (m,) number of documents with each
    tf : (m,) number of occurrences; empty unless `max_features` needs it
    """

    offsets: AnyArray
    bytes: AnyArray
    df: LongArray
    tf: AnyArray


def fields_of(tfidf: Tfidf, names: Sequence[str] | None) -> dict[str, float] | None:
    """Weight of each text field of documents that have these; None: they are plain texts."""
    if names is None:
        return tfidf._fields_of(Inputs("text", [], None))
    return tfidf._fields_of(Inputs("fields", [dict.fromkeys(names, "")], None))


def count_languages(tfidf: Tfidf, documents: Any, fields: dict[str, float] | None, first: int, n: int) -> Counter[str]:
    """Languages of a sample of the documents from `first` on, of n in total."""
    texts, n_fields = tfidf._texts(check_inputs(documents), fields), len(fields or [""])
    return languages.count_languages(texts, n_fields, resolve_threads(tfidf.threads), first=first, n=n)


def count_words(tfidf: Tfidf, documents: Any, fields: dict[str, float] | None, first: int, n: int) -> tuple[int, int]:
    """Words and documents of the same sample."""
    texts, n_fields = tfidf._texts(check_inputs(documents), fields), len(fields or [""])
    return languages.count_words(texts, n_fields, first=first, n=n)


def language_of(tfidf: Tfidf, found: Counter[str]) -> str | None:
    """Language of the stems, given the languages of the documents, if they are needed."""
    if tfidf.stemmer == "auto":
        return languages.main_language(found)
    return tfidf.stemmer if tfidf.stemmer in languages.STEMMERS else None


def count_terms(
    tfidf: Tfidf, documents: Any, fields: dict[str, float] | None, language: str | None
) -> tuple[TermCounts, Csr]:
    """Terms of documents, all m of them, and the counts (n × m) of each document."""
    inputs, threads = check_inputs(documents), resolve_threads(tfidf.threads)
    texts, weights = tfidf._texts(inputs, fields), [1.0] if fields is None else list(fields.values())
    with_tf = tfidf.max_features is not None
    counts = native.text.CorpusCounts.count(tfidf._make_analyzer(language), texts, weights, with_tf, threads)
    counts.select(1, len(inputs), threads)
    df, tf = counts.document_frequency(), counts.term_frequency()
    terms = TermCounts(*counts.freeze(None, False), df, tf)
    indptr, indices, data = counts.rows(None, False, False, "none", threads)
    return terms, csr_from_parts(data, indices, indptr, (len(inputs), len(df)))


def merge_counts(parts: Sequence[TermCounts]) -> TermCounts:
    """Terms of all parts, with the sums of their counts."""
    found = native.text.merge_terms([(*part[:3], part.tf if len(part.tf) == len(part.df) else None) for part in parts])
    return TermCounts(*found)


def set_terms(
    tfidf: Tfidf, counts: TermCounts, n: int, fields: dict[str, float] | None, language: str | None, needs_terms: bool
) -> LongArray:
    """Set the vocabulary from the terms of n documents; returns the document frequencies (d,) of its terms.

    The weights are missing: `set_weights` sets them.
    """
    low, high = df_range(n, tfidf.min_df, tfidf.max_df, needs_terms)
    selected = np.flatnonzero((counts.df >= low) & (counts.df <= high))
    df = counts.df[selected]
    frequency = df if tfidf.binary or tfidf.max_features is None else counts.tf[selected]
    keep = most_frequent(df, frequency, tfidf.max_features, needs_terms)
    if keep is not None:
        selected, df = selected[keep], df[keep]
    starts, sizes = counts.offsets[selected].astype(np.int64), np.diff(counts.offsets)[selected].astype(np.int64)
    offsets = indptr_from_counts(sizes)
    at = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], sizes)
    tfidf._set_terms(offsets.astype(np.uint64), counts.bytes[at])
    if tfidf.subwords is not None:
        threads = resolve_threads(tfidf.threads)
        tfidf.parts_ = native.text.find_subwords(*tfidf._vocabulary(), df, n, MIN_PART_DF, threads)
    tfidf._finish(None, n, fields, language)
    return df


def document_frequency(tfidf: Tfidf, terms: TermCounts, counts: Csr) -> LongArray:
    """Documents (d,) with each term, or with a word that it is a part of, of those that `count_terms` has counted."""
    return np.bincount(features_of(tfidf, terms, counts).indices, minlength=tfidf.n_features).astype(np.int64)


def set_weights(tfidf: Tfidf, df: LongArray) -> None:
    """Set the weights from the document frequencies (d,)."""
    tfidf._finish(df, tfidf.n_documents_, tfidf.fields_, tfidf.language_)


def features_of(tfidf: Tfidf, terms: TermCounts, counts: Csr) -> Csr:
    """Features (n × d) of documents that `count_terms` has counted."""
    threads = resolve_threads(tfidf.threads)
    return tfidf._matrix(tfidf._fitted().transform_counts(terms.offsets, terms.bytes, counts, threads))
