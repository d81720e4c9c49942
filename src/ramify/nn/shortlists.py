"""Training on shortlists: labels near a point are its negatives, and what is near moves with the encoder (LightDXML).

A shortlist comes from a search for the labels that lie nearest to a point. What is predicted for a label on it is
β · σ(classifier) + (1 - β) · σ(similarity), each divided by the largest of the row, times the largest σ(classifier).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from ramify import native
from ramify.base.ranking import Ranking
from ramify.base.sparse import csr_from_parts
from ramify.base.types import AnyArray, Csr, DoubleArray, FloatArray, IntArray, LongArray
from ramify.index.ann import AnnConfig
from ramify.metrics.propensity import LabelCounts, inverse_propensity
from ramify.metrics.ranking import ranking_metrics
from ramify.nn.label_encoder import LabelEncoder, LabelEncoderConfig, label_means
from ramify.nn.learner import Encoder, EncoderWithHead
from ramify.nn.list_head import ListHead, with_weights
from ramify.nn.places import LabelPlaces, list_products
from ramify.nn.points import Points
from ramify.nn.tables import Arrays, arrays_of, named_arrays
from ramify.nn.trainer import TrainingConfig

BETAS = (0.0, 0.01, 0.02, 0.03, *(round(0.05 * i, 2) for i in range(1, 21)))
"""Weights of the classifier that are tried: similarities of a row differ by little, so that a small weight goes far."""


def chances(ids: IntArray, logits: FloatArray) -> FloatArray:
    """σ of logits (n, k); 0 where a list has ended."""
    return np.where(ids >= 0, expit(logits), np.float32(0))


def row_share(values: FloatArray) -> FloatArray:
    """Values (n, k), from 0 up, divided by the largest of each row."""
    largest = values.max(axis=1, keepdims=True, initial=0)
    return np.asarray(values / np.where(largest > 0, largest, 1), np.float32)


def fused(ids: IntArray, logits: FloatArray, shares: FloatArray, beta: float) -> FloatArray:
    """Scores (n, k) of the labels on lists (n, k), -inf where a list has ended.

    `shares` (n, k) is what else speaks for a label, as a share of the row's best. What both say together is one, too;
    times the classifier's largest probability it can be compared between rows.
    """
    own = chances(ids, logits)
    both = np.float32(beta) * row_share(own) + np.float32(1 - beta) * shares
    largest = own.max(axis=1, keepdims=True, initial=1e-30)  # where it is 0 the order still counts
    return np.where(ids >= 0, both * largest, np.float32(-np.inf))


def competing(ids: IntArray, Y: Csr) -> Csr:
    """Ones (n × L) where a label is on a point's list (n, k), ascending and perhaps twice, or is its own."""
    there = ids >= 0
    there[:, 1:] &= ids[:, 1:] != ids[:, :-1]
    begin = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    lists = csr_from_parts(np.ones(begin[-1], np.float32), ids[there], begin, Y.shape)
    both = (lists + Y).tocsr()
    both.data[:] = 1.0
    both.sort_indices()
    return both


class Judgement(NamedTuple):
    """What held-out points say, in percent."""

    ndcg: float
    first: float
    """P@1"""
    rare: float
    """PSP@1"""


def judged_by_beta(
    betas: Sequence[float],
    ids: IntArray,
    logits: FloatArray,
    shares: FloatArray,
    Y: Csr,
    weights: DoubleArray,
    threads: int,
) -> dict[float, Judgement]:
    """What lists (n, k) are worth for labels Y (n × L) with inverse propensities (L,), by weight of the classifier."""
    k, found = min(5, Y.shape[1]), {}
    for beta in betas:
        best = native.matrix.list_topk(ids, fused(ids, logits, shares, beta), k, threads)
        values = ranking_metrics(Ranking(*best, Y.shape[1]), Y, [1, k], weights, None, 1, threads).values
        found[beta] = Judgement(*(float(v) for v in (values["nDCG"][-1], values["P"][0], values["PSP"][0])))
    return found


