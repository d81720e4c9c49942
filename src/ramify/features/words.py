"""The words of a text behind its columns, for explanations that speak of words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from ramify.base.types import AnyArray, Csr
from ramify.features.concat import Concat, feature_parts
from ramify.features.languages import STEMMERS, detect_languages
from ramify.features.preparation import SEPARATOR
from ramify.features.tfidf import Tfidf
from ramify.io.inputs import Inputs

_WORD = re.compile(r"\w+")
_UNSPACED = re.compile(  # as in the native analyzer: scripts written without spaces
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


def column_words(features: Tfidf | Concat, document: Any, columns: AnyArray) -> tuple[list[str], Csr]:
    """Words of a document, and the fraction of each of its columns that belongs to each of them.

    A column belongs to the words that count in it, as themselves, by their stem or by a part, in proportion to their
    counts. A column of no single word, such as a pair of words or of Chinese characters, stands for itself.

    Parameters
    ----------
    features : fitted
    document : a text, or a dict of text fields
    columns : (m,) the columns of the features of the document, ascending

    Returns
    -------
    words : (w,) as they stand in the document, in the order of the columns; capitals do not distinguish words
    fractions : (m × w), each row sums to 1

    >>> stems = Tfidf(stemmer="english").fit(["taxing taxes", "a law"])
    >>> column_words(stems, "Taxes: taxing law", np.array([0, 1]))[0]
    ['law', 'Taxes', 'taxing']
    """
    shown: dict[str, tuple[int, str]] = {}  # by lower case: position and form
    entries: list[tuple[float, int, int]] = []
    first = 0
    for part in feature_parts(features):
        mine = np.flatnonzero((columns >= first) & (columns < first + part.n_features))
        local = columns[mine] - first
        tokens, counts = _token_counts(part, document, local)
        for i, (row, term) in enumerate(zip(mine.tolist(), part.terms(local), strict=True)):
            counted = counts.data[counts.indptr[i] : counts.indptr[i + 1]]
            found = [tokens[t] for t in counts.indices[counts.indptr[i] : counts.indptr[i + 1]]] or [(term,)]
            for words, fraction in zip(found, counted / counted.sum() if len(counted) else (1.0,), strict=True):
                for word in words:
                    position, _ = shown.setdefault(word.lower(), (len(shown), word))
                    entries.append((fraction / len(words), row, position))
        first += part.n_features
    values, rows, positions = zip(*entries, strict=True) if entries else ((), (), ())
    fractions = sparse.csr_matrix((values, (rows, positions)), (len(columns), len(shown)), dtype=np.float64)
    return [form for _, form in shown.values()], fractions


def _token_counts(part: Tfidf, document: Any, columns: AnyArray) -> tuple[list[tuple[str, ...]], Csr]:
    """Words of each distinct token (t,) of a document, and its counts (m × t) in columns that the document has."""
    fitted = part._as_fitted
    tokens: dict[str, float] = {}
    n_lead = fitted.lead_words or 0
    for text, weight in _texts(part, document):
        for token in _tokens(fitted, text):
            tokens[token] = tokens.get(token, 0.0) + weight * (fitted.lead_weight if n_lead > 0 else 1.0)
            n_lead -= len(token) >= fitted._min_token()
    words = {token: (token,) if fitted.analyzer == "word" else tuple(_WORD.findall(token)) for token in tokens}
    forms = [token for token in tokens if words[token]]
    prepared = forms if fitted.tokenizer is not None else fitted._texts(Inputs("text", forms, None), None)
    counts = _counts_in_context(part, document, prepared, columns)
    weighted = counts.multiply(np.array([tokens[token] for token in forms])[:, None])
    return [words[token] for token in forms], sparse.csr_matrix(weighted.T)


def _texts(part: Tfidf, document: Any) -> Iterator[tuple[str, float]]:
    if part.fields_ is None:
        yield document, 1.0
    else:
        for field, weight in part.fields_.items():
            yield document.get(field, ""), weight


def _tokens(fitted: Tfidf, text: str) -> list[str]:
    """What can be analyzed one by one: words, or what stands between blanks; nothing if terms span several of them."""
    if fitted.tokenizer is not None:
        return fitted._texts(Inputs("text", [text], None), None)[0].split(SEPARATOR)
    if fitted.analyzer == "word":
        splits_unspaced = (fitted.stemmer or fitted.subwords) is not None
        return [word for word in _WORD.findall(text) if not (splits_unspaced and _UNSPACED.search(word))]
    return text.split() if fitted.analyzer == "char_wb" else []


def _counts_in_context(part: Tfidf, document: Any, tokens: list[str], columns: AnyArray) -> Csr:
    """Counts (t × m) of tokens that are analyzed one by one, each in the language that it has in the document."""
    languages = [part.language_]
    if part._as_fitted.stemmer == "auto":
        first = next((name for name in detect_languages([document]) if name in STEMMERS), None)
        languages = list(dict.fromkeys([first, part.language_, *STEMMERS, None]))
    result = sparse.csr_matrix((len(tokens), len(columns)))
    every, is_open = result, np.ones(len(tokens), bool)
    for language in languages:
        counts = part.count_terms(tokens, language)
        inside = counts[:, columns].astype(np.float64)
        # Neighbors decide about the language of a token; it is one whose columns the document has.
        fits = is_open & np.isclose(np.asarray(inside.sum(axis=1)).ravel(), np.asarray(counts.sum(axis=1)).ravel())
        result = result + sparse.diags(fits.astype(float)) @ inside
        every = every.maximum(inside)
        is_open &= ~fits
    is_missed = np.asarray(result.sum(axis=0)).ravel() == 0  # such as those of a word in two languages
    return sparse.csr_matrix(result + every @ sparse.diags(is_missed.astype(float)))
