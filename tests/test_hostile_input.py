"""Hostile input: numbers that overflow, texts made to collide, strings with other methods, impossible sizes."""

from __future__ import annotations

import importlib.util
import re
import threading
import tracemalloc

import numpy as np
import pytest
from golden.make import LABELS, MODELS, NAMED, NAMES, TEXTS
from scipy import sparse
from test_contract import MODELS as CONTRACT

import ramify
from ramify import DataError, ModelFormatError, Ranking, Tfidf
from ramify.features import tfidf as tfidf_module
from ramify.io.store import Store, StoreWriter

pytestmark = pytest.mark.native
PARAMETERS = [
    "beam_size", "seed", "matcher_kept", "threads", "n_trees", "linear__max_epochs", "tree__branching",
    "tree__max_leaf_size", "tree__min_leaf_size", "tree__max_depth", "tree__max_iterations", "tree__n_terms",
    "linear__max_nonzeros_per_label",
]  # fmt: skip
MODEL_PARAMETERS = {
    "one-vs-all": "beam_size linear__max_epochs linear__max_full_epochs features__long_texts",
    "knn": "n_neighbors seed threads index__nlist index__M features__max_features features__lead_words",
    "label-matcher": "seed threads",
    "zest-xml": "bilinear__n_links bilinear__n_shortlist bilinear__max_rows bilinear__max_epochs seed threads",
    "hybrid": "n_candidates n_leaves n_folds max_rows seed threads",
    "neural-one-vs-all": "seed training__batch_size training__patience training__validation_size training__max_samples "
    "encoder__dim encoder__power_iterations features__min_df features__max_features",
    "elias": "beam_size n_clusters n_edges shortlist_size train_shortlist_size stage1__batch_size stage2__patience",
    "xr-transformer": "matcher_topk min_match_clusters max_match_clusters matcher_tree__branching ranker__beam_size "
    "ranker__tree__max_leaf_size matcher_tree__max_leaf_size",
    "lightdxml": "index__nlist index__nprobe index__ef_search index__M refresh_every shortlist_size",
    "astec": "n_neighbors random_negatives surrogate__batch_size",
    "ensemble": "validation_size seed",
}
"""Beside those of XRLinear, and without those that are a number of trainings or epochs."""
BOUNDARIES = [-1, 0, 2**31, 2**32, 2**62, 2**63 - 1, 2**63]


# ---- large numbers ----


def toy(n=240, d=40, n_labels=8):
    random = np.random.default_rng(0)
    labels = random.integers(0, n_labels, n)
    prototypes = (random.random((n_labels, d)) < 0.2) * random.random((n_labels, d))
    X = prototypes[labels] + (random.random((n, d)) < 0.03) * random.random((n, d))
    return X.astype(np.float32), labels


def small_models():
    """Every model that learns from features."""
    quiet = {"verbose": 0, "threads": 1}
    found = {key: make(**quiet) for key, (make, learns) in CONTRACT.items() if learns}
    if importlib.util.find_spec("faiss") is None:
        found = {key: model for key, model in found.items() if key not in ("lightdxml", "astec")}
    return [
        *{
            **found,
            "xr-linear": ramify.XRLinear(tree=ramify.TreeConfig(max_leaf_size=4), **quiet),
            "knn": ramify.KNN(max_df=1.0, **quiet),  # few features: all of them count
            "hybrid": ramify.Hybrid((ramify.XRLinear(**quiet), ramify.KNN(**quiet)), n_trees=4, n_folds=2, **quiet),
        }.values(),
        ramify.OneVsAll(linear=ramify.LinearConfig(loss="logistic"), **quiet),
    ]


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.coo_matrix])
@pytest.mark.parametrize("value", [1e20, -1e20, 9.96921e36, 3e38, 1.01e15])
def test_features_whose_squares_overflow_are_refused(kind, value):
    X, labels = toy()
    X[17, 3] = value
    y = [[int(label)] for label in labels]
    model = ramify.XRLinear(verbose=0, threads=1)
    with pytest.raises(DataError, match=r"first in row 17\), and magnitudes above 1e\+15 overflow"):
        model.fit(kind(X), y)
    clean, _ = toy()
    model.fit(clean, y)
    with pytest.raises(DataError, match="row 17"):
        model.predict_topk(kind(X))


