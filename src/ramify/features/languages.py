"""The languages of texts, by function words and endings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ramify import native
from ramify.base.errors import DataError
from ramify.base.threads import resolve_threads
from ramify.io.inputs import check_inputs

STEMMERS = native.text.STEMMERS
_SAMPLE = 10_000  # documents


def detect_languages(documents: Any, *, threads: int | None = None) -> list[str | None]:
    """Language of each document, of any of its fields; None where its words do not tell.

    Recognized are German, English, French, Spanish, Italian, Dutch and Swedish.

    >>> detect_languages(["Das Haus ist nicht groß.", "This is not the house.", "42"])
    ['german', 'english', None]
    """
    inputs = check_inputs(documents)
    if len(inputs) and inputs.kind not in ("text", "fields"):
        raise DataError("languages are those of texts; got numeric features")
    texts, n_fields = inputs.data if len(inputs) else [], 1
    if inputs.kind == "fields":
        names = sorted({name for document in texts for name in document})
        texts, n_fields = [document.get(name, "") for document in texts for name in names], max(1, len(names))
    found = native.text.detect_languages(texts, n_fields, resolve_threads(threads))
    return [native.text.LANGUAGES[i] if i else None for i in found]


def count_languages(
    texts: Sequence[str], n_fields: int, threads: int, *, first: int = 0, n: int | None = None
) -> Counter[str]:
    """Languages of an even sample of documents of `n_fields` texts each.

    The texts may be those of the documents from `first` on, of n in total: the samples of all parts are that of the
    whole.
    """
    sample = _sample(texts, n_fields, first, n)
    return Counter(native.text.LANGUAGES[i] for i in native.text.detect_languages(sample, n_fields, threads))


def count_words(texts: Sequence[str], n_fields: int, *, first: int = 0, n: int | None = None) -> tuple[int, int]:
    """Words, as spaces separate them, and documents of the sample of `count_languages`."""
    sample = _sample(texts, n_fields, first, n)
    return sum(text.count(" ") + 1 for text in sample), len(sample) // n_fields


def sample_step(n: int) -> int:
    """Of n documents, the sample takes one of so many."""
    return max(1, n // _SAMPLE)


def _sample(texts: Sequence[str], n_fields: int, first: int, n: int | None) -> list[str]:
    n_here = len(texts) // n_fields
    step = sample_step(n_here if n is None else n)
    return [text for i in range(-first % step, n_here, step) for text in texts[i * n_fields : (i + 1) * n_fields]]


def main_language(found: Counter[str]) -> str | None:
    """Most frequent language with a stemmer."""
    best = max(STEMMERS, key=lambda name: (found[name], name))
    return best if found[best] else None
