"""One neural classifier for each label over the embedding, without an index: the exact baseline of `Elias`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ramify.base.config import param
from ramify.base.threads import resolve_threads
from ramify.base.types import FloatArray, IntArray
from ramify.io.inputs import Inputs
from ramify.io.store import Store, StoreWriter
from ramify.models.base import check_state
from ramify.models.encoded import EncodedModel, check_history
from ramify.models.memory import DataSizes
from ramify.models.training_data import TrainingData
from ramify.nn.checkpoint import CheckpointDirectory
from ramify.nn.config import TrainingConfig
from ramify.nn.encoders import Transformer
from ramify.nn.heads.all_labels import AllLabels
from ramify.nn.heads.classifiers import load_classifiers, save_classifiers
from ramify.nn.heads.initialization import init_classifiers
from ramify.nn.learner import Learner
from ramify.nn.sampling.positives import Positives
from ramify.nn.validation import RankingValidator
from ramify.rank.filters import LabelFilter


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralOneVsAll(EncodedModel):
    """Scores every label with a classifier on the embedding: exact, and a measure of what an index loses.

    A training step takes samples × labels × dim operations; tens of thousands of labels are the limit on a CPU.
    """

    kind: ClassVar[str] = "neural-one-vs-all"

    training: TrainingConfig = param(factory=TrainingConfig, doc="training of encoder and classifiers")

    def _fit(self, data: TrainingData) -> None:
        samples = self._fit_samples(data.inputs)
        split = self._split(samples, data, self.training.validation_size, self.seed)
        threads = split.threads
        self.encoder_ = self._init_encoder(split.train_samples, split.train_Y, self.seed, threads)
        phi = self.encoder_.encode(split.train_samples, threads)
        self.head_ = AllLabels(*init_classifiers(split.train_Y, phi, data.Y.shape[1], threads))
        learner = Learner(
            self.encoder_,
            self.head_,
            Positives(data.Y),
            RankingValidator(split.validation_samples, split.validation_Y, threads),
            samples,
            self.training,
            seed=self.seed + 1,
            threads=threads,
            sample_weight=split.sample_weight,
        )
        checkpoints = CheckpointDirectory(self.checkpoint_dir)
        self.history_ = self._train(
            learner,
            split.rows,
            title="all labels",
            seed=self.seed + 2,
            checkpoint=checkpoints.path("all labels"),
            product_threads=threads,  # the products dominate
        )
        checkpoints.clear()

    def _encoded_bytes(self, sizes: DataSizes) -> int:
        logits = 4 * self.training.batch_size * sizes.n_labels
        return super()._encoded_bytes(sizes) + 3 * logits  # with probabilities and gradients

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        return self._search(self.head_, inputs, k)

    def _predict_allowed(self, inputs: Inputs, k: int, label_filter: LabelFilter) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k) of allowed labels, from the classifiers of these only."""
        allowed, missing = label_filter.ids, ((0, 0), (0, max(0, k - len(label_filter))))
        if len(allowed) == 0:
            return np.full((len(inputs), k), -1, np.int32), np.full((len(inputs), k), -np.inf, np.float32)
        weights, bias = self.head_.classifiers
        head = label_filter.prepared(self.head_, lambda: AllLabels(weights[allowed], bias[allowed]))
        positions, scores = self._search(head, inputs, min(k, len(allowed)))
        ids = np.pad(allowed[positions], missing, constant_values=-1)
        return ids, np.pad(scores, missing, constant_values=-np.inf)

    def _search(self, head: AllLabels, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        samples = self._transform_samples(inputs)
        threads = resolve_threads(self.threads, len(samples))
        ids, log_probabilities = head.search(self.encoder_.encode(samples, threads), k, threads)
        return ids, np.where(ids >= 0, np.exp(log_probabilities), -np.inf).astype(np.float32)

    def _transformers(self) -> list[Transformer]:
        return [self.encoder_] if isinstance(self.encoder_, Transformer) else super()._transformers()

    # ---- files ----

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        save_classifiers(writer, "classifier", self.head_.classifiers)
        return {
            **self._save_samples(writer),
            "encoder": self.encoder_.save_to(writer, "encoder_"),
            "history": [list(entry) for entry in self.history_],
        }

    def _load(self, store: Store, state: Any) -> None:
        state = check_state(store, state)
        shape = self._load_samples(store, state)
        self.encoder_ = self._load_encoder(store, state.get("encoder"), "encoder_", shape)
        self.head_ = AllLabels(*load_classifiers(store, "classifier", self.n_labels, self.encoder_.dim))
        self.history_ = check_history(store, state.get("history"))
