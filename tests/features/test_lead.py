"""The first words of a document count more; several blocks of features read a text once."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from scipy import sparse

from ramify.features import Concat, Tfidf

pytestmark = pytest.mark.native

CORPUS = [
    "Das Steuerrecht der Länder ist nicht einfach, und die Verfahren sind lang.",
    "The law of the states is not simple, and their proceedings are often long.",
    "Recht der Steuer: ein Verfahren",
    "die Steuern und das Recht der Verfahren",
    "Landesrecht, Verfahrensrecht und Steuerverfahren",
    "tax law and the taxes of 2024",
]
HOSTILE = [
    "\ud800" * 50,
    "ab\udfffsteuerrecht steuer\ud800",
    "x" * 100_000,
    "steuerrecht" * 30,
    "ä" * 70,
    "",
    "中" * 1000 + "a" + "中",
    "\x1f\x1f a\x1fb",
    "\U0001d54f\U0001d556" * 40,
    "สวัสดี 中 中文",
    "1 22 333",
]


def random_texts(n, seed=0):
    rng = np.random.default_rng(seed)
    words = [*re.findall(r"\w+", " ".join(CORPUS)), "x", "中文字", "สวัสดี", "a1", "ÄÖß", "Ausbildungsvertragsrecht"]
    return [" ".join(rng.choice(words, rng.integers(0, 40))) for _ in range(n)]


def reference_counts(documents, n_lead, weight, ngrams=(1, 1), field_weights=(1.0,)):
    """Counts of the n-grams of lists of texts: one that starts in the first `n_lead` words counts `weight` times."""
    result = []
    for texts in documents:
        counts, left = Counter(), n_lead
        for text, factor in zip(texts, field_weights, strict=True):
            words = re.findall(r"(?u)\b\w\w+\b", text.lower())
            for n in range(ngrams[0], ngrams[1] + 1):
                for i in range(len(words) - n + 1):
                    counts[" ".join(words[i : i + n])] += factor * (weight if i < left else 1)
            left -= min(left, len(words))
        result.append(counts)
    return result


def check_counts(tfidf, documents, expected):
    for found in (tfidf.fit_transform(documents), tfidf.transform(documents)):
        names = tfidf.get_feature_names_out()
        for row, counts in zip(found, expected, strict=True):
            assert dict(zip(names[row.indices], row.data.tolist(), strict=True)) == pytest.approx(dict(counts))


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(("n_lead", "weight"), [(1, 2.0), (5, 3.0), (12, 0.5), (1000, 2.5)])
def test_lead_equals_the_reference(n_lead, weight, threads):
    plain = {"use_idf": False, "norm": None, "lead_words": n_lead, "lead_weight": weight, "threads": threads}
    texts = [*random_texts(300), *(text for text in HOSTILE if len(text) < 1000)]
    check_counts(Tfidf(**plain), texts, reference_counts([[text] for text in texts], n_lead, weight))
    pairs = reference_counts([[text] for text in texts], n_lead, weight, (1, 3))
    check_counts(Tfidf(**plain, ngram_range=(1, 3)), texts, pairs)
    fields = [{"title": a, "abstract": b} for a, b in zip(texts, texts[::-1], strict=True)]
    both = reference_counts([list(f.values()) for f in fields], n_lead, weight, field_weights=(2.0, 0.25))
    check_counts(Tfidf(**plain, fields={"title": 2.0, "abstract": 0.25}), fields, both)


@pytest.mark.parametrize("weight", [3.0, 0.7])
def test_lead_of_stems_and_parts_is_a_field_of_its_own(weight):
    cut = [
        (" ".join(words[:4]), " ".join(words[4:])) for words in map(str.split, random_texts(200)) if "x" not in words
    ]
    cut = [pair for pair in cut if "สวัสดี" not in " ".join(pair)]  # one word here, several in a regular expression
    options = {"stemmer": "german", "subwords": "parts", "min_df": 2, "sublinear_tf": True}
    split = Tfidf(**options, fields={"lead": weight, "rest": 1.0}).fit([{"lead": a, "rest": b} for a, b in cut])
    expected = split.transform([{"lead": a, "rest": b} for a, b in cut])
    texts = [f"{a} {b}" for a, b in cut]
    tfidf = Tfidf(**options, lead_words=4, lead_weight=weight)
    for found in (tfidf.fit_transform(texts), tfidf.transform(texts), tfidf.transform(texts)):
        assert np.array_equal(found.toarray(), expected.toarray())


def test_lead_is_saved_and_needs_words(tmp_path):
    texts = random_texts(50)
    tfidf = Tfidf(lead_words=3, lead_weight=4.0).fit(texts)
    tfidf.save(tmp_path / "tfidf")
    loaded = Tfidf.load(tmp_path / "tfidf")
    assert (loaded.transform(texts) != tfidf.transform(texts)).nnz == 0
    assert (Tfidf().fit(texts).transform(texts) != tfidf.transform(texts)).nnz > 0
    with pytest.raises(ValueError, match=r"Tfidf\.lead_words needs words"):
        Tfidf(lead_words=3, analyzer="char")
    with pytest.raises(ValueError, match=r"Tfidf\.lead_weight"):
        Tfidf(lead_weight=0.0)


def blocks(**options):
    return {
        "words": Tfidf(sublinear_tf=True, **options),
        "stems": Tfidf(stemmer="auto", subwords="parts", min_df=2, lead_words=5, **options),
        "numbers": Tfidf(drop_numbers=True, norm="l1", **options),
        "pairs": Tfidf(ngram_range=(1, 2), stemmer="german", **options),
        "characters": Tfidf(analyzer="char_wb", ngram_range=(3, 3), **options),
        "stop words": Tfidf(stop_words=("und", "the"), stemmer="english", **options),
        "one letter": Tfidf(min_token_length=1, subwords="parts", **options),
    }


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "names",
    [
        ("words", "stems"),
        ("stems", "words"),
        ("stems", "pairs", "numbers", "words"),
        ("characters", "stop words", "one letter", "stems"),
    ],
)
def test_blocks_read_together_equal_each_alone(names, threads):
    texts = [*random_texts(400), *CORPUS]
    queries = [*random_texts(500, seed=1), *HOSTILE, *CORPUS, "Steuerrechtsverfahren Landesverfahren Steuerlandrecht"]
    weights = tuple(0.75 / (i + 1) for i in range(len(names)))
    concat = Concat(parts=tuple(blocks(threads=threads)[name] for name in names), weights=weights).fit(texts)
    alone = [part.transform(queries) * np.float32(w) for part, w in zip(concat.parts, weights, strict=True)]
    expected = sparse.hstack(alone, format="csr")
    for _ in range(2):  # the second time words are known
        found = concat.transform(queries)
        assert found.dtype == np.float32
        assert found.has_canonical_format
        for name in ("indptr", "indices", "data"):
            assert np.array_equal(getattr(found, name), getattr(expected, name))
    for i in range(0, len(queries), 7):
        assert (concat.transform([queries[i]]) != expected[i]).nnz == 0


def test_fields_are_read_together():
    texts = random_texts(300)
    documents = [{"title": a, "abstract": b} for a, b in zip(texts, texts[::-1], strict=True)]
    fields = {"title": 3.0, "abstract": 0.7}
    parts = tuple(blocks(fields=fields)[name] for name in ("words", "stems"))
    concat = Concat(parts=parts).fit(documents)
    expected = sparse.hstack([part.transform(documents) for part in parts], format="csr")
    assert (concat.transform(documents) != expected).nnz == 0
    other = Concat(parts=(parts[0], Tfidf(fields={"title": 1.0}).fit(documents)))  # reads other texts
    expected = sparse.hstack([part.transform(documents) for part in other.parts], format="csr")
    assert (other.transform(documents) != expected).nnz == 0
