"""Losses of label classifiers against their formulas, with gradients by finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify.nn.heads.losses import binary_cross_entropy, binary_cross_entropy_all, squared_hinge


def candidates(seed=1, n=6, k=9):
    random = np.random.default_rng(seed)
    logits = random.standard_normal((n, k)).astype(np.float32) * 3
    positive, mask = (random.random((n, k)) < 0.3).astype(np.float32), random.random((n, k)) < 0.8
    return logits, positive, mask


def slope(loss_at, logits, at):
    up, down = logits.astype(float), logits.astype(float)
    up[at] += 1e-5
    down[at] -= 1e-5
    return (loss_at(up) - loss_at(down)) / 2e-5


def test_binary_cross_entropy():
    logits, positive, mask = candidates()

    def loss_at(z):
        p = 1 / (1 + np.exp(-z.astype(float)))
        return -np.where(positive > 0, np.log(p), np.log(1 - p))[mask].sum() / 6

    loss, gradients = binary_cross_entropy(logits, positive, mask)
    assert loss == pytest.approx(loss_at(logits), rel=1e-5)
    for at in np.ndindex(*logits.shape):
        assert gradients[at] == pytest.approx(slope(loss_at, logits, at), abs=1e-5)


def test_negatives_below_the_minimum_probability_have_no_gradient():
    logits, positive, mask = candidates()
    loss, gradients = binary_cross_entropy(logits, positive, mask)
    clipped_loss, clipped = binary_cross_entropy(logits, positive, mask, min_negative_probability=0.2)
    easy = (positive == 0) & (logits < np.log(0.2 / 0.8))
    assert easy[mask].any()
    assert clipped_loss == loss
    assert np.array_equal(clipped, np.where(easy, 0, gradients))


def test_binary_cross_entropy_does_not_overflow():
    extreme = np.array([[200.0, -200.0, 1e30, -1e30]], np.float32)
    loss, gradients = binary_cross_entropy(extreme, np.array([[0, 1, 1, 0]], np.float32), np.ones((1, 4), bool))
    assert loss == pytest.approx(400)
    assert np.all(np.isfinite(gradients))
    large = np.clip(extreme, -1e4, 1e4)
    loss, gradients = binary_cross_entropy_all(large, sparse.csr_matrix(np.array([[0, 1, 1, 0]], np.float32)))
    assert loss == pytest.approx(100)
    assert np.all(np.isfinite(gradients))


def test_binary_cross_entropy_of_all_labels():
    logits, positive, _ = candidates()
    everywhere = np.ones(logits.shape, bool)
    loss, gradients = binary_cross_entropy_all(logits, sparse.csr_matrix(positive))
    # The mean over labels in place of their sum.
    expected_loss, expected_gradients = binary_cross_entropy(logits, positive, everywhere)
    assert loss == pytest.approx(expected_loss / 9, rel=1e-5)
    assert gradients == pytest.approx(expected_gradients / 9, rel=1e-5, abs=1e-7)


def test_squared_hinge():
    scores, positive, mask = candidates()
    weights = positive * np.random.default_rng(0).integers(1, 4, positive.shape).astype(np.float32)

    def loss_at(z):
        total = 0.0
        for i in range(6):
            own = [
                (weights[i, j] or 1) * max(0.0, 1 - (1 if positive[i, j] else -1) * z[i, j]) ** 2
                for j in range(9)
                if mask[i, j]
            ]
            total += sum(own) / max(1, len(own))
        return total / 6

    loss, gradients = squared_hinge(scores, weights, mask)
    assert loss == pytest.approx(loss_at(scores), rel=1e-5)
    for at in np.ndindex(*scores.shape):
        assert gradients[at] == pytest.approx(slope(loss_at, scores, at), abs=1e-4)


def test_losses_without_candidates_are_zero():
    nothing = np.zeros((1, 2), np.float32), np.zeros((1, 2), np.float32), np.zeros((1, 2), bool)
    for loss_function in (squared_hinge, binary_cross_entropy):
        loss, gradients = loss_function(*nothing)
        assert loss == 0
        assert not gradients.any()
