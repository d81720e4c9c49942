"""Ensembles: weights, models by key, saved models."""

from __future__ import annotations

import json

import numpy as np
import pytest

import ramify
from ramify.models.ensemble import WEIGHTS


@pytest.fixture(scope="module")
def data(pydoc):
    return [(part.inputs[:900], part.labels()[:900]) for part in (pydoc.split("train"), pydoc.split("test"))]


def test_is_at_least_as_good_as_its_models_on_real_data(data, tmp_path):
    train, test = data
    parts = [ramify.XRLinear.pecos(verbose=0, seed=seed) for seed in (0, 1)]
    model = ramify.Ensemble(parts, verbose=0).fit(*train)
    recall = [
        ramify.evaluate(m.predict_topk(test[0], 10), test[1], unseen="drop")["R@10"] for m in (model, *model.models_)
    ]
    assert recall[0] >= min(recall[1:])
    model.save(tmp_path / "model")
    found, again = (m.predict_topk(test[0], 5) for m in (model, ramify.load(tmp_path / "model")))
    assert np.array_equal(found.ids, again.ids)
    assert np.array_equal(found.scores, again.scores)


def test_validation_gives_the_better_model_more_weight(data):
    train, test = data
    models = [ramify.Popular(), ramify.XRLinear(verbose=0)]
    model = ramify.Ensemble(models, combine="rank", weights="validation").fit(*train)
    assert model.weights_[1] > model.weights_[0]
    by_probability = ramify.Ensemble(models, weights="validation").fit(*train)
    assert by_probability.weights_[1] >= by_probability.weights_[0]
    ndcg, of_the_better = (
        ramify.evaluate(m.predict_topk(test[0], 10), test[1], unseen="drop")["nDCG@5"]
        for m in (by_probability, by_probability.models_[1])
    )
    assert ndcg > of_the_better - 1  # a calibrated bad model does little harm, whatever its weight


