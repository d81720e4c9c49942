"""TF-IDF of a corpus in parts equals TF-IDF of the whole, bit for bit."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy import sparse

import ramify
from ramify import native
from ramify.features import term_counts
from ramify.features.term_counts import TermCounts

WORDS = ["steuer", "recht", "steuerrecht", "rechtsstaat", "das", "und", "nicht", "the", "of", "haus", "häuser",
         "Straße", "straßenbau", "bau", "λόγος", "42", "a\0b", "bibliotheksrecht", "x"]  # fmt: skip


def corpus(n, seed=0):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(0, 15))) for _ in range(n)]


def fit_in_parts(tfidf, documents, bounds, names=None):
    fields = term_counts.fields_of(tfidf, names)
    parts = [(a, documents[a:b]) for a, b in zip([0, *bounds], [*bounds, len(documents)], strict=True)]
    n, found = len(documents), Counter()
    if tfidf.stemmer == "auto":
        for first, part in parts:
            found.update(term_counts.count_languages(tfidf, part, fields, first, n))
    language = term_counts.language_of(tfidf, found)
    counted = [term_counts.count_terms(tfidf, part, fields, language) for _, part in parts]
    terms = [terms for terms, _ in counted]
    merged = term_counts.merge_counts([term_counts.merge_counts(terms[:2]), *terms[2:]])
    df = term_counts.set_terms(tfidf, merged, n, fields, language, True)
    if tfidf.subwords is not None:
        df = sum(term_counts.document_frequency(tfidf, *part) for part in counted)
    term_counts.set_weights(tfidf, df)
    return tfidf, sparse.vstack([term_counts.features_of(tfidf, *part) for part in counted], format="csr")


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"min_df": 2, "max_df": 0.8},
        {"max_features": 7},
        {"max_features": 7, "binary": True, "sublinear_tf": True},
        {"analyzer": "char", "ngram_range": (1, 3), "max_features": 40},
        {"stemmer": "auto", "subwords": "parts", "min_df": 2, "lead_words": 3},
        {"stemmer": "german", "subwords": "parts", "ngram_range": (1, 2), "norm": None, "max_features": 12},
        {"use_idf": False, "subwords": "parts"},
        {"subwords": "parts", "lead_words": 4, "lead_weight": 1.7, "min_df": 3},
        {"strip_accents": "unicode", "stop_words": "english"},
    ],
)
@pytest.mark.parametrize("threads", [1, 3])
def test_parts_equal_the_whole(params, threads):
    documents = corpus(300)
    whole = ramify.Tfidf(threads=threads, **params)
    X = whole.fit_transform(documents)
    parts, rows = fit_in_parts(ramify.Tfidf(threads=threads, **params), documents, [1, 130, 131, 131])
    for name in ("offsets_", "bytes_", "slots_", "hash_key_", "idf_"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))
    for a, b in zip(whole.parts_ or (), parts.parts_ or (), strict=True):
        np.testing.assert_array_equal(a, b)
    assert whole.language_ == parts.language_
    for found in (rows, parts.transform(documents)):
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(X, name), getattr(found, name))


def test_text_fields_in_parts():
    documents = [{"title": text[:9], "body": text} for text in corpus(80)]
    whole = ramify.Tfidf(fields={"body": 1.0, "title": 3.0})
    X = whole.fit_transform(documents)
    parts, rows = fit_in_parts(ramify.Tfidf(fields={"body": 1.0, "title": 3.0}), documents, [20, 50], ["title", "body"])
    assert parts.fields_ == whole.fields_
    assert (rows != X).nnz == (parts.transform(documents) != X).nnz == 0
    with pytest.raises(ramify.DataError, match="'body'"):
        term_counts.fields_of(ramify.Tfidf(fields={"body": 1.0}), ["title"])


def test_the_sample_of_languages_is_that_of_the_whole(monkeypatch):
    monkeypatch.setattr("ramify.features.languages._SAMPLE", 10)
    tfidf, documents = ramify.Tfidf(stemmer="auto"), corpus(95)
    whole = term_counts.count_languages(tfidf, documents, None, 0, 95)
    parts = Counter()
    for a, b in ((0, 1), (1, 17), (17, 64), (64, 95)):
        parts.update(term_counts.count_languages(tfidf, documents[a:b], None, a, 95))
    assert sum(whole.values()) == 11
    assert parts == whole


def test_no_terms_are_an_error_as_in_fit():
    with pytest.raises(ValueError, match="no terms"):
        fit_in_parts(ramify.Tfidf(), ["", "a"], [1, 1])
    with pytest.raises(ValueError, match="fewer documents"):
        fit_in_parts(ramify.Tfidf(min_df=5, max_df=2), corpus(20), [1, 7])


@pytest.mark.native
@pytest.mark.parametrize("with_tf", [True, False])
def test_merge_terms_equals_the_reference(with_tf):
    random = np.random.default_rng(1)
    alphabet = ["", "a", "b", "\0", "ä", "zz", "long term of more than sixteen bytes", "long term of more than sixteen"]
    parts, sums = [], {}
    for _ in range(6):
        terms = sorted({"".join(random.choice(alphabet, 3)).encode() for _ in range(random.integers(0, 40))})
        df, tf = random.integers(1, 9, len(terms)), random.integers(0, 64, len(terms)) / 64
        offsets = np.cumsum([0, *map(len, terms)]).astype(np.uint64)
        parts.append(TermCounts(offsets, np.frombuffer(b"".join(terms), np.uint8), df, tf if with_tf else tf[:0]))
        for term, d, t in zip(terms, df, tf, strict=True):
            before = sums.get(term, (0, 0.0))
            sums[term] = before[0] + d, before[1] + t
    merged = term_counts.merge_counts(parts)
    content = merged.bytes.tobytes()
    ends = merged.offsets.tolist()
    found = [content[a:b] for a, b in itertools.pairwise(ends)]
    assert found == sorted(sums)
    assert merged.df.tolist() == [sums[term][0] for term in found]
    assert merged.tf.tolist() == ([sums[term][1] for term in found] if with_tf else [])


@pytest.mark.native
def test_merge_terms_refuses_arrays_that_do_not_fit():
    offsets, content, df = np.array([0, 2], np.uint64), np.zeros(2, np.uint8), np.ones(1, np.int64)
    assert native.text.merge_terms([(offsets, content, df, None)])[0].tolist() == [0, 2]
    assert native.text.merge_terms([])[0].tolist() == [0]
    for bad in ((offsets, content[:1], df, None), (offsets, content, df[:0], None), (offsets[:0], content, df, None),
                (np.array([0, 3, 2], np.uint64), content, np.ones(2, np.int64), None),
                (offsets, content, df, np.ones(2))):  # fmt: skip
        with pytest.raises(ValueError, match="do not fit together"):
            native.text.merge_terms([bad])


@pytest.mark.native
def test_features_of_counts_refuse_arrays_that_do_not_fit():
    tfidf = ramify.Tfidf().fit(["red fox", "red hen"])
    terms, counts = term_counts.count_terms(tfidf, ["red owl", "hen"], None, None)
    expected = tfidf.transform(["red owl", "hen"])
    assert (term_counts.features_of(tfidf, terms, counts) != expected).nnz == 0
    for bad in (terms._replace(bytes=terms.bytes[:-1]), terms._replace(offsets=terms.offsets[::-1].copy())):
        with pytest.raises(ValueError, match="do not fit together"):
            term_counts.features_of(tfidf, bad, counts)
    fewer = terms._replace(offsets=terms.offsets[:2], bytes=terms.bytes[: int(terms.offsets[1])])
    with pytest.raises(ValueError, match="counts of terms are damaged"):
        term_counts.features_of(tfidf, fewer, counts)
