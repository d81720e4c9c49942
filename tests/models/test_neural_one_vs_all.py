"""The neural one-vs-all classifier: exact search, history, checkpoints, saved models."""

from __future__ import annotations

import json

import numpy as np
import pytest
from neural import Killed, topics

import ramify
from ramify.nn.learner import Learner


def small(**options):
    training = ramify.TrainingConfig(
        epochs=6, min_steps=200, batch_size=32, learning_rate=0.02, encoder_learning_rate=0.02
    )
    return ramify.NeuralOneVsAll(encoder=ramify.BagEncoder(dim=32), training=training, verbose=0, **options)


@pytest.fixture(scope="module")
def data():
    return topics(n=600, n_labels=80)


@pytest.fixture(scope="module")
def model(data):
    return small().fit(*data)


def test_learns(model):
    texts, labels = topics(n=300, n_labels=80, seed=7)
    assert ramify.evaluate(model.predict_topk(texts, 5), labels, unseen="drop")["P@1"] > 75


@pytest.mark.parametrize("k", [1, 5, 80])
def test_search_equals_brute_force(model, data, k):
    """The probability of each label is σ(w·φ + b); the k best of all labels are returned."""
    texts, k = data[0][:60], min(k, model.n_labels)
    found = model.predict_topk(texts, k)
    phi = model.encoder_.encode(model._transform_samples(model._check_predict_inputs(texts)), 1)
    weights, bias = model.head_.classifiers
    probabilities = 1 / (1 + np.exp(-(phi.astype(np.float64) @ weights.T + bias)))
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :k]
    assert np.array_equal(found.ids, order)
    assert np.allclose(found.scores, np.take_along_axis(probabilities, order, axis=1), rtol=1e-4)
    assert np.all((found.scores >= 0) & (found.scores <= 1))


def test_history(model, tmp_path):
    """Loss and validation nDCG@5 of each epoch; it is saved with the model."""
    losses, ndcg = zip(*model.history_, strict=True)
    assert 2 <= len(losses) <= 6 * 2
    assert losses[-1] < losses[0]
    assert max(ndcg) > 75
    assert all(0 <= value <= 100 for value in ndcg)
    model.save(tmp_path / "m")
    assert ramify.load(tmp_path / "m").history_ == model.history_


def test_saves_and_loads(model, data, tmp_path):
    model.save(tmp_path / "m")
    found, opened = model.predict_topk(data[0], 5), ramify.load(tmp_path / "m")
    again = opened.predict_topk(data[0], 5)
    assert np.array_equal(again.ids, found.ids)
    assert np.array_equal(again.scores, found.scores)
    assert opened.to_dict() == model.to_dict()
    opened.save(tmp_path / "again")
    for file in (tmp_path / "m").glob("*.npy"):
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes(), file.name


@pytest.mark.parametrize("damage", ["history", "encoder", "model", "weights", "bias"])
def test_damaged_models_are_refused(model, tmp_path, damage):
    model.save(tmp_path / "m")
    file = tmp_path / "m" / "manifest.json"
    manifest = json.loads(file.read_text())
    if damage == "model":
        manifest["state"]["model"] = None
    elif damage in ("history", "encoder"):
        manifest["state"]["model"][damage] = [[1, "x"]]
    else:
        path = tmp_path / "m" / f"classifier_{damage}.npy"
        np.save(path, np.load(path)[:-1])
    file.write_text(json.dumps(manifest))
    with pytest.raises(ramify.ModelFormatError):
        ramify.load(tmp_path / "m")


def test_a_killed_training_resumes_to_the_same_bits(data, model, tmp_path, monkeypatch):
    step, n_steps = Learner.step, [0]

    def fails(self, rows, number, factor):
        n_steps[0] += 1
        if n_steps[0] == 40:
            raise Killed
        return step(self, rows, number, factor)

    monkeypatch.setattr(Learner, "step", fails)
    with pytest.raises(Killed):
        small(checkpoint_dir=str(tmp_path)).fit(*data)
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(ramify.ModelFormatError, match="another training"):
        small(checkpoint_dir=str(tmp_path), seed=1).fit(*data)
    resumed = small(checkpoint_dir=str(tmp_path)).fit(*data)
    assert resumed.history_ == model.history_
    for a, b in zip(resumed.head_.classifiers, model.head_.classifiers, strict=True):
        assert np.array_equal(a, b)
    assert not list(tmp_path.iterdir())
