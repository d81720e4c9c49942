"""TF-IDF against scikit-learn: same vocabulary, values within 1e-6."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

import ramify
from ramify.features import Concat, Tfidf
from ramify.io.store import Store, StoreWriter

pytestmark = pytest.mark.native

GERMAN = [
    "Die Straßenbahn fährt über die große Brücke, und niemand weiß, wohin.",
    "Größere Änderungen an der Übersicht müssen vorher beschlossen werden.",
    "ÄRGER MIT DEM FAHRPLAN: Züge fallen aus – Fahrgäste warten „stundenlang“.",
    "Bibliotheken erschließen ihre Bücher mit Schlagwörtern; das dauert.",
    "Ein Buch über Maschinelles Lernen, 2. Auflage, mit 300 Abbildungen.",
    "Fußgängerübergänge sind in der Innenstadt selten; Radwege noch seltener.",
    "Der Öffentliche Personennahverkehr (ÖPNV) wächst seit 1995 um 3,5 % im Jahr.",
    "Straße und STRASSE sind für den Rechner zweierlei, für uns dasselbe.",
]
EDGE_CASES = [
    "",
    " ",
    "\n\t  \x0b\x1c",
    "a",
    "ab",
    "A_B __ 9 99",
    "İstanbul ΟΔΟΣ ΟΔΟΣ Σ σς ΑΣ.",
    "ǅ ǈ ﬁne ẞ ß",
    "中文字符 和 日本語テキスト 한국어",
    "مرحبا بالعالم नमस्ते दुनिया สวัสดี",
    "e\u0301te\u0301 vs été",
    "zero\u200dwidth soft\u00adhyphen nb\u00a0space",
    "\ud800 lone \udfff surrogates",
    "\U0001d54f\U0001d556 𐐀𐐁 🙂🙂 text",
    "x" * 63 + " " + "y" * 64 + " " + "z" * 65,
    "supercalifragilisticexpialidocious" * 9,
    "\x00nul\x00 \x00",
    "one  two   three\n\nfour",
]
REPERTOIRE = st.text(
    st.one_of(st.characters(), st.sampled_from("ab _9.\n\u00a0äßİΣσςé\u0301中\U0001f600Ж\ud800")), max_size=80
)


def check_equal(texts, queries=(), **options):
    """Fit both on the texts and compare vocabulary and features, with one thread and several, also on queries."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = TfidfVectorizer(**options)
            expected = theirs.fit_transform(texts)
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            Tfidf(**options).fit_transform(texts)
        return
    terms = theirs.get_feature_names_out()
    for threads in (1, 3):
        ours = Tfidf(threads=threads, **options)
        found = ours.fit_transform(texts)
        assert ours.get_feature_names_out().tolist() == terms.tolist()
        assert_close(found, expected)
        assert_close(ours.transform(texts), expected)
        assert_close(
            Tfidf(threads=threads, **options).fit(texts).transform(queries or texts), theirs.transform(queries or texts)
        )


def assert_close(found, expected):
    assert found.shape == expected.shape
    assert found.has_sorted_indices
    assert found.nnz == expected.nnz
    assert abs(found - expected).max() < 1e-6 if expected.nnz else found.nnz == 0


OPTIONS = [
    {},
    {"ngram_range": (1, 2)},
    {"ngram_range": (1, 3), "sublinear_tf": True},
    {"ngram_range": (2, 3)},
    {"analyzer": "char", "ngram_range": (1, 3)},
    {"analyzer": "char", "ngram_range": (2, 5)},
    {"analyzer": "char_wb", "ngram_range": (1, 4)},
    {"analyzer": "char_wb", "ngram_range": (3, 5), "lowercase": False},
    {"lowercase": False},
    {"min_df": 2},
    {"min_df": 0.2, "max_df": 0.6},
    {"max_df": 3},
    {"max_features": 7},
    {"max_features": 5, "min_df": 2, "ngram_range": (1, 2)},
    {"stop_words": "english"},
    {"stop_words": ["the", "und", "die", "über"], "ngram_range": (1, 2)},
    {"use_idf": False},
    {"smooth_idf": False},
    {"norm": "l1"},
    {"norm": None, "sublinear_tf": True},
    {"binary": True, "max_features": 9},
    {"token_pattern": r"(?u)\b\w+\b"},
    {"token_pattern": r"(?u)\b\w{4,}\b"},
    {"strip_accents": "unicode"},
    {"strip_accents": "ascii", "ngram_range": (1, 2)},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_scikit_learn_on_edge_cases(options):
    if options.get("strip_accents") == "ascii":
        check_equal([t for t in EDGE_CASES if "\ud800" not in t] * 2, GERMAN, **options)
    else:
        check_equal(EDGE_CASES + GERMAN + EDGE_CASES[5:9], GERMAN, **options)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_scikit_learn_on_english_and_german(options, pydoc):
    check_equal(pydoc.texts[::12] + GERMAN * 2, pydoc.texts[1::50], **options)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(REPERTOIRE, min_size=1, max_size=12),
    st.lists(REPERTOIRE, max_size=4),
    st.sampled_from(["word", "char", "char_wb"]),
    st.integers(1, 3),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([1, 2, 0.3]),
)
def test_equals_scikit_learn_on_random_unicode(texts, queries, analyzer, low, more, lowercase, min_df):
    check_equal(texts, queries, analyzer=analyzer, ngram_range=(low, low + more), lowercase=lowercase, min_df=min_df)


