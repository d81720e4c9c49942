"""LightDXML and Astec: what they learn, what they show, and what they refuse."""

from __future__ import annotations

import json

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


def test_shows_what_was_tried(model):
    curves = model.curves()
    assert [row[0] for row in curves["weight of the classifier"]] == pytest.approx(np.arange(21) / 20)
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


@pytest.mark.parametrize("method", ["ivf", "hnsw"])
def test_other_indices(method, data, tmp_path):
    model = small(ramify.LightDXML, index=AnnConfig(method=method, recall=0.8)).fit(*data)
    assert model.report()["index"][1][1] == method
    model.save(tmp_path / "m")
    opened = ramify.load(tmp_path / "m")
    assert np.array_equal(opened.predict_topk(data[0][:50], 5).ids, model.predict_topk(data[0][:50], 5).ids)


def test_an_index_that_finds_too_little_is_an_error(data):
    with pytest.raises(ramify.DataError, match="effort"):
        small(ramify.LightDXML, index=AnnConfig(method="ivf", lists=60, effort=1, recall=0.99)).fit(*data)


def test_the_layer_of_astec_is_bounded(data):
    model = small(ramify.Astec, strength=0.5, reranker=False).fit(*data)
    residual = model.transfer_.residual.values
    assert np.linalg.norm(residual, 2) == pytest.approx(spectral_norm(residual), rel=0.05)
    assert np.linalg.norm(residual, 2) <= 0.5 * 1.05


@pytest.mark.parametrize("cls", [ramify.LightDXML, ramify.Astec])
def test_a_killed_training_goes_on_to_the_same_bits(cls, data, tmp_path, monkeypatch):
    whole = small(cls, threads=1).fit(*data).predict_topk(data[0], 5)
    step, n_steps = EncoderWithHead.step, [0]

    def fragile(self, rows, number, factor):
        n_steps[0] += 1
        if n_steps[0] in (150, 500):
            raise Killed
        return step(self, rows, number, factor)

    monkeypatch.setattr(EncoderWithHead, "step", fragile)
    for _ in range(1 if cls is ramify.LightDXML else 2):
        with pytest.raises(Killed):
            small(cls, threads=1, checkpoints=str(tmp_path)).fit(*data)
    found = small(cls, threads=1, checkpoints=str(tmp_path)).fit(*data).predict_topk(data[0], 5)
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
        {"ranking": {**whole["state"]["model"]["ranking"], "by_beta": [[1]]}},
        {"ranking": {**whole["state"]["model"]["ranking"], "reranker": 5}},
        {"encoder": {}},
        {"index": {}, "labels": {}},
    ):
        manifest = json.loads(json.dumps(whole))
        manifest["state"]["model"].update(change)
        file.write_text(json.dumps(manifest))
        with pytest.raises(ModelFormatError):
            ramify.load(tmp_path / "m")
