"""LightDXML and Astec: training, prediction, reports, indexes, checkpoints, saved models."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from neural import Killed, topics

import ramify
from ramify import AnnConfig, ModelFormatError
from ramify.nn.config import TrainingConfig
from ramify.nn.encoders.bag import spectral_norm
from ramify.nn.learner import Learner


def small(cls, **options):
    training = {"epochs": 12, "batch_size": 32, "learning_rate": 0.02, "encoder_learning_rate": 0.02}
    options = {"training": TrainingConfig(**training), "shortlist_size": 60, "verbose": 0, **options}
    if cls is ramify.Astec:
        options = {"surrogate": TrainingConfig(**training), **options}
    return cls(encoder=ramify.BagEncoder(dim=64), **options)


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


def test_propensity_weight_favours_tail_labels(data):
    # Without validation the last epoch counts, whatever the weight.
    training = TrainingConfig(epochs=4, batch_size=32, validation_size=0)
    plain, shifted = (
        small(ramify.LightDXML, training=training, propensity_weight=weight, beta=1.0).fit(*data)
        for weight in (0.0, 4.0)
    )
    counts = Counter(label for own in data[1] for label in own)

    def mean_frequency(model):
        return np.mean([counts[row[0][0]] for row in model.predict_topk(topics(seed=7)[0], 1).labels()])

    assert np.array_equal(plain.classifiers_[0], shifted.classifiers_[0])
    assert mean_frequency(shifted) < 0.8 * mean_frequency(plain)


def test_scores_are_probabilities_for_a_threshold(model):
    texts, labels = topics(seed=7)
    predicted = model.predict(texts)
    assert 0.5 < predicted.nnz / len(texts) < 4  # a text has up to two labels
    found = ramify.evaluate(model.predict_topk(texts, 20), labels, unseen="drop").to_dict()
    assert found["micro-F1"] > 50


def test_the_best_labels_do_not_depend_on_k(model, data):
    few, many = model.predict_topk(data[0][:80], 5), model.predict_topk(data[0][:80], 190)
    assert np.array_equal(few.ids, many.ids[:, :5])
    assert np.array_equal(few.scores, many.scores[:, :5])
    for row in many.ids:
        assert len(set(row[row >= 0].tolist())) == (row >= 0).sum()
    short = model.clone().set_params(shortlist_size=3)
    short.__dict__.update({name: value for name, value in vars(model).items() if name.endswith("_")})
    assert short.predict_topk(data[0][:5], 2).ids.shape == (5, 2)


def test_blocks_of_rows_change_nothing(model, data, monkeypatch):
    whole = model.predict_topk(data[0][:50], 5)
    monkeypatch.setattr("ramify.models.deepxml.base.ROWS_PER_BLOCK", 7)
    parts = model.predict_topk(data[0][:50], 5)
    assert np.array_equal(whole.ids, parts.ids)
    assert np.array_equal(whole.scores, parts.scores)


def test_curves_and_report(model):
    curves = model.curves()
    betas = [row[0] for row in curves["beta"]]
    assert betas == sorted(set(betas))
    assert (betas[0], betas[-1], len(betas)) == (0.0, 1.0, 24)
    assert len(curves["epoch"]) >= 2
    tables = model.report()
    assert tables["index"][1][0] == "labels"
    assert tables["index"][0][3] == "nprobe / ef_search"
    assert tables["blended score"][1][0] == f"{model.beta_:g}"
    assert len(tables["validation metrics by beta"]) == len(betas) + 1
    assert len(tables["validation metrics by epoch"]) == len(curves["epoch"]) + 1
    by_beta = {row[0]: row[1:] for row in curves["beta"]}
    assert by_beta[model.beta_][0] > 0


def test_plots(model, tmp_path):
    pytest.importorskip("matplotlib")
    from ramify.plots import plot_curves

    files = plot_curves(model.curves(), tmp_path)
    assert [file.name for file in files] == ["by-beta.png", "by-epoch.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)


@pytest.mark.parametrize("cls", [ramify.LightDXML, ramify.Astec])
def test_the_reranker_is_saved_and_used(cls, data, tmp_path):
    model = small(cls, reranker=True).fit(*data)
    model.save(tmp_path / "m")
    opened = ramify.load(tmp_path / "m")
    assert opened.reranker_.beta == model.reranker_.beta
    assert opened.report()["blended score"][1][1] == f"{model.reranker_.beta:g}"
    texts = data[0][:60]
    a, b = model.predict_topk(texts, 150), opened.predict_topk(texts, 150)
    assert np.array_equal(a.ids, b.ids)
    assert np.array_equal(a.scores, b.scores)
    opened.reranker_ = None
    if model.reranker_.beta > 0:
        assert not np.array_equal(opened.predict_topk(texts, 5).scores, a.scores[:, :5])


def test_labels_without_samples_are_not_in_the_index(data):
    texts, labels = data
    names = sorted({name for row in labels for name in row})
    indicator = np.array([[int(name in row) for name in [*names, "never", "seen"]] for row in labels])
    model = small(ramify.LightDXML).fit(texts, indicator)
    assert model.n_labels == len(names) + 2
    assert len(model.label_index_) == len(names)
    found = model.predict_topk(texts[:20], model.n_labels)
    assert found.ids.max() < len(names)
    assert np.all(found.ids[:, -2:] == -1)


@pytest.mark.parametrize("options", [{"label_encoder.in_batch_negatives": True}, {"beta": 0.5}])
def test_options(options, data):
    model = small(ramify.LightDXML).set_params(**options).fit(*data)
    texts, labels = topics(seed=7)
    assert ramify.evaluate(model.predict_topk(texts, 5), labels, unseen="drop")["P@1"] > 70
    assert model.beta_ == options.get("beta", model.beta_)


@pytest.mark.parametrize(("method", "rescore"), [("ivf", True), ("ivf", False), ("hnsw", True)])
def test_other_indexes(method, rescore, data, tmp_path):
    model = small(ramify.LightDXML, index=AnnConfig(method=method, rescore=rescore, recall=0.8)).fit(*data)
    assert model.report()["index"][1][1] == method
    model.save(tmp_path / "m")
    opened = ramify.load(tmp_path / "m")
    assert np.array_equal(opened.predict_topk(data[0][:50], 5).ids, model.predict_topk(data[0][:50], 5).ids)


def test_an_index_that_finds_too_little_is_an_error(data):
    with pytest.raises(ramify.DataError, match="nprobe"):
        small(ramify.LightDXML, index=AnnConfig(method="ivf", nlist=60, nprobe=1, recall=0.99)).fit(*data)


def test_random_word_embeddings(data):
    model = small(ramify.LightDXML).set_params(**{"encoder.init": "random"}).fit(*data)
    texts, labels = topics(seed=7)
    assert ramify.evaluate(model.predict_topk(texts, 5), labels, unseen="drop")["P@1"] > 60


def test_the_residual_layer_of_astec_has_a_bounded_spectral_norm(data):
    model = small(ramify.Astec, max_spectral_norm=0.5, reranker=False).fit(*data)
    residual = model.transfer_.residual.values
    assert np.linalg.norm(residual, 2) == pytest.approx(spectral_norm(residual), rel=0.05)
    assert np.linalg.norm(residual, 2) <= 0.5 * 1.05


@pytest.mark.parametrize("cls", [ramify.LightDXML, ramify.Astec])
def test_a_killed_training_resumes_to_the_same_bits(cls, data, tmp_path, monkeypatch):
    whole = small(cls, threads=1, reranker=True).fit(*data).predict_topk(data[0], 5)
    step, n_steps = Learner.step, [0]

    def fails(self, rows, number, factor):
        n_steps[0] += 1
        if n_steps[0] in (150, 350):
            raise Killed
        return step(self, rows, number, factor)

    monkeypatch.setattr(Learner, "step", fails)
    options = {"threads": 1, "reranker": True}
    for _ in range(2):
        with pytest.raises(Killed):
            small(cls, checkpoint_dir=str(tmp_path), **options).fit(*data)
    with pytest.raises(ModelFormatError, match="another training"):
        small(cls, checkpoint_dir=str(tmp_path), **options, shortlist_size=50).fit(*data)
    found = small(cls, checkpoint_dir=str(tmp_path), **options).fit(*data).predict_topk(data[0], 5)
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
        {"ranking": {**whole["state"]["model"]["ranking"], "metrics_by_beta": [[1]]}},
        {"ranking": {**whole["state"]["model"]["ranking"], "reranker": 5}},
        {"ranking": {**whole["state"]["model"]["ranking"], "metrics_by_epoch": 3}},
        {"ranking": {**whole["state"]["model"]["ranking"], "calibrator": [1, 2]}},
        {"encoder": {}},
        {"index": {}},
        {"index": None},
    ):
        manifest = json.loads(json.dumps(whole))
        manifest["state"]["model"].update(change)
        file.write_text(json.dumps(manifest))
        with pytest.raises(ModelFormatError):
            ramify.load(tmp_path / "m")


@pytest.mark.parametrize("cls", [ramify.LightDXML, ramify.Astec])
def test_filters_search_an_index_of_the_allowed_labels(cls, pydoc):
    """Allowed labels have the scores of an unfiltered ranking, and k come back although none is on the shortlist."""
    train, test = pydoc.split("train").subset(np.arange(1500)), pydoc.split("test").subset(np.arange(40))
    training = ramify.TrainingConfig(epochs=2, min_steps=20)
    options = {"surrogate": training} if cls is ramify.Astec else {}
    model = cls(encoder=ramify.BagEncoder(dim=32), training=training, shortlist_size=50, verbose=0, **options)
    model.fit(train.texts, train.labels())
    plain = model.predict_topk(test.texts, 50)
    listed = {int(i) for i in plain.ids.ravel()}
    rare = [i for i in range(model.n_labels) if i not in listed][:12]
    assert len(rare) == 12
    found = model.predict_topk(test.texts, 10, allow=[model.labels_[i] for i in rare])
    assert np.all(np.isin(found.ids, rare))
    assert np.all(np.diff(found.scores, axis=1) < 0)
    for label in rare[:4]:  # a score does not depend on what else is allowed
        alone = model.predict_topk(test.texts, 1, allow=[model.labels_[label]]).scores[:, 0]
        rows, columns = np.nonzero(found.ids == label)
        assert found.scores[rows, columns] == pytest.approx(alone[rows], rel=1e-5)
    denied = sorted(listed)[::2]
    found = model.predict_topk(test.texts, 10, deny=[model.labels_[i] for i in denied])
    assert np.all(found.ids >= 0)
    assert not np.isin(found.ids, denied).any()
    scores = [dict(zip(i.tolist(), s.tolist(), strict=True)) for i, s in zip(plain.ids, plain.scores, strict=True)]
    compared = 0
    for own, ids, values in zip(scores, found.ids.tolist(), found.scores.tolist(), strict=True):
        for label, value in zip(ids, values, strict=True):
            if label in own:
                assert value == pytest.approx(own[label], rel=1e-3)
                compared += 1
    assert compared > 100
