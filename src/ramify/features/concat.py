"""Concatenation of feature spaces."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from ramify import native
from ramify.base.config import param
from ramify.base.errors import ModelFormatError
from ramify.base.sparse import csr_from_parts
from ramify.base.threads import resolve_threads
from ramify.base.types import AnyArray, Csr
from ramify.features.languages import count_languages, count_words, main_language
from ramify.features.saved import SavedFeatures
from ramify.features.tfidf import Tfidf
from ramify.io.inputs import check_inputs
from ramify.io.store import Store, StoreWriter

_KINDS_OF_TERMS = {"analyzer", "stemmer", "subwords", "tokenizer", "token_pattern"}
"""Parameters of `Tfidf` by which the parts differ: what their terms are."""


@dataclass(kw_only=True, eq=False, repr=False)
class Concat(SavedFeatures):
    """Concatenates the columns of several extractors, such as word and character n-grams of the same texts.

    >>> both = Concat(parts=(Tfidf(), Tfidf(analyzer="char_wb", ngram_range=(3, 5))), weights=(1.0, 0.5))
    """

    kind: ClassVar[str] = "concat"

    parts: tuple[Tfidf, ...] = param(
        factory=lambda: (Tfidf(),),
        doc="feature extractors, in column order; a parameter of Tfidf, such as features.min_df, is set in all of them",
    )
    weights: tuple[float, ...] | None = param(None, "factor on the values of each extractor; None: 1 each")
    long_texts: int | None = param(
        None,
        "mean number of words from which on English texts are long: models then use the first extractor alone, without "
        "its lead weight; None: never",
        low=1,
    )

    def check_params(self) -> None:
        """Check that each part has a positive weight."""
        super().check_params()
        if not self.parts:
            raise ValueError("Concat.parts must not be empty")
        if self.weights is not None and (len(self.weights) != len(self.parts) or any(not w > 0 for w in self.weights)):
            raise ValueError(f"Concat.weights must be {len(self.parts)} numbers above 0; got {self.weights!r}")

    def _shared(self) -> set[str]:
        return {f.name for f in dataclasses.fields(Tfidf)} - _KINDS_OF_TERMS

    def _set_all(self, values: dict[str, Any]) -> None:
        """Set parameters by name; those of `Tfidf` in all parts, except for what their terms are."""
        shared = {path: value for path, value in values.items() if path.partition(".")[0] in self._shared()}
        super()._set_all({path: value for path, value in values.items() if path not in shared})
        if shared:
            self.parts = tuple(part.clone().set_params(**shared) for part in self.parts)

    def clone(self) -> Concat:
        """Return a new, unfitted object with the same parameters."""
        return Concat(
            parts=tuple(part.clone() for part in self.parts), weights=self.weights, long_texts=self.long_texts
        )

    def suited_to(self, documents: Any) -> Concat:
        """Return the extractor to fit to these documents, unfitted: of long texts the first part alone."""
        if self.long_texts is None:
            return self.clone()
        inputs, first = check_inputs(documents), self.parts[0]
        fields = first._fields_of(inputs)
        texts, n_fields = first._texts(inputs, fields), len(fields or [""])
        n_words, n = count_words(texts, n_fields)
        if n_words < self.long_texts * n:  # languages take longer to find
            return self.clone()
        found = count_languages(texts, n_fields, resolve_threads(first.threads))
        return self.suited_to_counts(n_words, n, found)

    def suited_to_counts(self, n_words: int, n: int, languages: Counter[str]) -> Concat:
        """Return `suited_to` n documents, given their number of words and their languages."""
        is_long = self.long_texts is not None and n > 0 and n_words >= self.long_texts * n
        if not is_long or main_language(languages) != "english":
            return self.clone()
        return Concat(parts=(self.parts[0].clone().set_params(lead_words=None),))

    def fit(self, documents: Any, y: Any = None) -> Concat:
        """Fit all parts."""
        self.fit_transform(documents)
        return self

    def fit_transform(self, documents: Any, y: Any = None) -> Csr:
        """Fit all parts and return the concatenated features (n × Σd). A part without terms has no columns."""
        last = len(self.parts) - 1
        blocks: list[Csr] = []
        for i, part in enumerate(self.parts):
            found = any(block.shape[1] for block in blocks)
            blocks.append(part.fit_transform_some(documents, needs_terms=i == last and not found))
        return self.beside_each_other(blocks)

    def transform(self, documents: Any) -> Csr:
        """Concatenated features (n × Σd) of documents."""
        if not self._read_together():
            return self.beside_each_other([part.transform(documents) for part in self.parts])
        texts, field_weights, threads = self.parts[0].prepare(documents)
        blocks = [part._fitted() for part in self.parts]
        factors = list(self.weights or (1.0,) * len(blocks))
        indptr, indices, data = native.text.Tfidf.transform_together(blocks, factors, texts, field_weights, threads)
        return csr_from_parts(data, indices, indptr, (len(indptr) - 1, self.n_features))

    def _read_together(self) -> bool:
        """Whether all parts read the same texts, so that each is read once."""
        return all(part.reads_as(self.parts[0]) for part in self.parts)

    def beside_each_other(self, blocks: list[Csr]) -> Csr:
        """Features (n × Σd) from those of the parts, which are changed."""
        for block, weight in zip(blocks, self.weights or (), strict=False):
            if weight != 1.0:
                block.data *= np.float32(weight)
        return sparse.csr_matrix(sparse.hstack(blocks, format="csr"))

    @property
    def n_features(self) -> int:
        """Number of columns Σd."""
        return sum(part.n_features for part in self.parts)

    def get_feature_names_out(self, input_features: Any = None) -> AnyArray:
        """Terms in column order, prefixed with the index of their part: ``0__word``."""
        return np.concatenate([f"{i}__" + part.get_feature_names_out() for i, part in enumerate(self.parts)])

    def terms(self, columns: AnyArray) -> list[str]:
        """Terms of some columns, without the index of their part."""
        terms, first = [""] * len(columns), 0
        for part in self.parts:
            of_part = np.flatnonzero((columns >= first) & (columns < first + part.n_features))
            for i, term in zip(of_part.tolist(), part.terms(columns[of_part] - first), strict=True):
                terms[i] = term
            first += part.n_features
        return terms

    def save_to(self, writer: StoreWriter, prefix: str = "features") -> dict[str, Any]:
        """Write the fitted extractors to the directory of a model; returns the information for `load_from`."""
        parts = [part.save_to(writer, f"{prefix}_{i}") for i, part in enumerate(self.parts)]
        return {"parts": parts, "weights": None if self.weights is None else list(self.weights)}

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str = "features") -> Concat:
        """Open extractors written by `save_to`."""
        if not isinstance(info, dict) or not isinstance(info.get("parts"), list):
            raise ModelFormatError("the manifest has no valid description of the features")
        parts = tuple(Tfidf.load_from(store, part, f"{prefix}_{i}") for i, part in enumerate(info["parts"]))
        try:
            return cls(parts=parts, weights=None if info.get("weights") is None else tuple(info["weights"]))
        except (ValueError, TypeError) as error:
            raise ModelFormatError(f"the manifest has no valid description of the features: {error}") from error


def feature_parts(features: Tfidf | Concat) -> tuple[Tfidf, ...]:
    """Return the extractors whose columns the features have, in order."""
    return features.parts if isinstance(features, Concat) else (features,)
