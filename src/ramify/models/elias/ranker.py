"""ELIAS++: a sparse linear ranker over the labels that the graph finds, with a calibration of both scores.

For a label with the graph's score p and the ranker's score q (a margin through the score transform), the final score is

    p^γ q,    or calibrated    (1 - w) p^γ q + w · T(p^γ q, p, q, n_l)

T is a shallow decision tree fitted to whether candidates are true, w = `CALIBRATED_WEIGHT`, n_l the label's number of
training samples. γ (`power`), and whether to calibrate and to rank at all, are chosen on the validation set.

Differences from the paper
- 400 labels are re-ranked instead of 100. Negatives are the best labels found and a sample of the others, not the best
  ones only.
- γ is chosen (the paper: 1), and so is whether the ranker and the calibration are used at all.
- The final score is a weighted mean with a small w, because the leaves of T produce ties; the paper adds T to p q.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ramify import native
from ramify.base.errors import ModelFormatError
from ramify.base.mixed import Mixed
from ramify.base.ranking import Ranking
from ramify.base.sparse import indicator_from_ids
from ramify.base.types import AnyArray, Csr, FloatArray, IntArray, LongArray
from ramify.io.store import Store, StoreWriter
from ramify.metrics.report import evaluate
from ramify.native.linear import Candidates, LinearClassifiers
from ramify.nn.encoders.samples import with_embeddings
from ramify.rank.calibrate import TreeCalibrator, fit_tree_calibrator
from ramify.rank.linear import LinearConfig, fit_ovr
from ramify.rank.score_transforms import ScoreTransform

RANKED_LABELS = 400
"""Labels of a sample that are re-ranked."""
BEST_NEGATIVES, SAMPLED_NEGATIVES = 100, 100
"""Negatives of a sample: the best labels found, and a sample of the others that are re-ranked.

With the best ones alone a classifier never sees most of the labels that it ranks, and gets worse the more they are.
"""
CALIBRATED_WEIGHT = 0.1
"""Weight of the calibrated score. More of it raises recall and lowers precision: labels in one leaf of the tree tie."""
POWERS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.27, 0.35, 0.6, 1.0)
"""Candidates for the power γ of the graph's score."""
MIN_VALIDATION = 40
"""Validation samples below which neither power nor calibration is chosen."""
EVALUATED_LABELS = 100
"""Best labels of a validation sample that are evaluated."""
ROWS_PER_SEARCH = 16384
"""Training samples that are searched together."""

CandidateSearch = Callable[[LongArray], tuple[IntArray, FloatArray]]
"""Ids and log scores (m, RANKED_LABELS) that the graph finds for the given rows (m,)."""


