"""Texts of labels as further training samples of XR-Linear."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from scipy import sparse

import ramify
from ramify.base.mixed import Mixed
from ramify.base.sparse import as_csr
from ramify.index.tree import LabelTree
from ramify.io.inputs import check_inputs
from ramify.models.label_texts import TextSamples, as_documents

TEXTS = ["red fox runs", "brown hen lays eggs", "red hen sleeps", "brown fox sleeps"] * 6 + ["a striped beast runs"]
LABELS = [["fox"], ["hen"], ["hen"], ["fox"]] * 6 + [["q1"]]
NAMES = {"fox": "fox", "hen": "hen", "q1": {"name": "zebra", "synonyms": ["lays"], "description": "sleeps, brown"}}


def csr(rows):
    return as_csr(sparse.csr_matrix(np.array(rows, np.float32)))


@pytest.mark.parametrize("kind", ["text", "fields"])
def test_a_rare_label_is_found_by_its_text(kind, tmp_path):
    def documents(texts):
        return texts if kind == "text" else [{"title": text, "body": ""} for text in texts]

    names = {**NAMES, "q1": {"name": "zebra"}}
    texts = [*TEXTS, "zebra crossing for the fox"]  # a word that no sample of the label has
    labels = [*LABELS, ["fox"]]
    found = []
    for weight in (0.0, 5.0):
        model = ramify.XRLinear(label_text_weight=weight).fit(documents(texts), labels, label_catalogue=names)
        ranking = model.predict_topk(documents(["zebra"]), 3)
        found.append([label for label, _ in ranking.labels()[0]])
    assert found[0][0] != "q1"
    assert found[1][0] == "q1"
    model.save(tmp_path / "m")
    again = ramify.load(tmp_path / "m").predict_topk(documents(["zebra"]), 3)
    assert np.array_equal(again.ids, ranking.ids)
    assert np.array_equal(again.scores, ranking.scores)


def test_texts_of_labels_are_no_negatives_of_other_labels():
    model = ramify.XRLinear(label_text_weight=50.0).fit(TEXTS, LABELS, label_catalogue=NAMES)
    for text, label in zip(TEXTS[:4], LABELS[:4], strict=True):  # "lays", "sleeps" and "brown" are words of q1, too
        assert [found for found, _ in model.predict_topk([text], 1).labels()[0]] == label
    X = csr(np.eye(3))
    texts = TextSamples.of(X, np.array([0, 3, 9]), 1.0)
    assert texts.weights == pytest.approx([1, 0.5, 0.25])
    M = texts.no_negatives(None, 2).toarray()
    assert M.tolist() == [[1], [1], [0], [0], [0]]
    M = texts.no_negatives(csr([[0, 2], [1, 0]]), 2).toarray()
    assert M.tolist() == [[0, 2], [1, 0], [0, 0], [0, 0], [0, 0]]


def test_samples_and_texts_beside_each_other():
    texts = TextSamples.of(csr([[0, 1], [0, 0], [2, 0]]), np.zeros(3), 0.5)
    assert texts.Y.toarray().tolist() == [[1, 0, 0], [0, 0, 1]]  # a label without any features adds no sample
    tree = LabelTree.from_paths([["a"], ["a"], ["b"]])
    X, Y = Mixed(csr([[1, 1]]), np.ones((1, 1), np.float32)), csr([[1, 1, 0]])
    below, nodes, relevance, weights = texts.below(X, tree.project(Y), tree.project(Y), None, tree)
    assert below.sparse.toarray().tolist() == [[1, 1], [0, 1], [2, 0]]
    assert below.dense.tolist() == [[1], [0], [0]]
    assert [level.sum(axis=1).ravel().tolist() for level in nodes] == [[[2, 1, 1]]] * 2
    assert [level.toarray().tolist() for level in relevance] == [level.toarray().tolist() for level in nodes]
    assert weights.tolist() == [1, 0.5, 0.5]


def test_texts_join_relevance_sample_weights_and_checkpoints(tmp_path):
    relevance = ramify.io.labels.encode_labels(LABELS)[0].copy()
    relevance.data[:] = np.linspace(0.5, 2, relevance.nnz)
    options = {"relevance": relevance, "sample_weight": np.linspace(1, 2, len(TEXTS)), "label_catalogue": NAMES}
    model = ramify.XRLinear(label_text_weight=1.0, checkpoint_dir=str(tmp_path)).fit(TEXTS, LABELS, **options)
    again = ramify.XRLinear(label_text_weight=1.0).fit(TEXTS, LABELS, **options)
    assert np.array_equal(model.predict_topk(TEXTS, 3).scores, again.predict_topk(TEXTS, 3).scores)


def test_a_catalogue_without_a_text_changes_nothing():
    plain = ramify.XRLinear().fit(TEXTS, LABELS).predict_topk(TEXTS, 3)
    of_no_label = pytest.warns(UserWarning, match="names none of the labels")
    for names, expected in (({"other": "fox"}, of_no_label), ({"q1": "unheard"}, nullcontext())):  # of no term
        with expected:
            model = ramify.XRLinear(label_text_weight=1.0).fit(TEXTS, LABELS, label_catalogue=names)
        found = model.predict_topk(TEXTS, 3)
        assert np.array_equal(found.ids, plain.ids)
        assert found.scores == pytest.approx(plain.scores, abs=0.05)


def test_what_label_texts_need(tmp_path):
    model = ramify.XRLinear(label_text_weight=1.0)
    with pytest.raises(ramify.DataError, match="it needs a label_catalogue with their texts"):
        model.fit(TEXTS, LABELS)
    with pytest.raises(ramify.DataError, match="it needs texts, not a matrix"):
        model.fit(np.eye(len(TEXTS)), LABELS, label_catalogue=NAMES)
    with pytest.raises(ValueError, match="train with fit"):
        model.fit_files(["train.jsonl"], work_dir=str(tmp_path))
    with pytest.raises(ValueError, match="label_text_weight"):
        ramify.XRTransformer(ranker=model).check_params()


def test_texts_as_fields():
    inputs = check_inputs([{"title": "a", "body": "b"}])
    assert as_documents(["x"], inputs, ramify.Tfidf()) == [{"title": "x"}]
    assert as_documents(["x"], inputs, ramify.Tfidf(fields={"body": 1.0, "title": 2.0})) == [{"body": "x"}]
    assert as_documents(["x"], check_inputs(["a"]), ramify.Tfidf()) == ["x"]
