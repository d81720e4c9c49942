"""Bootstrap intervals, paired comparison and reliability."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import ramify
from ramify.metrics import LabelCounts, compare, inverse_propensity, reliability
from ramify.metrics.bootstrap import bootstrap_intervals, row_metrics, row_psp
from ramify.metrics.reliability import expected_calibration_error


def data(n=200, n_labels=30, k=10, seed=0):
    random = np.random.default_rng(seed)
    truth = sparse.csr_matrix((random.random((n, n_labels)) < 0.1).astype(np.float32))
    noise = random.random((2, n, n_labels))
    scores = truth.toarray()[None] * np.array([0.8, 0.4])[:, None, None] + noise
    rankings = [ramify.Ranking.from_csr(sparse.csr_matrix(s), k) for s in scores]
    return rankings, truth


def test_row_metrics_average_to_the_metrics():
    (a, _), truth = data()
    values, metrics = row_metrics(a, truth, [1, 3, 5]), ramify.evaluate(a, truth, ks=[1, 3, 5])
    for name, rows in values.items():
        assert rows.mean() == pytest.approx(metrics[name])


def test_psp_of_rows_adds_up_to_the_metric():
    (a, _), truth = data()
    training = truth[:120]
    known = ramify.evaluate(a, truth, ks=[1, 3, 10], y_train=training, confidence=0.9)
    weights = inverse_propensity(LabelCounts(120, np.asarray(training.sum(axis=0)).ravel().astype(np.int64)))
    for name, (gains, best) in row_psp(a, truth, weights, [1, 3, 10]).items():
        assert gains.sum() / best.sum() == pytest.approx(known[name])
        low, high = known.intervals[name]
        assert low < known[name] < high
        assert high - low < 25


def test_intervals_cover_the_mean():
    random = np.random.default_rng(0)
    covered = 0
    for seed in range(60):
        low, high = bootstrap_intervals(random.normal(1.0, 2.0, (80, 1)), confidence=0.9, n_resamples=300, seed=seed)
        covered += int(low[0] <= 1.0 <= high[0])
    assert 46 <= covered <= 60
    with pytest.raises(ValueError, match="confidence"):
        bootstrap_intervals(np.ones((3, 1)), confidence=1.5)
    with pytest.raises(ramify.DataError, match="no row"):
        bootstrap_intervals(np.ones((0, 1)))


def test_evaluate_with_intervals():
    (a, _), truth = data()
    result = ramify.evaluate(a, truth, ks=[1, 5], confidence=0.95)
    low, high = result.intervals["P@5"]
    assert low < result["P@5"] < high
    assert f"P@5 {low:.2f} to {high:.2f}" in str(result)


def test_comparison():
    (a, b), truth = data()
    counts = ramify.metrics.LabelCounts(200, np.arange(30)[::-1].copy())
    found = compare(a, b, truth, counts)
    value_a, value_b, difference, low, high = found.metrics["P@5"]
    assert value_a == pytest.approx(ramify.evaluate(a, truth, ks=[5])["P@5"])
    assert difference == pytest.approx(value_a - value_b)
    assert 0 < low < difference < high
    rows_a, rows_b = (row_metrics(ranking, truth, [5])["P@5"] for ranking in (a, b))
    assert (found.wins["P@5"], found.losses["P@5"]) == (int((rows_a > rows_b).sum()), int((rows_a < rows_b).sum()))
    in_a, in_b = (
        {(i, j) for i, row in enumerate(ranking.ids[:, :5]) for j in row if truth[i, j]} for ranking in (a, b)
    )
    first_decile = [(sum(j < 3 for _, j in in_a - in_b), sum(j < 3 for _, j in in_b - in_a))]
    assert found.by_decile[:1] == first_decile
    assert sum(x for x, _ in found.by_decile) == len(in_a - in_b)
    assert "A only" in str(found)
    same = compare(a, a, truth)
    assert same.metrics["P@1"][2:] == (0, 0, 0)


def test_comparison_of_models_with_other_label_ids():
    (a, b), truth = data()
    names = [f"l{i}" for i in range(30)]
    rows = [[names[j] for j in row] for row in np.split(truth.indices, truth.indptr[1:-1])]
    order = np.random.default_rng(1).permutation(30)
    position = np.argsort(order)
    named_a = ramify.Ranking(a.ids, a.scores, 30, names)
    named_b = ramify.Ranking(position[b.ids], b.scores, 30, [names[j] for j in order])
    found, expected = compare(named_a, named_b, rows), compare(a, b, truth)
    assert found.metrics == expected.metrics
    with pytest.raises(ramify.DataError, match="at least 5 labels"):
        compare(named_a.top(3), named_b, rows)


def test_reliability():
    random = np.random.default_rng(0)
    p = -np.sort(-random.random((3000, 5)).astype(np.float32), axis=1)
    truth = sparse.csr_matrix((random.random((3000, 5)) < p).astype(np.float32))
    ids = np.tile(np.arange(5, dtype=np.int32), (3000, 1))
    good = reliability(ramify.Ranking(ids, p, 5, are_probabilities=True), truth, np.arange(5, dtype=np.uint8), 5)
    assert max(good.ece.values()) < 0.03
    over = reliability(ramify.Ranking(ids, np.minimum(p + 0.2, 1).astype(np.float32), 5), truth)
    assert 0.1 < over.ece[5] <= 0.2
    assert over.brier[5] > good.brier[5]
    assert sum(n for _, _, n, _, _ in good.bins) == 15000
    assert [n for n, _, _ in good.by_decile] == [3000] * 5
    result = ramify.evaluate(ramify.Ranking(ids, p, 5, are_probabilities=True), truth)
    assert result["ECE@1"] == good.ece[1]
    assert "ECE@1" in str(result)
    with pytest.raises(ramify.DataError, match="not probabilities"):
        reliability(ramify.Ranking(ids, p * 7, 5), truth)


def test_calibration_error_by_hand():
    p = np.array([0.1] * 16 + [0.9] * 14, np.float32)
    correct = np.array([False] * 16 + [True] * 14)
    assert expected_calibration_error(p, correct) == pytest.approx(0.1, abs=1e-6)
    assert expected_calibration_error(p[:0], correct[:0]) == 0
