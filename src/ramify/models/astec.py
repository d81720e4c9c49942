"""Astec, the model of DeepXML that LightDXML is measured against: four modules, one after the other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ramify import native
from ramify.base.config import param
from ramify.base.errors import ModelFormatError
from ramify.base.mixed import Mixed
from ramify.base.sparse import csr_from_parts
from ramify.base.splits import hold_out
from ramify.base.threads import resolve_threads
from ramify.base.types import Csr, FloatArray, IntArray, LongArray
from ramify.index.ann import AnnIndex
from ramify.index.label_graph import build_clusters
from ramify.io.inputs import Inputs
from ramify.io.labels import LabelVocabulary
from ramify.io.store import Store, StoreWriter
from ramify.labels.representations import pifa_mixed
from ramify.models.base import refuse_given
from ramify.models.encoded import joined
from ramify.models.shortlisted import ShortlistedModel
from ramify.nn.all_labels import AllLabels
from ramify.nn.encoder import Bag
from ramify.nn.graph import start_labels
from ramify.nn.label_encoder import label_means
from ramify.nn.learner import Encoder, EncoderWithHead
from ramify.nn.places import LabelPlaces
from ramify.nn.points import Points
from ramify.nn.shortlists import ListLearner, chances, row_share
from ramify.nn.trainer import TrainingConfig


@dataclass(kw_only=True, eq=False, repr=False)
class Astec(ShortlistedModel):
    """Learns features on clusters of labels, freezes them, and trains classifiers on the labels near each point.

    First the encoder learns to tell clusters of labels apart. Its vectors are frozen: shortlists come from searches for
    the middles of labels and for other points, once. Then a layer of bounded strength adapts the vectors while the
    classifiers are trained on shortlists and some random labels; a re-ranker may follow.
    """

    kind: ClassVar[str] = "astec"

    reranker: bool = param(True, "train a second encoder with classifiers of its own on what is ranked highest")
    n_clusters: int | None = param(
        None, "clusters of labels, the next lower power of two; None: about an eighth of the labels", low=1
    )
    surrogate: TrainingConfig = param(factory=TrainingConfig, doc="how the encoder is trained on clusters of labels")
    neighbours: int = param(50, "points near a point whose labels are candidates", low=1)
    neighbour_weight: float = param(0.075, "share of near points in the similarity of a label", low=0, high=1)
    random_negatives: int = param(150, "random labels that the classifiers of a point are trained on as well", low=0)
    strength: float = param(1.0, "spectral norm of the layer on frozen vectors, about, at most", above=0)

    # ---- training ----

    def _fit(self, inputs: Inputs, labels: Csr, names: LabelVocabulary, **given: Any) -> None:
        refuse_given(self, given)
        points, threads = self._fit_points(inputs), resolve_threads(self.threads)
        rows, judged = hold_out(labels, self.training.validation, self.seed)
        own = labels[rows]
        self.encoder_ = self._fit_surrogate(points, labels, rows, judged, threads)
        vectors = self.encoder_.encode(points, threads)
        self._build_indices(vectors[rows], own, threads)

        frozen = Points(Mixed.of(vectors))
        self.transfer_ = Bag.start(frozen.features, own, None, seed=self.seed + 3, threads=threads)
        self.transfer_.bound = self.strength
        head = self._start_head(own, vectors[rows], threads)
        learner = ListLearner(
            self.transfer_,
            head,
            frozen,
            labels,
            rows,
            judged,
            self.training,
            beta=self.beta,
            rare=self.rare,
            seed=self.seed + 4,
            threads=threads,
        )
        width = min(self.shortlist, labels.shape[1])
        random = np.random.default_rng(self.seed + 5)
        lists, _ = self._search(vectors[rows], labels.shape[1], width, threads)
        n_others = min(self.random_negatives, labels.shape[1])
        others = random.integers(0, labels.shape[1], (len(rows), n_others), np.int32)
        held, similarities = self._search(vectors[judged], labels.shape[1], width, threads)
        learner.set_lists(np.hstack([others, lists]), (held, row_share(chances(held, similarities))))
        self._train(rows, learner, "classifiers", seed=self.seed + 6)
        self.classifiers_, self.by_pass_ = learner.classifiers(), learner.curve
        self._set_beta(learner.by_beta())
        self._fit_reranker(points, labels, rows, judged, threads)
        self._fit_calibrator(points, labels, judged, threads)
        self._remove_checkpoints("clusters of labels", "classifiers")

    def _fit_surrogate(self, points: Points, Y: Csr, rows: LongArray, judged: LongArray, threads: int) -> Encoder:
        """Train an encoder to tell clusters of labels apart."""
        own = Y[rows]
        encoder = self._start_encoder(points.take(rows), own, self.seed, threads)
        vectors = encoder.encode(points.take(rows), threads)
        n_clusters = self.n_clusters or 2 ** max(0, round(math.log2(Y.shape[1] / 8)))
        Z = pifa_mixed(joined(points.take(rows).features, vectors), own, normalize_y=False, threads=threads)
        cluster_of = build_clusters(Z, n_clusters, seed=self.seed, threads=threads)
        n_clusters = int(cluster_of.max()) + 1
        begin, n_labels = np.arange(Y.shape[1] + 1), Y.shape[1]
        membership = csr_from_parts(np.ones(n_labels, np.float32), cluster_of, begin, (n_labels, n_clusters))
        clusters = (Y @ membership).tocsr()
        clusters.data[:] = 1.0
        clusters.sort_indices()
        head = AllLabels(*start_labels(clusters[rows], vectors, n_clusters, threads))
        learner = EncoderWithHead(
            encoder, head, points, clusters, judged, self.surrogate, seed=self.seed + 1, threads=threads
        )
        self._train(rows, learner, "clusters of labels", seed=self.seed + 2)
        return encoder

    def _build_indices(self, vectors: FloatArray, Y: Csr, threads: int) -> None:
        """Index the middles of the labels that have points, and the points themselves with their labels."""
        counts = np.bincount(Y.indices, minlength=Y.shape[1])
        known = np.flatnonzero(counts).astype(np.int32)
        middles, width = label_means(vectors, Y, threads)[known], min(self.shortlist, Y.shape[1])
        common: dict[str, Any] = {"queries": vectors, "seed": self.seed, "threads": threads}
        self.middles_ = LabelPlaces.build(middles, known, counts[known], self.index, k=width, **common)
        self.points_ = AnnIndex.build(vectors, self.index, k=self.neighbours, **common)
        self.point_labels_ = Y.indptr.astype(np.int64), Y.indices.astype(np.int32)

    # ---- prediction ----

    def _search(self, vectors: FloatArray, n_labels: int, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Labels (n, k) whose middles or whose points are near frozen vectors (n, D), and how near, from 0 to 1."""
        return native.ann.merge_neighbor_labels(
            self.middles_.search(vectors, k, threads),
            self.points_.search(vectors, self.neighbours, threads),
            self.point_labels_,
            n_labels,
            self.neighbour_weight,
            k,
            threads,
        )

    def _near(self, points: Points, k: int, threads: int) -> tuple[IntArray, FloatArray, FloatArray]:
        frozen = self.encoder_.encode(points, threads)
        near = self._search(frozen, len(self.classifiers_[1]), k, threads)
        return *near, self.transfer_.encode(Points(Mixed.of(frozen)), threads)

    def _indices(self) -> dict[str, AnnIndex]:
        return {"labels": self.middles_.index, "points": self.points_}

    # ---- files ----

    def _save_search(self, writer: StoreWriter) -> dict[str, Any]:
        for name, array in zip(("point_begin", "point_labels"), self.point_labels_, strict=True):
            writer.array(name, array)
        return {
            "transfer": self.transfer_.save_to(writer, "transfer_"),
            "labels": self.middles_.save_to(writer, "labels_"),
            "points": self.points_.save_to(writer, "points_"),
        }

    def _load_search(self, store: Store, state: dict[str, Any]) -> int:
        width = self.encoder_.width
        self.transfer_ = Bag.load_from(store, state.get("transfer"), "transfer_", (0, width))
        self.middles_ = LabelPlaces.load_from(store, state.get("labels"), "labels_", width, self.n_labels)
        begin = store.array("point_begin", np.int64, ndim=1)
        n_points = max(1, len(begin) - 1)
        self.points_ = AnnIndex.load_from(store, state.get("points"), "points_", width, n_points)
        labels = store.array("point_labels", np.int32, ndim=1, bounds=(0, self.n_labels))
        fits = len(begin) == len(self.points_) + 1 and begin[0] == 0 and begin[-1] == len(labels)
        if not fits or np.any(np.diff(begin) < 0):
            raise ModelFormatError(f"{store.path}: the labels of the points do not fit them")
        self.point_labels_ = begin, labels
        return width
