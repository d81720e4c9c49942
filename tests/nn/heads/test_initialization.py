"""Initial label classifiers: what they score before training."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify.nn.heads.initialization import init_classifiers

pytestmark = pytest.mark.native


def problem(n=400, n_labels=8, dim=12):
    random = np.random.default_rng(0)
    label_of = random.integers(0, n_labels - 1, n)  # the last label has no sample
    centroids = 3 * random.standard_normal((n_labels, dim))
    phi = (centroids[label_of] + 0.1 * random.standard_normal((n, dim)) + 5).astype(np.float32)
    Y = sparse.csr_matrix((np.ones(n, np.float32), (np.arange(n), label_of)), (n, n_labels))
    return Y, phi, label_of


def test_classifiers_point_towards_the_centroids_of_their_samples():
    Y, phi, label_of = problem()
    weights, bias = init_classifiers(Y, phi, 100, 1)
    assert weights.shape == (8, 12)
    assert weights.dtype == bias.dtype == np.float32
    logits = phi @ weights.T + bias
    assert np.array_equal(logits.argmax(axis=1), label_of)
    base_logit = np.log(0.01 / 0.99)  # one positive among 100 scored labels
    mean_logits = phi.mean(axis=0) @ weights.T + bias
    assert mean_logits == pytest.approx(np.full(8, base_logit), abs=1e-3)
    own = logits[np.arange(len(phi)), label_of]
    assert abs(own.mean()) < 0.2 * abs(base_logit)  # about 0 for an embedding like the samples of the label


def test_a_label_without_samples_scores_the_base_rate_everywhere():
    Y, phi, _ = problem()
    weights, bias = init_classifiers(Y, phi, 100, 2)
    assert not weights[-1].any()
    assert bias[-1] == pytest.approx(np.log(0.01 / 0.99), rel=1e-4)


def test_base_rate_is_at_most_one_half():
    Y, phi, _ = problem()
    weights, bias = init_classifiers(Y, phi, 1, 1)  # every scored label is positive
    assert not weights.any()
    assert not bias.any()
    weights, bias = init_classifiers(Y, np.ones_like(phi), 100, 1)  # no differences between samples
    assert np.isfinite(weights).all()
    assert np.isfinite(bias).all()
