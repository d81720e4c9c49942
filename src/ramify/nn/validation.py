"""Validation metrics of a model in training, on the rows that were held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ramify.base.ranking import Ranking
from ramify.base.types import Csr, DoubleArray, FloatArray, IntArray
from ramify.metrics.report import evaluate
from ramify.nn.encoders import Encoder
from ramify.nn.encoders.samples import Samples
from ramify.nn.heads.shortlist import ShortlistHead, candidate_logits
from ramify.rank.blend import BETAS, BlendMetrics, best_beta, blend_metrics_by_beta

COARSE_BETAS = BETAS[::-4]
"""Weights β that are validated after each epoch: every fourth one, 1 among them."""


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
        """Candidate labels (n, k), and their similarity scores (n, k)."""


@dataclass(frozen=True, eq=False)
class FixedCandidates:
    """Candidates (m, k) of the validation samples that do not change during training."""

    ids: IntArray
    similarity_scores: FloatArray

    def candidates(self, embeddings: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return the candidates, whatever the embeddings."""
        return self.ids, self.similarity_scores


class BlendValidator:
    """Evaluates the blended score of classifiers and similarities over candidates, by weight β of the classifier.

    Parameters
    ----------
    samples, Y : validation samples and their labels (m × L)
    inverse_propensities : (L,) weights of the labels in PSP@1
    bias_shift : (L,) added to the bias of the classifiers for prediction
    beta : weight to validate with; None: the best of a coarse grid
    by_row : whether the score is relative to the row; see `rank.blend`

    Attributes
    ----------
    curve : rows of epoch, P@1 and PSP@1
    """

    def __init__(
        self,
        samples: Samples,
        Y: Csr,
        source: CandidateSource,
        inverse_propensities: DoubleArray,
        bias_shift: FloatArray,
        beta: float | None,
        by_row: bool,
        threads: int,
    ) -> None:
        self.samples, self.Y, self.source = samples, Y, source
        self.inverse_propensities = inverse_propensities
        self.bias_shift, self.beta, self.by_row, self.threads = bias_shift, beta, by_row, threads
        self.curve: list[list[float]] = []

    def metrics_by_beta(
        self, encoder: Encoder, head: ShortlistHead, betas: Sequence[float] = BETAS
    ) -> dict[float, BlendMetrics]:
        """Metrics for each weight β; empty without validation samples."""
        if len(self.samples) == 0:
            return {}
        embeddings = encoder.encode(self.samples, self.threads)
        ids, similarity_scores = self.source.candidates(embeddings)
        logits = candidate_logits(head.labels, ids, embeddings, self.threads, self.bias_shift)
        return blend_metrics_by_beta(
            betas, self.by_row, ids, logits, similarity_scores, self.Y, self.inverse_propensities, self.threads
        )

    def validate(self, encoder: Encoder, head: ShortlistHead, epoch: int) -> ValidationScore | None:
        """Return nDCG@5 and P@1 with the given weight, or the best one; None without validation samples."""
        metrics = self.metrics_by_beta(encoder, head, COARSE_BETAS if self.beta is None else [self.beta])
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
