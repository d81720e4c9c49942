"""One contract for every model. A new model needs one line in `MODELS`."""

from __future__ import annotations

import contextlib
import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import ramify
from ramify import TrainingConfig
from ramify.models import REGISTRY, model_class


def small_elias(**options):
    training = {"epochs": 5, "min_steps": 60}
    stage2 = TrainingConfig(learning_rate=0.005, encoder_learning_rate=0.003, **training)
    encoder = ramify.BagEncoder(dim=64)
    return ramify.Elias(encoder=encoder, stage1=TrainingConfig(**training), stage2=stage2, **options)


def small_neural(**options):
    training = TrainingConfig(epochs=5, min_steps=60)
    return ramify.NeuralOneVsAll(encoder=ramify.BagEncoder(dim=64), training=training, **options)


def small_transformer(cls, **options):
    training = TrainingConfig(epochs=3, min_steps=60, batch_size=16)
    return cls(encoder=ramify.BagEncoder(dim=32), training=training, **options)


def small_deepxml(cls, **options):
    training = TrainingConfig(epochs=5, min_steps=60)
    if cls is ramify.Astec:
        options = {"surrogate": training, **options}
    return cls(encoder=ramify.BagEncoder(dim=64), training=training, **options)


def small_ensemble(**options):
    own = {name: value for name, value in options.items() if name in ("seed", "threads", "verbose")}
    return ramify.Ensemble((ramify.XRLinear(**own), ramify.OneVsAll(**own)), **options)


