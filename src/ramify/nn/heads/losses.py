"""Losses of label classifiers, with their gradients by logit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ramify.base.sparse import entry_rows
from ramify.base.types import BoolArray, Csr, FloatArray

CandidateLoss = Callable[[FloatArray, FloatArray, BoolArray, FloatArray | None], tuple[float, FloatArray]]
"""Loss and gradients (n, k) of scores (n, k), weights above 0 for positives (n, k) and a mask of candidates (n, k).

The last argument are factors on the losses of the samples (n,); None: 1.
"""


def mean_weights(n: int, sample_weight: FloatArray | None) -> FloatArray:
    """Weight (n,) of each sample in a mean over n samples."""
    weights = np.full(n, 1 / max(1, n), np.float32)
    return weights if sample_weight is None else weights * sample_weight


def squared_hinge(
    scores: FloatArray, weights: FloatArray, mask: BoolArray, sample_weight: FloatArray | None = None
) -> tuple[float, FloatArray]:
    """Weighted squared hinge loss: the mean over the candidates of a sample, then over samples."""
    sign = np.where(weights > 0, np.float32(1), np.float32(-1))
    slack = np.where(mask, np.maximum(0, 1 - sign * scores), np.float32(0))
    cost = np.where(weights > 0, weights, np.float32(1)) / (len(scores) * np.maximum(1, mask.sum(axis=1))[:, None])
    if sample_weight is not None:
        cost *= sample_weight[:, None]
    loss = float((cost * np.square(slack)).sum(dtype=np.float64))
    return loss, np.ascontiguousarray(-2 * sign * slack * cost, np.float32)


def binary_cross_entropy(
    logits: FloatArray,
    weights: FloatArray,
    mask: BoolArray,
    sample_weight: FloatArray | None = None,
    *,
    min_negative_probability: float = 0.0,
) -> tuple[float, FloatArray]:
    """Binary cross-entropy of candidates: the sum over the candidates of a sample, the mean over samples.

    A negative with a probability below `min_negative_probability` contributes no gradient.
    """
    scale = mean_weights(len(logits), sample_weight)[:, None]
    probabilities, log1p = _stable_sigmoid(logits)
    positive = weights > 0
    cost = log1p + np.maximum(np.where(positive, -logits, logits), 0)
    active = mask & (positive | (probabilities >= min_negative_probability))
    gradients = np.where(active, (probabilities - positive) * scale, np.float32(0))
    return float((scale * cost)[mask].sum(dtype=np.float64)), np.ascontiguousarray(gradients, np.float32)


def binary_cross_entropy_all(
    logits: FloatArray, Y: Csr, sample_weight: FloatArray | None = None
) -> tuple[float, FloatArray]:
    """Binary cross-entropy of all labels: the mean over the logits (n, L), given the positives Y (n × L)."""
    scale, positives = np.float32(1 / logits.size), (entry_rows(Y), Y.indices)
    gradients, log1p = _stable_sigmoid(logits)
    losses = log1p.sum(axis=1, dtype=np.float64) + np.maximum(logits, 0).sum(axis=1, dtype=np.float64)
    np.subtract.at(losses, positives[0], logits[positives])
    gradients[positives] -= 1
    gradients *= scale
    if sample_weight is not None:
        losses *= sample_weight
        gradients *= sample_weight[:, None]
    return float(losses.sum()) / logits.size, gradients


def _stable_sigmoid(logits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """σ(x) and log(1 + e^-|x|), without overflow."""
    powers = np.exp(-np.abs(logits))
    return np.where(logits >= 0, np.float32(1), powers) / (1 + powers), np.log1p(powers)
