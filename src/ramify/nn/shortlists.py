"""Training on shortlists: labels near a point are its negatives, and what is near moves with the encoder (LightDXML).

A shortlist comes from a search for the labels that lie nearest to a point. What is predicted for a label on it is
β · σ(classifier) + (1 - β) · σ(similarity), each divided by the largest of the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ramify.base import native
from ramify.base.ranking import Ranking
from ramify.base.sparse import csr_from_parts
from ramify.base.types import AnyArray, Csr, FloatArray, IntArray, LongArray
from ramify.index.ann import AnnConfig
from ramify.metrics.propensity import LabelCounts
from ramify.metrics.report import Evaluation, evaluate
from ramify.nn.label_encoder import LabelEncoder, LabelEncoderConfig, label_means
from ramify.nn.learner import Encoder, EncoderWithHead, arrays_of, named_arrays
from ramify.nn.list_head import ListHead, with_weights
from ramify.nn.places import LabelPlaces, list_products
from ramify.nn.points import Points
from ramify.nn.tables import Arrays
from ramify.nn.trainer import TrainingConfig

BETAS = tuple(round(0.05 * i, 2) for i in range(21))
"""Weights of the classifier that are tried."""


def row_share(ids: IntArray, logits: FloatArray) -> FloatArray:
    """σ of logits (n, k), divided by the largest of each row; 0 where a list has ended."""
    with np.errstate(over="ignore"):
        chances = np.where(ids >= 0, 1 / (1 + np.exp(-logits)), np.float32(0))
    largest = chances.max(axis=1, keepdims=True, initial=0)
    return np.asarray(chances / np.where(largest > 0, largest, 1), np.float32)


def fused(ids: IntArray, logits: FloatArray, similarities: FloatArray, beta: float) -> FloatArray:
    """Scores (n, k) of the labels on lists (n, k), between 0 and 1; -inf where a list has ended."""
    both = np.float32(beta) * row_share(ids, logits) + np.float32(1 - beta) * row_share(ids, similarities)
    return np.where(ids >= 0, both, np.float32(-np.inf))


def competing(ids: IntArray, Y: Csr) -> Csr:
    """Ones (n × L) where a label is on a point's list (n, k), perhaps twice, or is its own."""
    ids = np.sort(ids, axis=1)
    there = ids >= 0
    there[:, 1:] &= ids[:, 1:] != ids[:, :-1]
    begin = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    lists = csr_from_parts(np.ones(begin[-1], np.float32), ids[there], begin, Y.shape)
    both = (lists + Y).tocsr()
    both.data[:] = 1.0
    both.sort_indices()
    return both


def judged_by_beta(
    ids: IntArray, logits: FloatArray, similarities: FloatArray, Y: Csr, counts: LabelCounts, threads: int
) -> dict[float, Evaluation]:
    """What lists (n, k) are worth on labels Y (n × L) for each weight of the classifier."""
    k = min(5, Y.shape[1])
    return {
        beta: evaluate(
            Ranking(*native.list_topk(ids, fused(ids, logits, similarities, beta), k, threads), Y.shape[1]),
            Y,
            counts,
            ks=sorted({1, k}),
        )
        for beta in BETAS
    }


