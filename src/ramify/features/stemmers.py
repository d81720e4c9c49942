"""Snowball stemmers of the languages that the native analyzer does not have, by PyStemmer."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, get_args

from ramify.base.extras import needed_for

Stemmer = Literal[
    "auto", "english", "german",
    "arabic", "armenian", "basque", "catalan", "danish", "dutch", "finnish", "french", "greek", "hindi", "hungarian",
    "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "portuguese", "romanian", "russian",
    "serbian", "spanish", "swedish", "tamil", "turkish", "yiddish",
]  # fmt: skip
"""Names of stemmers: German and English are native, the others need PyStemmer."""

PYTHON_STEMMERS = frozenset(get_args(Stemmer)) - {"auto", "english", "german"}


@cache
def load_stemmer(language: str) -> Any:
    """PyStemmer's stemmer of a language, with `stemWords`."""
    otherwise = "German and English need nothing"
    with needed_for(f"stemmer={language!r}", "PyStemmer", "stemmers", otherwise=otherwise):
        import Stemmer as PyStemmer
    try:
        return PyStemmer.Stemmer(language)
    except KeyError as error:
        raise ImportError(
            f"this version of PyStemmer has no stemmer for {language!r}: pip install -U PyStemmer"
        ) from error