@pytest.mark.parametrize("value", [1e15, -1e15, 1e10, 1e-45, -0.0])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_one_extreme_number_does_not_change_the_answers_of_other_rows(kind, value):
    X, labels = toy()
    changed = X.copy()
    changed[17, 3] = value
    others = np.arange(len(X)) != 17
    for model in small_models():
        model.fit(kind(changed), [[int(label)] for label in labels])
        ranking = model.predict_topk(kind(X[others]), 3)
        assert np.mean(ranking.ids[:, 0] == labels[others]) > 0.98
        assert np.isfinite(ranking.scores[ranking.ids >= 0]).all()
        ranking = model.predict_topk(kind(changed), 3)
        assert np.isfinite(ranking.scores[ranking.ids >= 0]).all()


def test_extreme_shapes():
    for model in small_models():
        width = 5_000 if hasattr(model, "encoder") else 1_000_000  # an encoder trains an embedding of each feature
        for X in (
            np.full((3, 5), 1e15, np.float32),
            np.full((3, 5), -1e15, np.float32),
            np.full((3, 5), 1e-45, np.float32),
            np.zeros((3, 5), np.float32),
            np.ones((1, 1), np.float32),
            sparse.csr_matrix(np.ones((2, width), np.float32)),
        ):
            n = X.shape[0]
            for y in ([["a"]] * n, [[f"l{i}"] for i in range(n)], [["a", f"l{i}"] for i in range(n)]):
                ranking = model.clone().fit(X, y).predict_topk(X, 2)
                assert np.isfinite(ranking.scores[ranking.ids >= 0]).all()


# ---- hash flooding ----


def longest_run(slots):
    """Longest run of occupied slots of a hash table, which a lookup may have to walk."""
    occupied = slots.view(np.uint32).reshape(-1, 6)[:, 4] != 2**32 - 1
    borders = np.flatnonzero(np.diff(np.concatenate([[0], occupied.astype(np.int8), [0]])))
    return int(np.diff(borders)[::2].max(initial=0))


def test_tokens_cannot_be_chosen_to_collide():
    """These collided under an earlier hash, which multiplied by zero for this ending."""
    random = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    tokens = ["".join(row) + "7q6x9gyblqnbmaoq" for row in random.choice(letters, (20_000, 8))]
    vectorizer = Tfidf(threads=1).fit([" ".join(tokens)])
    assert longest_run(vectorizer.slots_) < 200
    assert vectorizer.transform(tokens[:50]).nnz == 50


def test_the_key_of_the_hash_depends_on_the_terms_only():
    a, b, c = (Tfidf(threads=n).fit([text, text]) for n, text in ((1, "red fox"), (3, "fox red"), (1, "red fix")))
    assert np.array_equal(a.hash_key_, b.hash_key_)
    assert np.array_equal(a.slots_, b.slots_)
    assert not np.array_equal(a.hash_key_, c.hash_key_)


def test_a_hash_table_that_makes_lookups_slow_is_refused(tmp_path):
    vectorizer = Tfidf().fit([" ".join(f"w{i:05}" for i in range(9000))])
    slots = vectorizer.slots_.reshape(-1, 24)
    occupied = slots.view(np.uint32)[:, 4] != 2**32 - 1
    crowded = np.concatenate([slots[occupied], slots[~occupied]]).reshape(-1)
    with StoreWriter(tmp_path / "m") as writer:
        info = vectorizer.save_to(writer)
        writer.manifest("x", {}, info)
    store = Store(tmp_path / "m")
    assert tfidf_module.Tfidf.load_from(store, store.state).n_features == 9000
    vectorizer.slots_ = crowded
    with StoreWriter(tmp_path / "m") as writer:
        writer.manifest("x", {}, vectorizer.save_to(writer))
    store = Store(tmp_path / "m")
    with pytest.raises(ModelFormatError, match="crowded"):
        tfidf_module.Tfidf.load_from(store, store.state)


# ---- texts ----


class Odd(str):
    """A text whose methods return something else."""

    def lower(self):
        return b"bytes"

    def __len__(self):
        return 10**9


@pytest.mark.parametrize("strip_accents", [None, "unicode"])
def test_methods_of_subclasses_of_str_are_not_called(strip_accents):
    texts = [Odd("İstanbul ΟΔΟΣ red"), Odd("fox"), "hen"]
    plain = ["İstanbul ΟΔΟΣ red", "fox", "hen"]
    found, expected = (Tfidf(strip_accents=strip_accents).fit_transform(given).toarray() for given in (texts, plain))
    assert np.array_equal(found, expected)


