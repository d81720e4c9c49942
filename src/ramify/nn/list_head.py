"""A classifier for each label, or each node of a level of a tree, trained against those that compete for a point."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from ramify import native
from ramify.base.sparse import padded_rows
from ramify.base.types import BoolArray, Csr, FloatArray, IntArray, LongArray
from ramify.nn.tables import Adam, Parts, RowTable

ROWS_AT_ONCE = 2048
"""Points whose scores of all labels are in memory together."""


Loss = Callable[[FloatArray, FloatArray, BoolArray], tuple[float, FloatArray]]
"""Of scores (n, k), weights (n, k) above 0 where a label is right, and where there is one: loss and gradients."""


class ListHead(Parts):
    """Classifiers (m, D) with offsets (m,) of the m labels.

    Only those that a point's row of the targets names are looked at in a step.
    """

    def __init__(self, weights: FloatArray, offset: FloatArray, loss: Loss) -> None:
        self.labels, self.loss = RowTable(weights, offset), loss

    def step(self, vectors: FloatArray, Y: Csr, adam: Adam, threads: int) -> tuple[float, FloatArray]:
        """Learn from a batch: loss and gradients (n, D) of its vectors (n, D).

        Y (n × m) stores a weight above 0 where a label is right, and a stored 0 where it competes and is wrong.
        """
        lists, weights = padded_rows(Y)
        pairs = native.neural.group_pairs(lists, Y.shape[1])
        scores = self.labels.dot(pairs, lists.shape[1], vectors, threads)
        loss, d_scores = self.loss(scores, weights, lists >= 0)
        d_vectors = self.labels.dot_back(pairs, d_scores, threads)
        self.labels.step(pairs, d_scores, vectors, adam, threads)
        return loss, d_vectors

    def search(self, vectors: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k) of the best labels of vectors (n, D); every one is looked at."""
        weights, offset = self.labels.weights, self.labels.offset
        assert offset is not None
        k = min(k, len(weights))
        ids = np.empty((len(vectors), k), np.int32)
        best = np.empty((len(vectors), k), np.float32)
        for start in range(0, len(vectors), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            scores = vectors[part] @ weights.T + offset
            found = np.argpartition(-scores, k - 1, axis=1)[:, :k] if k < len(weights) else np.argsort(-scores, axis=1)
            own = np.take_along_axis(scores, found, 1)
            ids[part], best[part] = native.matrix.list_topk(found.astype(np.int32), own, k, threads)
        return ids, best

    def parts(self) -> dict[str, RowTable]:  # type: ignore[override]  # fewer kinds of parts
        """Everything that is trained, by name."""
        return {"labels": self.labels}


def squared_hinge(scores: FloatArray, weights: FloatArray, there: BoolArray) -> tuple[float, FloatArray]:
    """Weighted squared hinge, and its gradients: the mean over a point's labels, then over the points."""
    sign = np.where(weights > 0, np.float32(1), np.float32(-1))
    short = np.where(there, np.maximum(0, 1 - sign * scores), np.float32(0))
    cost = np.where(weights > 0, weights, np.float32(1)) / (len(scores) * np.maximum(1, there.sum(axis=1))[:, None])
    loss = float((cost * np.square(short)).sum(dtype=np.float64))
    return loss, np.ascontiguousarray(-2 * sign * short * cost, np.float32)


def cross_entropy(
    scores: FloatArray, weights: FloatArray, there: BoolArray, min_error: float = 0.0
) -> tuple[float, FloatArray]:
    """Binary cross-entropy of σ(scores), and its gradients: the sum over a point's labels, the mean over the points.

    A wrong label with a chance under `min_error` has no gradient.
    """
    n = np.float32(1 / max(1, len(scores)))
    powers = np.exp(-np.abs(scores))
    right = weights > 0
    cost = np.log1p(powers) + np.maximum(np.where(right, -scores, scores), 0)
    chance = np.where(scores >= 0, np.float32(1), powers) / (1 + powers)
    learned = there & (right | (chance >= min_error))
    gradients = np.where(learned, (chance - right) * n, np.float32(0))
    return float(n * cost[there].sum(dtype=np.float64)), np.ascontiguousarray(gradients, np.float32)


def with_weights(competing: Csr, right: Csr) -> Csr:
    """Targets (n × m) as `ListHead.step` takes them: what competes (ones), and the weights of what is right."""
    # Sparse sums drop zeros, so that 1 is added first and taken away at the end.
    both = (competing + right).tocsr()
    both.sort_indices()
    both.data -= 1.0
    return both


class LevelTargets:
    """What competes for each point at a level: the children of the nodes that M names, and which of them are right.

    Attributes
    ----------
    M : (n × nodes above) which nodes a point looks below; those of its own labels among them
    Y : (n × m) weights of the nodes that are right
    """

    def __init__(self, M: Csr, Y: Csr, children: LongArray) -> None:
        self.M, self.Y = M, Y
        m = int(children[-1])
        ones = np.ones(m, np.float32)
        self._below = sparse.csr_matrix((ones, np.arange(m, dtype=np.int32), children), (len(children) - 1, m))

    def __call__(self, rows: LongArray) -> Csr:
        """Targets (len(rows) × m) as `ListHead.step` takes them."""
        competing = self.M[rows] @ self._below
        competing.data[:] = 1.0
        return with_weights(competing, self.Y[rows])
