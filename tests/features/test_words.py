"""Stems, languages, parts of words and functions of the user."""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

import ramify
from ramify import native
from ramify.features import Concat, Tfidf, detect_languages, suggest, text_features, word_features
from ramify.features.stemmers import PYTHON_STEMMERS, load_stemmer

pytestmark = pytest.mark.native

# Output of the package snowballstemmer 3.1.
STEMS = {
    "german": """häuser:haus häusern:haus straße:strass strassen:strass größe:gross größere:gross aufenthalt:aufenthalt
        bücherei:bucherei büchereien:bucherei bibliothekarinnen:bibliothekarinn lehrerin:lehr lehrerinnen:lehr
        wissenschaftlichkeit:wissenschaft freundlichkeit:freundlich möglichkeiten:moglich ergebnisse:ergebnis
        ergebnissen:ergebnis verzeichnisses:verzeichnis systeme:system systemen:system handlungen:handlung
        arbeitend:arbeit arbeiteten:arbeit geordnetes:geordnet interessiertest:interessiert zeitungen:zeitung feuer:feu
        bauen:bau baues:bau quelle:quell aquarium:aquarium abenteuer:abenteu kühe:kuh steuerrechts:steuerrecht
        mädchens:madch äußern:auss politische:polit fähigkeit:fahig steinig:steinig ewigkeit:ewig traurigkeit:traurig
        liefernd:liefernd dienstags:dienstag tickets:ticket planet:planet internet:internet nebeln:nebel vögeln:vogel
        bringst:bring könnt:konnt kleinste:klein zu:zu er:er ölung:olung 1990er:1990er x:x""",
    "english": """running:run ran:ran easily:easili ponies:poni caresses:caress ties:tie cries:cri gas:gas kiwis:kiwi
        dying:die inning:inning outing:outing agreed:agre feed:feed hopping:hop hoping:hope filing:file failing:fail
        relational:relat conditional:condit vietnamization:vietnam digitizer:digit operator:oper feudalism:feudal
        decisiveness:decis hopefulness:hope callousness:callous formality:formal sensitivity:sensit sensibility:sensibl
        triplicate:triplic formative:format formalize:formal electricity:electr electrical:electr goodness:good
        revival:reviv allowance:allow inference:infer airliner:airlin adjustable:adjust defensible:defens irritant:irrit
        replacement:replac adjustment:adjust dependent:depend adoption:adopt homologous:homolog communism:communism
        effective:effect bowdlerize:bowdler probate:probat rate:rate controlling:control roll:roll skies:sky news:news
        early:earli only:onli singly:singl happy:happi enjoy:enjoy youth:youth saying:say generously:generous
        university:universiti communities:communiti geologist:geolog apology:apolog pasted:paste succeed:succeed
        proceed:proceed exceeding:exceed evening:evening yes:yes""",
}
GERMAN = "Das Steuerrecht der Länder ist nicht einfach, und die Verfahren sind lang."
ENGLISH = "The law of the states is not simple, and their proceedings are often long."
CORPUS = [
    GERMAN,
    ENGLISH,
    "Steuer und Recht",
    "Recht der Steuer: ein Verfahren",
    "die Steuern und das Recht der Verfahren",
    "Landesrecht, Verfahrensrecht und Steuerverfahren",
    "tax law and the taxes of 2024",
    "Steuerberater beraten; Rechtsverfahren 1999",
]
HOSTILE = [
    "\ud800" * 50,
    "ab\udfffsteuerrecht steuer\ud800",
    "x" * 100_000,
    "steuerrecht" * 30,
    "ä" * 70,
    "中" * 1000 + "a" + "中",
    "\x1f\x1f a\x1fb",
    "ß" * 64,
    "\U0001d54f\U0001d556" * 40,
    "",
    " ",
    "''''s",
    "สวัสดี 中 中文",
]


@pytest.mark.parametrize("language", STEMS)
def test_stemmers_equal_snowball(language):
    pairs = [pair.split(":") for pair in STEMS[language].split()]
    assert native.text.stem_words(language, [word for word, _ in pairs]) == [stem for _, stem in pairs]


@pytest.mark.parametrize("language", STEMS)
def test_stemmers_equal_snowball_on_random_words(language):
    snowball = pytest.importorskip("snowballstemmer")
    rng = np.random.default_rng(0)
    endings = "em ern erin e en es s ln st et est end ig ung lich isch heit keit ing ed eed ies sses ational ogi li ion"
    pieces = [*endings.split(), *"aeiouybcdfglnrstßäöüqY'"]
    words = ["".join(rng.choice(pieces, rng.integers(1, 8))) for _ in range(20_000)]
    assert native.text.stem_words(language, words) == snowball.stemmer(language).stemWords(words)


