"""Score transforms against their formulas."""

from __future__ import annotations

import numpy as np
import pytest

from ramify.rank.score_transforms import ScoreTransform


def test_formulas():
    v = np.linspace(-8, 3, 50).astype(np.float32)
    parent = np.float32(-0.7)
    assert np.array_equal(ScoreTransform.parse("noop").log_score(v, parent), v)
    sigmoid = ScoreTransform.parse("sigmoid")
    assert np.allclose(sigmoid.finish(sigmoid.log_score(v)), 1 / (1 + np.exp(-v)))
    assert np.allclose(sigmoid.log_score(v, parent), np.log(1 / (1 + np.exp(-v.astype(float)))) - 0.7, atol=1e-5)
    for p in (1, 2, 3, 4.5):
        hinge, log_hinge = ScoreTransform.parse(f"l{p}-hinge"), ScoreTransform.parse(f"log-l{p}-hinge")
        expected = -(np.maximum(0, 1 - v.astype(float)) ** p)
        assert np.allclose(log_hinge.finish(log_hinge.log_score(v, parent)), expected - 0.7, rtol=1e-4, atol=1e-4)
        assert np.allclose(hinge.finish(hinge.log_score(v)), np.exp(expected), rtol=1e-3)


def test_larger_margins_break_ties():
    hinge = ScoreTransform.parse("l3-hinge")
    logs = hinge.log_score(np.array([1.0, 1.2, 1.7], np.float32))
    assert np.all(np.diff(logs) > 0)
    scores = hinge.finish(logs)
    assert np.all(np.diff(scores) > 0)
    assert np.all((scores > 0.999) & (scores < 1))


def test_norms_rank_as_hinges_with_spread_scores():
    v = np.linspace(-3, 0.9, 30).astype(np.float32)
    norm, hinge = ScoreTransform.parse("l12-norm"), ScoreTransform.parse("l12-hinge")
    assert np.array_equal(norm.log_score(v, -2.0), hinge.log_score(v, -2.0))
    assert np.allclose(norm.finish(norm.spread(norm.log_score(v))), np.exp(v - 1), rtol=1e-3)
    assert norm.finish(norm.spread(np.float32(-np.inf))) == 0
    log = ScoreTransform.parse("log-l2-norm")
    assert np.allclose(log.finish(log.spread(log.log_score(np.float32(-2), -16))), -5)
    assert np.array_equal(hinge.spread(v), v)
    wide = norm.spread(norm.log_score(np.array([1.1, 1.5], np.float32)))
    assert 0 < wide[0] < wide[1]


def test_very_negative_margins_do_not_tie():
    v = np.array([-4, -4.001, -30, -31, -200], np.float32)
    for name in ("l3-hinge", "sigmoid"):
        logs = ScoreTransform.parse(name).log_score(v)
        assert np.all(np.diff(logs) < 0)
        assert np.isfinite(logs).all()


@pytest.mark.parametrize("name", ["l3", "hinge", "l0-hinge", "l-1-hinge", "softmax", "log-noop", ""])
def test_unknown_names_are_refused(name):
    with pytest.raises(ValueError, match="unknown score transform"):
        ScoreTransform.parse(name)