class ListLearner(EncoderWithHead):
    """Trains an encoder and classifiers on the labels of a list for each point, and its own.

    Attributes
    ----------
    rows : the points that it learns from
    lift : (L,) what is added to the offsets in the end, for the sake of rare labels: `rare` times the logarithm of
        the inverse propensity
    beta : weight of the classifier to judge with; None: the best one
    curve : pass, P@1 and PSP@1 on the held-out rows, each time that they were looked at
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
        beta: float | None,
        rare: float,
        seed: int,
        threads: int,
    ) -> None:
        super().__init__(encoder, head, points, Y, judged, config, seed=seed, threads=threads, targets=self._on_lists)
        self.rows, self.beta = rows, beta
        self.curve: list[list[float]] = []
        self.counts = np.bincount(Y[rows].indices, minlength=Y.shape[1])
        self._weights = inverse_propensity(LabelCounts(len(rows), self.counts))
        self.lift = (rare * np.log(self._weights)).astype(np.float32)
        self._lists = np.empty((len(rows), 0), np.int32)
        self._place = np.full(Y.shape[0], -1)
        self._place[rows] = np.arange(len(rows))
        self._held_lists: tuple[IntArray, FloatArray] | None = None
        self._pass = 0

    def begin_pass(self, number: int) -> None:
        """Count the passes."""
        self._pass = number + 1

    def set_lists(self, lists: IntArray, held: tuple[IntArray, FloatArray] | None = None) -> None:
        """Give each of `rows` its list (n, k), and held-out rows lists to keep, with shares of the row's best."""
        self._lists, self._held_lists = np.sort(lists, axis=1), held

    def _on_lists(self, rows: LongArray) -> Csr:
        own = self.Y[rows]
        return with_weights(competing(self._lists[self._place[rows]], own), own)

    def _search_held(self, vectors: FloatArray) -> tuple[IntArray, FloatArray]:
        """Lists (n, k) of the held-out rows, with shares of the row's best."""
        assert self._held_lists is not None
        return self._held_lists

    def by_beta(self, betas: Sequence[float] = BETAS) -> dict[float, Judgement]:
        """What the held-out rows say for each weight of the classifier; nothing without such rows."""
        if len(self._held) == 0:
            return {}
        vectors = self.encoder.encode(self._held, self.threads)
        ids, shares = self._search_held(vectors)
        logits = list_products(*self.classifiers(), ids, vectors, self.threads)
        return judged_by_beta(betas, ids, logits, shares, self._truth, self._weights, self.threads)

    def classifiers(self) -> tuple[FloatArray, FloatArray]:
        """Weights (L, D) and offsets (L,) to predict with."""
        assert self.head.labels.offset is not None
        return self.head.labels.weights, self.head.labels.offset + self.lift

    def judge(self) -> tuple[float, float] | None:
        """NDCG@5 and P@1 on the held-out rows, with the given weight of the classifier or the best one."""
        found = self.by_beta(BETAS[::-4] if self.beta is None else [self.beta])
        if not found:
            return None
        best = found[best_beta(found)]
        self.curve.append([self._pass, best.first, best.rare])
        return best.ndcg, best.first

    def memory(self) -> tuple[Arrays, dict[str, Any]]:
        """Moments and random numbers, and how it went so far."""
        arrays, values = super().memory()
        return arrays, {**values, "curve": self.curve}

    def set_memory(self, arrays: Mapping[str, AnyArray], values: dict[str, Any]) -> None:
        """Go on from what `memory` gave."""
        super().set_memory(arrays, values)
        self.curve = [[float(x) for x in row] for row in values["curve"]]


def best_beta(found: Mapping[float, Judgement], otherwise: float = 0.75) -> float:
    """Weight of the classifier with the best nDCG; of equal ones the largest."""
    return max(found, key=lambda beta: (found[beta].ndcg, beta), default=otherwise)


class CyclicLearner(ListLearner):
    """A `ListLearner` whose lists are searched anew every few passes, among labels whose places are learned.

    Attributes
    ----------
    places : where labels lay the last time; labels without a point are not there
    """

    _vectors: FloatArray | None
    """Of the points that it learns from, as the encoder sees them before the first pass; nobody else needs them."""

    def __init__(
        self,
        *given: Any,
        shortlist: int,
        relabel_every: int,
        labels: LabelEncoderConfig,
        ann: AnnConfig,
        beta: float | None,
        rare: float,
        vectors: FloatArray,
        seed: int,
        threads: int,
    ) -> None:
        super().__init__(*given, beta=beta, rare=rare, seed=seed, threads=threads)
        self._vectors = vectors
        self.shortlist, self.relabel_every, self.ann, self.seed = shortlist, relabel_every, ann, seed
        self.labels = LabelEncoder(self.encoder.width, labels)
        self.known = np.flatnonzero(self.counts).astype(np.int32)
        self.places: LabelPlaces | None = None

    def begin_pass(self, number: int) -> None:
        """Make new shortlists where it is time."""
        super().begin_pass(number)
        if number == 1 or number % self.relabel_every == 0:  # the encoder moves farthest in the first pass
            vectors = self.place_labels(number)
            assert self.places is not None
            self.set_lists(self.places.search(vectors, self.shortlist, self.threads)[0])

    def place_labels(self, number: int) -> FloatArray:
        """Give the labels places among the points as the encoder sees them now; return the points' vectors (n, D)."""
        vectors, Y, self._vectors = self._vectors, self.Y[self.rows], None
        if number or vectors is None:
            vectors = self.encoder.encode(self.points.take(self.rows), self.threads)
        means = label_means(vectors, Y, self.threads)
        self.labels.train(means, vectors, Y, self.seed + number)
        self.places = LabelPlaces.build(
            self.labels.encode(means[self.known]),
            self.known,
            self.counts[self.known],
            self.ann,
            k=self.shortlist,
            queries=vectors,
            seed=self.seed,
            threads=self.threads,
        )
        return vectors

    def _search_held(self, vectors: FloatArray) -> tuple[IntArray, FloatArray]:
        assert self.places is not None
        ids, similarities = self.places.search(vectors, self.shortlist, self.threads)
        return ids, row_share(chances(ids, similarities))

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
        self.set_lists(np.array(arrays["lists"]))
