"""Which words of a text its columns come from."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ramify.features import Concat, Tfidf, text_features
from ramify.features.words import column_words

pytestmark = pytest.mark.native

CORPUS = [
    "Das Steuerrecht der Länder ist nicht einfach, und die Verfahren sind lang.",
    "The law of the states is not simple, and their proceedings are often long.",
    "Steuer und Recht",
    "Recht der Steuer: ein Verfahren",
    "die Steuern und das Recht der Verfahren",
    "tax law and the taxes of 2024",
    "taxing taxes, a red fox",
]


def shares_of(features, document):
    """Share of each word in each term of a document, and a check of all of them."""
    columns = features.transform([document]).indices
    words, shares = column_words(features, document, columns)
    assert shares.shape == (len(columns), len(words))
    assert np.abs(np.asarray(shares.sum(axis=1)).ravel() - 1).max(initial=0) < 1e-12
    assert (np.asarray(shares.sum(axis=0)).ravel() > 0).all()
    assert len({word.lower() for word in words}) == len(words)
    terms = features.get_feature_names_out()[columns]
    table = shares.toarray()
    return {
        term: {word: pytest.approx(v) for word, v in zip(words, row, strict=True) if v}
        for term, row in zip(terms, table, strict=True)
    }


def test_stems_and_parts_belong_to_their_words():
    features = Tfidf(stemmer="german", subwords="parts").fit(CORPUS)
    found = shares_of(features, "Steuerrechtsverfahren, RECHT: Rechte und recht")
    assert found["recht"] == {"Steuerrechtsverfahren": 0.25, "RECHT": 0.5, "Rechte": 0.25}
    assert found["verfahr"] == {"Steuerrechtsverfahren": 1.0}


def test_shares_follow_counts_and_weights_of_fields():
    stems = Tfidf(stemmer="english").fit(CORPUS)
    assert shares_of(stems, "Taxes taxing Taxing law")["tax"] == {"Taxes": 1 / 3, "taxing": 2 / 3}
    documents = [{"title": text, "abstract": text} for text in CORPUS]
    stems = Tfidf(stemmer="english", fields={"title": 3, "abstract": 1}).fit(documents)
    found = shares_of(stems, {"title": "taxes", "abstract": "taxing taxing", "other": "tax"})
    assert found == {"tax": {"taxes": 0.6, "taxing": 0.4}}


def test_blocks_share_words():
    features = text_features().fit([*CORPUS, *CORPUS])
    found = shares_of(features, "The taxes")
    assert found == {
        "0__taxes": {"taxes": 1.0}, "1__tax": {"taxes": 1.0}, "0__the": {"The": 1.0}, "1__the": {"The": 1.0},
    }  # fmt: skip


def test_each_language_of_a_text():
    german, english = CORPUS[:2]
    text = " ".join([german] * 4 + [english] * 4)
    features = Tfidf(stemmer="auto").fit([text])
    found = shares_of(features, text)
    assert found["verfahr"] == {"Verfahren": 1.0}
    assert found["proceed"] == {"proceedings": 1.0}
    assert found["land"] == {"Länder": 1.0}
    words = {word.lower() for word in re.findall(r"\w+", text)}
    assert {word.lower() for row in found.values() for word in row} == words


def test_real_texts_have_no_other_terms_than_words(pydoc):
    texts = pydoc.split("test").texts[:40]
    features = text_features().fit(pydoc.split("train").texts[:1500])
    for text in texts:
        words = set(re.findall(r"\w+", text))
        assert {word for row in shares_of(features, text).values() for word in row} <= words


def test_what_spans_words_stands_for_itself():
    found = shares_of(Tfidf(ngram_range=(1, 2)).fit(CORPUS), "Red Fox")
    assert found == {"red": {"Red": 1.0}, "fox": {"Fox": 1.0}, "red fox": {"red fox": 1.0}}
    found = shares_of(Tfidf(stemmer="auto").fit(["中文字", "abc"]), "中文字 Abc")
    assert found == {"中文": {"中文": 1.0}, "文字": {"文字": 1.0}, "abc": {"Abc": 1.0}}
    found = shares_of(Tfidf(analyzer="char", ngram_range=(2, 2)).fit(["ab"]), "Ab")
    assert found == {"ab": {"ab": 1.0}}


def test_characters_belong_to_the_words_around_them():
    features = Tfidf(analyzer="char_wb", ngram_range=(3, 3)).fit(["red red, fox-hen ..."])
    found = shares_of(features, "Red, red fox-hen ...")
    assert found["red"] == {"Red": 1.0}
    assert found["ed,"] == {"Red": 1.0}
    assert found["x-h"] == {"fox": 0.5, "hen": 0.5}
    assert found["..."] == {"...": 1.0}


def test_words_of_functions_and_accents():
    found = shares_of(Tfidf(tokenizer=lambda text: text.split("|"), stemmer="english").fit(["taxes|law"]), "taxing|Law")
    assert found == {"tax": {"taxing": 1.0}, "law": {"law": 1.0}}
    assert shares_of(Tfidf(strip_accents="unicode").fit(["Häuser"]), "Häuser") == {"hauser": {"Häuser": 1.0}}
    assert shares_of(Tfidf(preprocessor=str.upper).fit(["fox"]), "fox") == {"FOX": {"fox": 1.0}}
    assert shares_of(Tfidf(lowercase=False).fit(["Fox fox"]), "Fox fox") == {"Fox": {"Fox": 1.0}, "fox": {"Fox": 1.0}}


@pytest.mark.parametrize("text", ["", " ", "\ud800" * 9, "x" * 10_000, "ä" * 70, "''''s", "สวัสดี 中 中文", "İ ß ẞ ΟΔΟΣ"])
def test_nasty_texts(text):
    both = Concat(parts=(Tfidf(), Tfidf(stemmer="auto", subwords="parts")))
    for corpus in (CORPUS, [*CORPUS, text]):
        features = both.fit(corpus)
        columns = features.transform([text]).indices
        words, shares = column_words(features, text, columns)
        assert np.asarray(shares.sum(axis=1)).ravel() == pytest.approx(np.ones(len(columns)))
        assert shares.min() >= 0 if len(columns) else words == []
        assert set(shares_of(features, text)) == set(features.get_feature_names_out()[columns])


def test_first_words_have_a_larger_share():
    stems = Tfidf(stemmer="english", lead_words=1, lead_weight=4.0).fit(CORPUS)
    assert shares_of(stems, "a Taxes taxing")["tax"] == {"Taxes": 0.8, "taxing": 0.2}
