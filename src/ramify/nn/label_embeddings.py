"""Label embeddings: an affine map of the centroid of each label's samples, as in LightDXML (Mishra et al., 2023).

    ψ_l = W μ_l + b,    μ_l = mean of φ(x) over the samples x of label l
    loss = mean over pairs of a sample x and one of its labels l of log(1 + ‖ψ_l - φ(x)‖²)

Differences from the paper
- One affine map instead of two linear layers, which equal one, and no ReLU on ψ.
- W starts as the identity, not at random.
- An epoch takes at most `max_pairs` pairs; `in_batch_negatives` adds a softmax over the other samples of a step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ramify import native
from ramify.base.config import Config, param
from ramify.base.sparse import entry_rows
from ramify.base.types import BoolArray, Csr, FloatArray
from ramify.nn.optim import Adam, DenseParameter, Trainable

TEMPERATURE = 0.1
"""Temperature of the in-batch softmax over cosine similarities."""


@dataclass(kw_only=True, eq=False, repr=False)
class LabelEncoderConfig(Config):
    """How label embeddings are learned at each refresh."""

    max_pairs: int | None = param(
        50_000, "pairs of a sample and one of its labels in an epoch; more take longer; None: all pairs", low=1
    )
    epochs: int = param(1, "epochs at each refresh", low=0)
    learning_rate: float = param(0.001, "learning rate", above=0)
    batch_size: int = param(512, "pairs in a step", low=1)
    in_batch_negatives: bool = param(False, "also push labels away from the other samples of a step")


class LabelEncoder(Trainable):
    """The affine map with weights W (D, D) and bias b (D,)."""

    def __init__(self, dim: int, config: LabelEncoderConfig) -> None:
        self.weights = DenseParameter(np.eye(dim, dtype=np.float32))
        self.bias = DenseParameter(np.zeros(dim, np.float32))
        self.config = config

    def parameters(self) -> dict[str, DenseParameter]:
        """Everything that is trained, by name."""
        return {"weights": self.weights, "bias": self.bias}

    def encode(self, centroids: FloatArray) -> FloatArray:
        """Label embeddings (L, D) from the centroids (L, D) of their samples."""
        return centroids @ self.weights.values.T + self.bias.values

    def train(self, centroids: FloatArray, embeddings: FloatArray, Y: Csr, seed: int) -> list[float]:
        """Train on embeddings (n, D) with labels Y (n × L) and centroids (L, D); return the loss of each epoch.

        Weights carry over from the last refresh, the optimizer state does not.
        """
        config, random = self.config, np.random.default_rng(seed)
        self.reset_optimizer()
        samples = entry_rows(Y)
        losses, step = [], 0
        for _ in range(config.epochs):
            order, total = random.permutation(Y.nnz)[: config.max_pairs], 0.0
            for start in range(0, len(order), config.batch_size):
                pairs, step = order[start : start + config.batch_size], step + 1
                rows, labels = samples[pairs], Y.indices[pairs]
                positives = Y[rows][:, labels] if config.in_batch_negatives else None
                loss, d_psi = self.gradients(centroids[labels], embeddings[rows], positives)
                adam = Adam(config.learning_rate, step)
                self.weights.step(d_psi.T @ centroids[labels], adam)
                self.bias.step(d_psi.sum(axis=0), adam)
                total += loss * len(pairs)
            losses.append(total / max(1, len(order)))
        return losses

    def gradients(
        self, centroids: FloatArray, embeddings: FloatArray, positives: Csr | None
    ) -> tuple[float, FloatArray]:
        """Mean loss of pairs of centroids and embeddings (m, D), and its gradients (m, D) by label embedding.

        `positives` (m × m) has the samples (rows) with the label of each pair (columns), for in-batch negatives.
        """
        psi = self.encode(centroids)
        difference = psi - embeddings
        scale = 1 + np.einsum("md,md->m", difference, difference)
        loss = float(np.log(scale).mean())
        d_psi = difference * (2 / (len(centroids) * scale))[:, None]
        if positives is not None:
            in_batch_loss, d_in_batch = _in_batch_softmax(psi, embeddings, np.asarray(positives.T.toarray() > 0))
            loss, d_psi = loss + in_batch_loss, d_psi + d_in_batch
        return loss, np.ascontiguousarray(d_psi, np.float32)


def label_centroids(embeddings: FloatArray, Y: Csr, threads: int) -> FloatArray:
    """Mean embedding (L, D) of the samples of each label, given embeddings (n, D); zero for labels without one."""
    sums = native.matrix.spmm_dense(Y.T.tocsr(), np.ascontiguousarray(embeddings, np.float32), threads)
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    return sums / np.maximum(counts, 1).astype(np.float32)[:, None]


def _in_batch_softmax(psi: FloatArray, embeddings: FloatArray, positives: BoolArray) -> tuple[float, FloatArray]:
    """Cross-entropy of each label's own sample among all samples of the step, by cosine, and its gradients (m, D).

    Other samples with the same label, the off-diagonal `positives` (m, m), are left out.
    """
    norms = np.maximum(np.linalg.norm(psi, axis=1, keepdims=True), 1e-12)
    unit = psi / norms
    samples = embeddings / np.maximum(np.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)
    logits = unit @ samples.T / TEMPERATURE
    np.fill_diagonal(positives, False)
    logits = np.where(positives, -np.inf, logits)
    logits -= logits.max(axis=1, keepdims=True)
    softmax = np.exp(logits)
    softmax /= softmax.sum(axis=1, keepdims=True)
    own = np.diagonal(softmax)
    loss = float(-np.log(np.maximum(own, 1e-30)).mean())
    d_logits = (softmax - np.eye(len(psi))) / len(psi)
    d_unit = d_logits @ samples / TEMPERATURE
    radial = np.einsum("md,md->m", unit, d_unit)[:, None]  # the norm does not change a cosine
    return loss, ((d_unit - unit * radial) / norms).astype(np.float32)
