"""Elias++: a sparse linear ranker on what the graph finds, and a calibration of both scores together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ramify import native
from ramify.base.errors import ModelFormatError
from ramify.base.mixed import Mixed
from ramify.base.ranking import Ranking
from ramify.base.sparse import csr_from_parts
from ramify.base.types import Csr, FloatArray, IntArray, LongArray
from ramify.io.store import Store, StoreWriter
from ramify.metrics.report import evaluate
from ramify.models.encoded import joined
from ramify.rank.calibrate import TreeCalibrator, fit_tree_calibrator
from ramify.rank.linear import LinearConfig, fit_ovr
from ramify.rank.score_transforms import ScoreTransform

WIDTH = 400
"""Labels of a point that are ranked again."""
BEST_NEGATIVES, OTHER_NEGATIVES = 100, 100
"""Labels of a point that the classifiers are trained on: the best found, and some of the others that are ranked again.

With the best alone a classifier never meets most of what it has to rank, and the more is ranked the worse it gets.
"""
CALIBRATED_SHARE = 0.1
"""Share of the calibrated score in the last score; the rest is the product of the two.

More of it brings recall and costs precision: a tree has few leaves, and what falls into the same one ties.
"""
POWERS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.27, 0.35, 0.6, 1.0)
"""What the model's own score may be raised to before it is multiplied with the ranker's."""


@dataclass(frozen=True, eq=False)
class SparseRanker:
    """Linear classifiers over [features, vector] for the labels that a search proposes, and the calibration.

    Attributes
    ----------
    begin, features, weights : (L + 1,), then one for each weight: the sparse classifiers, label by label
    dense : (L, D) their weights of the vector
    offset : (L,)
    counts : (L,) training points of each label
    vector_weight : length of the vector beside features of length 1
    transform : what becomes of the classifiers' scores
    power : what the model's own score is raised to
    calibrator : None where validation was better without
    """

    begin: LongArray
    features: IntArray
    weights: FloatArray
    dense: FloatArray
    offset: FloatArray
    counts: LongArray
    vector_weight: float
    transform: ScoreTransform
    power: float
    calibrator: TreeCalibrator | None

    @classmethod
    def of(cls, W: Csr, n_sparse: int, config: LinearConfig, counts: LongArray, vector_weight: float) -> SparseRanker:
        """Return a ranker with the weights (L × (d + D + 1)) that `fit_ovr` found, d of them sparse."""
        sparse = W[:, :n_sparse].tocsr()
        rest = np.ascontiguousarray(W[:, n_sparse:].toarray(), np.float32)
        return cls(
            sparse.indptr.astype(np.int64),
            sparse.indices.astype(np.int32),
            sparse.data.astype(np.float32),
            np.ascontiguousarray(rest[:, :-1]),
            rest[:, -1] * np.float32(config.bias),
            counts,
            vector_weight,
            ScoreTransform.parse("sigmoid" if config.loss == "logistic" else "l3-hinge"),
            1.0,
            None,
        )

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
        features = joined(X, vectors, self.vector_weight)
        raw = native.linear.score_candidates(
            (self.begin, self.features, self.weights),
            self.dense,
            self.offset,
            features.sparse,
            features.dense,
            np.ascontiguousarray(ids),
            threads,
        )
        q = np.where(ids >= 0, np.exp(self.transform.log_score(raw)), 0).astype(np.float32)
        p = np.where(ids >= 0, np.exp(scores), 0).astype(np.float32)
        return p ** np.float32(self.power) * q, p, q

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the ranker into a model's directory."""
        for name in ("begin", "features", "weights", "dense", "offset", "counts"):
            writer.array(f"{prefix}{name}", getattr(self, name))
        given = self.calibrator
        return {
            "vector_weight": self.vector_weight,
            "transform": self.transform.name,
            "power": self.power,
            "calibrator": None if given is None else given.save_to(writer, f"{prefix}calibrator_"),
        }

    @classmethod
    def load_from(
        cls, store: Store, info: Any, prefix: str, n_labels: int, n_features: int, width: int
    ) -> SparseRanker:
        """Open what `save_to` wrote."""
        if not isinstance(info, dict) or not all(
            isinstance(info.get(key), float) for key in ("vector_weight", "power")
        ):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the ranker")
        try:
            transform = ScoreTransform.parse(str(info.get("transform")))
        except ValueError as error:
            raise ModelFormatError(f"{store.path}: {error}") from error
        weights = store.array(f"{prefix}weights", np.float32, ndim=1)
        n = len(weights)
        begin = store.array(f"{prefix}begin", np.int64, shape=(n_labels + 1,))
        if begin[0] != 0 or begin[-1] != n or np.any(np.diff(begin) < 0):
            raise ModelFormatError(f"{store.path}: the weights of the ranker do not fit its labels")
        given = info.get("calibrator")
        return cls(
            begin,
            store.array(f"{prefix}features", np.int32, shape=(n,), bounds=(0, max(1, n_features))),
            weights,
            store.array(f"{prefix}dense", np.float32, shape=(n_labels, width)),
            store.array(f"{prefix}offset", np.float32, shape=(n_labels,)),
            store.array(f"{prefix}counts", np.int64, shape=(n_labels,)),
            info["vector_weight"],
            transform,
            info["power"],
            None if given is None else TreeCalibrator.load_from(store, given, f"{prefix}calibrator_", 4),
        )