def test_unknown_stemmer():
    with pytest.raises(ValueError, match="no stemmer for 'klingon'"):
        native.text.stem_words("klingon", [])
    with pytest.raises(ValueError, match=r"Tfidf\.stemmer must be"):
        Tfidf(stemmer="klingon")


def test_other_stemmers_are_those_of_pystemmer(tmp_path):
    pystemmer = pytest.importorskip("Stemmer")
    texts = ["Les étudiants étudiaient les lois", "La loi de l'étudiante : 2024", "Une étude des Études", "中文字"]
    split = re.compile(r"\w\w+").findall
    for language in sorted(set(PYTHON_STEMMERS) & set(pystemmer.algorithms())):
        stem = pystemmer.Stemmer(language).stemWords
        expected = TfidfVectorizer(analyzer=partial(lambda stem, text: stem(split(text.lower())), stem))
        found = Tfidf(stemmer=language)
        assert np.allclose(found.fit_transform(texts[:3]).toarray(), expected.fit_transform(texts[:3]).toarray())
        assert found.get_feature_names_out().tolist() == expected.get_feature_names_out().tolist()
    tfidf = Tfidf(stemmer="french", stop_words=("les",), lead_words=2, subwords="parts", drop_numbers=True).fit(texts)
    assert tfidf.vocabulary_.keys() == {"étudi", "loi", "lois", "la", "de", "une", "étud", "中文", "文字"}
    tfidf.save(tmp_path / "tfidf")
    assert (Tfidf.load(tmp_path / "tfidf").transform(texts) != tfidf.transform(texts)).nnz == 0
    together = Concat(parts=(Tfidf(), tfidf)).fit(texts)
    assert together.transform(texts).shape == (4, together.n_features)


def test_a_missing_stemmer_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "Stemmer", None)
    load_stemmer.cache_clear()
    with pytest.raises(ImportError, match=r"pip install 'ramify\[stemmers\]'"):
        Tfidf(stemmer="finnish").fit(["talo"])


def test_languages_of_texts():
    texts = [
        GERMAN,
        ENGLISH,
        "Les droits de la personne et du citoyen dans les états",
        "El derecho de las personas y de los estados por el pueblo",
        "Il diritto della persona e degli stati nella storia",
        "Het recht van de mens en van het land wordt niet vergeten",
        "Det är inte lätt att förstå och det som var till för oss",
        "12345 xyz",
        "",
    ]
    expected = ["german", "english", "french", "spanish", "italian", "dutch", "swedish", None, None]
    assert detect_languages(texts) == expected
    assert detect_languages(texts * 50, threads=3) == expected * 50
    fields = [{"title": "Law", "abstract": ENGLISH}, {"title": "Zeit", "abstract": GERMAN}]
    assert detect_languages(fields) == ["english", "german"]
    assert detect_languages([]) == []


def test_auto_stems_each_text_in_its_language():
    texts = [GERMAN, ENGLISH, "nothing", "Häuser"]
    terms = set(Tfidf(stemmer="auto").fit(texts).get_feature_names_out())
    assert {"verfahr", "land", "proceed", "state", "haus"} <= terms
    assert not {"verfahren", "proceedings", "häuser"} & terms


def test_a_text_may_change_its_language():
    text = f"{GERMAN} {GERMAN} {GERMAN} {ENGLISH} {ENGLISH} {ENGLISH} {ENGLISH}"
    terms = set(Tfidf(stemmer="auto").fit([text]).get_feature_names_out())
    assert "verfahr" in terms
    assert "proceed" in terms


def test_texts_without_evidence_have_the_language_of_the_corpus():
    for texts, stem in (([GERMAN] * 3 + ["Zeitungen"], "zeitung"), ([ENGLISH] * 3 + ["newspapers"], "newspap")):
        tfidf = Tfidf(stemmer="auto").fit(texts)
        assert tfidf.transform(texts[-1:])[0, tfidf.vocabulary_[stem]] > 0


# ---- reference implementation of subwords ----

LINKS = ("s", "n", "en", "es", "er", "e")


