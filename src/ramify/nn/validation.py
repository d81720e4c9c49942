"""Validation metrics of a model in training, on the rows that were held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from ramify.base.ranking import Ranking
from ramify.base.types import Csr, DoubleArray, FloatArray, IntArray, LongArray
from ramify.metrics.propensity import LabelCounts, inverse_propensity
from ramify.metrics.report import evaluate
from ramify.nn.encoders import Encoder
from ramify.nn.encoders.samples import Samples
from ramify.nn.heads.shortlist import ShortlistHead, candidate_logits
from ramify.rank.blend import BETAS, BlendMetrics, best_beta, blend_metrics_by_beta


class ValidationScore(NamedTuple):
    """Metrics of an epoch, in percent: nDCG@5 decides, P@1 is shown."""

    ndcg: float
    precision: float


class SearchHead(Protocol):
    """A head that ranks labels."""

    def search(self, phi: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k) of the best labels for embeddings (n, D)."""


class RankingValidator:
    """Evaluates what the head's own search finds for validation samples with labels Y (m × L)."""

    def __init__(self, samples: Samples, Y: Csr, threads: int) -> None:
        self.samples, self.Y, self.threads = samples, Y, threads

    def validate(self, encoder: Encoder, head: SearchHead, epoch: int) -> ValidationScore | None:
        """Return nDCG@5 and P@1; None without validation samples."""
        if len(self.samples) == 0:
            return None
        k = min(5, self.Y.shape[1])
        ids, scores = head.search(encoder.encode(self.samples, self.threads), k, self.threads)
        metrics = evaluate(Ranking(ids, scores, self.Y.shape[1]), self.Y, ks=[1, k])
        return ValidationScore(float(metrics[f"nDCG@{k}"]), float(metrics["P@1"]))

    def state(self) -> dict[str, Any]:
        """Return nothing: there is no state."""
        return {}

    def set_state(self, values: Mapping[str, Any]) -> None:
        """Restore nothing."""


class CandidateSource(Protocol):
    """Retrieves candidates for embeddings."""

    def candidates(self, embeddings: FloatArray) -> tuple[IntArray, FloatArray]:
        """Candidate labels (n, k), and their similarities over the largest of the row."""


@dataclass(frozen=True, eq=False)
class FixedCandidates:
    """Candidates (m, k) of the validation samples that do not change during training."""

    ids: IntArray
    evidence: FloatArray

    def candidates(self, embeddings: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return the candidates, whatever the embeddings."""
        return self.ids, self.evidence


@dataclass(frozen=True, eq=False)
class Propensities:
    """Inverse propensities (L,) of the labels in a training set."""

    inverse: DoubleArray

    @classmethod
    def of(cls, Y: Csr, rows: LongArray) -> Propensities:
        """Estimate the propensities from the labels Y (n × L) of the training rows."""
        counts = np.bincount(Y[rows].indices, minlength=Y.shape[1])
        return cls(inverse_propensity(LabelCounts(len(rows), counts)))

    def bias_shift(self, weight: float) -> FloatArray:
        """Shift (L,) of the classifiers' bias that favours tail labels: weight · log of the inverse propensity."""
        return (weight * np.log(self.inverse)).astype(np.float32)


class BlendValidator:
    """Evaluates the blended score of classifiers and similarities over candidates, by weight β of the classifier.

    Parameters
    ----------
    samples, Y : validation samples and their labels (m × L)
    bias_shift : (L,) added to the bias of the classifiers for prediction
    beta : weight to validate with; None: the best of a coarse grid

    Attributes
    ----------
    curve : rows of epoch, P@1 and PSP@1
    """

    def __init__(
        self,
        samples: Samples,
        Y: Csr,
        source: CandidateSource,
        propensities: Propensities,
        bias_shift: FloatArray,
        beta: float | None,
        threads: int,
    ) -> None:
        self.samples, self.Y, self.source, self.propensities = samples, Y, source, propensities
        self.bias_shift, self.beta, self.threads = bias_shift, beta, threads
        self.curve: list[list[float]] = []

    def classifiers(self, head: ShortlistHead) -> tuple[FloatArray, FloatArray]:
        """Weights (L, D) and shifted bias (L,) for prediction."""
        weights, bias = head.classifiers
        return weights, bias + self.bias_shift

    def metrics_by_beta(
        self, encoder: Encoder, head: ShortlistHead, betas: Sequence[float] = BETAS
    ) -> dict[float, BlendMetrics]:
        """Metrics for each weight β; empty without validation samples."""
        if len(self.samples) == 0:
            return {}
        embeddings = encoder.encode(self.samples, self.threads)
        ids, evidence = self.source.candidates(embeddings)
        logits = candidate_logits(self.classifiers(head), ids, embeddings, self.threads)
        return blend_metrics_by_beta(betas, ids, logits, evidence, self.Y, self.propensities.inverse, self.threads)

    def validate(self, encoder: Encoder, head: ShortlistHead, epoch: int) -> ValidationScore | None:
        """Return nDCG@5 and P@1 with the given weight, or the best one; None without validation samples."""
        metrics = self.metrics_by_beta(encoder, head, BETAS[::-4] if self.beta is None else [self.beta])
        if not metrics:
            return None
        best = metrics[best_beta(metrics)]
        self.curve.append([epoch, best.precision, best.psp])
        return ValidationScore(best.ndcg, best.precision)

    def state(self) -> dict[str, Any]:
        """Return the curve."""
        return {"curve": self.curve}

    def set_state(self, values: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.curve = [[float(x) for x in row] for row in values["curve"]]
