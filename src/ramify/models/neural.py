"""One neural classifier for each label, without an index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ramify.base.config import param
from ramify.base.errors import ModelFormatError
from ramify.base.splits import hold_out
from ramify.base.threads import resolve_threads
from ramify.base.types import Csr, FloatArray, IntArray
from ramify.io.inputs import Inputs
from ramify.io.labels import LabelVocabulary
from ramify.io.store import Store, StoreWriter
from ramify.models.base import refuse_given
from ramify.models.elias_member import EliasMember
from ramify.models.encoded import EncodedModel
from ramify.nn.all_labels import AllLabels
from ramify.nn.graph import start_labels
from ramify.nn.learner import EncoderWithHead
from ramify.nn.trainer import TrainingConfig, remove_checkpoint, train
from ramify.nn.transformer import Transformer


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralOneVsAll(EncodedModel):
    """Scores every label with a classifier on the encoder's vector: slow and exact, the measure of what an index loses.

    A training step costs points × labels × width; some ten thousand labels are what a processor can bear.
    """

    kind: ClassVar[str] = "neural-one-vs-all"

    training: TrainingConfig = param(factory=TrainingConfig, doc="how encoder and classifiers are trained")
    checkpoints: str | None = param(None, "folder for checkpoints; a training that was interrupted goes on from there")

    def _fit(self, inputs: Inputs, labels: Csr, names: LabelVocabulary, **given: Any) -> None:
        refuse_given(self, given)
        points, threads = self._fit_points(inputs), resolve_threads(self.threads)
        rows, judged = hold_out(labels, self.training.validation, self.seed)
        encoder = self._start_encoder(points.take(rows), labels[rows], self.seed, threads)
        vectors = encoder.encode(points.take(rows), threads)
        head = AllLabels(*start_labels(labels[rows], vectors, labels.shape[1], threads))
        learner = EncoderWithHead(
            encoder, head, points, labels, judged, self.training, seed=self.seed + 1, threads=threads
        )
        history = train(
            rows,
            learner,
            self.training,
            title="all labels",
            seed=self.seed + 2,
            verbose=self.verbose,
            settings=self._settings(),
            checkpoint=self.checkpoints,
            product_threads=threads,  # there is little else to do
        )
        if self.checkpoints is not None:
            remove_checkpoint(self.checkpoints)
        self.member_ = EliasMember(
            encoder,
            head.clusters,
            head.graph,
            (head.weights.values, head.offset.values),
            0.0,
            1,
            labels.shape[1],
            np.zeros(labels.shape[1], np.int32),
            history,
        )

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        points = self._make_points(inputs)
        ids, scores = self.member_.search(points, k, resolve_threads(self.threads, len(points)))
        return ids, np.where(ids >= 0, np.exp(scores), -np.inf).astype(np.float32)

    def _transformers(self) -> list[Transformer]:
        encoder = self.member_.encoder
        return [encoder] if isinstance(encoder, Transformer) else super()._transformers()

    # ---- files ----

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        return {**self._save_points(writer), "member": self.member_.save_to(writer, "model_")}

    def _load(self, store: Store, state: Any) -> None:
        if not isinstance(state, dict):
            raise ModelFormatError(f"the manifest of {store.path} does not name the model's parts")
        shape, trained = self._load_points(store, state)
        self.member_ = EliasMember.load_from(store, state.get("member"), "model_", shape, self.n_labels, trained)
