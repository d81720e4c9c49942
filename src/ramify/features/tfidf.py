"""TF-IDF: a native, parallel vectorizer with the output of scikit-learn's `TfidfVectorizer`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from ramify import native
from ramify.base.config import param
from ramify.base.errors import DataError, ModelFormatError, not_fitted
from ramify.base.sparse import csr_from_parts
from ramify.base.threads import MAX_THREADS, resolve_threads
from ramify.base.types import AnyArray, Csr
from ramify.features.languages import STEMMERS, count_languages, main_language
from ramify.features.preparation import Preparation, check_field_weights, shortest_word, stop_word_set
from ramify.features.saved import SavedFeatures
from ramify.features.selection import df_range, most_frequent
from ramify.features.stemmers import PYTHON_STEMMERS, Stemmer
from ramify.io.inputs import Inputs, check_inputs
from ramify.io.store import Store, StoreWriter

_PARTS = ("part_indptr", "parts", "part_costs")  # arrays of the subwords
MIN_PART_DF = 3
"""Documents that a term must occur in, to be a part of other words."""


@dataclass(kw_only=True, eq=False, repr=False)
class Tfidf(SavedFeatures):
    r"""Converts texts to sparse TF-IDF features.

    Parameters have the names, meanings and defaults of scikit-learn's `TfidfVectorizer`, and the output is the same, as
    float32. In addition, words may be stemmed (`stemmer`) and counted as their parts (`subwords`), and documents may be
    dicts of text `fields`, whose terms share one vocabulary.

    >>> X = Tfidf(min_df=1).fit_transform(["red fox", "red hen"])
    >>> X.shape
    (2, 3)
    >>> Tfidf(stemmer="german").fit(["das Haus", "die Häuser"]).get_feature_names_out().tolist()
    ['das', 'die', 'haus']
    """

    kind: ClassVar[str] = "tfidf"

    analyzer: Literal["word", "char", "char_wb"] = param(
        "word", "unit of the n-grams: words, characters, or characters within word boundaries"
    )
    ngram_range: tuple[int, int] = param((1, 1), "minimum and maximum length n of the n-grams")
    lowercase: bool = param(True, "convert texts to lower case")
    strip_accents: Literal["ascii", "unicode"] | None = param(None, "strip accents from texts (slower: done in Python)")
    stop_words: Literal["english"] | tuple[str, ...] | None = param(
        None, "words to ignore; 'english' for scikit-learn's list"
    )
    token_pattern: str = param(r"(?u)\b\w\w+\b", r"pattern of a word: (?u)\b\w\w+\b, (?u)\b\w+\b or (?u)\b\w{n,}\b")
    min_df: int | float = param(1, "ignore terms in fewer documents; int: count, float: fraction", low=0)
    max_df: int | float = param(1.0, "ignore terms in more documents; int: count, float: fraction", low=0)
    max_features: int | None = param(None, "keep only the most frequent terms; None: all", low=1)
    binary: bool = param(False, "count each term at most once per document")
    norm: Literal["l1", "l2"] | None = param("l2", "normalize rows to unit norm; None: no normalization")
    use_idf: bool = param(True, "weight terms by inverse document frequency")
    smooth_idf: bool = param(True, "smooth document frequencies as if one more document contained every term")
    sublinear_tf: bool = param(False, "replace the term count tf with 1 + ln(tf)")
    stemmer: Stemmer | None = param(
        None,
        "replace words by their Snowball stems; 'auto': in German or English, as the words of each text tell; other "
        "languages need PyStemmer (slower: done in Python); None: do not",
    )
    subwords: Literal["parts"] | None = param(
        None,
        "'parts': words count also as the frequent terms that they are made of, as 'steuerrecht' as 'steuer' and "
        "'recht', known or not; None: as they are",
    )
    min_token_length: int | None = param(
        None, "ignore shorter words, in place of token_pattern; None: as token_pattern says", low=1, high=999999
    )
    drop_numbers: bool = param(False, "ignore words of digits only")
    lead_words: int | None = param(
        None,
        "number of words at the start of a document, such as its title, that count lead_weight times; None: none",
        low=1,
    )
    lead_weight: float = param(3.0, "weight of the counts of lead_words", low=1e-3, high=1e3)
    preprocessor: Any = param(
        None, "function from text to text, applied first, in place of lowercase and strip_accents (slow: Python)"
    )
    tokenizer: Any = param(None, "function from text to a list of words, in place of token_pattern (slow: Python)")
    fields: dict[str, float] | None = param(
        None,
        "weight of the term counts of each text field, such as {'title': 3, 'abstract': 1}; None: all fields, 1 each",
    )
    threads: int | None = param(None, "threads to use; None: RAMIFY_THREADS or all cores", low=1, high=MAX_THREADS)

    def check_params(self) -> None:
        """Check types, ranges and relations between parameters."""
        stop_words: Any = self.stop_words  # lists and sets, as in scikit-learn
        if isinstance(stop_words, list | set | frozenset):
            self.stop_words = tuple(sorted(stop_words, key=str))
        super().check_params()
        low, high = self.ngram_range
        if not 1 <= low <= high <= 100:
            raise ValueError(
                f"Tfidf.ngram_range must be (low, high) with 1 <= low <= high <= 100; got {self.ngram_range!r}"
            )
        for name in ("min_df", "max_df"):
            if isinstance(value := getattr(self, name), float) and value > 1.0:
                raise ValueError(
                    f"Tfidf.{name} is a fraction of the documents if it is a float, at most 1.0; got {value!r}"
                )
        if self.fields is not None:
            check_field_weights(self.fields)
        self._min_token()
        if self.analyzer != "word":
            for name in ("stemmer", "subwords", "min_token_length", "lead_words", "tokenizer"):
                if getattr(self, name) is not None:
                    raise ValueError(f"Tfidf.{name} needs words: analyzer='word', not {self.analyzer!r}")
            if self.drop_numbers:
                raise ValueError(f"Tfidf.drop_numbers needs words: analyzer='word', not {self.analyzer!r}")
        for name in ("preprocessor", "tokenizer"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise ValueError(f"Tfidf.{name} must be a function or None; got {getattr(self, name)!r}")

    # ---- fitting ----

    def fit(self, documents: Any, y: Any = None) -> Tfidf:
        """Learn vocabulary and document frequencies."""
        self._fit(documents)
        return self

    def fit_transform(self, documents: Any, y: Any = None) -> Csr:
        """Fit and return the features (n × d) of the documents; the texts are analyzed once."""
        return self.fit_transform_some(documents, needs_terms=True)

    def fit_transform_some(self, documents: Any, *, needs_terms: bool) -> Csr:
        """`fit_transform`; unless `needs_terms`, no terms at all are no columns instead of an error."""
        counts = self._fit(documents, needs_terms)
        rows = counts.rows(
            self.idf_, self.binary, self.sublinear_tf, self.norm or "none", resolve_threads(self.threads)
        )
        return self._matrix(rows)

    def _set_terms(self, offsets: AnyArray, term_bytes: AnyArray) -> None:
        """Set the vocabulary: the terms, in order, with their hash table."""
        self.offsets_, self.bytes_ = offsets, term_bytes
        self.hash_key_ = native.text.term_hash_key(self.offsets_, self.bytes_)
        self.slots_ = native.text.term_slots(self.offsets_, self.bytes_, self.hash_key_)
        self.parts_: tuple[AnyArray, AnyArray, AnyArray] | None = None

    def _fit(self, documents: Any, needs_terms: bool = True) -> native.text.CorpusCounts:
        self.check_params()
        threads = resolve_threads(self.threads)
        inputs = check_inputs(documents)
        if len(inputs) == 0:
            raise DataError("no documents to learn a vocabulary from")
        fields = self._fields_of(inputs)
        texts = self._texts(inputs, fields)
        n = len(inputs)
        weights = [1.0] if fields is None else list(fields.values())
        language: str | None = self.stemmer if self.stemmer in STEMMERS else None
        if self.stemmer == "auto":
            language = main_language(count_languages(texts, len(weights), threads))
        counts = native.text.CorpusCounts.count(
            self._make_analyzer(language), texts, weights, self.max_features is not None, threads
        )
        counts.select(*df_range(n, self.min_df, self.max_df, needs_terms), threads)
        df = counts.document_frequency()
        frequency = df if self.binary else counts.term_frequency()
        keep = most_frequent(df, frequency, self.max_features, needs_terms)
        # Nothing below can fail: an earlier fit stays intact until here.
        with_subwords = self.subwords is not None
        self._set_terms(*counts.freeze(None if keep is None else keep.view(np.uint8), with_subwords))
        df = df if keep is None else df[keep]
        if with_subwords:
            indptr, parts, costs, df = counts.add_subwords(*self._vocabulary(), MIN_PART_DF, threads)
            self.parts_ = (indptr, parts, costs)
        self._finish(df, n, fields, language)
        return counts

    def _finish(self, df: AnyArray | None, n: int, fields: dict[str, float] | None, language: str | None) -> None:
        """Set everything but the vocabulary, from the documents (d,) with each term; None: without weights by it."""
        self.language_ = language
        self.idf_ = self._idf(df, n) if self.use_idf and df is not None else None
        self.fields_ = fields
        self.n_documents_ = n
        self._open()

    def _fields_of(self, inputs: Inputs) -> dict[str, float] | None:
        """Weight of each field of the documents; None for plain texts."""
        if inputs.kind == "fields":
            present = dict.fromkeys(name for document in inputs.data for name in document)
            for name in self.fields or ():
                if name not in present:
                    raise DataError(
                        f"no document has the field {name!r} of Tfidf.fields; present: {', '.join(present)}"
                    )
            return {name: float(w) for name, w in (self.fields or dict.fromkeys(present, 1.0)).items()}
        if self.fields is not None:
            raise DataError("Tfidf.fields is set, but the documents are plain texts; pass dicts of text fields")
        return None

    def _idf(self, df: AnyArray, n: int) -> AnyArray:
        smooth = int(self.smooth_idf)
        return np.asarray(np.log((n + smooth) / (df + smooth)) + 1.0, np.float64)

    # ---- transform ----

    def transform(self, documents: Any) -> Csr:
        """Features (n × d) of documents; unknown terms are ignored."""
        opened = self._fitted()
        texts, weights, threads = self.prepare(documents)
        return self._matrix(opened.transform(texts, weights, threads))

    def prepare(self, documents: Any) -> tuple[list[str], list[float], int]:
        """Input of the native vectorizer: texts of all fields, weights of the fields, and threads to use."""
        if type(documents) is list and len(documents) == 1 and type(documents[0]) is str and self.fields_ is None:
            inputs = Inputs("text", documents, None)  # the common query: checks would cost more than the transform
        else:
            inputs = check_inputs(documents)
        if len(inputs) and (inputs.kind == "fields") != (self.fields_ is not None):
            kinds = ("texts", "dicts of text fields")
            expected, got = kinds if self.fields_ is None else kinds[::-1]
            raise DataError(f"Tfidf was fitted on {expected}; got {got if inputs.n_features is None else 'features'}")
        texts = self._texts(inputs, self.fields_, self._prepared)
        weights = [1.0] if self.fields_ is None else list(self.fields_.values())
        return texts, weights, resolve_threads(self.threads, len(inputs))

    def _matrix(self, rows: tuple[AnyArray, AnyArray, AnyArray]) -> Csr:
        indptr, indices, data = rows
        return csr_from_parts(data, indices, indptr, (len(indptr) - 1, self.n_features))

    def _texts(
        self, inputs: Inputs, fields: dict[str, float] | None, preparation: Preparation | None = None
    ) -> list[str]:
        """Texts of all fields, document by document, as input of the native analyzer."""
        if inputs.kind not in ("text", "fields"):
            raise DataError("Tfidf needs texts; got numeric features")
        texts: list[str] = inputs.data
        if fields is not None:
            texts = [document.get(name, "") for document in inputs.data for name in fields]
        return (self._preparation() if preparation is None else preparation).apply(texts)

    def _preparation(self) -> Preparation:
        return Preparation(
            preprocessor=self.preprocessor,
            tokenizer=self.tokenizer,
            strip_accents=self.strip_accents,
            lowercase=self.lowercase,
            stemmer=self.stemmer if self.stemmer in PYTHON_STEMMERS else None,
            min_token=self._min_token(),
            stop_words=stop_word_set(self.stop_words),
        )

    def _make_analyzer(self, language: str | None, in_context: bool = True) -> native.text.Analyzer:
        """Analyzer of documents; without `in_context` of single words, whose neighbors and position do not matter."""
        preparation = self._preparation()
        stems_in_python = preparation.stemmer is not None
        return native.text.make_analyzer(
            "token" if preparation.splits else self.analyzer,
            self.ngram_range,
            self.lowercase and not preparation.is_needed,  # it converts to lower case first
            1 if stems_in_python else self._min_token(),
            sorted(stop_word_set(self.stop_words)) if self.analyzer == "word" and not stems_in_python else [],
            drop_numbers=self.drop_numbers,
            split_unspaced=(self.stemmer or self.subwords) is not None and self.tokenizer is None,
            detect_language=in_context and self.stemmer == "auto",
            stemmer=language,
            n_lead=(self.lead_words or 0) if in_context else 0,
            lead_weight=self.lead_weight if in_context else 1.0,
        )

    def _min_token(self) -> int:
        """Minimum word length."""
        if self.min_token_length is not None:
            return self.min_token_length
        if self.tokenizer is not None:
            return 1
        return shortest_word(self.token_pattern)

    def _open(self) -> None:
        # Later changes of parameters must not affect the fitted vectorizer.
        self._as_fitted = self.clone()
        self._prepared = self._as_fitted._preparation()
        self._open_native()

    def _open_native(self) -> None:
        fitted = self._as_fitted
        weighting = (fitted.binary, fitted.sublinear_tf, fitted.norm or "none")
        self._native = self._make_native(fitted._make_analyzer(self.language_), self.idf_, *weighting)

    def _make_native(self, analyzer: native.text.Analyzer, idf: AnyArray | None, *weighting: Any) -> native.text.Tfidf:
        parts = self.parts_ or (None, None, None)
        return native.text.Tfidf(analyzer, *self._vocabulary(), idf, *parts, *weighting)

    def _vocabulary(self) -> tuple[AnyArray, AnyArray, AnyArray, AnyArray]:
        return self.offsets_, self.bytes_, self.slots_, self.hash_key_

    def count_terms(self, prepared: list[str], language: str | None) -> Csr:
        """Plain counts (n × d) of the terms of texts that `preprocessor` or `tokenizer` has seen, in one language."""
        self._fitted()
        counter = self._make_native(self._as_fitted._make_analyzer(language, False), None, False, False, "none")
        return self._matrix(counter.transform(prepared, [1.0], 1))

    def __getstate__(self) -> dict[str, Any]:
        """State without the native object, which is rebuilt."""
        return {name: value for name, value in vars(self).items() if name != "_native"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if "offsets_" in state:
            self._open_native()

    def _fitted(self) -> native.text.Tfidf:
        if not hasattr(self, "_native"):
            raise not_fitted(self)
        return self._native

    def reads_as(self, other: Tfidf) -> bool:
        """Whether the native analyzers of both read the same texts of any documents."""
        self._fitted(), other._fitted()
        return (
            not (self._prepared.is_needed or other._prepared.is_needed)
            and self._as_fitted.lowercase == other._as_fitted.lowercase
            and self.fields_ == other.fields_
            and self.threads == other.threads
        )

    # ---- vocabulary ----

    @property
    def n_features(self) -> int:
        """Number of terms d."""
        self._fitted()
        return len(self.offsets_) - 1

    def get_feature_names_out(self, input_features: Any = None) -> AnyArray:
        """Terms in column order."""
        return np.array(self.terms(np.arange(self.n_features)), dtype=object)

    def terms(self, columns: AnyArray) -> list[str]:
        """Terms of some columns."""
        self._fitted()
        ends = zip(self.offsets_[columns].tolist(), self.offsets_[columns + 1].tolist(), strict=True)
        text = self.bytes_.data
        return [str(text[a:b], "utf-8", "surrogatepass") for a, b in ends]

    @property
    def vocabulary_(self) -> dict[str, int]:
        """Column of each term."""
        return {term: i for i, term in enumerate(self.get_feature_names_out())}

    # ---- saving and loading ----

    def save_to(self, writer: StoreWriter, prefix: str = "tfidf") -> dict[str, Any]:
        """Write the fitted vectorizer to the directory of a model; returns the information for `load_from`."""
        self._fitted()
        for name in ("preprocessor", "tokenizer"):
            if getattr(self._as_fitted, name) is not None:
                raise ValueError(
                    f"Tfidf.{name} is a Python function, which cannot be saved: a model directory contains data, no "
                    "code. Apply the function to the texts before fit and before each prediction instead."
                )
        writer.array(f"{prefix}_offsets", self.offsets_)
        writer.array(f"{prefix}_bytes", self.bytes_)
        writer.array(f"{prefix}_slots", self.slots_)
        writer.array(f"{prefix}_hash_key", self.hash_key_)
        if self.idf_ is not None:
            writer.array(f"{prefix}_idf", self.idf_)
        for name, array in zip(_PARTS, self.parts_ or (), strict=False):
            writer.array(f"{prefix}_{name}", array)
        return {
            "params": self._as_fitted.to_dict(),
            "fields": self.fields_,
            "n_documents": self.n_documents_,
            "language": self.language_,
        }

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str = "tfidf") -> Tfidf:
        """Open a vectorizer written by `save_to`; its arrays are memory-mapped."""
        try:
            tfidf = cls.from_dict(info["params"])
            tfidf.fields_ = None if info["fields"] is None else {str(k): float(v) for k, v in info["fields"].items()}
            if tfidf.fields_ is not None:
                check_field_weights(tfidf.fields_)
            tfidf.n_documents_ = int(info["n_documents"])
            tfidf.language_ = info.get("language")
            if tfidf.language_ is not None and tfidf.language_ not in STEMMERS:
                raise ValueError(f"no stemmer for the language {tfidf.language_!r}")
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ModelFormatError(f"the manifest has no valid description of the TF-IDF: {error}") from error
        tfidf.offsets_ = store.array(f"{prefix}_offsets", np.uint64, ndim=1)
        tfidf.bytes_ = store.array(f"{prefix}_bytes", np.uint8, ndim=1)
        tfidf.slots_ = store.array(f"{prefix}_slots", np.uint8, ndim=1)
        tfidf.hash_key_ = store.array(f"{prefix}_hash_key", np.uint64, shape=(3,))
        tfidf.idf_ = None
        if tfidf.use_idf:
            tfidf.idf_ = store.array(f"{prefix}_idf", np.float64, ndim=1)
            if not np.isfinite(tfidf.idf_).all():
                raise ModelFormatError("the TF-IDF weights are not all finite")
        tfidf.parts_ = None
        if tfidf.subwords is not None:
            indptr, parts, costs = (f"{prefix}_{name}" for name in _PARTS)
            tfidf.parts_ = (
                store.array(indptr, np.int64, ndim=1),
                store.array(parts, np.int32, ndim=1),
                store.array(costs, np.float32, ndim=1),
            )
        try:
            tfidf._open()
        except (ValueError, TypeError, OverflowError) as error:
            raise ModelFormatError(f"the TF-IDF is damaged: {error}") from error
        return tfidf
