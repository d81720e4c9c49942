"""What new users met: settings in any order, paths, epochs, encoders that do not exist, labels as they are."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from neural import topics
from test_contract import LABELS, TEXTS

import ramify
from ramify import TrainingConfig
from ramify.nn.encoders.hub import check_hub
from ramify.nn.trainer import schedule


@pytest.mark.parametrize("order", [*itertools.permutations(["encoder", "encoder.frozen", "encoder.max_length"])])
def test_settings_may_come_in_any_order(order):
    values = {"encoder": "models/minilm", "encoder.frozen": True, "encoder.max_length": 32}
    model = ramify.XRTransformer().set_params(**{name: values[name] for name in order})
    assert model.encoder.to_dict() == ramify.TransformerEncoder("models/minilm", frozen=True, max_length=32).to_dict()
    nested = {"encoder.model": "models/minilm", "encoder.frozen": True, "encoder.max_length": 32}
    for names in itertools.permutations(nested):
        by_name = ramify.XRTransformer().set_params(**{name: nested[name] for name in names})
        assert by_name.encoder.to_dict() == model.encoder.to_dict()


def test_settings_of_another_component_than_the_given_one():
    with pytest.raises(ValueError, match="TransformerEncoder has no parameter 'dim'"):
        ramify.XRTransformer().set_params(encoder="models/minilm", encoder__dim=3)
    assert ramify.XRTransformer().set_params(encoder__dim=3).encoder.dim == 3
    with pytest.raises(ValueError, match="has no parameters of its own"):
        ramify.XRLinear().set_params(beam_size__x=3)


def test_paths_are_accepted(tmp_path):
    path = tmp_path / "encoder"
    for model in (
        ramify.XRTransformer(encoder=path),
        ramify.XRTransformer().set_params(encoder=path),
        ramify.XRTransformer(encoder=ramify.TransformerEncoder(path)),
    ):
        assert model.encoder.model == str(path)
    assert ramify.Elias(checkpoint_dir=Path("checkpoints")).checkpoint_dir == "checkpoints"
    assert ramify.Elias().set_params(checkpoint_dir=Path("a")).to_dict()["checkpoint_dir"] == "a"
    with pytest.raises(ValueError, match="must be int"):
        ramify.XRLinear(seed=Path("a"))


def test_epochs_means_epochs():
    assert schedule(500, TrainingConfig(epochs=1), 1) == (500, 1)
    assert schedule(500, TrainingConfig(), 8) == (500, 100)  # 200 steps of 256: small data sets get more epochs
    assert schedule(500, TrainingConfig(epochs=1, min_steps=10), 1) == (500, 5)
    texts, labels = topics(60)
    for cls in (ramify.NeuralOneVsAll, ramify.LightDXML):
        if cls is ramify.LightDXML:
            pytest.importorskip("faiss")
        model = cls(training=TrainingConfig(epochs=2, validation_size=0, batch_size=30)).fit(texts, labels)
        assert model.predict_topk(texts, 1).k == 1
        if hasattr(model, "history_"):
            assert len(model.history_) == 2


def test_encoders_that_do_not_exist(tmp_path, monkeypatch):
    """A path is not looked up on the hub, and a hub that cannot be reached is not asked again and again."""
    for name in (str(tmp_path / "nothing"), "./nothing", "~/nothing", "a/b/c"):
        with pytest.raises(OSError, match="no such directory"):
            check_hub(name)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(OSError, match=r"no such directory, and the hub .* cannot be reached"):
        check_hub("owner/name")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(OSError, match="HF_HUB_OFFLINE"):
        check_hub("owner/name")
    pytest.importorskip("transformers")
    with pytest.raises(ramify.DataError, match=r"cannot open the model .*: no such directory"):
        ramify.XRTransformer(encoder=tmp_path / "nothing").fit(TEXTS, LABELS)


def test_a_model_without_its_encoder_says_so(capsys):
    texts, labels = topics(60)
    training = TrainingConfig(epochs=1)
    ramify.XRTransformer(training=training).fit(texts, labels)
    assert "no encoder is given, so word embeddings are trained" in capsys.readouterr().err
    ramify.XRTransformer(training=training, verbose=0).fit(texts, labels)
    ramify.XRTransformer(training=training, encoder=ramify.BagEncoder(dim=16)).fit(texts, labels)
    assert capsys.readouterr().err == ""


def test_selected_labels_as_lists():
    model = ramify.XRLinear().fit(TEXTS, LABELS)
    by_name = model.predict_selected(TEXTS[:2], [["fox", "egg"], []])
    by_id = model.predict_selected(TEXTS[:2], np.array([[1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]))
    assert (by_name != by_id).nnz == 0
    assert by_name.indices.tolist() == [0, 1]
    with pytest.raises(ramify.DataError, match="the label 'cat', which the model does not know"):
        model.predict_selected(TEXTS[:1], [["cat"]])


def test_label_features_by_label():
    texts, labels = topics(400, 150)
    names = {label: f"topic{int(label[5:]) % 12}" for row in labels for label in row}
    plain = ramify.XRLinear().fit(texts, labels)
    guided = ramify.XRLinear().fit(texts, labels, label_features=names)
    assert guided.export_tree() != plain.export_tree()
    matrix = ramify.Tfidf(sublinear_tf=True).fit_transform([names[label] for label in guided.labels_])
    assert ramify.XRLinear().fit(texts, labels, label_features=matrix).export_tree() == guided.export_tree()
    for wrong, message in (
        (list(names.values()), "a dict from each label to a text"),
        ({"other": "text"}, "a text for none of the labels"),
        (dict.fromkeys(names, 3), "one of them is int"),
        (matrix[:3], "3 rows for"),
    ):
        with pytest.raises(ramify.DataError, match=message):
            ramify.XRLinear().fit(texts, labels, label_features=wrong)
