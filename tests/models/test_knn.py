"""Nearest neighbors: new samples and labels, features that are left out, kept texts, damaged directories."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from neural import texts_and_labels
from scipy import sparse
from stores import change_array

import ramify
from ramify.models import knn

TEXTS = ["red fox runs", "brown hen lays eggs", "red hen sleeps", "grey whale swims"] * 3
LABELS = [["fox"], ["hen"], ["hen"], ["whale"]] * 3


def test_scores_are_fractions_of_the_votes():
    X = sparse.csr_matrix(np.array([[1, 0, 0], [0.6, 0.8, 0], [0, 0, 1]], np.float32))
    model = ramify.KNN(power=2).fit(X, [["a"], ["b"], ["c"]])
    found = dict(model.predict_topk(X[:1], 3).labels()[0])
    assert found["a"] == pytest.approx(1 / 1.36, abs=2e-4)
    assert found["b"] == pytest.approx(0.36 / 1.36, abs=2e-4)
    assert found["c"] < 1e-4
    ids, similarities = model.nearest(X[:1], 2)
    assert ids.tolist() == [[0, 1]]
    assert similarities == pytest.approx(np.array([[1, 0.6]]))


@pytest.mark.parametrize("kind", ["text", "sparse", "dense"])
def test_added_samples_count_at_once_as_if_trained_on(kind, tmp_path):
    extra, extra_labels = ["blue whale eggs", "red zebra fox"] * 2, [["whale", "blue"], ["zebra"]] * 2
    X, more = TEXTS, extra
    if kind != "text":
        tfidf = ramify.Tfidf().fit(TEXTS)
        X, more = tfidf.transform(TEXTS), tfidf.transform(extra)
        if kind == "dense":
            pytest.importorskip("faiss")
            X, more = X.toarray(), more.toarray()
    model = ramify.KNN(keep_texts=True).fit(X, LABELS)
    for i in range(4):
        assert model.add(more[i : i + 1], extra_labels[i : i + 1]) is model
    assert list(model.labels_) == ["fox", "hen", "whale", "blue", "zebra"]
    assert model.label_counts_.n_samples == 16
    ranking = model.predict_topk(more, 3)
    assert [row[0][0] for row in ranking.labels()] == ["whale", "zebra"] * 2
    model.save(tmp_path / "m")
    opened = ramify.load(tmp_path / "m")
    assert np.array_equal(opened.predict_topk(more, 3).ids, ranking.ids)
    if kind == "text":
        explanation = model.explain("red zebra fox", "zebra")
        assert explanation.neighbors[0].text == "red zebra fox"
        assert explanation.neighbors[0].has_label
        assert explanation.parts["nearest samples with the label"] == 2
    elif kind == "sparse":
        whole = ramify.KNN().fit(sparse.vstack([X, more]), [*LABELS, *extra_labels])
        expected = {tuple(sorted(row)) for row in (dict(r) for r in whole.predict_topk(more, 5).labels())}
        assert {tuple(sorted(dict(r))) for r in model.predict_topk(more, 5).labels()} == expected


def test_add_checks_its_input():
    model = ramify.KNN().fit(TEXTS, LABELS)
    with pytest.raises(ramify.DataError, match="X has 1 rows, but y has 2"):
        model.add(["red"], [["fox"], ["hen"]])
    with pytest.raises(ramify.DataError, match="trained on texts"):
        model.add(np.eye(3), [["fox"]] * 3)
    model.calibrate(TEXTS, LABELS)
    assert model.add(["red"], [["fox"]]).is_calibrated
    assert not model.add(["red"], [["new"]]).is_calibrated
    with pytest.raises(ramify.NotFittedError):
        ramify.KNN().add(["red"], [["fox"]])


def test_frequent_features_are_left_out(monkeypatch):
    monkeypatch.setattr(knn, "MIN_DROPPED", 2)
    X = np.array([[1, 0, 1], [1, 1, 0], [1, 1, 0], [1, 0, 0]], np.float32)
    model = ramify.KNN(max_df=0.5).fit(sparse.csr_matrix(X), [["a"], ["b"], ["c"], ["d"]])
    assert model.kept_.tolist() == [0, 1, 1]
    assert model.nearest(X[:1])[0][0, :2].tolist() == [0, -1]  # it shares only what all have


def test_damaged_directories_are_refused(tmp_path):
    model = ramify.KNN(keep_texts=True).fit(TEXTS, LABELS, sample_weight=np.ones(len(TEXTS)))
    changes = {
        "index0_samples": lambda a: a + 999, "index0_indptr": lambda a: a[::-1].copy(), "label_indptr": lambda a: a * 2,
        "sample_labels": lambda a: a - 5, "weights": lambda a: a * np.nan, "kept": lambda a: a + 7,
        "index0_values": lambda a: a * np.inf, "texts_offsets": lambda a: a[::-1].copy(),
    }  # fmt: skip
    for name, change in changes.items():
        model.save(tmp_path / "m")
        change_array(tmp_path / "m", name, change)
        with pytest.raises(ramify.ModelFormatError):
            ramify.load(tmp_path / "m")


@pytest.mark.parametrize("n_neighbors", [2**31 - 1, 2**31, 2**32 + 1, 2**62, 2**63 - 1])
def test_more_neighbors_than_samples_are_all_of_them(n_neighbors):
    texts, labels = ["red fox", "grey hen", "red hen"], [["fox"], ["hen"], ["hen"]]
    expected = ramify.KNN(n_neighbors=3, verbose=0).fit(texts, labels).predict_topk(["a red hen"], 2)
    found = ramify.KNN(n_neighbors=n_neighbors, verbose=0).fit(texts, labels).predict_topk(["a red hen"], 2)
    assert np.array_equal(found.scores, expected.scores)


def test_texts_are_compared_by_the_embeddings_of_a_frozen_encoder(tiny, tmp_path):
    pytest.importorskip("faiss")
    encoder = ramify.TransformerEncoder(tiny, frozen=True, cache_dir=str(tmp_path / "cache"))
    texts, labels = texts_and_labels(60)
    model = ramify.KNN(encoder=encoder, n_neighbors=5, keep_texts=True, verbose=0).fit(texts, labels)
    rows, similarities = model.nearest(texts[:3], 2)
    assert rows[:, 0].tolist() == [0, 1, 2]  # a text is nearest to itself
    assert similarities[:, 0] == pytest.approx(np.ones(3), abs=1e-4)
    model.add(["w59 w58 w57"], [["new"]])
    assert model.nearest(["w59 w58 w57"], 1)[0].tolist() == [[60]]
    ranking = model.predict_topk(["w59 w58 w57", texts[7]], 3)
    model.save(tmp_path / "m")
    opened = ramify.load(tmp_path / "m", verify=True)
    assert np.array_equal(opened.predict_topk(["w59 w58 w57", texts[7]], 3).ids, ranking.ids)
    assert opened.nearest(["w59 w58 w57"], 1)[0].tolist() == [[60]]
    assert opened.explain(texts[7]).neighbors[0].text == texts[7]
    by_fields = model.clone().fit([{"title": text} for text in texts], labels)
    assert by_fields.nearest([{"title": texts[4]}], 1)[0][0, 0] == 4
    with pytest.raises(ramify.DataError, match="X is a matrix"):
        model.clone().fit(np.eye(3), [["a"], ["b"], ["c"]])
    with pytest.raises(ValueError, match="does not train its encoder"):
        ramify.KNN(encoder=ramify.TransformerEncoder(tiny)).fit(texts, labels)


def test_an_encoder_without_texts_is_refused(tiny, tmp_path):
    pytest.importorskip("faiss")
    texts, labels = texts_and_labels(20)
    encoder = ramify.TransformerEncoder(tiny, frozen=True, cache_dir=str(tmp_path / "cache"))
    ramify.KNN(encoder=encoder, verbose=0).fit(texts, labels).save(tmp_path / "m")
    path = tmp_path / "m" / "manifest.json"
    for key, value in (("input_kind", "dense"), ("model", {"transformer": None})):
        manifest = json.loads(path.read_text())
        manifest["state"][key] = {**manifest["state"]["model"], **value} if key == "model" else value
        manifest["state"]["n_features_in"] = 16 if key == "input_kind" else None
        (tmp_path / "damaged").mkdir(exist_ok=True)
        shutil.copytree(tmp_path / "m", tmp_path / "damaged", dirs_exist_ok=True)
        (tmp_path / "damaged" / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(ramify.ModelFormatError):
            ramify.load(tmp_path / "damaged")