def reference_parts(word, costs):
    """Cheapest sequence of parts with linking elements between; else the longest known beginning and end."""
    n = len(word)
    if n < 6 or n > 64 or any(c <= "9" for c in word):
        return []
    best = {0: (0.0, [], "part")}
    for start in range(n if n >= 8 else 0):
        if start not in best:
            continue
        cost, parts, kind = best[start]
        options = [
            (end, np.float32(costs[word[start:end]]), [word[start:end]], "part")
            for end in range(start + 4, n + 1)
            if word[start:end] in costs and (start, end) != (0, n)
        ]
        if start and kind == "part":
            options += [(start + len(x), np.float32(2), [], "link") for x in LINKS if word.startswith(x, start)]
        for end, more, added, new_kind in options:
            if (end == n or end + 4 <= n) and (end not in best or np.float32(cost + more) < best[end][0]):
                best[end] = (np.float32(cost + more), parts + added, new_kind)
    if n in best:
        return best[n][1]
    begins = [word[:m] for m in range(n - 1, 4, -1) if word[:m] in costs][:1]
    return begins + [word[-m:] for m in range(n - 1, 4, -1) if word[-m:] in costs][:1]


def reference_rows(texts, queries, min_df, weights, n_fields):
    """TF-IDF with parts of words as dense arrays, for documents of `n_fields` texts."""
    tokens = [[re.findall(r"(?u)\b\w\w+\b", field.lower()) for field in text] for text in texts]
    df = Counter(word for document in tokens for word in set(itertools.chain(*document)))
    terms = sorted(word for word, count in df.items() if count >= min_df)
    costs = {word: math.log(len(texts) / df[word]) + 1 for word in terms if df[word] >= 3}
    column = {word: i for i, word in enumerate(terms)}

    def count(documents):
        counts = np.zeros((len(documents), len(terms)))
        for row, document in zip(counts, documents, strict=True):
            for weight, field in zip(weights, document, strict=True):
                for word in field:
                    for term in [word, *reference_parts(word, costs)]:
                        if term in column:
                            row[column[term]] += weight
        return counts

    train = count(tokens)
    idf = np.log((1 + len(texts)) / (1 + (train > 0).sum(axis=0))) + 1
    asked = count([[re.findall(r"(?u)\b\w\w+\b", field.lower()) for field in text] for text in queries])
    results = []
    for counts in (train, asked):
        weighted = counts * idf
        norm = np.linalg.norm(weighted, axis=1, keepdims=True)
        results.append(weighted / np.where(norm == 0, 1, norm))
    return terms, *results


def check_parts(texts, queries, min_df=1, fields=None):
    names = ["text"] if fields is None else list(fields)
    weights = [1.0] if fields is None else list(fields.values())
    as_fields = [[t] for t in texts] if fields is None else [[d.get(n, "") for n in names] for d in texts]
    asked = [[t] for t in queries] if fields is None else [[d.get(n, "") for n in names] for d in queries]
    terms, expected, expected_queries = reference_rows(as_fields, asked, min_df, weights, len(names))
    found = []
    for threads in (1, 3):
        tfidf = Tfidf(subwords="parts", min_df=min_df, fields=fields, threads=threads)
        X, Q = tfidf.fit_transform(texts), tfidf.transform(queries)
        assert tfidf.get_feature_names_out().tolist() == terms
        assert np.abs(X.toarray() - expected).max() < 1e-6
        assert np.abs(tfidf.transform(texts).toarray() - expected).max() < 1e-6
        assert np.abs(Q.toarray() - expected_queries).max() < 1e-6
        found.append((X.toarray(), Q.toarray()))
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


PIECES = ["steuer", "recht", "verfahren", "land", "berater", "haus", "zeit", "ung", "s", "en", "lauf", "über", "größe"]
WORD = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)


@pytest.mark.parametrize("min_df", [1, 2, 5])
def test_parts_equal_the_reference(min_df):
    rng = np.random.default_rng(min_df)

    def text():
        words = ["".join(rng.choice(PIECES, rng.integers(1, 5))) for _ in range(rng.integers(0, 30))]
        return " ".join(words)

    texts, queries = [text() for _ in range(200)], [text() for _ in range(50)]
    check_parts(texts, queries, min_df)
    pairs = [{"title": a, "abstract": b} for a, b in itertools.pairwise(texts)]
    check_parts(pairs, pairs[:20], min_df, {"title": 2.7, "abstract": 0.3})


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(WORD, max_size=8).map(" ".join), min_size=3, max_size=9))
def test_parts_equal_the_reference_on_random_words(texts):
    check_parts([*texts, "recht"], texts[::-1])


def test_unknown_words_count_as_their_parts():
    tfidf = Tfidf(stemmer="german", subwords="parts").fit(CORPUS)
    column = tfidf.vocabulary_
    row = tfidf.transform(["Steuerrechtsverfahren"]).toarray()[0]  # not in the corpus
    assert {term for term, i in column.items() if row[i] > 0} >= {"recht", "verfahr"}
    assert Tfidf(stemmer="german").fit(CORPUS).transform(["Steuerrechtsverfahren"]).nnz == 0


