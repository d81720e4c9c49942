"""One neural classifier for each label over the embedding, without an index: the exact baseline of `Elias`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ramify.base.config import param
from ramify.base.splits import hold_out
from ramify.base.threads import resolve_threads
from ramify.base.types import FloatArray, IntArray
from ramify.io.inputs import Inputs
from ramify.io.store import Store, StoreWriter
from ramify.models.base import TrainingData, check_history, check_state
from ramify.models.encoded import EncodedModel
from ramify.nn.checkpoint import CheckpointDirectory
from ramify.nn.encoders import Transformer
from ramify.nn.heads.all_labels import AllLabels
from ramify.nn.heads.initialization import init_classifiers
from ramify.nn.learner import Learner
from ramify.nn.sampling.positives import Positives
from ramify.nn.trainer import TrainingConfig, train
from ramify.nn.validation import RankingValidator


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralOneVsAll(EncodedModel):
    """Scores every label with a classifier on the embedding: exact, and a measure of what an index loses.

    A training step takes samples × labels × dim operations; tens of thousands of labels are the limit on a CPU.
    """

    kind: ClassVar[str] = "neural-one-vs-all"

    training: TrainingConfig = param(factory=TrainingConfig, doc="training of encoder and classifiers")
    checkpoint_dir: str | None = param(
        None, "directory for checkpoints; an interrupted training resumes from there, to the same bits"
    )

    def _fit(self, data: TrainingData) -> None:
        Y, threads = data.Y, resolve_threads(self.threads)
        samples = self._fit_samples(data.inputs)
        rows, validation = hold_out(Y, self.training.validation_size, self.seed)
        self.encoder_ = self._init_encoder(samples.take(rows), Y[rows], self.seed, threads)
        phi = self.encoder_.encode(samples.take(rows), threads)
        self.head_ = AllLabels(*init_classifiers(Y[rows], phi, Y.shape[1], threads))
        validator = RankingValidator(samples.take(validation), Y[validation], threads)
        learner = Learner(
            self.encoder_,
            self.head_,
            Positives(Y),
            validator,
            samples,
            self.training,
            seed=self.seed + 1,
            threads=threads,
        )
        checkpoints = CheckpointDirectory(self.checkpoint_dir)
        self.history_ = train(
            rows,
            learner,
            self.training,
            title="all labels",
            seed=self.seed + 2,
            verbose=self.verbose,
            settings=self._training_settings(),
            checkpoint=checkpoints.path("all labels"),
            product_threads=threads,  # the products dominate
        )
        checkpoints.clear()

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        samples = self._transform_samples(inputs)
        threads = resolve_threads(self.threads, len(samples))
        ids, log_probabilities = self.head_.search(self.encoder_.encode(samples, threads), k, threads)
        return ids, np.where(ids >= 0, np.exp(log_probabilities), -np.inf).astype(np.float32)

    def _transformers(self) -> list[Transformer]:
        return [self.encoder_] if isinstance(self.encoder_, Transformer) else super()._transformers()

    # ---- files ----

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        weights, bias = self.head_.classifiers
        writer.array("classifier_weights", weights)
        writer.array("classifier_bias", bias)
        return {
            **self._save_samples(writer),
            "encoder": self.encoder_.save_to(writer, "encoder_"),
            "history": [list(entry) for entry in self.history_],
        }

    def _load(self, store: Store, state: Any) -> None:
        state = check_state(store, state)
        shape = self._load_samples(store, state)
        self.encoder_ = self._load_encoder(store, state.get("encoder"), "encoder_", shape)
        self.head_ = AllLabels(
            store.array("classifier_weights", np.float32, shape=(self.n_labels, self.encoder_.dim)),
            store.array("classifier_bias", np.float32, shape=(self.n_labels,)),
        )
        self.history_ = check_history(store, state.get("history"))