@dataclass(frozen=True, eq=False)
class SparseRanker:
    """Linear classifiers over [TF-IDF, embedding] for the labels that a search proposes, and their calibration.

    Attributes
    ----------
    classifiers : of each label; similar labels have positions side by side
    counts : (L,) number of training samples of each label
    embedding_weight : norm of the embedding beside TF-IDF of norm 1
    transform : score transform of the margins
    power : γ, exponent of the graph's score
    calibrator : None if validation was better without
    """

    classifiers: LinearClassifiers
    counts: LongArray
    embedding_weight: float
    transform: ScoreTransform
    power: float
    calibrator: TreeCalibrator | None

    @classmethod
    def from_weights(
        cls,
        W: Csr,
        n_sparse: int,
        config: LinearConfig,
        counts: LongArray,
        embedding_weight: float,
        cluster_of: IntArray,
        threads: int,
    ) -> SparseRanker:
        """Return a ranker with the weights W (L × (d + D + 1)) of `fit_ovr`, of which d are sparse.

        The labels of a cluster (L,) are proposed together, so their weights lie side by side.
        """
        order = np.argsort(cluster_of, kind="stable")
        positions = np.empty(len(order), np.int32)
        positions[order] = np.arange(len(order), dtype=np.int32)
        by_feature = W[order, :n_sparse].T.tocsr()
        rest = np.ascontiguousarray(W[:, n_sparse:].toarray(), np.float32)
        return cls(
            LinearClassifiers(
                *native.linear.pack_features(by_feature, threads),
                positions,
                np.ascontiguousarray(rest[:, :-1]),
                rest[:, -1] * np.float32(config.bias),
            ),
            counts,
            embedding_weight,
            ScoreTransform.parse("sigmoid" if config.loss == "logistic" else "l3-hinge"),
            1.0,
            None,
        )

    def rank(
        self, X: Mixed, embeddings: FloatArray, ids: IntArray, log_scores: FloatArray, k: int, threads: int
    ) -> tuple[IntArray, FloatArray]:
        """Ids and log scores (n, k) of the best of the candidates (n, m) with the graph's log scores (n, m)."""
        return native.linear.rank_candidates(
            self.classifiers,
            Candidates(X.sparse, embeddings, self.embedding_weight, ids),
            log_scores,
            power=self.power,
            transform=self.transform.kind,
            transform_power=self.transform.power,
            tree=None if self.calibrator is None else self.calibrator.arrays,
            tree_weight=CALIBRATED_WEIGHT,
            counts=self.counts,
            k=k,
            threads=threads,
        )

    def pair_features(
        self, X: Mixed, embeddings: FloatArray, ids: IntArray, log_scores: FloatArray, threads: int
    ) -> FloatArray:
        """Features (n, m, 4) of the calibrator: p^γ q, the graph's p, the ranker's q, and the label's samples."""
        candidates = Candidates(X.sparse, embeddings, self.embedding_weight, ids)
        log_q = self.transform.log_score(native.linear.score_candidates(self.classifiers, candidates, threads))
        log_product = self.power * log_scores + log_q if self.power > 0 else log_q
        counts = self.counts[np.maximum(ids, 0)]
        return np.stack([np.exp(log_product), np.exp(log_scores), np.exp(log_q), counts], axis=2).astype(np.float32)

    # ---- files ----

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the ranker into a model directory."""
        for name, array in {**self.classifiers._asdict(), "counts": self.counts}.items():
            writer.array(f"{prefix}{name}", array)
        calibrator = self.calibrator
        return {
            "embedding_weight": self.embedding_weight,
            "transform": self.transform.name,
            "power": self.power,
            "calibrator": None if calibrator is None else calibrator.save_to(writer, f"{prefix}calibrator_"),
        }

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, n_labels: int, n_features: int, dim: int) -> SparseRanker:
        """Open what `save_to` wrote."""
        if not isinstance(info, dict) or not all(
            isinstance(info.get(key), float) for key in ("embedding_weight", "power")
        ):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the ranker")
        try:
            transform = ScoreTransform.parse(str(info.get("transform")))
        except ValueError as error:
            raise ModelFormatError(f"{store.path}: {error}") from error
        calibrator = info.get("calibrator")
        return cls(
            LinearClassifiers(
                store.array(f"{prefix}block_starts", np.uint32, shape=(n_features + 1,)),
                store.array(f"{prefix}blocks", np.uint8, ndim=1),
                store.array(f"{prefix}positions", np.int32, shape=(n_labels,), bounds=(0, max(1, n_labels))),
                store.array(f"{prefix}dense", np.float32, shape=(n_labels, dim)),
                store.array(f"{prefix}bias", np.float32, shape=(n_labels,)),
            ),
            store.array(f"{prefix}counts", np.int64, shape=(n_labels,)),
            info["embedding_weight"],
            transform,
            info["power"],
            None
            if calibrator is None
            else TreeCalibrator.load_from(store, calibrator, f"{prefix}calibrator_", N_PAIR_FEATURES),
        )


N_PAIR_FEATURES = 4


class _Candidates(NamedTuple):
    """Samples, and the labels (n, k) that the graph finds for them with their log scores: the input of a ranker."""

    X: Mixed
    embeddings: FloatArray
    ids: IntArray
    log_scores: FloatArray


@dataclass(frozen=True, eq=False)
class RankerTraining:
    """Trains rankers on what the graph finds, and evaluates them on validation samples.

    Attributes
    ----------
    X, Y, embeddings : features, labels (n × L) and embeddings (n, D) of all samples, as the classifiers see them
    search : candidates of given rows
    embedding_weight : norm of the embedding beside TF-IDF of norm 1
    cluster_of : (L,) cluster of each label
    sample_weight : (n,) weights of the samples in the loss; None: 1
    """

    X: Mixed
    Y: Csr
    embeddings: FloatArray
    search: CandidateSearch
    config: LinearConfig
    embedding_weight: float
    cluster_of: IntArray
    seed: int
    threads: int
    sample_weight: AnyArray | None = None

    def fit(self, rows: LongArray, validation_rows: LongArray) -> SparseRanker | None:
        """Train a ranker; None if validation is better without.

        Half of the validation rows choose the power and fit the calibration, half decide what is used. Then all rows
        are trained on.
        """
        ranker = self.train(rows)
        if len(validation_rows) < MIN_VALIDATION:
            return ranker
        halves = validation_rows[::2], validation_rows[1::2]
        first, second = ((self._candidates(half), self.Y[half]) for half in halves)
        powers = (replace(ranker, power=power) for power in POWERS)
        ranker = max(powers, key=lambda candidate: self._evaluate(candidate, *first))
        options: list[SparseRanker | None] = [None, ranker]
        calibrator = self._fit_calibrator(ranker, *first)
        if calibrator is not None:
            options.append(replace(ranker, calibrator=calibrator))
        best = max(options, key=lambda candidate: self._evaluate(candidate, *second))
        if best is None:
            return None
        # The choice is made: its rows may now be trained on as well.
        final = self.train(np.sort(np.concatenate([rows, validation_rows])))
        return replace(final, power=best.power, calibrator=best.calibrator)

    def train(self, rows: LongArray) -> SparseRanker:
        """Train one-vs-rest classifiers on the given rows against the candidates that the graph finds for them."""
        random, n_labels = np.random.default_rng(self.seed), self.Y.shape[1]
        blocks = [rows[start : start + ROWS_PER_SEARCH] for start in range(0, len(rows), ROWS_PER_SEARCH)]
        negatives = np.concatenate([_sample_negatives(self.search(block)[0], random) for block in blocks])
        features, Y = self._features.take(rows), self.Y[rows]
        W = fit_ovr(
            features,
            Y,
            indicator_from_ids(negatives, n_labels),
            clusters=np.arange(n_labels + 1),
            config=self.config,
            sample_weight=None if self.sample_weight is None else self.sample_weight[rows],
            seed=self.seed,
            threads=self.threads,
        )
        counts = np.bincount(Y.indices, minlength=n_labels).astype(np.int64)
        options = self.config, counts, self.embedding_weight, self.cluster_of, self.threads
        return SparseRanker.from_weights(W, features.sparse.shape[1], *options)

    @cached_property
    def _features(self) -> Mixed:
        return with_embeddings(self.X, self.embeddings, self.embedding_weight)

    def _candidates(self, rows: LongArray) -> _Candidates:
        return _Candidates(self.X.take(rows), self.embeddings[rows], *self.search(rows))

    def _evaluate(self, ranker: SparseRanker | None, candidates: _Candidates, Y: Csr) -> float:
        """NDCG@5 plus half of R@100: precision at the top, and recall further down."""
        width = min(EVALUATED_LABELS, candidates.ids.shape[1])
        if ranker is None:
            ids, scores = candidates.ids[:, :width], candidates.log_scores[:, :width]
        else:
            ids, scores = ranker.rank(*candidates, width, self.threads)
        short, long = min(5, ids.shape[1]), ids.shape[1]
        metrics = evaluate(Ranking(ids, scores, Y.shape[1]), Y, ks=[short, long])
        return float(metrics[f"nDCG@{short}"] + metrics[f"R@{long}"] / 2)

    def _fit_calibrator(self, ranker: SparseRanker, candidates: _Candidates, Y: Csr) -> TreeCalibrator | None:
        hits = native.matrix.ranking_hits(candidates.ids, Y, self.threads)
        if not hits.any():
            return None
        mask = candidates.ids >= 0
        features = ranker.pair_features(*candidates, self.threads)[mask]
        return fit_tree_calibrator(features, hits[mask], seed=self.seed)


def _sample_negatives(ids: IntArray, random: np.random.Generator) -> IntArray:
    """Return the best of the labels found (n, k) and a sample of the others."""
    best, others = ids[:, :BEST_NEGATIVES], ids[:, BEST_NEGATIVES:]
    if others.shape[1] > SAMPLED_NEGATIVES:
        chosen = np.argpartition(random.random(others.shape, np.float32), SAMPLED_NEGATIVES, axis=1)
        others = np.take_along_axis(others, chosen[:, :SAMPLED_NEGATIVES], 1)
    return np.hstack([best, others])