@pytest.mark.parametrize("options", [{"stemmer": "auto"}, {"stemmer": "german", "subwords": "parts"}], ids=str)
def test_hostile_texts(options):
    texts = CORPUS + HOSTILE
    one, many = (Tfidf(threads=threads, min_df=1, **options) for threads in (1, 3))
    X = one.fit_transform(texts)
    assert abs(X - many.fit_transform(texts)).max() == 0
    assert one.get_feature_names_out().tolist() == many.get_feature_names_out().tolist()
    assert abs(X - one.transform(texts)).max() < 1e-6
    for row, text in enumerate(texts):
        assert abs(one.transform([text]) - X[row]).max() < 1e-6


def test_scripts_without_spaces_become_pairs_of_characters():
    terms = Tfidf(stemmer="auto").fit(["中文字符abc", "日本語 テキスト", "สวัสดี"]).get_feature_names_out().tolist()
    assert {"中文", "文字", "字符", "abc", "日本", "本語", "テキ", "สว"} <= set(terms)
    assert "中文字符abc" not in terms
    assert Tfidf().fit(["中文字符abc"]).get_feature_names_out().tolist() == ["中文字符abc"]


def test_numbers_and_short_words():
    terms = Tfidf(drop_numbers=True, min_token_length=3).fit([*CORPUS, "a1 a12"]).get_feature_names_out()
    assert not {"2024", "1999", "is", "of", "a1"} & set(terms)
    assert {"tax", "a12"} <= set(terms)
    stop = Tfidf(stemmer="english", stop_words="english").fit(["the running dogs"])
    assert stop.get_feature_names_out().tolist() == ["dog", "run"]
    assert Tfidf(stemmer="english", ngram_range=(1, 2)).fit(["running dogs"]).get_feature_names_out().tolist() == [
        "dog",
        "run",
        "run dog",
    ]


# ---- functions of the user ----


@pytest.mark.parametrize(
    "options",
    [
        {"tokenizer": str.split},
        {"tokenizer": lambda text: re.findall(r"[a-z]+|[^a-z]", text), "ngram_range": (1, 2)},
        {"tokenizer": str.split, "lowercase": False, "stop_words": ["and", "the"]},
        {"preprocessor": lambda text: text.upper()},
        {"preprocessor": str.swapcase, "tokenizer": list, "min_df": 2},
        {"tokenizer": str.split, "strip_accents": "unicode"},
        {"analyzer": "char", "ngram_range": (2, 3), "preprocessor": str.title},
    ],
    ids=lambda options: ",".join(options),
)
@pytest.mark.filterwarnings("ignore:The parameter 'token_pattern':UserWarning")
def test_functions_equal_scikit_learn(options):
    texts = [*CORPUS, "Ünïcode ΟΔΟΣ İstanbul", "  spaces   here ", "", "中文 中文"]
    theirs, ours = TfidfVectorizer(**options), Tfidf(**options)
    expected, found = theirs.fit_transform(texts), ours.fit_transform(texts)
    assert ours.get_feature_names_out().tolist() == theirs.get_feature_names_out().tolist()
    assert abs(found - expected).max() < 1e-6
    assert abs(ours.transform(texts[::-1]) - theirs.transform(texts[::-1])).max() < 1e-6


def test_functions_are_checked_and_cannot_be_saved(tmp_path):
    for name in ("tokenizer", "preprocessor"):
        with pytest.raises(ValueError, match=f"Tfidf.{name} must be a function"):
            Tfidf(**{name: "str.split"})
        with pytest.raises(ramify.DataError, match=f"function Tfidf.{name} must return"):
            Tfidf(**{name: lambda text: [len(text)]}).fit(CORPUS)
        fitted = Tfidf(**{name: str.split if name == "tokenizer" else str.lower}).fit(CORPUS)
        with pytest.raises(ValueError, match="Python function, which cannot be saved"):
            fitted.save(tmp_path / "features")
        model = ramify.XRLinear(features=fitted.clone()).fit(CORPUS, [["a"], ["b"]] * 4)
        with pytest.raises(ValueError, match="Python function, which cannot be saved"):
            model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["stemmer", "subwords", "drop_numbers", "min_token_length", "tokenizer"])
