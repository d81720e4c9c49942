"""Decision rules against plain implementations, and their guarantees on fresh rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import ramify
from ramify.io.store import Store, StoreWriter
from ramify.rank.conformal import hoeffding_bentkus, largest_mean
from ramify.rank.decision_rule import HeldOut, mean_f1
from ramify.rank.decisions import RULES, MaximizeF1, Threshold, TopK, load_rule, parse_rule, requested_rule


def held_out(n, seed=0, k=15, n_labels=40):
    """Rows whose probabilities are true, and some true labels that are no candidates."""
    random = np.random.default_rng(seed)
    p = -np.sort(-random.beta(0.5, 2.5, (n, k)), axis=1).astype(np.float32)
    ids = np.argsort(random.random((n, n_labels)), axis=1)[:, :k].astype(np.int32)
    correct = random.random((n, k)) < p
    rows = [set(ids[i][correct[i]]) | set(random.integers(40, 44, random.integers(0, 2))) for i in range(n)]
    truth = sparse.lil_matrix((n, 44), dtype=np.float32)
    for i, row in enumerate(rows):
        for label in row:
            truth[i, label] = 1
    return HeldOut(ids, p, truth.tocsr(), n_labels)


def sets(rule, data):
    chosen = rule.choose(data.ids, data.probabilities)
    return [set(ids[mask].tolist()) for ids, mask in zip(data.ids, chosen, strict=True)]


def true_sets(data):
    return [set(row.tolist()) for row in np.split(data.truth.indices, data.truth.indptr[1:-1])]


def f1(chosen, truth):
    values = [2 * len(a & b) / (len(a) + len(b)) for a, b in zip(chosen, truth, strict=True) if b]
    return float(np.mean(values))


@pytest.mark.parametrize("name", ["threshold", "top-k", "maximize-f1"])
def test_fitted_rules_have_the_best_f1_of_their_kind(name):
    data = held_out(300)
    truth = true_sets(data)
    options = {
        "threshold": [ramify.Threshold(t / 100) for t in range(1, 100)],
        "top-k": [ramify.TopK(k) for k in range(1, 16)],
        "maximize-f1": [ramify.MaximizeF1()],
    }[name]
    fitted = parse_rule(name).fit(data)
    found = f1(sets(fitted, data), truth)
    assert found >= max(f1(sets(rule, data), truth) for rule in options) - 1e-9
    counts = fitted.choose(data.ids, data.probabilities).sum(axis=1)
    assert mean_f1(data.hits, data.n_true, counts) == pytest.approx(found)


def test_expected_f1_beats_every_threshold_and_every_k_on_new_rows():
    dev, test = held_out(1500), held_out(1500, seed=1)
    truth = true_sets(test)
    best = f1(sets(ramify.MaximizeF1().fit(dev), test), truth)
    assert best > f1(sets(ramify.Threshold().fit(dev), test), truth)
    assert best > f1(sets(ramify.TopK().fit(dev), test), truth)


def test_expected_count():
    dev = held_out(2000)
    rule = ramify.ExpectedCount().fit(dev)
    n_chosen = rule.choose(dev.ids, dev.probabilities).sum()
    assert n_chosen / dev.n_true.sum() == pytest.approx(1, abs=0.05)


def test_thresholds_by_label_against_a_plain_implementation():
    data = held_out(400)
    rule = ramify.PerLabelThreshold(min_samples=3).fit(data)
    shared = ramify.Threshold().fit(data).value
    hits, n_true = data.hits, np.bincount(data.truth.indices, minlength=44)
    for label in range(40):
        at = data.ids == label
        p, correct = data.probabilities[at], hits[at]
        if correct.sum() < 3:
            assert rule.thresholds[label] == np.float32(shared)
            continue
        values = {t: 2 * correct[p >= t].sum() / ((p >= t).sum() + n_true[label]) for t in p}
        chosen = p >= rule.thresholds[label]
        found = 2 * correct[chosen].sum() / (chosen.sum() + n_true[label])
        assert found == pytest.approx(max(values.values()))


def test_targets_hold_as_often_as_promised():
    """On fresh rows: recall on average, recall and precision with confidence in nearly all of 30 repetitions."""
    test = held_out(4000, seed=99)
    truth = true_sets(test)

    def metrics(rule):
        chosen = sets(rule, test)
        recall = np.mean([len(a & b) / len(b) for a, b in zip(chosen, truth, strict=True) if b])
        precision = np.mean([len(a & b) / len(a) for a, b in zip(chosen, truth, strict=True) if a])
        return recall, precision

    recalls, sure_recalls, precisions = [], [], []
    for seed in range(30):
        dev = held_out(800, seed=seed)
        recalls.append(metrics(ramify.TargetRecall(0.6, confidence=None).fit(dev))[0])
        sure_recalls.append(metrics(ramify.TargetRecall(0.6).fit(dev))[0])
        precisions.append(metrics(ramify.TargetPrecision(0.4).fit(dev))[1])
    assert np.mean(recalls) >= 0.595
    assert np.mean(recalls) < 0.65  # and not by far more labels than needed
    assert np.mean(np.array(sure_recalls) >= 0.6) >= 0.85  # the default promises 0.9
    assert np.mean(np.array(precisions) >= 0.4) >= 0.85
    assert np.mean(precisions) < 0.55


def test_targets_that_cannot_be_met_are_refused():
    data = held_out(200)
    with pytest.raises(ramify.DataError, match=r"recall of 0\.99 cannot be guaranteed"):
        ramify.TargetRecall(0.99).fit(data)
    with pytest.raises(ramify.DataError, match=r"precision of 0\.99 cannot be guaranteed"):
        ramify.TargetPrecision(0.99).fit(data)
    with pytest.raises(ramify.DataError, match="cannot be guaranteed"):
        ramify.TargetRecall(0.5).fit(held_out(3))


def test_bounds():
    assert hoeffding_bentkus(0.3, 1000, 0.3) > 0.5  # no doubt about a mean of α
    assert hoeffding_bentkus(0.1, 1000, 0.3) < 1e-6
    assert hoeffding_bentkus(0.0, 0, 0.3) == 1
    means = np.random.default_rng(0).binomial(200, 0.3, 4000) / 200  # the null hypothesis, at its border
    assert np.mean(hoeffding_bentkus(means, np.full(4000, 200), 0.3) <= 0.1) <= 0.1
    assert largest_mean(1000, 0.3, None) == pytest.approx((0.3 * 1001 - 1) / 1000)
    assert 0.2 < largest_mean(1000, 0.3, 0.9) < 0.3
    assert largest_mean(2, 0.1, 0.99) < 0


@pytest.mark.parametrize(("text", "rule"), [
    ("maximize-f1", ramify.MaximizeF1()),
    ("top-k=3", ramify.TopK(3)),
    ("threshold=0.25", ramify.Threshold(0.25)),
    ("target-recall=0.5", ramify.TargetRecall(0.5)),
    ("target-precision=0.7", ramify.TargetPrecision(0.7)),
    ("expected-count", ramify.ExpectedCount()),
])  # fmt: skip
def test_rules_by_name(text, rule):
    assert parse_rule(text) == rule
    assert parse_rule(rule) is rule


@pytest.mark.parametrize("text", ["best", "top-k=x", "maximize-f1=3", "threshold=7", "top-k=0", "target-recall=1.5"])
def test_unknown_rules_are_refused(text):
    with pytest.raises(ValueError, match=r"rule|between 0 and 1|positive integer"):
        parse_rule(text)


def test_rules_that_must_be_fitted_say_so():
    data = held_out(5)
    for name in ("threshold", "top-k", "target-recall", "target-precision", "per-label-threshold"):
        with pytest.raises(ValueError, match="has not been fitted; pass it to calibrate"):
            RULES[name]().choose(data.ids, data.probabilities)


def test_requests_name_the_fitted_rule():
    data = held_out(400)
    for name, cls in RULES.items():
        fitted = cls(0.05).fit(data) if cls.has_guarantee else cls().fit(data)
        named = [name, "default", f"{name}=0.05"] if cls.has_guarantee else [name, "default", cls()]
        for rule in named:
            assert requested_rule(rule, fitted) is fitted, rule
        if cls.has_guarantee:
            assert requested_rule(cls(0.2), fitted) == cls(0.2)  # another promise
    assert requested_rule("threshold=0.3", Threshold(0.4)) == Threshold(0.3)
    assert requested_rule("top-k", Threshold(0.4)) == TopK()
    assert requested_rule("maximize-f1", None) == MaximizeF1()
    with pytest.raises(ValueError, match="no decision rule of its own"):
        requested_rule("default", None)


def test_padding_is_never_chosen():
    data = held_out(400)
    ids, p = data.ids.copy(), data.probabilities.copy()
    ids[:, 1:], p[:, 1:] = -1, -np.inf
    for name, cls in RULES.items():
        rule = (cls(0.2) if name.startswith("target") else cls()).fit(data)
        assert not rule.choose(ids, p)[:, 1:].any(), name


def test_damaged_rules_are_refused(tmp_path):
    with StoreWriter(tmp_path / "m") as writer:
        writer.manifest("test", {}, {})
    store = Store(tmp_path / "m")
    for wrong in (
        None,
        {},
        {"name": "oracle"},
        {"name": "top-k", "k": "3"},
        {"name": "top-k", "n": 3},
        {"name": "maximize-f1", "slope": None},
        {"name": "target-recall", "recall": 5},
        {"name": "per-label-threshold", "is_fitted": True},
    ):
        with pytest.raises(ramify.ModelFormatError, match=r"decision rule|no array"):
            load_rule(store, wrong, "rule_", 3)
    assert load_rule(store, {"name": "top-k", "k": 3}, "rule_", 3) == ramify.TopK(3)
