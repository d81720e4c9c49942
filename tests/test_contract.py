"""One contract for every model. A new model joins by one line in `MODELS`."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import ramify
from ramify.models import REGISTRY, model_class
from ramify.nn.trainer import TrainingConfig


def small_elias(**options):
    training = {"epochs": 5, "min_steps": 60}
    first, second = TrainingConfig(**training), TrainingConfig(rate=0.005, encoder_rate=0.003, **training)
    return ramify.Elias(encoder=ramify.BagEncoder(width=64), first=first, second=second, **options)


def small_neural(**options):
    training = TrainingConfig(epochs=5, min_steps=60)
    return ramify.NeuralOneVsAll(encoder=ramify.BagEncoder(width=64), training=training, **options)


def small_transformer(cls, **options):
    training = TrainingConfig(epochs=3, min_steps=60, batch_size=16)
    return cls(encoder=ramify.BagEncoder(width=32), training=training, **options)


def small_shortlisted(cls, **options):
    training = TrainingConfig(epochs=5, min_steps=60)
    if cls is ramify.Astec:
        options = {"surrogate": training, **options}
    return cls(encoder=ramify.BagEncoder(width=64), training=training, **options)


def small_ensemble(**options):
    own = {name: value for name, value in options.items() if name in ("seed", "threads", "verbose")}
    return ramify.Ensemble((ramify.XRLinear(**own), ramify.OneVsAll(**own)), **options)


# A model, and whether it reads its input at all: those that do must learn the toy below.
MODELS = {
    "popular": (lambda **options: ramify.Popular(**options), False),
    "xr-linear": (lambda **options: ramify.XRLinear(**options), True),
    "one-vs-all": (lambda **options: ramify.OneVsAll(**options), True),
    "elias": (lambda **options: small_elias(**options), True),
    "neural-one-vs-all": (lambda **options: small_neural(**options), True),
    "xr-transformer": (lambda **options: small_transformer(ramify.XRTransformer, **options), True),
    "x-transformer": (lambda **options: small_transformer(ramify.XTransformer, **options), True),
    "lightdxml": (lambda **options: small_shortlisted(ramify.LightDXML, **options), True),
    "astec": (lambda **options: small_shortlisted(ramify.Astec, **options), True),
    "ensemble": (lambda **options: small_ensemble(**options), True),
    "elias++": (lambda **options: small_elias(ranker="sparse", stages=1, **options), True),
}

TEXTS = [
    "red fox runs",
    "brown hen lays eggs",
    "red hen sleeps",
    "grey whale swims",
    "brown fox sleeps",
    "whale eggs",
] * 6
LABELS = [["fox", "red"], ["hen", "egg"], ["hen", "red"], ["whale"], ["fox"], ["whale", "egg"]] * 6
FIELDS = [{"title": t.split()[0], "body": " ".join(t.split()[1:])} for t in TEXTS]


def features():
    return ramify.features.Tfidf().fit_transform(TEXTS)


INPUTS = {
    "text": lambda: TEXTS,
    "fields": lambda: FIELDS,
    "sparse": features,
    "dense": lambda: features().toarray(),
}


@pytest.fixture(params=list(MODELS))
def make(request):
    return MODELS[request.param][0]


@pytest.fixture(params=list(MODELS))
def key(request):
    return request.param


def same(a, b):
    return np.array_equal(a.ids, b.ids) and np.array_equal(a.scores, b.scores)


def test_every_model_is_here():
    assert {key.removesuffix("++") for key in MODELS} == set(REGISTRY)
    for key in REGISTRY:
        assert model_class(key).kind == key


@pytest.mark.parametrize("kind", list(INPUTS))
def test_fits_predicts_saves_and_loads(make, kind, tmp_path):
    inputs = INPUTS[kind]()
    model = make()
    assert model.fit(inputs, LABELS) is model
    ranking = model.predict_topk(inputs, k=3)
    assert ranking.ids.shape == ranking.scores.shape == (len(TEXTS), 3)
    assert ranking.ids.dtype == np.int32
    assert ranking.scores.dtype == np.float32
    assert np.all(np.diff(ranking.scores, axis=1) <= 0)
    names = {name for row in ranking.labels() for name, _ in row}
    assert names <= {"fox", "hen", "whale", "red", "egg"}
    model.save(tmp_path / "m")
    for opened in (ramify.load(tmp_path / "m", verify=True), type(model).load(tmp_path / "m")):
        assert type(opened) is type(model)
        assert same(opened.predict_topk(inputs, k=3), ranking)
        assert opened.to_dict() == model.to_dict()
        assert list(opened.labels_) == list(model.labels_)
        assert np.array_equal(opened.label_counts_.counts, model.label_counts_.counts)
    predicted = model.predict(inputs)
    assert predicted.shape == (len(TEXTS), 5)
    assert set(np.unique(predicted.data)) <= {1}


def test_models_that_read_their_input_learn_the_toy(key):
    make, reads = MODELS[key]
    model = make().fit(TEXTS, LABELS)
    best = ramify.evaluate(model.predict_topk(TEXTS, k=2), LABELS)
    floor = ramify.evaluate(ramify.Popular().fit(TEXTS, LABELS).predict_topk(TEXTS, k=2), LABELS)
    assert best["P@1"] > 99 if reads else best["P@1"] == floor["P@1"]


def test_one_row_is_like_the_batch(make):
    model = make().fit(TEXTS, LABELS)
    batch = model.predict_topk(TEXTS, k=4)
    for i in (0, 3, 5):
        assert same(model.predict_topk([TEXTS[i]], k=4), batch[i])


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_same_seed_same_bits(make, threads, tmp_path):
    make(threads=1, seed=3).fit(TEXTS, LABELS).save(tmp_path / "a")
    make(threads=threads, seed=3).fit(TEXTS, LABELS).save(tmp_path / "b")
    for file in sorted(p.name for p in (tmp_path / "a").glob("*.npy")):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_the_order_of_names_does_not_matter(make):
    """Names are stable: rows in another order give the same label numbers."""
    a = make().fit(TEXTS, LABELS)
    b = make().fit(TEXTS[::-1], LABELS[::-1])
    assert list(a.labels_) == list(b.labels_)


def test_indicators_and_lists_are_the_same(make):
    names = sorted({name for row in LABELS for name in row})
    matrix = np.array([[int(name in row) for name in names] for row in LABELS])
    by_list = make().fit(TEXTS, LABELS).predict_topk(TEXTS, k=3)
    for indicator in (matrix, sparse.csr_matrix(matrix), sparse.coo_matrix(matrix), matrix.astype(bool)):
        model = make().fit(TEXTS, indicator)
        ranking = model.predict_topk(TEXTS, k=3)
        assert same(ranking, by_list)
        assert list(model.labels_) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("names", [[1, 2], ["1", 1], [("a", 1), ("b", 2)], [-5, 10**20]])
def test_any_hashable_names(make, names, tmp_path):
    labels = [[names[i % 2]] for i in range(len(TEXTS))]
    model = make().fit(TEXTS, labels)
    model.save(tmp_path / "m")
    found = ramify.load(tmp_path / "m").predict_topk(TEXTS, k=2).labels()
    assert {name for row in found for name, _ in row} <= set(names)
    assert {type(name) for row in found for name, _ in row} <= {type(n) for n in names}


def test_params(make):
    model = make(seed=5)
    assert model.get_params()["seed"] == 5
    assert model.set_params(seed=6).seed == 6
    assert "seed=6" in repr(model)
    for copy in (model.clone(), clone(model)):
        assert copy.to_dict() == model.to_dict()
        assert not hasattr(copy, "labels_")
    with pytest.raises(ValueError, match="no parameter"):
        model.set_params(nonsense=1)
    with pytest.raises(ValueError, match="seed"):
        make(seed=-1)
    with pytest.raises(ValueError, match="threads"):
        make(threads=0)
    with pytest.raises(TypeError):
        make(nonsense=1)


def test_fit_changes_no_configuration(make):
    model = make()
    before = model.to_dict()
    model.fit(TEXTS, LABELS)
    assert model.to_dict() == before
    again = model.fit(TEXTS[:6], LABELS[:6])
    assert again.label_counts_.n_samples == 6


def test_every_parameter_is_explained(key):
    for info in model_class(key.removesuffix("++")).describe():
        assert info.doc, info.path


def test_untrained_models_say_so(make, tmp_path):
    model = make()
    for act in (lambda: model.predict_topk(["a"]), lambda: model.predict(["a"]), lambda: model.save(tmp_path / "m")):
        with pytest.raises(ramify.NotFittedError, match="not trained"):
            act()
    with pytest.raises(ramify.DataError):
        model.fit(["a"], [["x"], ["y"]])
    with pytest.raises(ramify.NotFittedError):  # a fit that failed leaves no half-trained model
        model.predict_topk(["a"])


@pytest.mark.parametrize(("X", "y", "message"), [
    ([], [], "no rows"),
    (["a"], [[]], "no row has a label"),
    (["a", "b"], [["x"]], "X has 2 rows, but y has 1"),
    ("a", [["x"]], "pass a list"),
    (["a"], "x", "list of label lists"),
    (["a"], ["x"], r"\['x'\]"),
    (["a", 5], [["x"], ["y"]], "row 1"),
    (np.array([[1.0, np.nan]]), [["x"]], "NaN"),
    (np.array([1.0, 2.0]), [["x"], ["y"]], "two-dimensional"),
    (["a"], [[None]], "None"),
    (["a"], np.array([[-1.0]]), "negative"),
])  # fmt: skip
def test_bad_training_data(make, X, y, message):
    with pytest.raises(ramify.DataError, match=message):
        make().fit(X, y)


@pytest.mark.parametrize(("X", "message"), [
    (np.eye(3), "trained on texts and now gets dense"),
    ([{"a": "b"}], "trained on texts and now gets dicts"),
    ("text", "pass a list"),
    ([None], "row 0"),
])  # fmt: skip
def test_bad_queries(make, X, message):
    model = make().fit(TEXTS, LABELS)
    with pytest.raises(ramify.DataError, match=message):
        model.predict_topk(X)


def test_wrong_width(make):
    model = make().fit(features(), LABELS)
    with pytest.raises(ramify.DataError, match="3 features; this model was trained on"):
        model.predict_topk(np.ones((1, 3)))
    dense = features().toarray()
    assert same(model.predict_topk(dense, 2), model.predict_topk(features(), 2))


def test_edges(make, tmp_path):
    model = make().fit(TEXTS, LABELS)
    assert model.predict_topk(TEXTS, k=1000).k == 5  # no more than there are labels
    assert model.predict_topk([], k=2).ids.shape == (0, 2)
    assert len(model.predict_topk(["", "\x00 \ud800", "never seen"], k=2)) == 3
    for wrong in (0, -1, 1.5, True, "3"):
        with pytest.raises(ValueError, match="k must be"):
            model.predict_topk(TEXTS, k=wrong)
    single = make().fit(["one row"], [["only"]])
    assert single.predict_topk(["one row"]).labels()[0][0][0] == "only"
    single.save(tmp_path / "m")
    assert ramify.load(tmp_path / "m").predict_topk(["one row"]).ids.tolist() == [[0]]
    some_empty = make().fit([*TEXTS, "nothing", ""], [*LABELS, [], ["fox"]])
    assert some_empty.label_counts_.n_samples == len(TEXTS) + 2


def test_labels_without_a_point(make):
    matrix = sparse.csr_matrix(np.array([[1, 0, 0], [0, 0, 1], [1, 0, 1]]))
    model = make().fit(["red fox", "grey hen", "red hen"], matrix)
    assert model.n_labels == 3
    assert model.predict_topk(["red fox"], k=3).n_labels == 3


def test_predicts_from_several_threads_at_once(make):
    from concurrent.futures import ThreadPoolExecutor

    model = make().fit(TEXTS, LABELS)
    expected = model.predict_topk(TEXTS, k=3)
    with ThreadPoolExecutor(4) as pool:
        for ranking in pool.map(lambda _: model.predict_topk(TEXTS, k=3), range(16)):
            assert same(ranking, expected)


def test_a_saved_model_opens_in_a_fresh_process(make, tmp_path):
    model = make().fit(TEXTS, LABELS)
    model.save(tmp_path / "m")
    code = f"import ramify; print(ramify.load({str(tmp_path / 'm')!r}).predict_topk({TEXTS[:6]!r}, k=3).ids.tolist())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert out.stdout.strip() == str(model.predict_topk(TEXTS[:6], k=3).ids.tolist())


def test_no_code_in_the_files(make, tmp_path):
    make().fit(TEXTS, LABELS).save(tmp_path / "m")
    for file in (tmp_path / "m").iterdir():
        assert file.suffix in (".npy", ".safetensors", ".json")
        content = file.read_bytes()
        assert not content.startswith(pickle.dumps(0)[:2])
        assert b"cbuiltins" not in content


def test_learns_real_data(key, pydoc):
    """A model that reads its input beats the floor on real data."""
    make, reads = MODELS[key]
    train, test = pydoc.split("train"), pydoc.split("test")
    model = make().fit(train.inputs, train.labels())
    found = ramify.evaluate(model.predict_topk(test.inputs, 5), test.labels(), train.labels())
    floor = ramify.Popular().fit(train.inputs, train.labels())
    expected = ramify.evaluate(floor.predict_topk(test.inputs, 5), test.labels(), train.labels())
    if reads:
        assert found["P@1"] > expected["P@1"] + 5
        assert found["nDCG@5"] > expected["nDCG@5"] + 5
    else:
        assert found["P@1"] == expected["P@1"]


def test_a_refit_that_fails_is_no_trained_model(make, monkeypatch):
    model = make().fit(TEXTS, LABELS)

    def fail(inputs, labels, names, **given):
        raise MemoryError

    monkeypatch.setattr(model, "_fit", fail)
    with pytest.raises(MemoryError):
        model.fit(TEXTS[:4], LABELS[:4])
    with pytest.raises(ramify.NotFittedError):
        model.predict_topk(TEXTS)


def test_dense_labels_that_are_no_indicator(make):
    with pytest.raises(ramify.DataError, match="values other than 0 and 1"):
        make().fit(["a", "b", "c"], np.array([[3], [5], [7]]))