def test_a_long_text_without_spaces_takes_memory_for_its_terms_only():
    """The keys of its n-grams are computed in parts: all at once they would take 250 bytes for each character."""
    text = "ab" * 200_000
    tfidf = Tfidf(analyzer="char", ngram_range=(3, 5), threads=1)
    assert tfidf.fit([text]).n_features == 6
    X = tfidf.transform([text, "abab"])
    counts = {3: 399_998, 4: 399_997, 5: 399_996}
    expected = np.array([counts[len(term)] / 2 for term in tfidf.get_feature_names_out()])
    assert X[0].toarray()[0] == pytest.approx(expected / np.linalg.norm(expected), rel=1e-3)


# ---- sizes ----


@pytest.mark.parametrize("k", BOUNDARIES)
def test_boundary_values_of_k(k):
    scores = sparse.csr_matrix(np.array([[0.5, 0.0, 0.25], [0.0, 0.0, 0.0]], np.float32))
    model = ramify.XRLinear(verbose=0, threads=1).fit(np.eye(4), [["a"], ["b"], ["c"], ["a"]])
    if k < 1:
        for call in (lambda: Ranking.from_csr(scores, k), lambda: model.predict_topk(np.eye(4), k)):
            with pytest.raises(ValueError, match="k must be"):
                call()
        return
    assert Ranking.from_csr(scores, k).ids.tolist() == [[0, 2, -1], [-1, -1, -1]]
    assert model.predict_topk(np.eye(4), k).ids.shape == (4, 3)


@pytest.mark.parametrize("value", BOUNDARIES)
@pytest.mark.parametrize("name", PARAMETERS)
def test_boundary_values_of_parameters(name, value):
    """Each is refused in words, or trains a model that answers."""
    X, labels = toy(60, 20, 6)
    model = ramify.XRLinear(verbose=0, threads=1, tree=ramify.TreeConfig(max_leaf_size=2))
    if name == "n_trees" and value > 0:
        return  # a valid number of trees, which would be trained for years
    y = [[int(label)] for label in labels]
    try:
        model.set_params(**{name: value}).fit(X, y)
    except ValueError:
        with pytest.raises(ValueError, match=name.rpartition("__")[2]):
            model.set_params(**{name: value}).fit(X, y)
        return
    assert model.predict_topk(X, 2).ids.shape == (60, 2)


@pytest.mark.parametrize("value", [-1, 0, 2**31, 2**32, 2**62, 2**63 - 1])
@pytest.mark.parametrize(("kind", "names"), MODEL_PARAMETERS.items())
def test_boundary_values_of_parameters_of_other_models(kind, names, value):
    if kind in ("lightdxml", "astec"):
        pytest.importorskip("faiss")
    for name in names.split():
        model = MODELS[kind]()
        message = None
        try:
            model.set_params(**{name: value}).fit(TEXTS, LABELS, label_catalogue=NAMES if kind in NAMED else None)
        except ValueError as error:
            message = str(error)
        if message is not None:
            assert name.rpartition("__")[2] in message, f"{name}: {message}"
            continue
        assert model.predict_topk(TEXTS[:5], 2).ids.shape == (5, 2), name


