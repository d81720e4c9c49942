"""Probabilities, label sets, filters and names: one contract for every model."""

from __future__ import annotations

import numpy as np
import pytest
from test_contract import LABELS, MODELS, TEXTS, same

import ramify


@pytest.fixture(params=list(MODELS))
def make(request):
    return MODELS[request.param][0]


def test_probabilities_and_decision_rules(make, tmp_path):
    model = make().fit(TEXTS, LABELS)
    assert not model.is_calibrated
    for call in (lambda: model.predict_proba(TEXTS), lambda: model.predict_topk(TEXTS, probabilities=True)):
        with pytest.raises(ramify.NotCalibratedError, match=r"has no probabilities.*call calibrate\(X, y\)"):
            call()
    raw = model.predict_topk(TEXTS, k=5)
    assert model.calibrate(TEXTS, [row if i % 3 else ["fox"] for i, row in enumerate(LABELS)]) is model
    assert model.is_calibrated
    assert model.calibration_.n_rows == len(TEXTS)
    assert same(model.predict_topk(TEXTS, k=5), raw)  # raw scores unless asked
    ranking = model.predict_topk(TEXTS, k=5, probabilities=True)
    assert np.array_equal(ranking.ids, raw.ids)
    assert np.all(np.diff(ranking.scores, axis=1) < 0)
    assert np.all((ranking.scores > 0) & (ranking.scores < 1))
    assert np.array_equal(model.predict_topk(TEXTS, k=2, probabilities=True).scores, ranking.scores[:, :2])
    probabilities = model.predict_proba(TEXTS, k=3)
    assert (probabilities.shape, probabilities.nnz) == ((len(TEXTS), 5), 3 * len(TEXTS))
    model.save(tmp_path / "m")
    opened = ramify.load(tmp_path / "m")
    assert opened.rule_ == model.rule_ == ramify.MaximizeF1(model.rule_.slope, model.rule_.offset)
    for rule in (None, "top-k=2", ramify.Threshold(0.4), "expected-count"):
        chosen = model.predict(TEXTS, rule=rule)
        assert (chosen != opened.predict(TEXTS, rule=rule)).nnz == 0
        assert chosen.dtype == np.int8
        sets = model.predict_sets(TEXTS, rule=rule)
        assert [len(row) for row in sets.labels()] == np.diff(chosen.indptr).tolist()
    assert set(np.diff(model.predict(TEXTS, rule="top-k=2").indptr)) == {2}
    with pytest.raises(ValueError, match="unknown decision rule"):
        model.predict(TEXTS, rule="best")
    with pytest.raises(ValueError, match="has not been fitted"):
        model.predict(TEXTS, rule="target-recall=0.5")
    assert (model.predict(TEXTS, rule="maximize-f1") != model.predict(TEXTS)).nnz == 0  # as it was fitted
    model.fit(TEXTS, LABELS)  # another model: its scores have other probabilities
    assert not model.is_calibrated
    assert model.rule_ is None


def test_label_filters(make):
    """Filtered rankings are the unfiltered ones without the other labels, and full whenever there are k labels."""
    model = make().fit(TEXTS, LABELS)
    everything = model.predict_topk(TEXTS, k=5).labels()
    for options, allowed in (
        ({"allow": ["fox", "hen", "egg"]}, {"fox", "hen", "egg"}),
        ({"allow": {"whale"}}, {"whale"}),
        ({"deny": ["red"]}, {"fox", "hen", "egg", "whale"}),
        ({"allow": ["fox", "hen"], "deny": ["hen"]}, {"fox"}),
        ({"allow": model.label_filter(allow_prefix=("f", "h"))}, {"fox", "hen"}),
        ({"deny": model.label_filter(allow_prefix=("f", "h"))}, {"egg", "red", "whale"}),
        ({"allow": ["fox", "egg"], "deny": model.label_filter(allow=["fox"])}, {"egg"}),
        ({"allow": model.label_filter(where=lambda label, _: len(label) == 3), "deny": ["egg"]}, {"fox", "hen", "red"}),
    ):
        ranking = model.predict_topk(TEXTS, k=2, **options)
        assert ranking.k == 2
        for row, found in zip(everything, ranking.labels(), strict=True):
            assert [label for label, _ in found] == [label for label, _ in row if label in allowed][:2]
        assert np.all(np.diff(np.where(ranking.ids >= 0, ranking.scores, -1e30), axis=1) < 0)
    by_row = model.predict_topk(TEXTS[:3], k=2, allow=[["fox", "hen"], None, {"whale", "egg"}], deny=["hen"])
    allowed = [{"fox"}, {"fox", "egg", "red", "whale"}, {"whale", "egg"}]
    for row, found, own in zip(everything, by_row.labels(), allowed, strict=False):
        assert [label for label, _ in found] == [label for label, _ in row if label in own][:2]
    assert np.all(model.predict_topk(TEXTS, k=2, allow=[]).ids == -1)
    with pytest.raises(ramify.DataError, match="knows no label 'cat'"):
        model.predict_topk(TEXTS, allow=["cat"])
    with pytest.raises(ramify.DataError, match="2 filters for 36 rows"):
        model.predict_topk(TEXTS, allow=[["fox"], ["hen"]])
    with pytest.raises(ramify.DataError, match="collection of labels"):
        model.predict_topk(TEXTS, allow="fox")


