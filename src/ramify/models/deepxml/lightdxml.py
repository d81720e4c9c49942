"""LightDXML: encoder, label embeddings and classifiers are trained in one go, with hard negatives that are refreshed.

Every `refresh_every` epochs:
1. Label embeddings ψ_l are learned for the encoder as it is now: an affine map of the centroid of each label's samples
   (`nn.label_embeddings`), and indexed for nearest neighbor search (`nn.label_index`).
2. The labels nearest to a sample become its shortlist: its hard negatives until the next refresh.
3. Encoder and classifiers are trained with binary cross-entropy on the shortlists (`nn.sampling.refreshed`).

At prediction the labels nearest to φ(x) are ranked by the blended score of classifier and similarity (`rank.blend`):

    β · σ(w_l·φ + b_l) + (1 - β) · σ(cos(φ, ψ_l)),  each over its row's maximum

Differences from the paper
- β is chosen on the validation set; a label's logit is shifted by its log inverse propensity (`propensity_weight`).
- The most frequent labels are on every shortlist; easy negatives contribute no gradient (`min_negative_probability`).
- Scores are calibrated to probabilities; a re-ranker is optional.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ramify.base.config import param
from ramify.base.threads import blas_threads
from ramify.index.ann import AnnConfig, AnnIndex
from ramify.io.store import Store, StoreWriter
from ramify.models.deepxml.base import DeepXMLModel, Retrieval, TrainingSet
from ramify.nn.checkpoint import CheckpointDirectory
from ramify.nn.encoders.samples import Samples
from ramify.nn.label_embeddings import LabelEncoderConfig
from ramify.nn.label_index import LabelIndex
from ramify.nn.learner import Learner
from ramify.nn.sampling.refreshed import RefreshedShortlists
from ramify.nn.trainer import TrainingConfig


@dataclass(kw_only=True, eq=False, repr=False)
class LightDXML(DeepXMLModel):
    """Trains encoder and classifiers on the nearest labels of each sample; label embeddings follow the encoder.

    There is one encoder, trained once, and no re-ranker unless `reranker=True`.
    """

    kind: ClassVar[str] = "lightdxml"

    training: TrainingConfig = param(
        factory=lambda: TrainingConfig(epochs=6), doc="training of encoder and classifiers"
    )
    index: AnnConfig = param(factory=lambda: AnnConfig(rescore=False), doc="approximate nearest neighbor search")
    refresh_every: int = param(
        2, "epochs after which label embeddings and shortlists are computed again; also after the first epoch", low=1
    )
    label_encoder: LabelEncoderConfig = param(factory=LabelEncoderConfig, doc="training of the label embeddings")

    def _fit_retrieval(self, dataset: TrainingSet, checkpoints: CheckpointDirectory) -> None:
        threads = dataset.threads
        encoder = self._init_encoder(dataset.train_samples, dataset.train_Y, self.seed, threads)
        phi = encoder.encode(dataset.train_samples, threads)
        head = self._init_head(dataset, phi)
        sampler = RefreshedShortlists(
            dataset.samples,
            dataset.Y,
            dataset.rows,
            phi,
            shortlist_size=min(self.shortlist_size, dataset.Y.shape[1]),
            refresh_every=self.refresh_every,
            label_encoder=self.label_encoder,
            ann=self.index,
            seed=self.seed + 1,
            threads=threads,
        )
        del phi  # the sampler drops it after the first refresh
        validator = self._validator(dataset, dataset.samples, sampler, self.beta)
        learner = Learner(
            encoder, head, sampler, validator, dataset.samples, self.training, seed=self.seed + 1, threads=threads
        )
        n_validations = self._train(dataset, learner, "training", checkpoints, seed=self.seed + 2)
        with blas_threads(1):
            sampler.refresh_index(n_validations, encoder)  # label embeddings for the final encoder
        assert sampler.index is not None
        self.encoder_, self.label_index_ = encoder, sampler.index
        self.classifiers_ = validator.classifiers(head)
        self.metrics_by_epoch_ = validator.curve
        self._set_beta(validator.metrics_by_beta(encoder, head))

    def _retrieve(self, samples: Samples, k: int, threads: int) -> Retrieval:
        phi = self.encoder_.encode(samples, threads)
        return Retrieval(*self.label_index_.search(phi, k, threads), phi)

    def _indexes(self) -> dict[str, AnnIndex]:
        return {"labels": self.label_index_.index}

    # ---- files ----

    def _save_index(self, writer: StoreWriter) -> dict[str, Any]:
        return {"labels": self.label_index_.save_to(writer, "labels_")}

    def _load_index(self, store: Store, state: dict[str, Any]) -> int:
        dim = self.encoder_.dim
        self.label_index_ = LabelIndex.load_from(store, state.get("labels"), "labels_", dim, self.n_labels)
        return dim