def numbers_of_functions():
    """Public functions and methods by the name of an integer that they take."""
    common = {"verbose": 0, "threads": 1}
    linear = ramify.XRLinear(**common).fit_calibrated(TEXTS * 4, LABELS * 4)
    knn, ranking = ramify.KNN(**common).fit(TEXTS, LABELS), linear.predict_topk(TEXTS, 3)
    vectors = np.random.default_rng(0).standard_normal((90, 8)).astype(np.float32)
    X = sparse.csr_matrix(np.eye(6, dtype=np.float32))
    graph = ramify.LabelGraph.from_clusters(np.array([0, 1, 0]), 2)

    def build(**options):
        return ramify.AnnIndex.build(vectors, ramify.AnnConfig(method="ivf"), **{"k": 3, **options})

    def features(**options):
        return Tfidf(**options).fit_transform(TEXTS)

    return [
        ("k", lambda n: knn.nearest(TEXTS[:2], n)),
        ("k", lambda n: linear.predict_proba(TEXTS[:2], n)),
        ("k", lambda n: ranking.top(n)),
        ("k", lambda n: ranking.padded(n) if not 0 < n < 2**31 else None),  # as many columns as asked for
        ("k", lambda n: ramify.TopK(n)),
        ("k", lambda n: build(k=n)),
        ("seed", lambda n: build(seed=n)),
        ("threads", lambda n: build(threads=n)),
        ("top", lambda n: graph.pruned(top=n)),
        ("n_clusters", lambda n: n == 2**31 - 1 or ramify.LabelGraph.from_clusters(np.array([0, 1, 0]), n)),
        ("n_labels", lambda n: n == 2**31 - 1 or ramify.LabelTree.flat(n)),
        ("(ks|cutoff)", lambda n: ramify.evaluate(ranking, LABELS, ks=[n])),
        ("threads", lambda n: ramify.evaluate(ranking, LABELS, ks=[1], threads=n)),
        ("max_rows", lambda n: linear.clone().fit_calibrated(TEXTS, LABELS, max_rows=n)),
        ("seed", lambda n: ramify.fit_ovr(X, X, seed=n)),
        ("part", lambda n: ramify.fit_ovr(X, X, part=(0, n))),
        ("part", lambda n: ramify.fit_ovr(X, X, part=(n, 3))),
        ("threads", lambda n: ramify.fit_ovr(X, X, threads=n)),
        ("ngram_range", lambda n: features(ngram_range=(1, n))),
        ("ngram_range", lambda n: features(analyzer="char", ngram_range=(1, n))),
        *((name, lambda n, name=name: features(**{name: n})) for name in ("min_df", "max_features", "lead_words")),
    ]


def test_boundary_values_of_numbers_that_functions_take():
    """Each is refused in words that name it, or has a result."""
    for name, call in numbers_of_functions():
        for value in (*BOUNDARIES, 2**31 - 1, 2**70):
            message = None
            try:
                call(value)
            except ValueError as error:
                message = str(error)
            assert message is None or re.search(rf"\b{name}", message), f"{name} = {value}: {message}"


def test_columns_beyond_32_bits_are_refused():
    wide = sparse.csr_matrix((np.ones(1, np.float32), np.array([2**32 + 1]), np.array([0, 1])), shape=(1, 2**33))
    with pytest.raises(DataError, match="at most 2,147,483,647"):
        Ranking.from_csr(wide, 1)
    with pytest.raises(DataError, match="at most 2,147,483,647"):
        ramify.XRLinear(verbose=0).fit(wide, [["a"]])
    with pytest.raises(DataError, match="at most 2,147,483,647"):
        ramify.XRLinear(verbose=0).fit(np.eye(1), wide)


def test_a_model_manifest_with_huge_integers_is_refused(tmp_path):
    ramify.Popular().fit(["a"], [["x"]]).save(tmp_path / "m")
    text = (tmp_path / "m" / "manifest.json").read_text()
    for name in ('"seed": 0', '"n_samples": 1', '"format_version": 4'):
        assert name in text
        (tmp_path / "m" / "manifest.json").write_text(text.replace(name, f"{name.split(':')[0]}: {2**70}"))
        with pytest.raises(ModelFormatError):
            ramify.load(tmp_path / "m")


def test_metrics_of_long_rankings_with_repeated_labels():
    ids = np.concatenate([np.zeros(5000, np.int32), np.arange(5000, dtype=np.int32), np.arange(5000, dtype=np.int32)])
    ranking = Ranking(ids[None, :], -np.arange(len(ids), dtype=np.float32)[None, :], 5000)
    report = ramify.evaluate(ranking, sparse.csr_matrix(np.ones((1, 5000), np.float32)), ks=[5000, 15000])
    assert report["R@15000"] == pytest.approx(100)
    assert report["R@5000"] == pytest.approx(100 / 5000)


def test_fits_in_several_threads_do_not_disturb_each_other():
    texts = [f"w{i % 7} w{i % 11} x{i}" for i in range(300)]
    expected = Tfidf(threads=1).fit_transform(texts)
    results = [None] * 6

    def work(i):
        results[i] = Tfidf(threads=2).fit_transform(texts)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all((found != expected).nnz == 0 for found in results)


def test_opening_a_small_model_allocates_little(tmp_path):
    ramify.Popular().fit(["a"], sparse.csr_matrix(np.ones((1, 3)))).save(tmp_path / "m")
    path = tmp_path / "m" / "manifest.json"
    path.write_text(path.read_text().replace('"n": 3', f'"n": {2**31 - 1}'))
    tracemalloc.start()
    with pytest.raises(ModelFormatError):
        ramify.load(tmp_path / "m")
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
