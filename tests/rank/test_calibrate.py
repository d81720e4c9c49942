"""Calibrators against scikit-learn, and on simulated rankings."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from ramify.rank.calibrate import RowCalibrator, fit_row_calibrator, fit_tree_calibrator


def test_tree_calibrator_against_scikit_learn():
    random = np.random.default_rng(0)
    features = random.random((3000, 4)).astype(np.float32)
    correct = random.random(3000) < features[:, 0] * features[:, 1]
    calibrator = fit_tree_calibrator(features, correct)
    model = DecisionTreeClassifier(max_depth=5, min_samples_leaf=20, random_state=0).fit(features, correct)
    assert calibrator(features) == pytest.approx(model.predict_proba(features)[:, 1], abs=1e-6)
    assert calibrator(features)[features[:, :2].min(axis=1) > 0.8].mean() > 0.6


@pytest.mark.parametrize("value", [True, False])
def test_tree_calibrator_of_one_class(value):
    features = np.random.default_rng(0).random((50, 4)).astype(np.float32)
    assert np.all(fit_tree_calibrator(features, np.full(50, value))(features) == float(value))


def test_row_calibrator_recovers_known_parameters():
    random = np.random.default_rng(0)
    true = RowCalibrator(-0.5, 0.5, 1.0, 20.0)
    scores = -np.sort(
        -random.random((4000, 30)).astype(np.float32) * random.random((4000, 1)).astype(np.float32), axis=1
    )
    scores[::7, 20:] = -np.inf
    scores[3] = -np.inf  # an empty row
    correct = random.random(scores.shape) < true(scores)
    fitted = fit_row_calibrator(scores, correct)
    probabilities = fitted(scores)
    valid = scores > -np.inf
    assert np.abs(probabilities[valid] - true(scores)[valid]).mean() < 0.01
    assert np.array_equal(probabilities > -np.inf, valid)
    assert np.all(np.diff(np.where(valid, probabilities, 0), axis=1) <= 0)
    assert np.array_equal(fitted(scores[:, :4]), probabilities[:, :4])


def test_row_calibrator_never_reverses_the_order():
    scores = np.tile(np.array([[0.9, 0.6, 0.3]], np.float32), (50, 1))
    reversed_order = np.tile([False, False, True], (50, 1))
    fitted = fit_row_calibrator(scores, reversed_order)
    assert fitted.score_slope == fitted.gap_slope == 0
    assert fitted(scores) == pytest.approx(1 / 3, abs=0.01)
    assert fit_row_calibrator(scores, np.zeros((50, 3), bool)) is None


def test_without_the_row_a_probability_depends_on_no_other_label():
    random = np.random.default_rng(1)
    true = RowCalibrator(0.5, 2.0, 0.0, 0.0)
    scores = -np.sort(-random.random((4000, 10)).astype(np.float32), axis=1)
    fitted = fit_row_calibrator(scores, random.random(scores.shape) < true(scores), by_row=False)
    assert (fitted.best_slope, fitted.gap_slope) == (0, 0)
    assert (fitted.bias, fitted.score_slope) == pytest.approx((0.5, 2.0), abs=0.1)
    assert np.array_equal(fitted(scores[:, 4:]), fitted(scores)[:, 4:])
