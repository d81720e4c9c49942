"""Names that occur in texts: sequences of stems, found through a trie."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ramify import native
from ramify.base.errors import ModelFormatError
from ramify.base.sparse import indptr_from_counts
from ramify.base.types import AnyArray, IntArray, LongArray
from ramify.features.languages import STEMMERS, count_languages, main_language
from ramify.features.preparation import Preparation
from ramify.features.stemmers import PYTHON_STEMMERS, Stemmer
from ramify.io.store import Store, StoreWriter

_QUALIFIER = re.compile(r"\s*(?:\([^()]*\)|\[[^\[\]]*\]|<[^<>]*>)")
_ARRAYS = ("offsets", "bytes", "slots", "hash_key", "indptr", "edge_words", "edge_nodes", "node_names")


def without_qualifiers(name: str) -> str:
    """Return a name without what stands in brackets; the name itself if nothing else is left.

    >>> without_qualifiers("Wilderness (motif)")
    'Wilderness'
    """
    short = _QUALIFIER.sub(" ", name).strip()
    return short or name


class Occurrences(NamedTuple):
    """Names found in n texts.

    Attributes
    ----------
    indptr : (n + 1,) the names of text i end at indptr[i + 1]
    names : (m,) ids of names, ascending within a text
    positions : (m,) of the first word of the first occurrence
    counts : (m,) of occurrences
    n_words : (n,) words of each text
    """

    indptr: LongArray
    names: IntArray
    positions: IntArray
    counts: IntArray
    n_words: IntArray


@dataclass(frozen=True, eq=False)
class NameIndex:
    """Distinct names as a trie of normalized words; names with the same words are one.

    Attributes
    ----------
    stemmer, language : the stemmer of names and texts, and the language that "auto" has chosen
    arrays : words and trie; see cpp/text/name_matcher.h
    n_names : int
    """

    stemmer: Stemmer | None
    language: str | None
    arrays: dict[str, AnyArray]
    n_names: int
    _matcher: native.text.NameMatcher

    @classmethod
    def build(cls, names: list[str], stemmer: Stemmer | None, texts: list[str]) -> tuple[NameIndex, IntArray]:
        """Index names; return the index and the id (len(names),) of each, -1 for one without a word.

        The language of "auto" is the most frequent one of the texts. One stemmer serves names and texts, so that the
        same word has the same stem in both.
        """
        language: str | None = stemmer if stemmer in STEMMERS else None
        if stemmer == "auto":
            language = main_language(count_languages(texts, 1, 1))
        analyzer = _analyzer(stemmer, language)
        offsets, text, parents, words, ends = native.text.name_trie(analyzer, _prepared(stemmer, names))
        order = np.lexsort((words, parents))
        n_nodes = len(parents) + 1
        used = np.unique(ends[ends > 0])
        node_names = np.full(n_nodes, -1, np.int32)
        node_names[used] = np.arange(len(used))
        hash_key = native.text.term_hash_key(offsets, text)
        arrays: dict[str, AnyArray] = {
            "offsets": offsets,
            "bytes": text,
            "slots": native.text.term_slots(offsets, text, hash_key),
            "hash_key": hash_key,
            "indptr": indptr_from_counts(np.bincount(parents, minlength=n_nodes)),
            "edge_words": words[order],
            "edge_nodes": (order + 1).astype(np.int32),
            "node_names": node_names,
        }
        return cls._of(stemmer, language, arrays, len(used)), np.where(ends > 0, node_names[ends], -1).astype(np.int32)

    @classmethod
    def _of(cls, stemmer: Stemmer | None, language: str | None, arrays: dict[str, AnyArray], n_names: int) -> NameIndex:
        matcher = native.text.NameMatcher(_analyzer(stemmer, language), **arrays, n_names=n_names)
        return cls(stemmer, language, arrays, n_names, matcher)

    def match(self, texts: list[str], n_fields: int, threads: int) -> Occurrences:
        """Find the names in documents of `n_fields` texts each; a name lies within one field."""
        return Occurrences(*self._matcher.match(_prepared(self.stemmer, texts), n_fields, threads))

    # ---- files ----

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the index to a model directory; return its description for the manifest."""
        for name, array in self.arrays.items():
            writer.array(f"{prefix}{name}", array)
        return {"language": self.language, "n_names": self.n_names}

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, stemmer: Stemmer | None) -> NameIndex:
        """Open what `save_to` wrote, memory-mapped."""
        language, n_names = (info.get("language"), info.get("n_names")) if isinstance(info, dict) else (0, None)
        if type(n_names) is not int or not 0 <= n_names < 2**31 or not (language is None or language in STEMMERS):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the names")
        types = (np.uint64, np.uint8, np.uint8, np.uint64, np.int64, np.int32, np.int32, np.int32)
        arrays = {
            name: store.array(f"{prefix}{name}", dtype, ndim=1) for name, dtype in zip(_ARRAYS, types, strict=True)
        }
        try:
            return cls._of(stemmer, language, arrays, n_names)
        except (ValueError, TypeError, OverflowError) as error:
            raise ModelFormatError(f"{store.path}: the names are damaged: {error}") from error


def _analyzer(stemmer: Stemmer | None, language: str | None) -> native.text.Analyzer:
    """Analyzer of names and texts, as `_prepared` returns them."""
    unit = "word" if stemmer not in PYTHON_STEMMERS else "token"
    return native.text.make_analyzer(unit, (1, 1), unit == "word", 1, [], split_unspaced=True, stemmer=language)


def _prepared(stemmer: Stemmer | None, texts: list[str]) -> list[str]:
    """Input of the analyzer: other stemmers than the native ones are applied in Python."""
    return Preparation(
        preprocessor=None, tokenizer=None, strip_accents=None, lowercase=True,
        stemmer=stemmer if stemmer in PYTHON_STEMMERS else None, min_token=1, stop_words=frozenset(),
    ).apply(texts)  # fmt: skip
