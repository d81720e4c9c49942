"""Places for labels among the vectors of points, where a search finds them (LightDXML, step 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ramify import native
from ramify.base.config import Config, param
from ramify.base.types import Csr, FloatArray
from ramify.nn.tables import Adam, DenseParameter, Parts

TEMPERATURE = 0.1
"""Of the cosines that compete where other points of a batch are negatives."""


@dataclass(kw_only=True, eq=False, repr=False)
class LabelEncoderConfig(Config):
    """How labels get their places."""

    activation: Literal["none", "relu"] = param("none", "'none': an affine map; 'relu': cut at 0 behind it")
    pairs: int | None = param(
        50_000, "pairs of a point and one of its labels that are looked at each time, at most; None: all", low=1
    )
    epochs: int = param(1, "passes over them, each time", low=0)
    rate: float = param(0.001, "learning rate", above=0)
    batch_size: int = param(512, "pairs in a step", low=1)
    negatives: bool = param(False, "also push labels away from the other points of a step")


class LabelEncoder(Parts):
    """An affine map from the mean μ (D,) of a label's points to its place W μ + b.

    Two layers without anything between them, as the paper has them, are one. It begins as the identity and is pulled
    to the points of each label by log(1 + ‖place - point‖²).
    """

    def __init__(self, width: int, config: LabelEncoderConfig) -> None:
        self.weights = DenseParameter(np.eye(width, dtype=np.float32))
        self.offset = DenseParameter(np.zeros(width, np.float32))
        self.config = config

    def parts(self) -> dict[str, DenseParameter]:  # type: ignore[override]  # fewer kinds of parts
        """Everything that is trained, by name."""
        return {"weights": self.weights, "offset": self.offset}

    def encode(self, means: FloatArray) -> FloatArray:
        """Places (L, D) of labels, given the means (L, D) of their points."""
        places = means @ self.weights.values.T + self.offset.values
        return np.maximum(places, 0) if self.config.activation == "relu" else places

    def train(self, means: FloatArray, vectors: FloatArray, Y: Csr, seed: int) -> list[float]:
        """Learn from vectors (n, D) with labels Y (n × L) and the labels' means (L, D); return the loss of each pass.

        Weights go on from the last time, moments do not.
        """
        config, random = self.config, np.random.default_rng(seed)
        for part in self.parts().values():
            part.forget()
        points = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
        losses, number = [], 0
        for _ in range(config.epochs):
            order, total = random.permutation(Y.nnz)[: config.pairs], 0.0
            for start in range(0, len(order), config.batch_size):
                pairs, number = order[start : start + config.batch_size], number + 1
                rows, labels = points[pairs], Y.indices[pairs]
                taken = Y[rows][:, labels] if config.negatives else None
                loss, d_places = self.gradients(means[labels], vectors[rows], taken)
                self.weights.step(d_places.T @ means[labels], Adam(config.rate, number))
                self.offset.step(d_places.sum(axis=0), Adam(config.rate, number))
                total += loss * len(pairs)
            losses.append(total / max(1, len(order)))
        return losses

    def gradients(self, means: FloatArray, vectors: FloatArray, taken: Csr | None) -> tuple[float, FloatArray]:
        """Mean loss of pairs (m, D) of means and vectors, and its gradients (m, D) before the activation.

        `taken` (m × m) has the points (rows) that have a pair's label (columns), where other points are negatives.
        """
        places = self.encode(means)
        away = places - vectors
        scale = 1 + np.einsum("md,md->m", away, away)
        loss = float(np.log(scale).mean())
        gradients = away * (2 / (len(means) * scale))[:, None]
        if taken is not None:
            more, pushed = _in_batch(places, vectors, np.asarray(taken.T.toarray() > 0))
            loss, gradients = loss + more, gradients + pushed
        if self.config.activation == "relu":
            gradients = gradients * (places > 0)
        return loss, np.ascontiguousarray(gradients, np.float32)


def label_means(vectors: FloatArray, Y: Csr, threads: int) -> FloatArray:
    """Mean (L, D) of the vectors (n, D) of each label's points; noughts where it has none."""
    sums = native.matrix.spmm_dense(Y.T.tocsr(), np.ascontiguousarray(vectors, np.float32), threads)
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    return sums / np.maximum(counts, 1).astype(np.float32)[:, None]


def _in_batch(places: FloatArray, vectors: FloatArray, taken: np.ndarray) -> tuple[float, FloatArray]:
    """Cross-entropy of each place's own vector among all vectors of the step, by cosine, and its gradients (m, D)."""
    lengths = np.maximum(np.linalg.norm(places, axis=1, keepdims=True), 1e-12)
    unit = places / lengths
    others = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    logits = unit @ others.T / TEMPERATURE
    np.fill_diagonal(taken, False)
    logits = np.where(taken, -np.inf, logits)
    logits -= logits.max(axis=1, keepdims=True)
    chances = np.exp(logits)
    chances /= chances.sum(axis=1, keepdims=True)
    own = np.diagonal(chances)
    loss = float(-np.log(np.maximum(own, 1e-30)).mean())
    d_logits = (chances - np.eye(len(places))) / len(places)
    d_unit = d_logits @ others / TEMPERATURE
    along = np.einsum("md,md->m", unit, d_unit)[:, None]
    return loss, ((d_unit - unit * along) / lengths).astype(np.float32)
