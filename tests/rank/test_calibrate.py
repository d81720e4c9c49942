from __future__ import annotations

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from ramify.rank.calibrate import RowCalibrator, fit_calibrator, fit_row_calibrator


def test_gives_what_the_library_gives():
    random = np.random.default_rng(0)
    features = random.random((3000, 4)).astype(np.float32)
    right = random.random(3000) < features[:, 0] * features[:, 1]
    calibrator = fit_calibrator(features, right)
    model = DecisionTreeClassifier(max_depth=5, min_samples_leaf=20, random_state=0).fit(features, right)
    assert calibrator(features) == pytest.approx(model.predict_proba(features)[:, 1], abs=1e-6)
    assert calibrator(features)[features[:, :2].min(axis=1) > 0.8].mean() > 0.6


@pytest.mark.parametrize("value", [True, False])
def test_pairs_of_one_kind(value):
    features = np.random.default_rng(0).random((50, 4)).astype(np.float32)
    assert np.all(fit_calibrator(features, np.full(50, value))(features) == float(value))


def test_chances_by_place_in_a_row():
    random = np.random.default_rng(0)
    true = RowCalibrator(-0.5, 0.5, 1.0, 20.0)
    scores = -np.sort(
        -random.random((4000, 30)).astype(np.float32) * random.random((4000, 1)).astype(np.float32), axis=1
    )
    scores[::7, 20:] = -np.inf
    scores[3] = -np.inf  # nothing was found
    right = random.random(scores.shape) < true(scores)
    found = fit_row_calibrator(scores, right)
    chances = found(scores)
    there = scores > -np.inf
    assert np.abs(chances[there] - true(scores)[there]).mean() < 0.01
    assert np.array_equal(chances > -np.inf, scores > -np.inf)
    assert np.all(np.diff(np.where(scores > -np.inf, chances, 0), axis=1) <= 0)
    assert np.array_equal(found(scores[:, :4]), chances[:, :4])


def test_chances_never_turn_the_order_round():
    scores = np.tile(np.array([[0.9, 0.6, 0.3]], np.float32), (50, 1))
    wrong_way = np.tile([False, False, True], (50, 1))
    found = fit_row_calibrator(scores, wrong_way)
    assert found.own == found.behind == 0
    assert found(scores) == pytest.approx(1 / 3, abs=0.01)
    assert fit_row_calibrator(scores, np.zeros((50, 3), bool)) is None
