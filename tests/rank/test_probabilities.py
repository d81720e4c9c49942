"""Calibration of rankings: probabilities that are right on average, in the order of the scores."""

from __future__ import annotations

import numpy as np
import pytest

import ramify
from ramify.io.store import Store, StoreWriter
from ramify.metrics.reliability import expected_calibration_error
from ramify.rank.probabilities import Calibration, fit_calibration


def rankings(n, seed=0, k=12, scale=lambda p: p**0.3):
    """Scores, best first, that are monotone in the true probability, and labels drawn from it."""
    random = np.random.default_rng(seed)
    p = -np.sort(-random.beta(0.6, 2.0, (n, k)), axis=1)
    return scale(p).astype(np.float32), random.random((n, k)) < p, p


@pytest.mark.parametrize("scale", [lambda p: p**0.3, lambda p: 8 * np.log(p), lambda p: 1 - 1e-4 * (1 - p)])
def test_probabilities_are_right_whatever_the_scale_of_the_scores(scale):
    scores, correct, _ = rankings(4000, scale=scale)
    calibration = fit_calibration(scores, correct)
    assert calibration.method == "isotonic"
    assert calibration.n_rows == 4000
    new_scores, new_correct, true_p = rankings(20_000, seed=1, scale=scale)
    p = calibration(new_scores)
    assert p.dtype == np.float32
    assert np.all(np.diff(p, axis=1) <= 0)
    assert p.min() > 0
    assert p.max() < 1
    for k in (1, 5):
        assert expected_calibration_error(p[:, :k].ravel(), new_correct[:, :k].ravel()) < 0.03
    assert np.abs(p - true_p).mean() < 0.03


def test_few_rows_use_platt_scaling():
    scores, correct, true_p = rankings(60, k=5)
    calibration = fit_calibration(scores, correct)
    assert calibration.method == "platt"
    new_scores, _, true_p = rankings(1000, seed=1, k=5)
    assert np.abs(calibration(new_scores) - true_p).mean() < 0.15
    margins, correct, _ = rankings(60, k=5, scale=lambda p: 5 * np.log(p))
    assert not fit_calibration(margins, correct).takes_logits


def test_a_score_means_less_in_a_row_with_a_better_one():
    """Rows differ by a factor on their scores, which says nothing about the labels."""
    scores, correct, _ = rankings(6000)
    factor = np.random.default_rng(2).choice([0.5, 1.0], 6000)[:, None]
    calibration = fit_calibration((scores * factor).astype(np.float32), correct)
    low, high = np.array([[0.4, 0.35]], np.float32), np.array([[0.8, 0.35]], np.float32)
    assert calibration(low)[0, 1] > 1.1 * calibration(high)[0, 1]


def test_padding_and_prefixes():
    scores, correct, _ = rankings(1000)
    calibration = fit_calibration(scores, correct)
    padded = scores[:3].copy()
    padded[:, 4:] = -np.inf
    p = calibration(padded)
    assert np.array_equal(p[:, :4], calibration(scores[:3])[:, :4])  # those of a prefix
    assert np.all(p[:, 4:] == -np.inf)
    assert calibration(scores[:0]).shape == (0, 12)
    assert calibration(scores[:2, :1]).shape == (2, 1)
    with_padding = scores.copy()
    with_padding[::2, 3:] = -np.inf
    assert np.isfinite(fit_calibration(with_padding, correct)(scores)).all()


@pytest.mark.parametrize("value", [False, True])
def test_rows_that_teach_nothing_are_refused(value):
    with pytest.raises(ramify.DataError, match=r"none|all"):
        fit_calibration(np.full((10, 3), 0.5, np.float32), np.full((10, 3), value))


@pytest.mark.parametrize("n", [60, 1000])
def test_saved_and_damaged(n, tmp_path):
    scores, correct, _ = rankings(n)
    calibration = fit_calibration(scores, correct)
    with StoreWriter(tmp_path / "m") as writer:
        writer.manifest("test", {}, {"calibration": calibration.save_to(writer, "c_")})
    store = Store(tmp_path / "m")
    info = store.state["calibration"]
    opened = Calibration.load_from(store, info, "c_")
    assert np.array_equal(opened(scores), calibration(scores))
    for wrong in (None, {}, {**info, "coefficients": [1.0]}, {**info, "sizes": [1]}, {**info, "n_rows": "x"}):
        with pytest.raises(ramify.ModelFormatError, match="calibration"):
            Calibration.load_from(store, wrong, "c_")