# A model, and whether it uses its input at all: those that do must learn the toy data below.
MODELS = {
    "popular": (lambda **options: ramify.Popular(**options), False),
    "xr-linear": (lambda **options: ramify.XRLinear(**options), True),
    "one-vs-all": (lambda **options: ramify.OneVsAll(**options), True),
    "elias": (lambda **options: small_elias(**options), True),
    "neural-one-vs-all": (lambda **options: small_neural(**options), True),
    "xr-transformer": (lambda **options: small_transformer(ramify.XRTransformer, **options), True),
    "x-transformer": (lambda **options: small_transformer(ramify.XTransformer, **options), True),
    "lightdxml": (lambda **options: small_deepxml(ramify.LightDXML, **options), True),
    "astec": (lambda **options: small_deepxml(ramify.Astec, **options), True),
    "knn": (lambda **options: ramify.KNN(**options), True),
    "label-matcher": (lambda **options: ramify.LabelMatcher(**options), False),  # without a catalogue: no names
    "zest-xml": (lambda **options: ramify.ZestXML(**options), True),
    "hybrid": (lambda **options: ramify.Hybrid(n_trees=10, n_folds=2, **options), True),
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


def tfidf():
    return ramify.Tfidf().fit_transform(TEXTS)


INPUTS = {
    "text": lambda: TEXTS,
    "fields": lambda: FIELDS,
    "sparse": tfidf,
    "dense": lambda: tfidf().toarray(),
}


@pytest.fixture(params=list(MODELS))
def make(request):
    return MODELS[request.param][0]


@pytest.fixture(params=list(MODELS))
def key(request):
    return request.param


def same(a, b):
    return np.array_equal(a.ids, b.ids) and np.array_equal(a.scores, b.scores)


def test_every_model_is_tested():
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
    assert np.all(np.diff(ranking.scores, axis=1) < 0)  # the scores alone give the order
    back = ramify.Ranking.from_csr(ranking.to_csr())
    assert np.array_equal(back.ids, ranking.ids)
    labels = {label for row in ranking.labels() for label, _ in row}
    assert labels <= {"fox", "hen", "whale", "red", "egg"}
    model.save(tmp_path / "m")
    for opened in (ramify.load(tmp_path / "m", verify=True), type(model).load(tmp_path / "m")):
        assert type(opened) is type(model)
        assert same(opened.predict_topk(inputs, k=3), ranking)
        assert opened.to_dict() == model.to_dict()
        assert list(opened.labels_) == list(model.labels_)
        assert np.array_equal(opened.label_counts_.counts, model.label_counts_.counts)
    raw_scores = not model.scores_are_probabilities
    with pytest.warns(UserWarning, match="has no decision rule") if raw_scores else contextlib.nullcontext():
        predicted = model.predict(inputs)
    assert predicted.shape == (len(TEXTS), 5)
    assert set(np.unique(predicted.data)) <= {1}


def test_models_that_use_their_input_learn_the_toy_data(key):
    make, uses_input = MODELS[key]
    model = make().fit(TEXTS, LABELS)
    best = ramify.evaluate(model.predict_topk(TEXTS, k=2), LABELS)
    baseline = ramify.evaluate(ramify.Popular().fit(TEXTS, LABELS).predict_topk(TEXTS, k=2), LABELS)
    assert best["P@1"] > 99 if uses_input else best["P@1"] == baseline["P@1"]


def test_a_short_ranking_is_the_beginning_of_a_long_one(make):
    model = make().fit(TEXTS, LABELS)
    ranking = model.predict_topk(TEXTS, k=5)
    for k in (1, 2):
        assert same(model.predict_topk(TEXTS, k), ranking.top(k))


@pytest.mark.parametrize(
    "model",
    [
        ramify.XRLinear(n_trees=3, verbose=0),
        ramify.Elias(
            encoder=ramify.BagEncoder(dim=16), n_models=2, stages=1, stage1=ramify.TrainingConfig(epochs=1), verbose=0
        ),
        ramify.Ensemble((ramify.XRLinear(), ramify.OneVsAll()), verbose=0),
        ramify.Ensemble((ramify.XRLinear(), ramify.KNN()), combine="rank", verbose=0),
    ],
    ids=["trees", "elias", "ensemble", "ranks"],
)
def test_a_short_ranking_of_several_members(model, pydoc):
    """What a member says about a label does not depend on how many labels are asked for."""
    train, texts = pydoc.split("train").subset(np.arange(700)), pydoc.split("test").texts[:100]
    model = model.clone().fit(train.texts, train.labels())
    ranking = model.predict_topk(texts, 100)
    for k in (1, 5, 20):
        assert same(model.predict_topk(texts, k), ranking.top(k))


def test_a_row_is_ranked_as_in_a_batch(make):
    model = make().fit(TEXTS, LABELS)
    batch = model.predict_topk(TEXTS, k=4)
    for i in (0, 3, 5):
        assert same(model.predict_topk([TEXTS[i]], k=4), batch[i])


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_same_seed_same_bits(make, threads, tmp_path):
    make(threads=1, seed=3).fit(TEXTS, LABELS).save(tmp_path / "a")
    make(threads=threads, seed=3).fit(TEXTS, LABELS).save(tmp_path / "b")
    for file in sorted(p.name for p in (tmp_path / "a").glob("*.npy")):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_label_ids_do_not_depend_on_the_order_of_rows(make):
    a = make().fit(TEXTS, LABELS)
    b = make().fit(TEXTS[::-1], LABELS[::-1])
    assert list(a.labels_) == list(b.labels_)


def indicator():
    labels = sorted({label for row in LABELS for label in row})
    return np.array([[int(label in row) for label in labels] for row in LABELS])


def test_indicators_and_lists_give_the_same_model(make):
    matrix = indicator()
    by_list = make().fit(TEXTS, LABELS).predict_topk(TEXTS, k=3)
    for Y in (matrix, sparse.csr_matrix(matrix), sparse.coo_matrix(matrix), matrix.astype(bool)):
        model = make().fit(TEXTS, Y)
        ranking = model.predict_topk(TEXTS, k=3)
        assert same(ranking, by_list)
        assert list(model.labels_) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("labels", [[1, 2], ["1", 1], [("a", 1), ("b", 2)], [-5, 10**20]])
def test_any_hashable_labels(make, labels, tmp_path):
    model = make().fit(TEXTS, [[labels[i % 2]] for i in range(len(TEXTS))])
    model.save(tmp_path / "m")
    opened = ramify.load(tmp_path / "m")
    found = opened.predict_topk(TEXTS, k=2).labels()
    assert {label for row in found for label, _ in row} <= set(labels)
    assert {type(label) for row in found for label, _ in row} <= {type(label) for label in labels}
    for fitted in (model, opened):
        assert set(fitted.classes_.tolist()) == set(labels)


def test_classes(make):
    """`classes_` is an array of the labels in the order of their ids, as in scikit-learn."""
    with pytest.raises(ramify.NotFittedError):
        make().classes_  # noqa: B018
    by_name = make().fit(TEXTS, LABELS)
    assert by_name.classes_.dtype == object  # strings of any length, whatever they end with
    assert by_name.classes_.tolist() == list(by_name.labels_) == ["egg", "fox", "hen", "red", "whale"]
    ranking = by_name.predict_topk(TEXTS[:4], k=2)
    assert by_name.classes_[ranking.ids].tolist() == [[label for label, _ in row] for row in ranking.labels()]
    by_id = make().fit(TEXTS, indicator())
    assert by_id.classes_.dtype.kind == "i"
    assert by_id.classes_.tolist() == [0, 1, 2, 3, 4]
    for labels in ([("a", 1), ("b", 2)], [("a", 1), "b"], ["1", 1], ["x", "x\x00"]):
        model = make().fit(TEXTS, [[labels[i % 2]] for i in range(len(TEXTS))])
        assert (model.classes_.dtype, model.classes_.shape) == (np.dtype(object), (2,))
        assert list(model.classes_) == list(model.labels_)
        assert {type(label) for label in model.classes_} == {type(label) for label in labels}


def test_relevance(key):
    """Models that use relevance check it; the others do not take it."""
    make, cls = MODELS[key][0], model_class(key.removesuffix("++"))
    Y = sparse.csr_matrix(indicator(), dtype=np.float32)
    if not cls.uses_relevance:
        with pytest.raises(TypeError, match="unexpected keyword argument 'relevance'"):
            make().fit(TEXTS, Y, relevance=Y)
        return
    plain = make().fit(TEXTS, Y).predict_topk(TEXTS, k=5)
    assert same(make().fit(TEXTS, Y, relevance=Y).predict_topk(TEXTS, k=5), plain)
    assert same(make().fit(TEXTS, Y, relevance=None).predict_topk(TEXTS, k=5), plain)
    graded = Y.copy()
    graded.data = np.where(graded.indices == 0, 0.01, 1.0).astype(np.float32)
    weighted = make().fit(TEXTS, LABELS, relevance=graded)
    assert not np.array_equal(weighted.predict_topk(TEXTS, k=5).scores, plain.scores)
    negative, fewer = -graded, graded.copy()
    fewer[0, 1] = 0
    fewer.eliminate_zeros()
    for wrong, message in (
        (graded[:, ::-1], "exactly where"),
        (fewer, "exactly where"),
        (graded[:3], "exactly where"),
        (graded[:, :3], "exactly where"),
        (negative, "negative"),
    ):
        model = make()
        with pytest.raises(ramify.DataError, match=message):
            model.fit(TEXTS, Y, relevance=wrong)
        with pytest.raises(ramify.NotFittedError):
            model.predict_topk(TEXTS)


def test_sample_weight(make):
    """Every model uses weights of samples, and checks them."""
    ones = np.ones(len(TEXTS))
    plain = make().fit(TEXTS, LABELS).predict_topk(TEXTS, k=5)
    assert same(make().fit(TEXTS, LABELS, sample_weight=ones).predict_topk(TEXTS, k=5), plain)
    assert same(make().fit(TEXTS, LABELS, sample_weight=None).predict_topk(TEXTS, k=5), plain)
    for wrong, message in ((ones[:3], "one weight for each"), (-ones, "negative"), (0 * ones, "are zero")):
        model = make()
        with pytest.raises(ramify.DataError, match=message):
            model.fit(TEXTS, LABELS, sample_weight=wrong)
        with pytest.raises(ramify.NotFittedError):
            model.predict_topk(TEXTS)
    with pytest.raises(ramify.DataError, match="no row with a weight above 0 has a label"):
        make().fit(TEXTS[:2], [["fox"], []], sample_weight=[0, 1])


def test_a_sample_of_weight_0_is_left_out(make):
    """Also what is counted, not weighted, is as without it; its labels remain labels of the model."""
    weights = np.arange(len(TEXTS)) % 5.0
    kept = np.flatnonzero(weights)
    model = make().fit([*TEXTS, "other words"], [*LABELS, ["zebra"]], sample_weight=[*weights, 0])
    Y = sparse.csr_matrix(indicator())
    Y = sparse.hstack([Y, sparse.csr_matrix((len(TEXTS), 1), dtype=Y.dtype)]).tocsr()[kept]
    expected = make().fit([TEXTS[row] for row in kept], Y, sample_weight=weights[kept])
    assert list(model.labels_) == ["egg", "fox", "hen", "red", "whale", "zebra"]
    assert model.label_counts_.n_samples == len(kept)
    assert same(model.predict_topk(TEXTS, k=6), expected.predict_topk(TEXTS, k=6))


def test_heavy_samples_decide(make):
    """Of two labels of the same texts, the one whose samples weigh more comes first."""
    texts, labels = TEXTS * 2, [*LABELS, *([["cat"]] * len(TEXTS))]
    is_cat = np.array([row == ["cat"] for row in labels])
    for weights, is_best in ((np.where(is_cat, 9.0, 1.0), True), (np.where(is_cat, 1.0, 9.0), False)):
        model = make().fit(texts, labels, sample_weight=weights)
        best = [row[0][0] for row in model.predict_topk(TEXTS[:6], k=1).labels()]
        assert (best.count("cat") > 3) is is_best, best


def test_pickled_models(make):
    """A pickle contains the files of the store; the workers of joblib get models that way."""
    model = make().fit(TEXTS, LABELS)
    ranking = model.predict_topk(TEXTS, k=3)
    copied = pickle.loads(pickle.dumps(model))
    assert type(copied) is type(model)
    assert copied.to_dict() == model.to_dict()
    assert same(copied.predict_topk(TEXTS, k=3), ranking)
    assert same(pickle.loads(pickle.dumps(copied)).predict_topk(TEXTS, k=3), ranking)
    assert b"manifest.json" in pickle.dumps(model)
    unfitted = pickle.loads(pickle.dumps(make(seed=7)))
    assert unfitted.to_dict() == make(seed=7).to_dict()
    with pytest.raises(ramify.NotFittedError):
        unfitted.predict_topk(TEXTS)


def test_decision_function_and_score(make):
    model = make().fit(TEXTS, LABELS)
    scores, ranking = model.decision_function(TEXTS), model.predict_topk(TEXTS, k=100)
    assert scores.shape == (len(TEXTS), 5)
    assert np.array_equal(scores.toarray(), ranking.to_csr().toarray())
    expected = ramify.evaluate(model.predict_topk(TEXTS, k=5), LABELS)["nDCG@5"]
    assert model.score(TEXTS, LABELS) == pytest.approx(expected / 100)
    truth = [["fox", "unseen"], [], *LABELS[2:]]
    assert model.score(TEXTS, truth) == pytest.approx(
        ramify.evaluate(model.predict_topk(TEXTS, k=5), truth)["nDCG@5"] / 100
    )
    first = np.eye(len(TEXTS))[0]
    assert model.score(TEXTS, truth, sample_weight=first) == pytest.approx(model.score(TEXTS[:1], truth[:1]))
    with pytest.raises(ramify.DataError, match="rows, but y has"):
        model.score(TEXTS, LABELS[:3])


def test_models_with_relevance():
    uses = {key for key in REGISTRY if model_class(key).uses_relevance}
    assert uses == {"xr-linear", "one-vs-all", "xr-transformer", "x-transformer"}


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


def test_fit_changes_no_parameter(make):
    model = make()
    before = model.to_dict()
    model.fit(TEXTS, LABELS)
    assert model.to_dict() == before
    again = model.fit(TEXTS[:6], LABELS[:6])
    assert again.label_counts_.n_samples == 6


def test_every_parameter_is_documented(key):
    for info in model_class(key.removesuffix("++")).describe():
        assert info.doc, info.path


def test_predicts_from_several_threads_at_once(make):
    from concurrent.futures import ThreadPoolExecutor

    model = make().fit(TEXTS, LABELS)
    expected = model.predict_topk(TEXTS, k=3)
    with ThreadPoolExecutor(4) as pool:
        for ranking in pool.map(lambda _: model.predict_topk(TEXTS, k=3), range(16)):
            assert same(ranking, expected)


def test_learns_real_data(key, pydoc):
    """A model that uses its input is better than the most frequent labels on real data."""
    make, uses_input = MODELS[key]
    train, test = pydoc.split("train"), pydoc.split("test")
    model = make().fit(train.inputs, train.labels())
    found = ramify.evaluate(model.predict_topk(test.inputs, 5), test.labels(), train.labels())
    baseline = ramify.Popular().fit(train.inputs, train.labels())
    expected = ramify.evaluate(baseline.predict_topk(test.inputs, 5), test.labels(), train.labels())
    if uses_input:
        assert found["P@1"] > expected["P@1"] + 5
        assert found["nDCG@5"] > expected["nDCG@5"] + 5
    else:
        assert found["P@1"] == expected["P@1"]