def test_validation_size(data, monkeypatch):
    """Validation rows are held out of the training of all models, at most a tenth of the data."""
    train, _ = data
    n_trained = []
    fit = ramify.Popular._fit

    def record(self, checked, *options):
        n_trained.append(len(checked.inputs))
        fit(self, checked, *options)

    monkeypatch.setattr(ramify.Popular, "_fit", record)
    for size in (25, 10_000):
        ramify.Ensemble([ramify.Popular(), ramify.Popular()], weights="validation", validation_size=size).fit(*train)
    n = len(train[0])
    assert n_trained == [n - 25] * 2 + [n - n // 10] * 2


def test_of_trained_models(data):
    train, test = data
    a, b = ramify.XRLinear(verbose=0).fit(*train), ramify.OneVsAll(verbose=0).fit(*train)
    together = ramify.Ensemble.of([a, b], combine="rank")
    assert together.predict_topk(test[0][:5], 3).ids.shape == (5, 3)
    other = ramify.Popular().fit(train[0][:50], train[1][:50])
    with pytest.raises(ramify.DataError, match="different labels"):
        ramify.Ensemble.of([a, other])


def test_models_by_their_keys():
    model = ramify.Ensemble().set_params(models=["popular", {"kind": "xr-linear", "params": {"n_trees": 2}}])
    assert [type(part).__name__ for part in model.models] == ["Popular", "XRLinear"]
    assert model.models[1].n_trees == 2
    assert ramify.Ensemble.from_dict(model.to_dict()).models[1].n_trees == 2
    with pytest.raises(ValueError, match="oracle"):
        model.set_params(models=["oracle"])
    with pytest.raises(ValueError, match="kind and params"):
        model.set_params(models=[3])


def test_errors_say_what_is_wrong(data, tmp_path):
    with pytest.raises(ValueError, match="needs models"):
        ramify.Ensemble().fit(["a"], [["x"]])
    with pytest.raises(ValueError, match="1 models and 2 weights"):
        ramify.Ensemble([ramify.Popular()], weights=(1.0, 2.0))
    with pytest.raises(ValueError, match="combine must be"):
        ramify.Ensemble([ramify.Popular()], combine="median")
    model = ramify.Ensemble([ramify.Popular(), ramify.Popular()]).fit(["a", "b"], [["x"], ["y"]])
    model.save(tmp_path / "model")
    manifest = tmp_path / "model" / "manifest.json"
    damaged = json.loads(manifest.read_text())
    damaged["state"]["model"]["models"][1]["kind"] = "oracle"
    manifest.write_text(json.dumps(damaged))
    with pytest.raises(ramify.ModelFormatError, match="oracle"):
        ramify.load(tmp_path / "model")


def test_models_of_different_kinds_are_averaged_by_probability(data):
    """The raw mean of scores of different scales is worse than the better model; that of probabilities is not."""
    train, test = data
    models = [ramify.XRLinear(verbose=0).fit(*train), ramify.Popular().fit(*train)]
    with pytest.raises(ValueError, match="cannot be averaged: pass held-out rows"):
        ramify.Ensemble.of(models)
    with pytest.raises(ValueError, match="chosen on held-out rows"):
        ramify.Ensemble.of(models, weights="validation", combine="rank")
    held, new = [part[:400] for part in test], [part[400:] for part in test]
    together = ramify.Ensemble.of(models, *held)
    assert not models[0].is_calibrated  # the given models do not change
    precision = [ramify.evaluate(m.predict_topk(new[0], 5), new[1])["P@1"] for m in (together, models[0])]
    assert precision[0] >= precision[1] - 1
    chosen = ramify.Ensemble.of(models, *held, weights="validation")
    fixed = [ramify.Ensemble.of(models, *held, weights=(1.0, weight)) for weight in WEIGHTS]
    ndcg = [ramify.evaluate(m.predict_topk(held[0], 5), held[1])["nDCG@5"] for m in (chosen, *fixed)]
    assert ndcg[0] == max(ndcg)
    assert min(ndcg) < max(ndcg)  # the weights matter
    scores = together.predict_topk(new[0], 3).scores
    assert scores.min() > 0
    assert scores.max() < 1


def test_fit_calibrates_models_of_different_kinds(data, tmp_path):
    train, test = data
    model = ramify.Ensemble([ramify.XRLinear(verbose=0), ramify.Popular()], validation_size=90).fit(*train)
    assert all(member.is_calibrated for member in model.models_)
    model.save(tmp_path / "m")
    again = ramify.load(tmp_path / "m")
    assert np.array_equal(again.predict_topk(test[0], 3).ids, model.predict_topk(test[0], 3).ids)
    same_kind = ramify.Ensemble([ramify.XRLinear(verbose=0, seed=seed) for seed in (0, 1)]).fit(*train)
    assert not any(member.is_calibrated for member in same_kind.models_)


@pytest.mark.parametrize("weight", ["x", None, True, -1, 1e300, [1.0]])
def test_a_saved_ensemble_with_other_weights_is_refused(tmp_path, weight):
    models = (ramify.Popular(verbose=0), ramify.Popular(verbose=0))
    ramify.Ensemble(models, verbose=0).fit(["a", "b"], [["x"], ["y"]]).save(tmp_path / "m")
    manifest = json.loads((tmp_path / "m" / "manifest.json").read_text())
    manifest["state"]["model"]["weights"][1] = weight
    (tmp_path / "m" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ramify.ModelFormatError, match="not weights"):
        ramify.load(tmp_path / "m")


def test_models_know_the_names_of_the_labels(tmp_path):
    texts, labels = ["a fox", "a red hen", "no name"] * 20, [["x"], ["y"], ["x"]] * 20
    names = {"x": "fox", "y": "hen", "z": "whale"}
    models = [ramify.LabelMatcher(labels="seen"), ramify.XRLinear(label_text_weight=1.0)]
    model = ramify.Ensemble(models, verbose=0).fit(texts, labels, label_catalogue=names)
    ranking = model.models_[0].predict_topk(["the hen"], 1)
    assert ranking.labels()[0][0][0] == "y"
    assert ranking.scores[0, 0] > 0.5  # a matcher without names knows frequencies alone
    model.save(tmp_path / "m")
    opened = ramify.load(tmp_path / "m")
    assert np.array_equal(opened.predict_topk(texts, 2).scores, model.predict_topk(texts, 2).scores)
    assert opened.predict_topk(["the hen"], 1).labels(names=True)[0][0][0] == "hen"
