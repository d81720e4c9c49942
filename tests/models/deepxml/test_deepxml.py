"""LightDXML and Astec: what they learn, what they show, and what they refuse."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from neural import Killed, topics

import ramify
from ramify import AnnConfig, ModelFormatError
from ramify.nn.encoder import spectral_norm
from ramify.nn.learner import EncoderWithHead
from ramify.nn.trainer import TrainingConfig


def small(cls, **options):
    training = {"epochs": 12, "batch_size": 32, "rate": 0.02, "encoder_rate": 0.02}
    options = {"training": TrainingConfig(**training), "shortlist": 60, "verbose": 0, **options}
    if cls is ramify.Astec:
        options = {"surrogate": TrainingConfig(**training), **options}
    return cls(encoder=ramify.BagEncoder(width=64), **options)


@pytest.fixture(scope="module")
def data():
    return topics()


@pytest.fixture(scope="module", params=[ramify.LightDXML, ramify.Astec], ids=lambda cls: cls.kind)
def model(request, data):
    return small(request.param).fit(*data)


def test_learns(model):
    texts, labels = topics(seed=7)
    found = ramify.evaluate(model.predict_topk(texts, 5), labels, unseen="drop")
    assert found["P@1"] > 75
    assert np.all(np.diff(model.predict_topk(texts, 40).scores, axis=1) <= 0)


def test_rare_labels_are_lifted_as_far_as_asked(data):
    training = TrainingConfig(epochs=4, batch_size=32, validation=0)  # the last pass counts, whatever the lift
    plain, lifted = (small(ramify.LightDXML, training=training, rare=r, beta=1.0).fit(*data) for r in (0.0, 4.0))
    counts = Counter(label for own in data[1] for label in own)

    def usual(model):
        return np.mean([counts[own[0][0]] for own in model.predict_topk(topics(seed=7)[0], 1).labels()])

    assert np.array_equal(plain.classifiers_[0], lifted.classifiers_[0])
    assert usual(lifted) < 0.8 * usual(plain)


def test_a_threshold_on_the_scores_means_something(model):
    texts, labels = topics(seed=7)
    predicted = model.predict(texts)
    assert 0.5 < predicted.nnz / len(texts) < 4  # there are two labels a text
    found = ramify.evaluate(model.predict_topk(texts, 20), labels, unseen="drop").to_dict()
    assert found["micro-F1"] > 50


def test_the_best_do_not_depend_on_how_many_are_asked_for(model, data):
    few, many = model.predict_topk(data[0][:80], 5), model.predict_topk(data[0][:80], 190)
    assert np.array_equal(few.ids, many.ids[:, :5])
    assert np.array_equal(few.scores, many.scores[:, :5])
    for row in many.ids:
        assert len(set(row[row >= 0].tolist())) == (row >= 0).sum()
    small_lists = model.clone().set_params(shortlist=3)
    small_lists.__dict__.update({name: value for name, value in vars(model).items() if name.endswith("_")})
    assert small_lists.predict_topk(data[0][:5], 2).ids.shape == (5, 2)


def test_blocks_of_rows_change_nothing(model, data, monkeypatch):
    whole = model.predict_topk(data[0][:50], 5)
    monkeypatch.setattr("ramify.models.shortlisted.ROWS_AT_ONCE", 7)
    parts = model.predict_topk(data[0][:50], 5)
    assert np.array_equal(whole.ids, parts.ids)
    assert np.array_equal(whole.scores, parts.scores)


def test_shows_what_was_tried(model):
    curves = model.curves()
    tried = [row[0] for row in curves["weight of the classifier"]]
    assert tried == sorted(set(tried))
    assert (tried[0], tried[-1], len(tried)) == (0.0, 1.0, 24)
    assert len(curves["pass"]) >= 2
    tables = model.report()
    assert tables["index"][1][0] == "labels"
    assert tables["score"][1][0] == f"{model.beta_:g}"
    by_beta = {row[0]: row[1:] for row in curves["weight of the classifier"]}
    assert by_beta[model.beta_][0] > 0


def test_pictures(model, tmp_path):
    pytest.importorskip("matplotlib")
    from ramify.plots import plot_curves

    files = plot_curves(model.curves(), tmp_path)
    assert [file.name for file in files] == ["by-weight-of-the-classifier.png", "by-pass.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)


@pytest.mark.parametrize("cls", [ramify.LightDXML, ramify.Astec])
def test_the_reranker_is_saved_and_used(cls, data, tmp_path):
    model = small(cls, reranker=True).fit(*data)
    model.save(tmp_path / "m")
    opened = ramify.load(tmp_path / "m")
    assert opened.reranker_.weight == model.reranker_.weight
    assert opened.report()["score"][1][1] == f"{model.reranker_.weight:g}"
    texts = data[0][:60]
    a, b = model.predict_topk(texts, 150), opened.predict_topk(texts, 150)
    assert np.array_equal(a.ids, b.ids)
    assert np.array_equal(a.scores, b.scores)
    opened.reranker_ = None
    if model.reranker_.weight > 0:
        assert not np.array_equal(opened.predict_topk(texts, 5).scores, a.scores[:, :5])


def test_labels_without_points_are_not_in_the_index(data):
    texts, labels = data
    names = sorted({name for row in labels for name in row})
    indicator = np.array([[int(name in row) for name in [*names, "never", "seen"]] for row in labels])
    model = small(ramify.LightDXML).fit(texts, indicator)
    assert model.n_labels == len(names) + 2
    assert len(model.places_) == len(names)
    found = model.predict_topk(texts[:20], model.n_labels)
    assert found.ids.max() < len(names)
    assert np.all(found.ids[:, -2:] == -1)


@pytest.mark.parametrize("options", [{"labels.activation": "relu"}, {"labels.negatives": True}, {"beta": 0.5}])
def test_options(options, data):
    model = small(ramify.LightDXML).set_params(**options).fit(*data)
    texts, labels = topics(seed=7)
    assert ramify.evaluate(model.predict_topk(texts, 5), labels, unseen="drop")["P@1"] > 70
    assert model.beta_ == options.get("beta", model.beta_)


@pytest.mark.parametrize(("method", "rescore"), [("ivf", True), ("ivf", False), ("hnsw", True)])
def test_other_indices(method, rescore, data, tmp_path):
    model = small(ramify.LightDXML, index=AnnConfig(method=method, rescore=rescore, recall=0.8)).fit(*data)
    assert model.report()["index"][1][1] == method
    model.save(tmp_path / "m")
    opened = ramify.load(tmp_path / "m")
    assert np.array_equal(opened.predict_topk(data[0][:50], 5).ids, model.predict_topk(data[0][:50], 5).ids)


def test_an_index_that_finds_too_little_is_an_error(data):
    with pytest.raises(ramify.DataError, match="nprobe"):
        small(ramify.LightDXML, index=AnnConfig(method="ivf", nlist=60, nprobe=1, recall=0.99)).fit(*data)


def test_random_word_vectors(data):
    model = small(ramify.LightDXML).set_params(**{"encoder.start": "random"}).fit(*data)
    texts, labels = topics(seed=7)
    assert ramify.evaluate(model.predict_topk(texts, 5), labels, unseen="drop")["P@1"] > 60


def test_the_layer_of_astec_is_bounded(data):
    model = small(ramify.Astec, strength=0.5, reranker=False).fit(*data)
    residual = model.transfer_.residual.values
    assert np.linalg.norm(residual, 2) == pytest.approx(spectral_norm(residual), rel=0.05)
    assert np.linalg.norm(residual, 2) <= 0.5 * 1.05


@pytest.mark.parametrize("cls", [ramify.LightDXML, ramify.Astec])
def test_a_killed_training_goes_on_to_the_same_bits(cls, data, tmp_path, monkeypatch):
    whole = small(cls, threads=1, reranker=True).fit(*data).predict_topk(data[0], 5)
    step, n_steps = EncoderWithHead.step, [0]

    def fragile(self, rows, number, factor):
        n_steps[0] += 1
        if n_steps[0] in (150, 350):
            raise Killed
        return step(self, rows, number, factor)

    monkeypatch.setattr(EncoderWithHead, "step", fragile)
    options = {"threads": 1, "reranker": True}
    for _ in range(2):
        with pytest.raises(Killed):
            small(cls, checkpoints=str(tmp_path), **options).fit(*data)
    with pytest.raises(ModelFormatError, match="another training"):
        small(cls, checkpoints=str(tmp_path), **options, shortlist=50).fit(*data)
    found = small(cls, checkpoints=str(tmp_path), **options).fit(*data).predict_topk(data[0], 5)
    assert np.array_equal(found.ids, whole.ids)
    assert np.array_equal(found.scores, whole.scores)
    assert not list(tmp_path.iterdir())


def test_damaged_manifests_are_refused(model, tmp_path):
    model.save(tmp_path / "m")
    file = tmp_path / "m" / "manifest.json"
    whole = json.loads(file.read_text())
    for change in (
        {"ranking": None},
        {"ranking": {**whole["state"]["model"]["ranking"], "beta": "x"}},
        {"ranking": {**whole["state"]["model"]["ranking"], "beta": 7}},
        {"ranking": {**whole["state"]["model"]["ranking"], "by_beta": [[1]]}},
        {"ranking": {**whole["state"]["model"]["ranking"], "reranker": 5}},
        {"ranking": {**whole["state"]["model"]["ranking"], "calibrator": [1, 2]}},
        {"encoder": {}},
        {"search": {}},
        {"search": None},
    ):
        manifest = json.loads(json.dumps(whole))
        manifest["state"]["model"].update(change)
        file.write_text(json.dumps(manifest))
        with pytest.raises(ModelFormatError):
            ramify.load(tmp_path / "m")