def test_words_are_needed(name):
    value = {"stemmer": "auto", "subwords": "parts", "drop_numbers": True, "min_token_length": 3, "tokenizer": list}
    with pytest.raises(ValueError, match=f"Tfidf.{name} needs words"):
        Tfidf(analyzer="char_wb", **{name: value[name]})


# ---- files ----


def test_saved_features_are_the_same(tmp_path):
    features = Tfidf(stemmer="auto", subwords="parts", drop_numbers=True).fit(CORPUS)
    features.save(tmp_path / "features")
    opened = Tfidf.load(tmp_path / "features")
    queries = [*CORPUS, "Steuerrechtsverfahren", "Häuser"]
    assert opened.to_dict() == features.to_dict()
    assert abs(opened.transform(queries) - features.transform(queries)).max() == 0


@pytest.mark.parametrize("damage", ["indptr", "parts", "costs", "language"])
def test_damaged_parts_are_refused(tmp_path, damage):
    path = tmp_path / "features"
    Tfidf(stemmer="auto", subwords="parts").fit(CORPUS).save(path)
    if damage == "language":
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["state"]["language"] = "klingon"
        (path / "manifest.json").write_text(json.dumps(manifest))
    else:
        name = {"indptr": "tfidf_part_indptr", "parts": "tfidf_parts", "costs": "tfidf_part_costs"}[damage]
        array = np.load(path / f"{name}.npy")
        if damage == "costs":
            array = array[:-1]
        else:
            array[-1] = 10**6
        np.save(path / f"{name}.npy", array)
    with pytest.raises(ramify.ModelFormatError):
        Tfidf.load(path)


# ---- defaults ----


def test_default_features_of_linear_models(tmp_path):
    labels = [["de"], ["en"], ["de"], ["de"], ["de"], ["de"], ["en"], ["de"]]
    model = ramify.XRLinear().fit(CORPUS, labels)
    assert isinstance(model.features_, Concat)
    model.save(tmp_path / "model")
    queries = ["Steuerrechtsverfahren der Länder", "laws of taxes"]
    ranking = ramify.load(tmp_path / "model").predict_topk(queries, k=1)
    assert [row[0][0] for row in ranking.labels()] == ["de", "en"]
    assert np.array_equal(ranking.scores, model.predict_topk(queries, k=1).scores)


def test_a_part_without_terms_has_no_columns():
    features = Concat(parts=(Tfidf(), Tfidf(min_df=2)))
    assert features.fit_transform(["red fox", "grey whale"]).shape == (2, 4)
    assert features.fit_transform(["red fox"]).shape == (1, 2)
    with pytest.raises(ValueError, match="no terms"):
        Concat(parts=(Tfidf(min_df=2), Tfidf(min_df=2))).fit(["red fox", "grey whale"])


def test_a_single_row_equals_the_batch():
    features = Concat(parts=(Tfidf(), Tfidf(stemmer="auto")), weights=(0.5, 2.0)).fit(CORPUS)
    batch = features.transform(CORPUS)
    for row, text in enumerate(CORPUS):
        one = features.transform([text])
        assert one.shape == (1, batch.shape[1])
        assert abs(one - batch[row]).max() == 0


def test_suggest():
    suggestion = suggest([GERMAN] * 3 + [ENGLISH])
    assert suggestion.languages == {"german": 0.75, "english": 0.25}
    assert suggestion.reason.startswith("german 75 %, english 25 %: words, their stems")
    assert suggestion.features.to_dict() == ramify.XRLinear().features.to_dict()
    assert "stems" not in suggest(["12 34"]).reason


@pytest.mark.parametrize(
    ("texts", "is_long"),
    [
        ([ENGLISH * 30] * 3, True),
        ([GERMAN * 30] * 3, False),
        ([ENGLISH] * 3, False),
        ([ENGLISH * 30] + [ENGLISH] * 9, False),
    ],
)
@pytest.mark.parametrize("in_fields", [False, True])
def test_long_english_texts_are_words_alone(texts, is_long, in_fields):
    documents = [{"title": text[:20], "text": text[20:]} for text in texts] if in_fields else texts
    features = text_features().suited_to(documents)
    if is_long:
        assert len(features.parts) == 1
        assert abs(features.fit_transform(documents) - word_features().fit_transform(documents)).max() == 0
    else:
        assert features.to_dict() == text_features().to_dict()
    assert suggest(documents).features.to_dict() == features.to_dict()
    model = ramify.XRLinear(verbose=0).fit(documents, [["a"]] * len(documents))
    assert len(model.features_.parts) == (1 if is_long else 2)
    assert len(text_features(long_texts=None).suited_to(documents).parts) == 2