class ListLearner(EncoderWithHead):
    """Trains an encoder and classifiers on the labels of a list for each point, and its own.

    Attributes
    ----------
    rows : the points that it learns from
    curve : P@1 and PSP@1 on the held-out rows after each pass, with the best weight of the classifier
    """

    head: ListHead

    def __init__(
        self,
        encoder: Encoder,
        head: ListHead,
        points: Points,
        Y: Csr,
        rows: LongArray,
        judged: LongArray,
        config: TrainingConfig,
        *,
        seed: int,
        threads: int,
    ) -> None:
        super().__init__(encoder, head, points, Y, judged, config, seed=seed, threads=threads, targets=self._on_lists)
        self.rows = rows
        self.curve: list[tuple[float, float]] = []
        self._counts = LabelCounts.of(Y[rows])
        self._competing = Y
        self._held_lists: tuple[IntArray, FloatArray] | None = None

    def set_lists(self, lists: IntArray, held: tuple[IntArray, FloatArray] | None = None) -> None:
        """Give each of `rows` its list (n, k), and the held-out rows lists with similarities that they keep."""
        whole = np.full((self.Y.shape[0], lists.shape[1]), -1, np.int32)
        whole[self.rows] = lists
        self._competing, self._held_lists = competing(whole, self.Y), held

    def _on_lists(self, rows: LongArray) -> Csr:
        return with_weights(self._competing[rows], self.Y[rows])

    def _search_held(self, vectors: FloatArray) -> tuple[IntArray, FloatArray]:
        """Lists (n, k) of the held-out rows, with similarities."""
        assert self._held_lists is not None
        return self._held_lists

    def by_beta(self) -> dict[float, Evaluation]:
        """What the held-out rows say for each weight of the classifier; nothing without such rows."""
        if len(self._held) == 0:
            return {}
        assert self.head.labels.offset is not None
        vectors = self.encoder.encode(self._held, self.threads)
        ids, similarities = self._search_held(vectors)
        logits = list_products(self.head.labels.weights, self.head.labels.offset, ids, vectors, self.threads)
        return judged_by_beta(ids, logits, similarities, self._truth, self._counts, self.threads)

    def judge(self) -> tuple[float, float] | None:
        """NDCG@5 and P@1 on the held-out rows, with the weight of the classifier that is best there."""
        found = self.by_beta()
        if not found:
            return None
        best = found[best_beta(found)]
        self.curve.append((float(best["P@1"]), float(best["PSP@1"])))
        return _ndcg(best), float(best["P@1"])

    def memory(self) -> tuple[Arrays, dict[str, Any]]:
        """Moments and random numbers, and how it went so far."""
        arrays, values = super().memory()
        return arrays, {**values, "curve": self.curve}

    def set_memory(self, arrays: Mapping[str, AnyArray], values: dict[str, Any]) -> None:
        """Go on from what `memory` gave."""
        super().set_memory(arrays, values)
        self.curve = [(float(first), float(rare)) for first, rare in values["curve"]]


def best_beta(found: Mapping[float, Evaluation], otherwise: float = 0.75) -> float:
    """Weight of the classifier with the best nDCG; of equal ones the largest."""
    return max(found, key=lambda beta: (_ndcg(found[beta]), beta), default=otherwise)


def _ndcg(result: Evaluation) -> float:
    return float(result[f"nDCG@{max(result.metrics.cutoffs)}"])


class CyclicLearner(ListLearner):
    """A `ListLearner` whose lists are searched anew every few passes, among labels whose places are learned.

    Attributes
    ----------
    places : where labels lay the last time; labels without a point are not there
    """

    def __init__(
        self,
        *given: Any,
        shortlist: int,
        relabel_every: int,
        labels: LabelEncoderConfig,
        ann: AnnConfig,
        seed: int,
        threads: int,
    ) -> None:
        super().__init__(*given, seed=seed, threads=threads)
        self.shortlist, self.relabel_every, self.ann, self.seed = shortlist, relabel_every, ann, seed
        self.labels = LabelEncoder(self.encoder.width, labels)
        self.known = np.flatnonzero(self._counts.counts).astype(np.int32)
        self.places: LabelPlaces | None = None
        self._lists = np.empty((0, 0), np.int32)

    def begin_pass(self, number: int) -> None:
        """Make new shortlists where it is time."""
        if number % self.relabel_every == 0:
            self.relabel(number)

    def relabel(self, number: int) -> None:
        """Give the labels their places among the points as the encoder sees them now, and search the shortlists."""
        vectors, Y = self.encoder.encode(self.points.take(self.rows), self.threads), self.Y[self.rows]
        means = label_means(vectors, Y, self.threads)
        self.labels.train(means, vectors, Y, self.seed + number)
        self.places = LabelPlaces.build(
            self.labels.encode(means[self.known]),
            self.known,
            self._counts.counts[self.known],
            self.ann,
            k=self.shortlist,
            queries=vectors,
            seed=self.seed,
            threads=self.threads,
        )
        self._lists, _ = self.places.search(vectors, self.shortlist, self.threads)
        self.set_lists(self._lists)

    def _search_held(self, vectors: FloatArray) -> tuple[IntArray, FloatArray]:
        assert self.places is not None
        return self.places.search(vectors, self.shortlist, self.threads)

    def memory(self) -> tuple[Arrays, dict[str, Any]]:
        """All of `ListLearner.memory`, the labels' encoder, and the lists with the places that they came from."""
        arrays, values = super().memory()
        assert self.places is not None
        places, info = self.places.to_arrays()
        arrays |= {**named_arrays("places", places), **named_arrays("labels", self.labels.arrays())}
        return {**arrays, "lists": self._lists}, {**values, "places": info}

    def set_memory(self, arrays: Mapping[str, AnyArray], values: dict[str, Any]) -> None:
        """Go on from what `memory` gave."""
        super().set_memory(arrays, values)
        self.labels.set_arrays(arrays_of("labels", arrays))
        self.places = LabelPlaces.from_arrays(arrays_of("places", arrays), values["places"])
        self._lists = np.array(arrays["lists"])
        self.set_lists(self._lists)
