"""Shortlist head: label classifiers that are trained on the candidates of each sample only."""

from __future__ import annotations

import numpy as np

from ramify import native
from ramify.base.sparse import padded_rows
from ramify.base.types import Csr, FloatArray, IntArray
from ramify.nn.heads.classifiers import Classifiers
from ramify.nn.heads.losses import CandidateLoss
from ramify.nn.optim import Adam, RowTable, Trainable, label_table

ROWS_PER_BLOCK = 2048
"""Samples whose scores of all labels are in memory together."""


class ShortlistHead(Trainable):
    """Classifiers of m labels, or of the m nodes of a tree level, with weights (m, D) and bias (m,)."""

    def __init__(self, weights: FloatArray, bias: FloatArray, loss: CandidateLoss) -> None:
        self.labels, self.loss = label_table(weights, bias), loss

    @property
    def classifiers(self) -> Classifiers:
        """Weights (m, D) and bias (m,)."""
        return self.labels.whole()

    def step(
        self, phi: FloatArray, targets: Csr, adam: Adam, threads: int, sample_weight: FloatArray | None = None
    ) -> tuple[float, FloatArray]:
        """Update from a batch of embeddings (n, D); return the loss and the gradients (n, D).

        `targets` (n × m) stores a weight above 0 for each positive, and an explicit 0 for each negative candidate.
        """
        candidates, weights = padded_rows(targets)
        pairs = native.neural.group_pairs(candidates, targets.shape[1])
        scores = self.labels.dot(pairs, candidates.shape[1], phi, threads)
        loss, d_scores = self.loss(scores, weights, candidates >= 0, sample_weight)
        d_phi = self.labels.dot_backward(pairs, d_scores, threads)
        self.labels.step(pairs, d_scores, phi, adam, threads)
        return loss, d_phi

    def search(self, phi: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k) of the best labels for embeddings (n, D); every label is scored."""
        weights, bias = self.labels.weights, self.labels.bias  # of several ranks each scores its own labels
        assert bias is not None
        wanted = min(k, self.labels.n_rows)
        k = min(wanted, len(weights))
        ids = np.empty((len(phi), wanted), np.int32)
        best = np.empty((len(phi), wanted), np.float32)
        for start in range(0, len(phi), ROWS_PER_BLOCK):
            block = slice(start, start + ROWS_PER_BLOCK)
            scores = phi[block] @ weights.T + bias
            top = np.argpartition(-scores, k - 1, axis=1)[:, :k] if k < len(weights) else np.argsort(-scores, axis=1)
            own = np.take_along_axis(scores, top, 1)
            ids[block], best[block] = native.matrix.list_topk(top.astype(np.int32), own, wanted, threads)
        return self.labels.merged(ids, best, threads)

    def parameters(self) -> dict[str, RowTable]:
        """Everything that is trained, by name."""
        return {"labels": self.labels}


def candidate_logits(
    labels: RowTable, ids: IntArray, phi: FloatArray, threads: int, bias_shift: FloatArray | None = None
) -> FloatArray:
    """Logits (n, k) of candidate labels (n, k) for embeddings (n, D), with a shift (m,) of the bias; 0 for padding."""
    pairs = native.neural.group_pairs(np.ascontiguousarray(ids), labels.n_rows)
    return labels.dot(pairs, ids.shape[1], phi, threads, bias_shift)
