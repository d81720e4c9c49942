"""Blended score of classifier and similarity on a shortlist, as in LightDXML.

A candidate label l of a sample has a classifier logit z_l and a similarity score s_l ≥ 0: σ of its cosine similarity
to the sample, or the score of a first ranking. With p_l = σ(z_l),

    score_l = β · p_l + (1 - β) · s_l

depends on nothing but the label, so it is the same among all labels and among those that a filter allows. *By row* both
are relative to their maxima over the candidates of the sample, for similarities that have no scale of their own:

    score_l = (β · p_l / max p  +  (1 - β) · s_l / max s) · max p

where the factor max p makes scores comparable between samples. With β = 1 either is the probability of the classifier.
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


def blended_scores(
    ids: IntArray, logits: FloatArray, similarity_scores: FloatArray, beta: float, by_row: bool
) -> FloatArray:
    """Blended scores (n, k) of candidates (n, k); -inf for padding.

    Parameters
    ----------
    ids : (n, k) candidate labels, -1 for padding
    logits : (n, k) logits of the classifiers
    similarity_scores : (n, k) ≥ 0, 0 for padding
    beta : weight β of the classifier
    by_row : relative to the maxima of the row
    """
    probabilities = sigmoid_scores(ids, logits)
    if not by_row:
        blended = np.float32(beta) * probabilities + np.float32(1 - beta) * similarity_scores
        return np.where(ids >= 0, blended, np.float32(-np.inf))
    similarities = row_normalized(similarity_scores)
    blended = np.float32(beta) * row_normalized(probabilities) + np.float32(1 - beta) * similarities
    # Above 0, so that similarities order the candidates even where every probability underflows.
    largest = probabilities.max(axis=1, keepdims=True, initial=1e-30)
    return np.where(ids >= 0, blended * largest, np.float32(-np.inf))


def scores_among(
    classifiers: tuple[FloatArray, FloatArray],
    beta: float,
    by_row: bool,
    ids: IntArray,
    similarity_scores: FloatArray,
    phi: FloatArray,
    n_among: int,
    threads: int,
) -> FloatArray:
    """Blended scores (n, k) of candidates, in their order; maxima by row are those of the first `n_among` ones.

    So labels beside a shortlist have scores on its scale, and those of the shortlist the scores that they have alone.
    """
    found, values = native.neural.rank_blended(
        classifiers, 1.0, False, ids, np.zeros(ids.shape, np.float32), phi, ids.shape[1], threads
    )
    probabilities = np.empty_like(values)  # from the best first back to the order of the candidates
    by_id, found_by_id = (np.argsort(array, axis=1, kind="stable") for array in (ids, found))
    np.put_along_axis(probabilities, by_id, np.take_along_axis(values, found_by_id, 1), 1)
    p, s = np.where(ids >= 0, probabilities, np.float32(0)), similarity_scores
    if by_row:
        largest = p[:, :n_among].max(axis=1, keepdims=True, initial=1e-30)
        nearest = s[:, :n_among].max(axis=1, keepdims=True, initial=0)
        s = s * (largest / np.where(nearest > 0, nearest, 1))
    blended = np.float32(beta) * p + np.float32(1 - beta) * s
    return np.where(ids >= 0, blended, np.float32(-np.inf)).astype(np.float32, copy=False)


def blend_metrics_by_beta(
    betas: Sequence[float],
    by_row: bool,
    ids: IntArray,
    logits: FloatArray,
    similarity_scores: FloatArray,
    Y: Csr,
    inverse_propensities: DoubleArray,
    threads: int,
) -> dict[float, BlendMetrics]:
    """Metrics of the blended scores of candidates (n, k) for each β.

    Parameters
    ----------
    betas : weights β to evaluate
    by_row : which of the two scores
    ids, logits, similarity_scores : (n, k), as in `blended_scores`
    Y : true labels (n × L)
    inverse_propensities : (L,) weights of the labels in PSP@1
    """
    k = min(5, Y.shape[1])
    metrics = {}
    for beta in betas:
        best = native.matrix.list_topk(ids, blended_scores(ids, logits, similarity_scores, beta, by_row), k, threads)
        values = ranking_metrics(Ranking(*best, Y.shape[1]), Y, [1, k], inverse_propensities, None, 1, threads).values
        metrics[beta] = BlendMetrics(float(values["nDCG"][-1]), float(values["P"][0]), float(values["PSP"][0]))
    return metrics


def best_beta(metrics: Mapping[float, BlendMetrics], default: float = 0.75) -> float:
    """Return the β with the highest nDCG, the largest of equal ones; `default` without metrics."""
    return max(metrics, key=lambda beta: (metrics[beta].ndcg, beta), default=default)


def append_labels(
    ids: IntArray, scores: FloatArray, more_ids: IntArray, more_scores: FloatArray, k: int, threads: int
) -> tuple[IntArray, FloatArray]:
    """Ids and scores (n, k) of a ranking followed by further labels, whose scores ≥ 0 are scaled to lie below."""
    last = scores.min(axis=1, keepdims=True, initial=1.0, where=ids >= 0)
    relative = row_normalized(np.where(more_ids >= 0, more_scores, np.float32(0)))
    scaled = last * relative * np.float32(0.999)  # strictly below the last of the ranking
    return native.matrix.list_topk(np.hstack([ids, more_ids]), np.hstack([scores, scaled]), k, threads)