def test_probabilities_do_not_depend_on_a_filter(make):
    model = make().fit(TEXTS, LABELS)
    model.calibrate(TEXTS, [row if i % 3 else ["fox"] for i, row in enumerate(LABELS)])
    plain = model.predict_proba(TEXTS, k=5).toarray()
    filtered = model.predict_topk(TEXTS, k=2, probabilities=True, allow=["red", "whale"]).to_csr().toarray()
    assert np.allclose(filtered[filtered > 0], plain[filtered > 0], atol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        ramify.XRLinear(),
        ramify.NeuralOneVsAll(encoder=ramify.BagEncoder(dim=16), training=ramify.TrainingConfig(epochs=2)),
    ],
    ids=["linear", "neural"],
)
def test_probabilities_of_real_labels_do_not_depend_on_a_filter(model, pydoc):
    """Scores with a filter are equal up to rounding, which must not move a label to another rank."""
    train, test = pydoc.split("train").subset(np.arange(1500)), pydoc.split("test")
    model = model.clone().set_params(verbose=0).fit(train.texts, train.labels())
    model.calibrate(test.texts[:600], test.labels()[:600])
    assert model.calibration_.method == "isotonic"
    plain = model.predict_topk(test.texts[600:750], 100, probabilities=True).to_csr().toarray()
    for step in (2, 20):
        allow = model.label_filter(allow=list(model.labels_)[::step])
        found = model.predict_topk(test.texts[600:750], 5, probabilities=True, allow=allow).to_csr().toarray()
        both = (found > 0) & (plain > 0)
        assert both.sum() > 100
        assert found[both] == pytest.approx(plain[both], abs=1e-6)


def test_decision_rules_choose_from_allowed_labels(make):
    """With a filter a rule sees the allowed labels with the probabilities that they have among all labels."""
    model = make().fit(TEXTS, LABELS)
    model.calibrate(TEXTS, [row if i % 3 else ["fox"] for i, row in enumerate(LABELS)])
    prepared = model.label_filter(allow=["red", "whale", "hen"])
    for allow, deny, allowed in (
        (["red", "whale", "hen"], None, [{"red", "whale", "hen"}] * len(TEXTS)),
        (prepared, ["hen"], [{"red", "whale"}] * len(TEXTS)),
        ([prepared, None, ["fox"]] * 12, None, [{"red", "whale", "hen"}, {*map(str, model.labels_)}, {"fox"}] * 12),
    ):
        ranking = model.predict_topk(TEXTS, k=5, probabilities=True, allow=allow, deny=deny).labels()
        for rule, choose in (
            ("top-k=2", lambda row: row[:2]),
            (ramify.Threshold(0.2), lambda row: [pair for pair in row if pair[1] >= 0.2]),
        ):
            found = model.predict_sets(TEXTS, rule=rule, allow=allow, deny=deny).labels()
            chosen = model.predict(TEXTS, rule=rule, allow=allow, deny=deny)
            assert np.array_equal(np.diff(chosen.indptr), [len(row) for row in found])
            for row, candidates, own in zip(found, ranking, allowed, strict=True):
                assert {label for label, _ in row} <= own
                assert [label for label, _ in row] == [label for label, _ in choose(candidates)]
        best = model.predict_sets(TEXTS, allow=allow, deny=deny).labels()  # by the rule that was fitted
        assert all(row and {label for label, _ in row} <= own for row, own in zip(best, allowed, strict=True))
    assert model.predict(TEXTS, allow=[]).nnz == 0


def test_label_catalogue(make, tmp_path):
    names = {"fox": {"label_en": "fox", "label_de": "Fuchs", "synonyms": ["vixen"]}, "hen": "chicken"}
    model = make().fit(TEXTS, LABELS, label_catalogue=names)
    model.save(tmp_path / "m")
    for fitted in (model, ramify.load(tmp_path / "m")):
        ranking = fitted.predict_topk(TEXTS[:5], k=5)
        shown = {label for row in ranking.labels(names="de") for label, _ in row}
        assert shown == {"Fuchs", "chicken", "whale", "red", "egg"}
        assert {label for row in ranking.labels(names=True) for label, _ in row} == {*shown, "fox"} - {"Fuchs"}
        named = fitted.predict_topk(TEXTS[:5], k=1, allow=["Vixen"]).labels()
        assert [row[0][0] for row in named] == ["fox"] * 5
    with pytest.raises(ramify.DataError, match="has no label catalogue"):
        make().fit(TEXTS, LABELS).predict_topk(TEXTS).labels(names=True)


def test_training_with_probabilities_takes_a_catalogue():
    model = ramify.OneVsAll(verbose=0).fit_calibrated(TEXTS, LABELS, fraction=0.5, label_catalogue={"hen": "chicken"})
    assert model.is_calibrated
    assert model.catalogue_.display_name("hen") == "chicken"
    with pytest.raises(ramify.DataError, match="no rows"):
        model.calibrate([], [])


def test_training_with_probabilities_takes_weights():
    """Rows of weight 0 are as if they had not been passed, in the training and in the calibration."""
    texts, labels = [*TEXTS, "fox whale hen"], [*LABELS, ["egg", "fox"]]
    weights = np.linspace(0.5, 2.0, len(texts))
    weights[-1] = 0
    found = ramify.OneVsAll(verbose=0).fit_calibrated(texts, labels, fraction=0.5, sample_weight=weights)
    expected = ramify.OneVsAll(verbose=0).fit_calibrated(TEXTS, LABELS, fraction=0.5, sample_weight=weights[:-1])
    assert np.array_equal(found.predict_proba(TEXTS).toarray(), expected.predict_proba(TEXTS).toarray())
    plain = ramify.OneVsAll(verbose=0).fit(TEXTS, LABELS, sample_weight=weights[:-1])
    assert np.array_equal(found.predict_topk(TEXTS, k=3).scores, plain.predict_topk(TEXTS, k=3).scores)
    with pytest.raises(ramify.DataError, match="one weight for each of the"):
        ramify.OneVsAll(verbose=0).fit_calibrated(TEXTS, LABELS, sample_weight=[1.0])
