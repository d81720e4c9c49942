"""LightDXML: places for labels that are learned in cycles, and the labels near a point as its negatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ramify.base.config import param
from ramify.base.splits import hold_out
from ramify.base.threads import blas_threads, resolve_threads
from ramify.base.types import Csr, FloatArray, IntArray
from ramify.index.ann import AnnConfig, AnnIndex
from ramify.io.inputs import Inputs
from ramify.io.labels import LabelVocabulary
from ramify.io.store import Store, StoreWriter
from ramify.models.base import refuse_given
from ramify.models.shortlisted import ShortlistedModel
from ramify.nn.label_encoder import LabelEncoderConfig
from ramify.nn.places import LabelPlaces
from ramify.nn.points import Points
from ramify.nn.shortlists import CyclicLearner
from ramify.nn.trainer import TrainingConfig


@dataclass(kw_only=True, eq=False, repr=False)
class LightDXML(ShortlistedModel):
    """Learns encoder and classifiers on the labels near each point; where labels lie is learned in between.

    Every few passes each label gets a place among the points as the encoder sees them then: an affine map of the mean
    of its own points. The labels nearest to a point are its negatives until the next time, and its candidates in the
    end. There is one encoder, trained once, and no re-ranker unless it is asked for.
    """

    kind: ClassVar[str] = "lightdxml"

    training: TrainingConfig = param(
        factory=lambda: TrainingConfig(epochs=6), doc="how encoder and classifiers are trained"
    )
    index: AnnConfig = param(factory=lambda: AnnConfig(rescore=False), doc="how near labels are found")
    relabel_every: int = param(
        2, "passes after which labels get new places, and points new shortlists; the first time after one", low=1
    )
    labels: LabelEncoderConfig = param(factory=LabelEncoderConfig, doc="how labels get their places")

    def _fit(self, inputs: Inputs, labels: Csr, names: LabelVocabulary, **given: Any) -> None:
        refuse_given(self, given)
        points, threads = self._fit_points(inputs), resolve_threads(self.threads)
        rows, judged = hold_out(labels, self.training.validation, self.seed)
        own = labels[rows]
        encoder = self._start_encoder(points.take(rows), own, self.seed, threads)
        vectors = encoder.encode(points.take(rows), threads)
        head = self._start_head(own, vectors, threads)
        learner = CyclicLearner(
            encoder,
            head,
            points,
            labels,
            rows,
            judged,
            self.training,
            shortlist=min(self.shortlist, labels.shape[1]),
            relabel_every=self.relabel_every,
            labels=self.labels,
            ann=self.index,
            beta=self.beta,
            rare=self.rare,
            vectors=vectors,
            seed=self.seed + 1,
            threads=threads,
        )
        del vectors  # the learner drops them after the first pass
        n_looks = self._train(rows, learner, "cycles", seed=self.seed + 2)
        with blas_threads(1):
            learner.place_labels(n_looks)  # where labels lie for the encoder as it is now
        assert learner.places is not None
        self.encoder_, self.classifiers_, self.places_ = encoder, learner.classifiers(), learner.places
        self.by_pass_ = learner.curve
        self._set_beta(learner.by_beta())
        self._fit_reranker(points, labels, rows, judged, threads)
        self._fit_calibrator(points, labels, judged, threads)
        self._remove_checkpoints("cycles")

    def _near(self, points: Points, k: int, threads: int) -> tuple[IntArray, FloatArray, FloatArray]:
        vectors = self.encoder_.encode(points, threads)
        return *self.places_.search(vectors, k, threads), vectors

    def _indices(self) -> dict[str, AnnIndex]:
        return {"labels": self.places_.index}

    # ---- files ----

    def _save_search(self, writer: StoreWriter) -> dict[str, Any]:
        return {"labels": self.places_.save_to(writer, "labels_")}

    def _load_search(self, store: Store, state: dict[str, Any]) -> int:
        width = self.encoder_.width
        self.places_ = LabelPlaces.load_from(store, state.get("labels"), "labels_", width, self.n_labels)
        return width
