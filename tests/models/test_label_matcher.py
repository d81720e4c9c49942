"""Labels found by their names: synonyms, qualifiers, inflection, ambiguity, labels without a training sample."""

from __future__ import annotations

import numpy as np
import pytest
from stores import change_array

import ramify

TEXTS = ["The foxes run", "an old hen", "a fox and the hens", "whales swim", "the sea", "old foxes"] * 8
LABELS = [["l1"], ["l2"], ["l1", "l2"], ["l3"], ["l4"], ["l1"]] * 8
NAMES = {
    "l1": {"name": "fox (animal)", "synonyms": ["vixen"]},
    "l2": "hen",
    "l3": {"label_en": "whale", "label_de": "Wal"},
    "l4": "old",  # occurs, but is never right
    "l9": "red panda",
    "l8": "panda",
}


@pytest.fixture(scope="module")
def model():
    return ramify.LabelMatcher(labels="catalogue").fit(TEXTS, LABELS, label_catalogue=NAMES)


def best(model, text, k=1):
    return [label for label, _ in model.predict_topk([text], k).labels()[0]]


def test_names_are_found(model):
    assert best(model, "Fox!") == ["l1"]
    assert best(model, "a vixen") == ["l1"]
    assert best(model, "Two WHALES and a hen", 2) in (["l3", "l2"], ["l2", "l3"])
    assert best(model, "der Wal") == ["l3"]
    scores = dict(model.predict_topk(["an old fox"], 6).labels()[0])
    assert scores["l1"] > 0.8
    assert scores["l4"] < 0.2  # training says that this name means nothing


def test_labels_without_a_training_sample(model, tmp_path):
    assert list(model.labels_) == ["l1", "l2", "l3", "l4", "l9", "l8"]
    assert set(best(model, "the red pandas of China", 2)) == {"l8", "l9"}
    assert model.label_counts_.counts.tolist()[-2:] == [0, 0]
    model.save(tmp_path / "m")
    assert set(best(ramify.load(tmp_path / "m"), "the red pandas of China", 2)) == {"l8", "l9"}
    seen = ramify.LabelMatcher().fit(TEXTS, LABELS, label_catalogue=NAMES)
    assert list(seen.labels_) == ["l1", "l2", "l3", "l4"]


def test_labels_that_are_not_named_follow_by_frequency(model):
    assert best(model, "nothing known", 4) == ["l1", "l2", "l3", "l4"]
    assert best(model, "a whale", 3) == ["l3", "l1", "l2"]
    assert best(model, "a whale", 3) == [label for label in best(model, "a whale", 6) if label][:3]


def test_fields(tmp_path):
    fields = [{"title": text, "body": "old" if i % 2 else ""} for i, text in enumerate(TEXTS)]
    model = ramify.LabelMatcher().fit(fields, LABELS, label_catalogue=NAMES)
    model.save(tmp_path / "m")
    for fitted in (model, ramify.load(tmp_path / "m")):
        assert fitted.predict_topk([{"body": "hens"}, {"title": "a fox"}, {}], 1).labels()[0][0][0] == "l2"


def test_explanations(model):
    parts = model.explain("an old fox", "l1").parts
    assert parts["occurrences of the name"] == 1
    assert parts["word of the first one"] == 3
    assert parts["training texts with the name"] == 24
    assert parts["of these, with the label"] == 24
    assert model.explain("an old fox", "l3").parts == {"occurrences of the name": 0}


def test_labels_of_files_are_known_by_their_text():
    model = ramify.LabelMatcher(labels="catalogue").fit(
        TEXTS[:4], [[1], [2], [1, 2], [3]], label_catalogue={"1": "fox"}
    )
    assert list(model.labels_) == [1, 2, 3]
    assert best(model, "foxes") == [1]


def test_damaged_directories_are_refused(model, tmp_path):
    changes = {
        "names_edge_nodes": lambda a: a * 0, "names_node_names": lambda a: a + 99, "entry_labels": lambda a: a + 99,
        "entry_indptr": lambda a: a[::-1].copy(), "entry_facts": lambda a: a * np.nan, "n_right": lambda a: a - 999,
        "trees_features": lambda a: a + 99, "trees_leaves": lambda a: a * np.nan, "trees_indptr": lambda a: a + 1,
        "priors": lambda a: a * np.nan,
    }  # fmt: skip
    for name, change in changes.items():
        model.save(tmp_path / "m")
        change_array(tmp_path / "m", name, change)
        with pytest.raises(ramify.ModelFormatError):
            ramify.load(tmp_path / "m")
