"""Elias++: a sparse linear ranker on what the graph finds, and a calibration of both scores together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify.base import native
from ramify.base.errors import ModelFormatError
from ramify.base.mixed import Mixed
from ramify.base.ranking import Ranking
from ramify.base.sparse import csr_from_parts
from ramify.base.types import Csr, FloatArray, IntArray, LongArray
from ramify.index.tree import LabelTree
from ramify.io.store import Store, StoreWriter
from ramify.labels.representations import normalize_rows
from ramify.metrics.report import evaluate
from ramify.rank.beam import LinearTree, PackedLevel
from ramify.rank.calibrate import Calibrator, fit_calibrator
from ramify.rank.linear import LinearConfig, fit_ovr
from ramify.rank.scores import Transform

WIDTH = 100
"""Labels of a point that are ranked again."""
CALIBRATED_SHARE = 0.3
"""Share of the calibrated score in the last score; the rest is the product of the two."""


@dataclass(frozen=True, eq=False)
class SparseRanker:
    """Linear classifiers over [features, vector] for the labels that a search proposes, and the calibration.

    Attributes
    ----------
    counts : (L,) training points of each label
    calibrator : None where validation was better without
    """

    linear: LinearTree
    counts: LongArray
    calibrator: Calibrator | None

    def rank(self, X: Mixed, vectors: FloatArray, ids: IntArray, scores: FloatArray, threads: int) -> FloatArray:
        """Scores (n, k) of proposed labels (n, k) with log scores (n, k); -inf where there is none."""
        pq, p, q = self._products(X, vectors, ids, scores, threads)
        there = ids >= 0
        if self.calibrator is not None:
            features = _pair_features(pq, p, q, self.counts, ids)
            pq = (1 - CALIBRATED_SHARE) * pq + CALIBRATED_SHARE * self.calibrator(features).reshape(pq.shape)
        return np.where(there, pq, -np.inf).astype(np.float32)

    def _products(
        self, X: Mixed, vectors: FloatArray, ids: IntArray, scores: FloatArray, threads: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        selected, order = _pattern(ids, self.linear.tree.n_labels)
        found = self.linear.score_selected(joined(X, vectors), selected, threads)
        q = np.zeros(ids.shape, np.float32)
        q.reshape(-1)[order] = np.exp(found.data)
        p = np.where(ids >= 0, np.exp(scores), 0).astype(np.float32)
        return p * q, p, q

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the ranker into a model's directory."""
        writer.array(f"{prefix}counts", self.counts)
        return {
            "linear": self.linear.save_to(writer, prefix),
            "calibrator": None if self.calibrator is None else self.calibrator.save_to(writer, f"{prefix}calibrator_"),
        }

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, n_labels: int) -> SparseRanker:
        """Open what `save_to` wrote."""
        if not isinstance(info, dict):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the ranker")
        counts = store.array(f"{prefix}counts", np.int64, shape=(n_labels,))
        given = info.get("calibrator")
        calibrator = None if given is None else Calibrator.load_from(store, given, f"{prefix}calibrator_", 4)
        return cls(LinearTree.load_from(store, info.get("linear"), prefix, n_labels), counts, calibrator)


def fit_ranker(
    X: Mixed,
    Y: Csr,
    vectors: FloatArray,
    found: tuple[IntArray, FloatArray],
    rows: LongArray,
    judged: LongArray,
    config: LinearConfig,
    *,
    seed: int,
    threads: int,
) -> SparseRanker | None:
    """Train a ranker on what a model finds for its own training points; None where validation is better without.

    Parameters
    ----------
    X, Y, vectors : features, labels (n × L) and the model's vectors (n, D) of all points
    found : ids and log scores (n, WIDTH) that the model gives to each point
    rows, judged : points to train on; points to calibrate and to decide by, half of them each
    """
    features = joined(X, vectors)
    ids, scores = found
    proposed, _ = _pattern(ids[rows], Y.shape[1])
    W = fit_ovr(
        Mixed(features.sparse[rows], features.dense[rows]),
        Y[rows],
        proposed,
        clusters=np.arange(Y.shape[1] + 1),
        config=config,
        seed=seed,
        threads=threads,
    )
    tree, n_sparse = LabelTree.flat(Y.shape[1]), features.sparse.shape[1]
    level = PackedLevel.pack(W, tree.levels[0], n_sparse, config.bias, threads)
    counts = np.bincount(Y[rows].indices, minlength=Y.shape[1]).astype(np.int64)
    plain = SparseRanker(LinearTree(tree, [level], [Transform.parse("l3-hinge")], n_sparse), counts, None)
    if len(judged) < 40:
        return plain

    def part(chosen: LongArray) -> tuple[Mixed, FloatArray, IntArray, FloatArray]:
        return Mixed(X.sparse[chosen], X.dense[chosen]), vectors[chosen], ids[chosen], scores[chosen]

    first, second = judged[::2], judged[1::2]
    pq, p, q = plain._products(*part(first), threads)
    there = ids[first] >= 0
    truth = native.ranking_hits(ids[first], Y[first], threads)
    pairs = _pair_features(pq, p, q, counts, ids[first])[there.ravel()]
    candidates: list[SparseRanker | None] = [None, plain]
    if truth.any():
        candidates.append(SparseRanker(plain.linear, counts, fit_calibrator(pairs, truth[there], seed=seed)))

    def judge(ranker: SparseRanker | None) -> float:
        final = scores[second] if ranker is None else ranker.rank(*part(second), threads)
        order = np.argsort(-final, axis=1, kind="stable")[:, :5]
        best = np.take_along_axis(ids[second], order, 1), np.take_along_axis(final, order, 1)
        k = best[0].shape[1]
        return float(evaluate(Ranking(*best, Y.shape[1]), Y[second], ks=[k])[f"nDCG@{k}"])

    return max(candidates, key=judge)


def joined(X: Mixed, vectors: FloatArray) -> Mixed:
    """Features and vectors side by side, rows of length 1 each."""
    return Mixed(normalize_rows(X.sparse), np.ascontiguousarray(normalize_rows(vectors), np.float32))


def _pattern(ids: IntArray, n_labels: int) -> tuple[Csr, LongArray]:
    """Indicator (n × L) of labels (n, k), -1 for none, and the flat place of each of its entries in them."""
    kept = np.where(ids >= 0, ids, n_labels)
    order = np.argsort(kept, axis=1, kind="stable")
    columns = np.take_along_axis(kept, order, 1)
    there = columns < n_labels
    indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int32)
    indices = columns[there].astype(np.int32)
    places = (np.arange(len(ids))[:, None] * ids.shape[1] + order)[there]
    return csr_from_parts(np.ones(len(indices), np.float32), indices, indptr, (len(ids), n_labels)), places


def _pair_features(pq: FloatArray, p: FloatArray, q: FloatArray, counts: LongArray, ids: IntArray) -> FloatArray:
    n_points = counts[np.maximum(ids, 0)].astype(np.float32)
    return np.stack([pq.ravel(), p.ravel(), q.ravel(), n_points.ravel()], axis=1)