def fit_ranker(
    X: Mixed,
    Y: Csr,
    vectors: FloatArray,
    search: Callable[[LongArray], tuple[IntArray, FloatArray]],
    rows: LongArray,
    judged: LongArray,
    config: LinearConfig,
    *,
    vector_weight: float,
    seed: int,
    threads: int,
) -> SparseRanker | None:
    """Train a ranker on what a model finds for its own training points; None where validation is better without.

    Parameters
    ----------
    X, Y, vectors : features, labels (n × L) and the model's vectors (n, D) of all points
    search : gives the ids and log scores (m, WIDTH) that the model finds for some of the points
    rows, judged : points to train on; points to calibrate and to decide by, half of them each, which are learned from
        when all is decided
    vector_weight : length of the vector beside features of length 1
    """
    features = joined(X, vectors, vector_weight)

    def train(chosen: LongArray) -> SparseRanker:
        random = np.random.default_rng(seed)
        chunks = [chosen[start : start + CHUNK] for start in range(0, len(chosen), CHUNK)]
        negatives = np.concatenate([_some(search(chunk)[0], random) for chunk in chunks])
        W = fit_ovr(
            Mixed(features.sparse[chosen], features.dense[chosen]),
            Y[chosen],
            _pattern(negatives, Y.shape[1]),
            clusters=np.arange(Y.shape[1] + 1),
            config=config,
            seed=seed,
            threads=threads,
        )
        counts = np.bincount(Y[chosen].indices, minlength=Y.shape[1]).astype(np.int64)
        return SparseRanker.of(W, features.sparse.shape[1], config, counts, vector_weight)

    plain = train(rows)
    if len(judged) < 40:
        return plain

    def part(chosen: LongArray) -> tuple[Mixed, FloatArray, IntArray, FloatArray]:
        return Mixed(X.sparse[chosen], X.dense[chosen]), vectors[chosen], *search(chosen)

    parts, truths = [part(chosen) for chosen in (judged[::2], judged[1::2])], [Y[judged[::2]], Y[judged[1::2]]]

    def judge(ranker: SparseRanker | None, half: int) -> float:
        """Precision at the top, and half as much recall further down: both are what a ranker is for."""
        ids, scores = parts[half][2:]
        final = scores if ranker is None else ranker.rank(*parts[half], threads)
        order = np.argsort(-final, axis=1, kind="stable")[:, :100]
        best = np.take_along_axis(ids, order, 1), np.take_along_axis(final, order, 1)
        near, far = min(5, best[0].shape[1]), best[0].shape[1]
        found = evaluate(Ranking(*best, Y.shape[1]), truths[half], ks=[near, far])
        return float(found[f"nDCG@{near}"] + found[f"R@{far}"] / 2)

    plain = max((replace(plain, power=power) for power in POWERS), key=lambda ranker: judge(ranker, 0))
    pq, p, q = plain._products(*parts[0], threads)
    ids = parts[0][2]
    there = ids >= 0
    truth = native.matrix.ranking_hits(ids, truths[0], threads)
    pairs = _pair_features(pq, p, q, plain.counts, ids)[there.ravel()]
    candidates: list[SparseRanker | None] = [None, plain]
    if truth.any():
        candidates.append(replace(plain, calibrator=fit_tree_calibrator(pairs, truth[there], seed=seed)))
    best = max(candidates, key=lambda ranker: judge(ranker, 1))
    if best is None:
        return None
    # What was decided holds; the points that decided it may now be learned from as well.
    return replace(train(np.sort(np.concatenate([rows, judged]))), power=best.power, calibrator=best.calibrator)


CHUNK = 16384
"""Points that are searched for together."""


def _some(ids: IntArray, random: np.random.Generator) -> IntArray:
    """Return the best of found labels (n, k) and a sample of the others."""
    best, others = ids[:, :BEST_NEGATIVES], ids[:, BEST_NEGATIVES:]
    if others.shape[1] > OTHER_NEGATIVES:
        places = np.argpartition(random.random(others.shape, np.float32), OTHER_NEGATIVES, axis=1)
        others = np.take_along_axis(others, places[:, :OTHER_NEGATIVES], 1)
    return np.hstack([best, others])


def _pattern(ids: IntArray, n_labels: int) -> Csr:
    """Indicator (n × L) of labels (n, k), -1 for none."""
    columns = np.sort(np.where(ids >= 0, ids, n_labels), axis=1)
    there = columns < n_labels
    indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int32)
    indices = columns[there].astype(np.int32)
    return csr_from_parts(np.ones(len(indices), np.float32), indices, indptr, (len(ids), n_labels))


def _pair_features(pq: FloatArray, p: FloatArray, q: FloatArray, counts: LongArray, ids: IntArray) -> FloatArray:
    n_points = counts[np.maximum(ids, 0)].astype(np.float32)
    return np.stack([pq.ravel(), p.ravel(), q.ravel(), n_points.ravel()], axis=1)
