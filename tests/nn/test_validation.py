"""Validation metrics of a model in training."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import sparse

import ramify
from ramify.base.mixed import Mixed
from ramify.metrics.propensity import LabelCounts, inverse_propensity
from ramify.nn.encoders.samples import Samples
from ramify.nn.heads.all_labels import AllLabels
from ramify.nn.heads.losses import binary_cross_entropy
from ramify.nn.heads.shortlist import ShortlistHead, candidate_logits
from ramify.nn.validation import BlendValidator, FixedCandidates, RankingValidator, ValidationScore
from ramify.rank.blend import BETAS, blended_scores

pytestmark = pytest.mark.native


class Identity:
    """An encoder whose embeddings are the dense features."""

    def encode(self, samples, threads):
        return samples.features.dense


def problem(n=60, n_labels=25, dim=6, seed=0):
    random = np.random.default_rng(seed)
    weights, bias = (random.standard_normal(shape).astype(np.float32) for shape in ((n_labels, dim), n_labels))
    phi = random.standard_normal((n, dim)).astype(np.float32)
    logits = phi @ weights.T + bias + random.standard_normal((n, n_labels))
    Y = sparse.csr_matrix((logits > np.sort(logits, axis=1)[:, [-3]]).astype(np.float32))
    return weights, bias, Samples(Mixed.of(phi)), Y


def none_of(samples, Y):
    return samples.take(np.arange(0)), Y[:0]


def ranking_of(logits, k, n_labels):
    ids = np.argsort(-logits, axis=1)[:, :k].astype(np.int32)
    return ramify.Ranking(ids, np.take_along_axis(logits, ids, 1), n_labels)


# ---- ranking ----


def test_ranking_validator_evaluates_the_search_of_the_head():
    weights, bias, samples, Y = problem()
    head, validator = AllLabels(weights, bias), RankingValidator(samples, Y, 2)
    score = validator.validate(Identity(), head, 1)
    expected = ramify.evaluate(ranking_of(samples.features.dense @ weights.T + bias, 5, 25), Y)
    assert score == ValidationScore(pytest.approx(expected["nDCG@5"]), pytest.approx(expected["P@1"]))
    assert score.precision > 50
    assert validator.state() == {}


def test_ranking_validator_with_few_labels():
    weights, bias, samples, Y = problem(n_labels=4)
    score = RankingValidator(samples, Y, 1).validate(Identity(), AllLabels(weights, bias), 1)
    expected = ramify.evaluate(ranking_of(samples.features.dense @ weights.T + bias, 4, 4), Y, ks=[1, 4])
    assert score.ndcg == pytest.approx(expected["nDCG@4"])


def test_without_validation_samples_there_is_no_score():
    weights, bias, samples, Y = problem()
    assert RankingValidator(*none_of(samples, Y), 1).validate(Identity(), AllLabels(weights, bias), 1) is None


# ---- blended score ----


def blend_validator(beta=None, bias_weight=0.0, empty=False, n_candidates=12):
    weights, bias, samples, Y = problem()
    random = np.random.default_rng(1)
    ids = np.argsort(random.random((60, 25)), axis=1)[:, :n_candidates].astype(np.int32)
    ids[5, 3:] = -1
    similarity_scores = np.where(ids >= 0, random.random(ids.shape), 0).astype(np.float32)
    inverse = inverse_propensity(LabelCounts.of(Y))
    shift = (bias_weight * np.log(inverse)).astype(np.float32)
    held_out = none_of(samples, Y) if empty else (samples, Y)
    validator = BlendValidator(*held_out, FixedCandidates(ids, similarity_scores), inverse, shift, beta, False, 1)
    return validator, ShortlistHead(weights, bias, binary_cross_entropy)


def test_fixed_candidates_do_not_depend_on_the_embeddings():
    ids, similarity_scores = np.zeros((3, 2), np.int32), np.ones((3, 2), np.float32)
    source = FixedCandidates(ids, similarity_scores)
    for embeddings in (np.zeros((3, 5), np.float32), np.ones((3, 5), np.float32)):
        assert source.candidates(embeddings) == (ids, similarity_scores)


@pytest.mark.parametrize("bias_weight", [0.0, 0.7])
def test_metrics_by_beta_are_those_of_the_blended_ranking(bias_weight):
    validator, head = blend_validator(bias_weight=bias_weight)
    metrics = validator.metrics_by_beta(Identity(), head)
    assert tuple(metrics) == BETAS
    assert validator.bias_shift.any() == (bias_weight > 0)
    ids, similarity_scores = validator.source.candidates(None)
    logits = candidate_logits(head.labels, ids, validator.samples.features.dense, 1, validator.bias_shift)
    for beta in (0.0, 0.5, 1.0):
        blended = blended_scores(ids, logits, similarity_scores, beta, False)
        order = np.argsort(-blended, axis=1, kind="stable")[:, :5]
        ranking = ramify.Ranking(np.take_along_axis(ids, order, 1), np.take_along_axis(blended, order, 1), 25)
        counts = LabelCounts(60, np.bincount(validator.Y.indices, minlength=25))
        expected = ramify.evaluate(ranking, validator.Y, counts)
        assert metrics[beta].ndcg == pytest.approx(expected["nDCG@5"])
        assert metrics[beta].precision == pytest.approx(expected["P@1"])
        assert metrics[beta].psp == pytest.approx(expected["PSP@1"])


def test_a_given_beta_is_validated_alone():
    validator, head = blend_validator(beta=0.3)
    score = validator.validate(Identity(), head, 1)
    metrics = validator.metrics_by_beta(Identity(), head, [0.3])
    assert list(metrics) == [0.3]
    assert score == (metrics[0.3].ndcg, metrics[0.3].precision)


def test_without_beta_the_best_of_a_coarse_grid_is_validated():
    validator, head = blend_validator()
    score = validator.validate(Identity(), head, 1)
    metrics = validator.metrics_by_beta(Identity(), head, BETAS[::-4])
    assert 0 < len(metrics) < len(BETAS)
    assert 1.0 in metrics
    assert score.ndcg == max(m.ndcg for m in metrics.values())


def test_the_curve_has_one_row_for_each_validation():
    validator, head = blend_validator()
    assert validator.curve == []
    for epoch in (1, 3):
        score = validator.validate(Identity(), head, epoch)
        head.labels.weights[...] *= -1
    assert [row[0] for row in validator.curve] == [1, 3]
    assert validator.curve[1][1] == score.precision
    assert validator.curve[0][1] > validator.curve[1][1]
    assert all(len(row) == 3 for row in validator.curve)
    resumed, _ = blend_validator()
    resumed.set_state(json.loads(json.dumps(validator.state())))
    assert resumed.curve == validator.curve


def test_without_validation_samples_the_curve_is_empty():
    validator, head = blend_validator(empty=True)
    assert validator.metrics_by_beta(Identity(), head) == {}
    assert validator.validate(Identity(), head, 1) is None
    assert validator.curve == []
