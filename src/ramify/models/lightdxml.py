"""LightDXML: places for labels that are learned in cycles, and the labels near a point as its negatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ramify.base.config import param
from ramify.base.errors import ModelFormatError
from ramify.base.inputs import Inputs
from ramify.base.threads import blas_threads, resolve_threads
from ramify.base.types import Csr, FloatArray, IntArray
from ramify.index.ann import AnnIndex
from ramify.io.labels import LabelVocabulary
from ramify.io.store import Store, StoreWriter
from ramify.models.base import refuse_given
from ramify.models.shortlisted import ShortlistedModel, classifiers_of, open_encoder
from ramify.nn.label_encoder import LabelEncoderConfig
from ramify.nn.learner import Encoder
from ramify.nn.places import LabelPlaces
from ramify.nn.points import Points
from ramify.nn.shortlists import CyclicLearner
from ramify.nn.trainer import hold_out, train


@dataclass(kw_only=True, eq=False, repr=False)
class LightDXML(ShortlistedModel):
    """Learns encoder and classifiers on the labels near each point; where labels lie is learned in between.

    Every few passes each label gets a place among the points as the encoder sees them then: an affine map of the mean
    of its own points. The labels nearest to a point are its negatives until the next time, and its candidates in the
    end. There is one encoder, trained once, and no re-ranker unless it is asked for.
    """

    kind: ClassVar[str] = "lightdxml"

    relabel_every: int = param(3, "passes after which labels get new places, and points new shortlists", low=1)
    labels: LabelEncoderConfig = param(factory=LabelEncoderConfig, doc="how labels get their places")

    def _fit(self, inputs: Inputs, labels: Csr, names: LabelVocabulary, **given: Any) -> None:
        refuse_given(self, given)
        points, threads = self._fit_points(inputs), resolve_threads(self.threads)
        rows, judged = hold_out(labels, self.training.validation, self.seed)
        own = labels[rows]
        encoder = self._start_encoder(points.take(rows), own, self.seed, threads)
        head = self._start_head(own, encoder.encode(points.take(rows), threads), threads)
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
            seed=self.seed + 1,
            threads=threads,
        )
        history = train(
            rows,
            learner,
            self.training,
            title="labels near points",
            seed=self.seed + 2,
            verbose=self.verbose,
            settings=self._settings(),
            checkpoint=self._checkpoint("cycles"),
        )
        with blas_threads(1):
            learner.relabel(len(history))  # where labels lie for the encoder as it is now
        assert learner.places is not None
        self.encoder_, self.classifiers_, self.places_ = encoder, classifiers_of(head), learner.places
        self.by_pass_ = learner.curve
        self._set_beta(learner.by_beta())
        self._fit_reranker(points, labels, rows, judged, threads)
        self._remove_checkpoints("cycles")

    def _near(self, points: Points, k: int, threads: int) -> tuple[IntArray, FloatArray, FloatArray]:
        vectors = self.encoder_.encode(points, threads)
        return *self.places_.search(vectors, k, threads), vectors

    def _encoders(self) -> list[Encoder]:
        return [self.encoder_]

    def _indices(self) -> dict[str, AnnIndex]:
        return {"labels": self.places_.index}

    # ---- files ----

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        return {
            **self._save_points(writer),
            "encoder": self.encoder_.save_to(writer, "encoder_"),
            "index": self.places_.save_to(writer, "index_"),
            "ranking": self._save_ranking(writer),
        }

    def _load(self, store: Store, state: Any) -> None:
        if not isinstance(state, dict):
            raise ModelFormatError(f"the manifest of {store.path} does not name the model's parts")
        shape, trained = self._load_points(store, state)
        self.encoder_ = open_encoder(store, state.get("encoder"), "encoder_", shape, trained)
        width = self.encoder_.width
        self.places_ = LabelPlaces.load_from(store, state.get("index"), "index_", width, self.n_labels)
        self._load_ranking(store, state.get("ranking"), shape, trained, width)