def test_every_code_point_is_tokenized_as_in_python():
    """Each code point between two letters: Python decides what is a letter, a digit or white space."""
    code_points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    texts = [" ".join(f"a{chr(c)}b" for c in code_points[i : i + 5000]) for i in range(0, len(code_points), 5000)]
    check_equal(texts)


def test_results_do_not_depend_on_threads(pydoc):
    texts = pydoc.texts * 2
    results = []
    for threads in (1, 2, 5):
        tfidf = Tfidf(ngram_range=(1, 2), max_features=5000, threads=threads)
        fitted = tfidf.fit_transform(texts)
        results.append([tfidf.bytes_, tfidf.slots_, tfidf.idf_, fitted.indptr, fitted.indices, fitted.data])
        again = tfidf.transform(texts)
        assert np.array_equal(again.indices, fitted.indices)
        assert np.array_equal(again.data, fitted.data)
        one = tfidf.transform([texts[7]])
        assert np.array_equal(one.data, fitted[7].data)
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


def random_texts(seed, n_texts):
    """Texts that share few and many terms, of all lengths around the 8 and 16 bytes that a hash table entry holds.

    Most terms occur once; long ones differ only in the middle, in the last byte, or in zeros at the end.
    """
    rng = np.random.default_rng(seed)
    stem = "abcdefghijklmnopqrstuvwxyz"
    shared = [stem[:n] for n in range(1, 26)] + [stem[:n] + "\0" * k for n in (1, 7, 8, 15, 16) for k in (1, 2, 9)]
    shared += [stem[:9] + c + stem[:20] for c in "xyzäß中"] + [stem[:n] + c for n in (7, 8, 15, 16, 30) for c in "äß中"]
    texts = []
    for i in range(n_texts):
        new = [stem[: rng.integers(0, 20)] + f"{i}x{j}" + "ü" * rng.integers(0, 3) for j in range(rng.integers(0, 30))]
        words = [str(word) for word in rng.choice(shared, rng.integers(0, 40))] + new
        rng.shuffle(words)
        texts.append(" ".join(words))
    return [*texts, "", " ", " ".join(f"only{j}here" for j in range(3000)), "İ Σ ΟΔΟΣ"]


def counted(texts, min_df):
    """Reference implementation: sorted terms, their document frequencies, and the counts (n, d) of the documents."""
    tokens = [re.findall(r"(?u)\b\w\w+\b", text.lower()) for text in texts]
    df = Counter(term for row in tokens for term in set(row))
    terms = sorted(term for term in df if df[term] >= min_df)
    counts = [[(j, n) for j, n in enumerate(map(Counter(row).__getitem__, terms)) if n] for row in tokens]
    return terms, [df[term] for term in terms], counts


@pytest.mark.parametrize("min_df", [1, 2])
def test_counts_equal_the_reference(min_df):
    texts = random_texts(0, 150)
    terms, df, counts = counted(texts, min_df)
    for threads in (1, 2, 3, 7):
        tfidf = Tfidf(norm=None, smooth_idf=False, min_df=min_df, threads=threads)
        weights = tfidf.fit_transform(texts)
        assert tfidf.get_feature_names_out().tolist() == terms
        assert np.array_equal(tfidf.idf_, np.log(len(texts) / np.array(df)) + 1)
        for i, row in enumerate(counts):
            assert weights[i].indices.tolist() == [j for j, _ in row]
            expected = np.array([n for _, n in row]) * tfidf.idf_[weights[i].indices]
            assert np.array_equal(weights[i].data, expected.astype(np.float32))


