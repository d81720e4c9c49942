"""Labels by weights between words of samples and of label texts: unseen labels, explanations, files."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from stores import change_array, edit_manifest

import ramify
from ramify.models.zestxml import first_words
from ramify.rank.bilinear import BilinearConfig, find_links

TEXTS = ["panels on the roof", "wine and beer", "roof panels and beer", "old wine", "taxes on beer"] * 8
LABELS = [["l1"], ["l2"], ["l1", "l2"], ["l2"], ["l2", "l3"]] * 8
NAMES = {
    "l1": "solar energy",
    "l2": {"name": "drink", "synonyms": ["beverage"]},
    "l3": {"name": "tax", "description": "money for the state"},
    "l8": "solar law",  # no training sample: shares a word with l1
    "l9": "windmill",  # no training sample
}


@pytest.fixture(scope="module")
def model():
    return ramify.ZestXML(labels="catalogue").fit(TEXTS, LABELS, label_catalogue=NAMES)


def best(model, text, k=1, **options):
    return [label for label, _ in model.predict_topk([text], k, **options).labels()[0]]


def test_words_of_texts_lead_to_words_of_labels(model):
    assert best(model, "panels") == ["l1"]
    assert best(model, "panels", 2) == ["l1", "l8"]  # "panels" goes with "solar", and so with another label that has it
    assert best(model, "two beers", 1) == ["l2"]


def test_labels_without_a_training_sample_are_found_by_common_words(model, tmp_path):
    assert best(model, "Windmills!") == ["l9"]
    assert best(model, "a windmill", allow=["l8", "l9"]) == ["l9"]
    assert best(model, "the state", 1, deny=["l1", "l2"]) == ["l3"]  # of the description
    seen = ramify.ZestXML().fit(TEXTS, LABELS, label_catalogue=NAMES)
    assert list(seen.labels_) == ["l1", "l2", "l3"]
    model.save(tmp_path / "m")
    opened = ramify.load(tmp_path / "m")
    for k, options in ((5, {}), (2, {"allow": ["l3", "l9"]})):
        own, other = (each.predict_topk(TEXTS[:5], k, **options) for each in (model, opened))
        assert np.array_equal(own.ids, other.ids)
        assert np.array_equal(own.scores, other.scores)


def test_less_is_transferred_to_labels_without_a_sample():
    scores = [
        dict(
            ramify.ZestXML(labels="catalogue", transfer=transfer)
            .fit(TEXTS, LABELS, label_catalogue=NAMES)
            .predict_topk(["panels", "windmill"], 5)
            .labels()[0]
        )["l8"]
        for transfer in (0.0, 0.3, 1.0)
    ]
    assert scores[0] < 1e-4 < scores[1] < scores[2]  # at 0, nothing but common words speaks for it


def test_labels_that_nothing_speaks_for_follow_by_frequency(model):
    assert best(model, "unknown", 5) == ["l2", "l1", "l3", "l8", "l9"]


def test_explanations_name_pairs_of_terms(model):
    explanation = model.explain("panels on windmills", "l8")
    assert "panels × solar" in explanation.parts
    assert not any("label itself" in pair for pair in explanation.parts)  # it has no sample, and no feature of its own
    assert model.explain("windmills", "l9").terms[0][0] == "windmills"
    level = model.explain("panels and beer", "l2").levels[0]
    assert level.margin == pytest.approx(level.bias + sum(value for _, value in level.contributions), abs=1e-5)
    assert explanation.score == pytest.approx(np.exp(explanation.levels[0].log_score), abs=2e-4)


def test_matrices_fields_and_no_catalogue():
    X = sparse.csr_matrix(np.eye(5, dtype=np.float32)[[0, 1, 2, 3, 4] * 8])
    for given in (X, X.toarray() + 0.1):
        model = ramify.ZestXML().fit(given, LABELS)
        assert model.predict_topk(given[:1], 1).labels()[0][0][0] == "l1"
        assert model.explain(given[:1], "l1").parts
    fields = [{"title": text, "body": "old"} for text in TEXTS]
    model = ramify.ZestXML(labels="catalogue").fit(fields, LABELS, label_catalogue=NAMES)
    assert model.predict_topk([{"body": "windmills"}], 1).labels()[0][0][0] == "l9"
    assert best(ramify.ZestXML().fit(TEXTS, LABELS), "panels") == ["l1"]


def test_links_are_between_terms_that_go_together():
    X = sparse.csr_matrix(np.array([[1, 0, 1], [1, 0, 0], [0, 1, 0], [0, 1, 1]], np.float32))
    T = sparse.csr_matrix(np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32))
    links = find_links(X, T, 1, 1).toarray()
    assert links[0, 0] > 0.3
    assert links[1, 1] > 0.3
    assert not links[0, 1]
    assert not links[1, 0]
    assert not links[2].any()  # in as many samples of the one as of the other


def test_evidence_has_the_scores_of_the_ranking_and_what_is_common(model):
    inputs = model._check_predict_inputs(["panels", "windmills", ""])
    evidence = model._evidence(inputs, 3)
    assert tuple(evidence.columns) == model.evidence_columns
    assert evidence.rows.tolist() == sorted(evidence.rows.tolist())
    of_second = evidence.rows == 1
    assert model.labels_[evidence.ids[of_second][0]] == "l9"
    assert evidence.columns["common"][of_second][0] > 0.9
    assert evidence.columns["covered"][of_second][0] == pytest.approx(1, abs=1e-5)
    assert not (evidence.rows == 2).any()


def test_without_links_only_common_terms_count():
    by_letters = ramify.Tfidf(analyzer="char_wb", ngram_range=(4, 4))
    model = ramify.ZestXML(features=by_letters, labels="catalogue", identity=0, bilinear=BilinearConfig(n_links=0))
    model.fit(TEXTS, LABELS, label_catalogue=NAMES)
    assert best(model, "the windmachine") == ["l9"]
    inputs = model._check_predict_inputs(["windmachines", "", "the old panels"])
    evidence = model._evidence(inputs, 4)
    assert not evidence.columns["terms"].any()
    assert np.allclose(evidence.columns["score"], model.model_.direct * evidence.columns["common"], atol=1e-6)
    assert model.labels_[evidence.ids[0]] == "l9"
    assert model.explain("windmachine", "l9").terms


def test_first_words_are_evidence_of_their_own(model):
    long = "a windmill " + "of old panels and wine and beer " * 4
    evidence = model._evidence(model._check_predict_inputs([long, " ".join(long.split()[::-1])]), 5)
    of_label = evidence.ids == list(model.labels_).index("l9")
    first, last = evidence.columns["lead"][of_label]
    assert first > evidence.columns["common"][of_label][0] > 0 == last
    assert first_words({"title": long, "body": ""})["title"].split() == long.split()[:12]


def test_damaged_directories_are_refused(model, tmp_path):
    changes = {
        "label_terms_indices": lambda a: a + 999, "label_terms_indptr": lambda a: a[::-1].copy(),
        "label_terms_data": lambda a: a * np.nan, "weights_indices": lambda a: a - 999,
        "weights_indptr": lambda a: a + 1, "weights_data": lambda a: a * np.inf,
    }  # fmt: skip
    for name, change in changes.items():
        model.save(tmp_path / "m")
        change_array(tmp_path / "m", name, change)
        with pytest.raises(ramify.ModelFormatError):
            ramify.load(tmp_path / "m")
    for key in ("bias", "direct", "features"):
        model.save(tmp_path / "m")
        edit_manifest(tmp_path / "m", lambda manifest, key=key: manifest["state"]["model"].update({key: "no"}))
        with pytest.raises(ramify.ModelFormatError):
            ramify.load(tmp_path / "m")
