"""What models make of raw texts unless told otherwise, and the reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ramify.features.concat import Concat
from ramify.features.languages import STEMMERS, detect_languages
from ramify.features.tfidf import Tfidf
from ramify.io.inputs import check_inputs

_SAMPLE = 10_000  # documents


def word_features() -> Tfidf:
    """TF-IDF of words: the default of models that learn an embedding of the features."""
    return Tfidf(sublinear_tf=True)


def text_features(long_texts: int | None = 300) -> Concat:
    """TF-IDF of words beside that of stems and parts of words: the default of linear models.

    Stems of a single document are left out: the words beside them say the same. The first words, mostly a title, count
    more. English texts of `long_texts` words and more, in the mean, have words enough: words alone are as good there,
    and take half the time. All of it was chosen on validation sets of four data sets (benchmarks/EXPERIMENTS.md).
    """
    common: dict[str, Any] = {"sublinear_tf": True, "lead_words": 12, "lead_weight": 4.0}
    stems = Tfidf(stemmer="auto", subwords="parts", min_df=2, **common)
    return Concat(parts=(Tfidf(**common), stems), weights=(0.75, 0.75), long_texts=long_texts)


def neighbor_features() -> Tfidf:
    """TF-IDF of stems: the default of models that compare texts with each other.

    The first words count more, as in `text_features`; parts of words make texts alike that are not.
    """
    return Tfidf(sublinear_tf=True, stemmer="auto", lead_words=12, lead_weight=4.0)


def label_text_features() -> Tfidf:
    """TF-IDF of stems and parts of words: the default of models that compare texts with the texts of labels.

    Names are inflected and compounded in other ways than texts: "Tiersprache" for "Sprachen der Tiere".
    """
    return Tfidf(sublinear_tf=True, stemmer="auto", subwords="parts", lead_words=12, lead_weight=4.0)


def spelling_features() -> Tfidf:
    """TF-IDF of four letters in a row: the default of models that compare the spelling of texts and of names.

    Words of two languages, and names that are one word of several, have letters in common: "democracy" and
    "Demokratie", "libfoo-dev" and "libfoo1".
    """
    return Tfidf(analyzer="char_wb", ngram_range=(4, 4), sublinear_tf=True)


@dataclass(frozen=True)
class Suggestion:
    """Features for texts, with the reason and the fraction of documents in each language."""

    features: Concat
    reason: str
    languages: dict[str, float]


def suggest(texts: Any, *, threads: int | None = None) -> Suggestion:
    """Features that suit the languages of texts, or of dicts of text fields, and why.

    >>> print(suggest(["Das Steuerrecht ist nicht einfach.", "Die Steuern und das Recht."]).reason)
    german 100 %: words, their stems, and the words that they are made of
    """
    documents = check_inputs(texts).data
    sample = documents[:: max(1, len(documents) // _SAMPLE)]
    found = Counter(name or "unknown" for name in detect_languages(sample, threads=threads))
    languages = {name: count / len(sample) for name, count in found.most_common()}
    features = text_features().suited_to(documents)
    if len(features.parts) == 1:
        reason = "long texts: words alone"
    else:
        stems = "their stems, " if any(name in STEMMERS for name in languages) else ""
        reason = f"words, {stems}and the words that they are made of"
    return Suggestion(features, f"{format_languages(languages)}: {reason}", languages)


def format_languages(languages: dict[str, float]) -> str:
    """Languages with the percentage of documents in each."""
    return ", ".join(f"{name} {100 * fraction:.0f} %" for name, fraction in languages.items()) or "no texts"
