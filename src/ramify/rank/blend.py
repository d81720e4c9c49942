"""Blended score of classifier and similarity on a shortlist, as in LightDXML.

A candidate label l of a sample has a classifier logit z_l and evidence e_l ∈ [0, 1]: the row-normalized σ of its
similarity to the sample. With p_l = σ(z_l) and the maximum over the candidates of the sample,

    score_l = (β · p_l / max p  +  (1 - β) · e_l) · max p

Normalizing by row puts both on one scale; the factor max p makes scores comparable between samples. With β = 1 the
score is the probability of the classifier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from ramify import native
from ramify.base.ranking import Ranking
from ramify.base.types import Csr, DoubleArray, FloatArray, IntArray
from ramify.metrics.ranking import ranking_metrics

BETAS = (0.0, 0.01, 0.02, 0.03, *(round(0.05 * i, 2) for i in range(1, 21)))
"""Weights β of the classifier to choose from. They are dense near 0: the similarities of a row differ so little that a
small weight already reorders them.
"""


class BlendMetrics(NamedTuple):
    """Validation metrics of the blended score, in percent."""

    ndcg: float
    """nDCG@5"""
    precision: float
    """P@1"""
    psp: float
    """PSP@1"""


def sigmoid_scores(ids: IntArray, logits: FloatArray) -> FloatArray:
    """σ(logits) (n, k) of candidates (n, k); 0 for padding."""
    return np.where(ids >= 0, expit(logits), np.float32(0))


def row_normalized(values: FloatArray) -> FloatArray:
    """Values ≥ 0 (n, k) divided by the largest of their row; zero rows stay zero."""
    largest = values.max(axis=1, keepdims=True, initial=0)
    return np.asarray(values / np.where(largest > 0, largest, 1), np.float32)


def blended_scores(ids: IntArray, logits: FloatArray, evidence: FloatArray, beta: float) -> FloatArray:
    """Blended scores (n, k) of candidates (n, k); -inf for padding.

    Parameters
    ----------
    ids : (n, k) candidate labels, -1 for padding
    logits : (n, k) logits of the classifiers
    evidence : (n, k) row-normalized similarities
    beta : weight β of the classifier
    """
    probabilities = sigmoid_scores(ids, logits)
    blended = np.float32(beta) * row_normalized(probabilities) + np.float32(1 - beta) * evidence
    # Above 0, so that the evidence orders the candidates even where every probability underflows.
    largest = probabilities.max(axis=1, keepdims=True, initial=1e-30)
    return np.where(ids >= 0, blended * largest, np.float32(-np.inf))


def blend_metrics_by_beta(
    betas: Sequence[float],
    ids: IntArray,
    logits: FloatArray,
    evidence: FloatArray,
    Y: Csr,
    inverse_propensities: DoubleArray,
    threads: int,
) -> dict[float, BlendMetrics]:
    """Metrics of the blended scores of candidates (n, k) for each β.

    Parameters
    ----------
    betas : weights β to evaluate
    ids, logits, evidence : (n, k), as in `blended_scores`
    Y : true labels (n × L)
    inverse_propensities : (L,) weights of the labels in PSP@1
    """
    k = min(5, Y.shape[1])
    metrics = {}
    for beta in betas:
        best = native.matrix.list_topk(ids, blended_scores(ids, logits, evidence, beta), k, threads)
        values = ranking_metrics(Ranking(*best, Y.shape[1]), Y, [1, k], inverse_propensities, None, 1, threads).values
        metrics[beta] = BlendMetrics(float(values["nDCG"][-1]), float(values["P"][0]), float(values["PSP"][0]))
    return metrics


def best_beta(metrics: Mapping[float, BlendMetrics], default: float = 0.75) -> float:
    """Return the β with the highest nDCG, the largest of equal ones; `default` without metrics."""
    return max(metrics, key=lambda beta: (metrics[beta].ndcg, beta), default=default)
