"""Blended scores of classifier and similarity against their formula, and the choice of β."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify import native
from ramify.rank.blend import (
    BETAS,
    BlendMetrics,
    best_beta,
    blend_metrics_by_beta,
    blended_scores,
    row_normalized,
    sigmoid_scores,
)

pytestmark = pytest.mark.native


def test_blended_scores_against_the_formula():
    ids = np.array([[4, 2, 7], [1, -1, -1], [-1, -1, -1], [5, 6, -1]], np.int32)
    logits = np.array([[0.0, 2.0, -800.0], [-3.0, 0, 0], [0, 0, 0], [-200, -200, 0]], np.float32)
    similarities = np.array([[0.9, 0.5, 0.1], [0.2, -np.inf, -np.inf], [-np.inf] * 3, [0.1, 0.2, -np.inf]], np.float32)
    probabilities, similarity_scores = sigmoid_scores(ids, logits), sigmoid_scores(ids, similarities)
    normalized = row_normalized(similarity_scores)
    largest = 1 / (1 + np.exp(-2))
    assert probabilities[0] == pytest.approx([0.5, largest, 0], abs=1e-6)
    assert row_normalized(probabilities)[0] == pytest.approx([0.5 / largest, 1, 0], abs=1e-6)
    assert row_normalized(probabilities)[1].tolist() == [1, 0, 0]
    assert not row_normalized(probabilities)[2].any()
    # With β = 1 the score is the probability of the classifier.
    assert blended_scores(ids, logits, similarity_scores, 1.0, True)[0] == pytest.approx(probabilities[0])
    assert blended_scores(ids, logits, similarity_scores, 0.0, True)[0] == pytest.approx(largest * normalized[0])
    blended = blended_scores(ids, logits, similarity_scores, 0.25, True)
    assert blended[0] == pytest.approx(largest * (0.25 * row_normalized(probabilities)[0] + 0.75 * normalized[0]))
    assert np.all(np.isneginf(blended[ids < 0]))
    assert blended[3, 1] > blended[3, 0] > 0  # ordered although every probability underflows
    absolute = blended_scores(ids, logits, similarity_scores, 0.25, False)
    assert absolute[0] == pytest.approx(0.25 * probabilities[0] + 0.75 * similarity_scores[0])
    assert np.all(np.isneginf(absolute[ids < 0]))
    assert absolute[0, 1:] == pytest.approx(
        blended_scores(ids[:, 1:], logits[:, 1:], similarity_scores[:, 1:], 0.25, False)[0]
    )


def test_metrics_by_beta():
    random = np.random.default_rng(0)
    n, n_labels = 200, 30
    Y = sparse.csr_matrix(np.eye(n_labels, dtype=np.float32)[random.integers(0, n_labels, n)])
    ids = np.argsort(random.random((n, n_labels)), axis=1)[:, :20].astype(np.int32)
    correct = native.matrix.ranking_hits(ids, Y, 1)
    informative = 4 * correct + random.standard_normal(ids.shape).astype(np.float32)
    noise = random.random(ids.shape).astype(np.float32)
    weights = np.ones(n_labels)
    metrics = blend_metrics_by_beta(BETAS, False, ids, informative, noise, Y, weights, 2)
    assert list(metrics) == list(BETAS)
    assert metrics[1.0].precision > metrics[0.0].precision
    assert metrics[1.0].precision == pytest.approx(metrics[1.0].psp)  # equal propensities
    assert best_beta(metrics) > 0.5
    similarity_scores = sigmoid_scores(ids, informative)
    assert best_beta(blend_metrics_by_beta(BETAS, False, ids, noise, similarity_scores, Y, weights, 1)) < 0.5
    expected = native.matrix.list_topk(ids, blended_scores(ids, informative, noise, 1.0, False), 1, 1)[0]
    assert metrics[1.0].precision == pytest.approx(100 * native.matrix.ranking_hits(expected, Y, 1).mean())


def test_best_beta():
    metrics = {0.0: BlendMetrics(50, 1, 1), 0.3: BlendMetrics(60, 1, 1), 0.6: BlendMetrics(60, 0, 0)}
    assert best_beta(metrics) == 0.6  # the largest of equal ones
    assert best_beta({}) == 0.75
    assert best_beta({}, default=0.5) == 0.5