@pytest.mark.parametrize("options", [
    {}, {"min_df": 2, "sublinear_tf": True}, {"ngram_range": (1, 2), "max_features": 2000},
    {"ngram_range": (2, 3), "stop_words": ["abc"]}, {"analyzer": "char", "ngram_range": (15, 17), "min_df": 2},
    {"analyzer": "char_wb", "ngram_range": (2, 5), "binary": True, "max_features": 500}, {"lowercase": False},
], ids=str)  # fmt: skip
def test_random_texts_with_any_number_of_threads(options):
    """All threads add terms to one table; the results have the same bits, and are those of scikit-learn."""
    texts = random_texts(1, 600)
    theirs = TfidfVectorizer(**options)
    expected = theirs.fit_transform(texts)
    results = []
    for threads in (1, 2, 3, 7):
        tfidf = Tfidf(threads=threads, **options)
        X = tfidf.fit_transform(texts)
        results.append([tfidf.offsets_, tfidf.bytes_, tfidf.slots_, tfidf.idf_, X.indptr, X.indices, X.data])
        again = tfidf.transform(texts)
        assert np.array_equal(again.indices, X.indices)
        assert np.array_equal(again.data, X.data)
    assert_close(X, expected)
    assert tfidf.get_feature_names_out().tolist() == theirs.get_feature_names_out().tolist()
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("threads", [1, 3])
def test_fit_can_be_interrupted(threads):
    """Ctrl-C ends a fit, and the next one starts afresh."""
    code = f"""
import signal
from ramify import Tfidf
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
texts = [" ".join(f"w{{i % 997}}x{{j}}" for j in range(200)) for i in range(2000)] * 500
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    while True:
        Tfidf(threads={threads}, ngram_range=(1, 3)).fit(texts)
except KeyboardInterrupt:
    print(Tfidf(threads={threads}).fit_transform(["red fox", "red hen"]).shape)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout.split("\n")[0] == "(2, 3)", done.stderr


def test_long_document(pydoc):
    check_equal([" ".join(pydoc.texts), "short one", " ".join(f"w{i}" for i in range(200_000))], ngram_range=(1, 2))


def test_fields_share_one_vocabulary():
    """A field of weight 3 counts like its text repeated three times."""
    documents = [
        {"title": "red fox", "abstract": "a fox hunts hens"},
        {"title": "hens", "abstract": "red hens lay eggs, brown hens too"},
        {"abstract": "no title here"},
    ]
    found = Tfidf(fields={"title": 3.0, "abstract": 1.0}, sublinear_tf=True).fit_transform(documents)
    repeated = [" ".join([d.get("title", "")] * 3 + [d["abstract"]]) for d in documents]
    assert_close(found, TfidfVectorizer(sublinear_tf=True).fit_transform(repeated))
    plain = Tfidf().fit(documents)
    assert plain.fields_ == {"title": 1.0, "abstract": 1.0}
    assert plain.transform([{"title": "fox", "unknown": "hens"}]).nnz == 1
    assert plain.vocabulary_["fox"] == plain.get_feature_names_out().tolist().index("fox")


def test_small_field_weights_give_positive_values():
    documents = [{"a": "x y", "b": "z z"}, {"a": "y", "b": "x"}]
    rows = Tfidf(fields={"a": 0.1, "b": 0.3}, sublinear_tf=True, token_pattern=r"(?u)\b\w+\b", norm=None)
    assert rows.fit_transform(documents).data.min() > 0


def test_n_grams_do_not_cross_fields():
    names = Tfidf(ngram_range=(1, 2)).fit([{"a": "red fox", "b": "brown hen"}]).get_feature_names_out()
    assert "fox brown" not in names
    assert "red fox" in names


def test_concat(pydoc):
    texts = pydoc.texts[:200]
    word, char = Tfidf(), Tfidf(analyzer="char_wb", ngram_range=(3, 4))
    both = Concat(parts=(word.clone(), char.clone()), weights=(1.0, 0.5))
    concatenated = both.fit_transform(texts)
    a, b = word.fit_transform(texts), char.fit_transform(texts)
    assert concatenated.shape[1] == a.shape[1] + b.shape[1] == both.n_features
    assert abs(concatenated[:, : a.shape[1]] - a).max() == 0
    assert abs(concatenated[:, a.shape[1] :] - 0.5 * b).max() < 1e-7
    assert abs(both.transform(texts) - concatenated).max() == 0
    columns = np.arange(both.n_features)[::-3]
    assert both.terms(columns) == [name.partition("__")[2] for name in both.get_feature_names_out()[columns]]


@pytest.mark.parametrize("make", [
    lambda: Tfidf(ngram_range=(1, 2), stop_words=("und",)),
    lambda: Tfidf(use_idf=False, norm=None),
    lambda: Concat(parts=(Tfidf(), Tfidf(analyzer="char_wb", ngram_range=(2, 3))), weights=(2.0, 1.0)),
])  # fmt: skip
def test_save_and_load(make, tmp_path, pydoc):
    features = make().fit(GERMAN + pydoc.texts[:100])
    with StoreWriter(tmp_path / "m") as writer:
        writer.manifest("x", {}, {"features": features.save_to(writer)})
    store = Store(tmp_path / "m")
    opened = type(features).load_from(store, store.state["features"])
    queries = EDGE_CASES + GERMAN
    assert abs(opened.transform(queries) - features.transform(queries)).max() == 0
    assert opened.to_dict() == features.to_dict()
    if isinstance(opened, Tfidf):
        assert not opened.bytes_.flags.owndata  # memory-mapped
        assert not opened.slots_.flags.writeable


@pytest.mark.parametrize(("wrong", "message"), [
    ({"analyzer": "sentence"}, "analyzer"),
    ({"ngram_range": (2, 1)}, "ngram_range"),
    ({"ngram_range": (0, 1)}, "ngram_range"),
    ({"min_df": -1}, "min_df"),
    ({"min_df": 1.5}, "fraction"),
    ({"max_features": 0}, "max_features"),
    ({"norm": "l3"}, "norm"),
    ({"token_pattern": r"\w+"}, "token_pattern"),
    ({"fields": {}}, "fields"),
    ({"fields": {"a": 0.0}}, "fields"),
    ({"lowercase": 1}, "lowercase"),
    ({"token_pattern": r"(?u)\b\w{0,}\b"}, "token_pattern"),
    ({"fields": {"a": 1e300}}, "fields"),
    ({"stop_words": ["a", 1]}, "stop_words"),
    ({"ngram_range": (1, 1000)}, "ngram_range"),
    ({"threads": 10**9}, "threads"),
])  # fmt: skip
def test_invalid_parameters_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Tfidf(**wrong)


def test_invalid_input_is_refused():
    tfidf = Tfidf()
    with pytest.raises(ramify.NotFittedError, match="fit"):
        tfidf.n_features  # noqa: B018
    with pytest.raises(ramify.DataError, match="list"):
        tfidf.fit("one text")
    with pytest.raises(ramify.DataError, match="row 1"):
        tfidf.fit(["a text", 3])
    with pytest.raises(ramify.DataError, match="numeric"):
        tfidf.fit(np.eye(3))
    with pytest.raises(ValueError, match="no terms"):
        tfidf.fit(["", ""])
    with pytest.raises(ramify.DataError, match="no documents"):
        tfidf.fit([])
    with pytest.raises(ValueError, match="max_df"):
        Tfidf(min_df=3, max_df=2).fit(["a b"] * 5)
    tfidf.fit(["red fox"])
    with pytest.raises(ramify.DataError, match="fitted on texts"):
        tfidf.transform([{"a": "red"}])
    assert tfidf.transform([]).shape == (0, 2)
    assert tfidf.transform(["nothing known"]).nnz == 0


def test_counts_of_a_failed_document_are_discarded():
    """The counter is reused between calls: counts of a failed document must not leak into the next."""
    words = " ".join(f"w{i}" for i in range(300))
    expected = Tfidf(threads=1).fit_transform(["red fox"] * 3).toarray().tolist()
    with pytest.raises(ValueError, match="500 million"):
        Tfidf(threads=1).fit([{"a": words, "b": "a" * 500_000_001}])
    assert Tfidf(threads=1).fit_transform(["red fox"] * 3).toarray().tolist() == expected


def test_set_params_after_fit_has_no_effect(tmp_path):
    tfidf = Tfidf(strip_accents="unicode").fit(["été red", "red fox"])
    before = tfidf.transform(["ete fox"]).toarray()
    tfidf.set_params(use_idf=False, norm=None, strip_accents=None, lowercase=False)
    assert np.array_equal(tfidf.transform(["Été FOX"]).toarray(), before)
    with StoreWriter(tmp_path / "m") as writer:
        writer.manifest("x", {}, {"tfidf": tfidf.save_to(writer)})
    store = Store(tmp_path / "m")
    assert np.array_equal(Tfidf.load_from(store, store.state["tfidf"]).transform(["Été FOX"]).toarray(), before)


def test_failed_fit_keeps_the_previous_one():
    tfidf = Tfidf(min_df=1).fit(["red fox"])
    for wrong in ([{"a": ""}], [], [1]):
        with pytest.raises(ValueError, match=r"."):
            tfidf.fit(wrong)
    assert tfidf.transform(["red"]).nnz == 1


def test_missing_fields_are_reported():
    with pytest.raises(ramify.DataError, match="no document has the field 'titel'"):
        Tfidf(fields={"titel": 2.0}).fit([{"title": "red fox"}])
    with pytest.raises(ramify.DataError, match="plain texts"):
        Tfidf(fields={"title": 2.0}).fit(["red fox"])
    with pytest.raises(ramify.NotFittedError, match="fit"):
        Tfidf().transform(["a"])


@pytest.mark.parametrize("change", [
    {"n_documents": float("inf")}, {"n_documents": None}, {"fields": {"a": float("nan")}}, {"fields": {"a": 1e300}},
    {"fields": {}}, {"fields": 3}, {"params": {"token_pattern": r"(?u)\b\w{99999999999999,}\b"}},
    {"params": {"stop_words": ["\ud800"]}}, {"params": {"threads": 10**12}}, {"params": 7},
])  # fmt: skip
def test_tampered_manifest_is_refused(tmp_path, change):
    tfidf = Tfidf().fit(["red fox"])
    with StoreWriter(tmp_path / "m") as writer:
        writer.manifest("x", {}, {"tfidf": tfidf.save_to(writer)})
    store = Store(tmp_path / "m")
    with pytest.raises(ramify.ModelFormatError):
        Tfidf.load_from(store, {**store.state["tfidf"], **change})


def test_save_without_a_model_and_deepcopy(tmp_path):
    import copy

    tfidf = Tfidf(ngram_range=[1, 2]).fit(text for text in GERMAN)  # lists and generators, as in scikit-learn
    expected = tfidf.transform(GERMAN).toarray()
    tfidf.save(tmp_path / "t")
    for other in (Tfidf.load(tmp_path / "t", verify=True), copy.deepcopy(tfidf)):
        assert np.array_equal(other.transform(GERMAN).toarray(), expected)
    both = Concat(parts=[tfidf.clone(), Tfidf(analyzer="char")]).fit(GERMAN)
    both.save(tmp_path / "c")
    assert abs(Concat.load(tmp_path / "c").transform(GERMAN) - both.transform(GERMAN)).max() == 0
    assert len(both.get_feature_names_out()) == both.n_features
    assert both.get_feature_names_out()[0].startswith("0__")
    with pytest.raises(ramify.ModelFormatError, match="contains 'concat', expected 'tfidf'"):
        Tfidf.load(tmp_path / "c")
    assert not hasattr(copy.deepcopy(Tfidf()), "_native")


def test_parameters_of_concatenated_features():
    """Parameters of Tfidf are set in all parts; those that say what the terms are choose one extractor instead."""
    model = ramify.XRLinear().set_params(**{"features.min_df": 3, "features__ngram_range": (1, 2)})
    default = ramify.XRLinear().features
    assert isinstance(model.features, ramify.Concat)
    assert [(part.min_df, part.ngram_range) for part in model.features.parts] == [(3, (1, 2))] * 2
    assert [part.stemmer for part in model.features.parts] == [part.stemmer for part in default.parts] == [None, "auto"]
    assert model.features.weights == default.weights
    assert [part.min_df for part in default.parts] == [1, 2]  # what was cloned is unchanged
    weighted = ramify.XRLinear().set_params(features__weights=(1.0, 2.0), features__max_df=0.5).features
    assert weighted.weights == (1.0, 2.0)
    assert {part.max_df for part in weighted.parts} == {0.5}
    one = ramify.XRLinear().set_params(features__analyzer="char_wb", features__min_df=3).features
    assert (type(one), one.analyzer, one.min_df) == (ramify.Tfidf, "char_wb", 3)
    for wrong in ({"features__min_df": -1}, {"features__min_dff": 1}):
        model = ramify.XRLinear()
        with pytest.raises(ValueError, match="min_df"):
            model.set_params(**wrong)
        assert model.to_dict() == ramify.XRLinear().to_dict()
