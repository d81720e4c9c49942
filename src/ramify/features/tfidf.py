"""TF-IDF: a native, parallel vectoriser that gives what scikit-learn's `TfidfVectorizer` gives, much sooner."""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from ramify import native
from ramify.base.config import param
from ramify.base.errors import DataError, ModelFormatError, NotFittedError
from ramify.base.sparse import csr_from_parts
from ramify.base.threads import MAX_THREADS, resolve_threads
from ramify.base.types import AnyArray, BoolArray, Csr
from ramify.features.saved import SavedFeatures
from ramify.io.inputs import Inputs, check_inputs
from ramify.io.store import Store, StoreWriter

_WORD_PATTERN = re.compile(r"\(\?u\)\\b(\\w\\w\+|\\w\+|\\w\{([1-9][0-9]{0,5}),\})\\b")
_FIELD_WEIGHTS = (1e-3, 1e6)  # what counts in single precision can tell apart


@dataclass(kw_only=True, eq=False, repr=False)
class Tfidf(SavedFeatures):
    r"""Weights of terms in texts.

    Each parameter has the name, meaning and default that it has in scikit-learn's `TfidfVectorizer`; the output is the
    same, as float32. Analysers and tokenisers that are Python functions are not taken. New is `fields`: documents may
    be dicts of texts whose terms share one feature space.

    >>> X = Tfidf(min_df=1).fit_transform(["red fox", "red hen"])
    >>> X.shape
    (2, 3)
    """

    kind: ClassVar[str] = "tfidf"

    analyzer: Literal["word", "char", "char_wb"] = param(
        "word", "what terms are made of: words, characters, or characters inside words"
    )
    ngram_range: tuple[int, int] = param((1, 1), "shortest and longest n-gram")
    lowercase: bool = param(True, "turn text to lower case first")
    strip_accents: Literal["ascii", "unicode"] | None = param(None, "remove accents first (slower: done in Python)")
    stop_words: Literal["english"] | tuple[str, ...] | None = param(
        None, "words to leave out; 'english' for scikit-learn's list"
    )
    token_pattern: str = param(r"(?u)\b\w\w+\b", r"what a word is: (?u)\b\w\w+\b, (?u)\b\w+\b or (?u)\b\w{n,}\b")
    min_df: int | float = param(1, "leave out terms in fewer documents; a count, or a share as a float", low=0)
    max_df: int | float = param(1.0, "leave out terms in more documents; a count, or a share as a float", low=0)
    max_features: int | None = param(None, "keep only the most frequent terms", low=1)
    binary: bool = param(False, "count a term once a document")
    norm: Literal["l1", "l2"] | None = param("l2", "norm of each row")
    use_idf: bool = param(True, "weight terms by inverse document frequency")
    smooth_idf: bool = param(True, "count one more document that has every term")
    sublinear_tf: bool = param(False, "1 + ln(count) in place of the count")
    fields: dict[str, float] | None = param(
        None, "weight of each text field, such as {'title': 3, 'abstract': 1}; None: all fields, 1 each"
    )
    threads: int | None = param(None, "threads to use; None: RAMIFY_THREADS or all cores", low=1, high=MAX_THREADS)

    def check_params(self) -> None:
        """Check types, ranges, and what only holds between parameters."""
        stop_words: Any = self.stop_words  # scikit-learn's users pass lists and sets
        if isinstance(stop_words, list | set | frozenset):
            self.stop_words = tuple(sorted(stop_words, key=str))
        super().check_params()
        low, high = self.ngram_range
        if not 1 <= low <= high <= 100:
            raise ValueError(
                f"Tfidf.ngram_range must be (low, high), 1 <= low <= high <= 100; got {self.ngram_range!r}"
            )
        for name in ("min_df", "max_df"):
            if isinstance(value := getattr(self, name), float) and value > 1.0:
                raise ValueError(
                    f"Tfidf.{name} is a share of the documents when it is a float, at most 1.0; got {value!r}"
                )
        if self.fields is not None:
            _check_fields(self.fields)
        self._min_token()

    # ---- fitting ----

    def fit(self, documents: Any, y: Any = None) -> Tfidf:
        """Learn vocabulary and weights."""
        self._fit(documents)
        return self

    def fit_transform(self, documents: Any, y: Any = None) -> Csr:
        """Learn from documents and return their rows (n × d), in one pass over the texts."""
        counts = self._fit(documents)
        rows = counts.rows(
            self.idf_, self.binary, self.sublinear_tf, self.norm or "none", resolve_threads(self.threads)
        )
        return self._matrix(rows)

    def _fit(self, documents: Any) -> native.text.CorpusCounts:
        self.check_params()
        threads = resolve_threads(self.threads)
        inputs = check_inputs(documents)
        if len(inputs) == 0:
            raise DataError("there are no documents to learn a vocabulary from")
        fields = self._fields_of(inputs)
        texts = self._texts(inputs, fields)
        n = len(inputs)
        weights = [1.0] if fields is None else list(fields.values())
        counts = native.text.CorpusCounts.count(
            self._make_analyzer(), texts, weights, self.max_features is not None, threads
        )
        low = self.min_df if isinstance(self.min_df, int) else self.min_df * n
        high = self.max_df if isinstance(self.max_df, int) else self.max_df * n
        if high < low:
            raise ValueError(f"max_df={self.max_df!r} leaves fewer documents than min_df={self.min_df!r} asks for")
        counts.select(math.ceil(low), math.floor(high), threads)
        df = counts.document_frequency()
        keep = None
        if self.max_features is not None and len(df) > self.max_features:
            keep = self._most_frequent(df if self.binary else counts.term_frequency())
            df = df[keep]
        if len(df) == 0:
            raise ValueError(
                "no terms: the documents are empty or hold only stop words, or min_df and max_df leave nothing"
            )
        # Everything that can fail is behind us: what was learned before stays whole until here.
        self.offsets_, self.bytes_, self.slots_ = counts.freeze(None if keep is None else keep.view(np.uint8))
        self.idf_ = self._idf(df, n) if self.use_idf else None
        self.fields_ = fields
        self.n_documents_ = n
        self._open()
        return counts

    def _fields_of(self, inputs: Inputs) -> dict[str, float] | None:
        """Weight of each field of the documents; None for plain texts."""
        if inputs.kind == "fields":
            there = dict.fromkeys(name for document in inputs.data for name in document)
            for name in self.fields or ():
                if name not in there:
                    raise DataError(
                        f"no document has the field {name!r} of Tfidf.fields; there are: {', '.join(there)}"
                    )
            return {name: float(w) for name, w in (self.fields or dict.fromkeys(there, 1.0)).items()}
        if self.fields is not None:
            raise DataError("Tfidf.fields names text fields, but the documents are plain texts; give dicts")
        return None

    def _most_frequent(self, tf: AnyArray) -> BoolArray:
        """Mask of the max_features most frequent terms; ties fall as in scikit-learn, which sorts whole counts."""
        whole = tf.astype(np.int64)
        order = (-(whole if np.array_equal(whole, tf) else tf)).argsort()[: self.max_features]
        keep = np.zeros(len(tf), bool)
        keep[order] = True
        return keep

    def _idf(self, df: AnyArray, n: int) -> AnyArray:
        smooth = int(self.smooth_idf)
        return np.asarray(np.log((n + smooth) / (df + smooth)) + 1.0, np.float64)

    # ---- transforming ----

    def transform(self, documents: Any) -> Csr:
        """Rows (n × d) of documents; terms that were not learned are passed over."""
        opened = self._fitted()
        if type(documents) is list and len(documents) == 1 and type(documents[0]) is str and self.fields_ is None:
            inputs = Inputs("text", documents, None)  # the common query, without checks that cost more than the answer
        else:
            inputs = check_inputs(documents)
        if len(inputs) and (inputs.kind == "fields") != (self.fields_ is not None):
            had, now = ("texts", "dicts of text fields") if self.fields_ is None else ("dicts of text fields", "texts")
            raise DataError(f"TF-IDF was fitted on {had}, and now gets {now if inputs.width is None else 'numbers'}")
        texts = self._as_fitted._texts(inputs, self.fields_)
        weights = [1.0] if self.fields_ is None else list(self.fields_.values())
        return self._matrix(opened.transform(texts, weights, resolve_threads(self.threads, len(inputs))))

    def _matrix(self, rows: tuple[AnyArray, AnyArray, AnyArray]) -> Csr:
        indptr, indices, data = rows
        return csr_from_parts(data, indices, indptr, (len(indptr) - 1, self.n_features))

    def _texts(self, inputs: Inputs, fields: dict[str, float] | None) -> list[str]:
        """Texts of all fields, document by document, ready for the analyser."""
        if inputs.kind not in ("text", "fields"):
            raise DataError("TF-IDF needs texts, not numbers")
        texts: list[str] = inputs.data
        if fields is not None:
            texts = [document.get(name, "") for document in inputs.data for name in fields]
        if self.strip_accents is not None:
            strip = strip_accents_unicode if self.strip_accents == "unicode" else strip_accents_ascii
            texts = [strip(t.lower() if self.lowercase else t) for t in texts]
        return texts

    def _make_analyzer(self) -> native.text.Analyzer:
        words: Iterable[str] = self.stop_words or ()
        if self.stop_words == "english":
            from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

            words = ENGLISH_STOP_WORDS
        lowercase = self.lowercase and self.strip_accents is None  # where accents go, lower case went before
        stop_words = sorted(words) if self.analyzer == "word" else []
        return native.text.make_analyzer(self.analyzer, self.ngram_range, lowercase, self._min_token(), stop_words)

    def _min_token(self) -> int:
        """Shortest word of the token pattern."""
        match = _WORD_PATTERN.fullmatch(self.token_pattern)
        if match is None:
            raise ValueError(
                r"Tfidf.token_pattern must be (?u)\b\w\w+\b, (?u)\b\w+\b or (?u)\b\w{n,}\b; "
                f"got {self.token_pattern!r}"
            )
        return int(match[2]) if match[2] else match[1].count(r"\w")

    def _open(self) -> None:
        # What was learned goes on to work, and to be saved, with the parameters that it was learned with.
        self._as_fitted = self.clone()
        self._open_native()

    def _open_native(self) -> None:
        made = self._as_fitted
        self._native = native.text.Tfidf(
            made._make_analyzer(),
            self.offsets_,
            self.bytes_,
            self.slots_,
            self.idf_,
            made.binary,
            made.sublinear_tf,
            made.norm or "none",
        )

    def __getstate__(self) -> dict[str, Any]:
        """What a copy needs; the native part is opened anew."""
        return {name: value for name, value in vars(self).items() if name != "_native"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if "offsets_" in state:
            self._open_native()

    def _fitted(self) -> native.text.Tfidf:
        if not hasattr(self, "_native"):
            raise NotFittedError("this Tfidf is not fitted; call fit first")
        return self._native

    # ---- looking ----

    @property
    def n_features(self) -> int:
        """Number of terms d."""
        self._fitted()
        return len(self.offsets_) - 1

    def get_feature_names_out(self, input_features: Any = None) -> AnyArray:
        """Terms in column order."""
        self._fitted()
        text, borders = self.bytes_.tobytes(), self.offsets_.tolist()
        terms = [text[a:b].decode("utf-8", "surrogatepass") for a, b in itertools.pairwise(borders)]
        return np.array(terms, dtype=object)

    @property
    def vocabulary_(self) -> dict[str, int]:
        """Column of each term."""
        return {term: i for i, term in enumerate(self.get_feature_names_out())}

    # ---- files ----

    def save_to(self, writer: StoreWriter, prefix: str = "tfidf") -> dict[str, Any]:
        """Write what was learned into a model's directory; returns what `load_from` needs to know."""
        self._fitted()
        writer.array(f"{prefix}_offsets", self.offsets_)
        writer.array(f"{prefix}_bytes", self.bytes_)
        writer.array(f"{prefix}_slots", self.slots_)
        if self.idf_ is not None:
            writer.array(f"{prefix}_idf", self.idf_)
        return {"params": self._as_fitted.to_dict(), "fields": self.fields_, "n_documents": self.n_documents_}

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str = "tfidf") -> Tfidf:
        """Open what `save_to` wrote; the arrays stay on disk until they are read."""
        try:
            tfidf = cls.from_dict(info["params"])
            tfidf.fields_ = None if info["fields"] is None else {str(k): float(v) for k, v in info["fields"].items()}
            if tfidf.fields_ is not None:
                _check_fields(tfidf.fields_)
            tfidf.n_documents_ = int(info["n_documents"])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ModelFormatError(f"the manifest's description of the TF-IDF is damaged: {error}") from error
        tfidf.offsets_ = store.array(f"{prefix}_offsets", np.uint64, ndim=1)
        tfidf.bytes_ = store.array(f"{prefix}_bytes", np.uint8, ndim=1)
        tfidf.slots_ = store.array(f"{prefix}_slots", np.uint8, ndim=1)
        tfidf.idf_ = None
        if tfidf.use_idf:
            tfidf.idf_ = store.array(f"{prefix}_idf", np.float64, ndim=1)
            if not np.isfinite(tfidf.idf_).all():
                raise ModelFormatError("the TF-IDF has weights that are not finite")
        try:
            tfidf._open()
        except (ValueError, TypeError, OverflowError) as error:
            raise ModelFormatError(f"the TF-IDF is damaged: {error}") from error
        return tfidf


def _check_fields(fields: dict[str, float]) -> None:
    low, high = _FIELD_WEIGHTS
    if not fields or not all(low <= weight <= high for weight in fields.values()):
        raise ValueError(f"Tfidf.fields needs a weight from {low:g} to {high:g} for each field; got {fields!r}")


def strip_accents_unicode(text: str) -> str:
    """Drop combining marks after decomposition."""
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


def strip_accents_ascii(text: str) -> str:
    """Decompose and keep only what is ASCII."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
