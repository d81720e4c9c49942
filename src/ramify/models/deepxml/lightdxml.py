"""LightDXML: encoder, label embeddings and classifiers are trained in one go, with hard negatives that are refreshed.

Mishra et al. (2023), Light-weight Deep Extreme Multilabel Classification. Every `refresh_every` epochs:

1. Label embeddings ψ_l are learned for the encoder as it is now: an affine map of the centroid of each label's samples
   (`nn.label_embeddings`), and indexed for nearest neighbor search (`nn.label_index`).
2. The labels nearest to a sample become its shortlist: its hard negatives until the next refresh.
3. Encoder and classifiers are trained with binary cross-entropy on the shortlists (`nn.sampling.refreshed`).

At prediction the labels nearest to φ(x) are ranked by the blended score of classifier and similarity (`rank.blend`):

    β · p_l + (1 - β) · s_l,    p_l = σ(w_l·φ + b_l),  s_l = σ(cos(φ, ψ_l))

Differences from the paper
- β is chosen on the validation set.
- A label's logit is shifted by its log inverse propensity (`propensity_weight`).
- The most frequent labels are on every shortlist; easy negatives contribute no gradient (`min_negative_probability`).
- Label embeddings are also refreshed after the first and after the last epoch; the best epoch is kept.
- The index is an IVF index over int8 codes instead of HNSW; word embeddings start from the corpus, not from fastText.
- Scores are calibrated to probabilities; a re-ranker is optional.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ramify.base.config import param
from ramify.base.threads import blas_threads
from ramify.index.ann import AnnConfig, AnnIndex
from ramify.io.store import Store, StoreWriter
from ramify.models.deepxml.base import DeepXMLModel
from ramify.models.deepxml.candidates import AllowedLabels, Retrieval, no_candidates
from ramify.models.encoded import SplitSamples
from ramify.models.memory import DataSizes
from ramify.nn.checkpoint import CheckpointDirectory
from ramify.nn.config import TrainingConfig
from ramify.nn.encoders.samples import Samples
from ramify.nn.heads.classifiers import shifted
from ramify.nn.label_embeddings import LabelEncoderConfig
from ramify.nn.label_index import LabelIndex
from ramify.nn.learner import Learner
from ramify.nn.sampling.refreshed import RefreshedShortlists
from ramify.nn.trainer import MIN_STEPS


@dataclass(kw_only=True, eq=False, repr=False)
class LightDXML(DeepXMLModel):
    """Trains encoder and classifiers on the nearest labels of each sample; label embeddings follow the encoder.

    There is one encoder, trained once, and no re-ranker unless `reranker=True`.
    """

    kind: ClassVar[str] = "lightdxml"
    blends_by_row: ClassVar[bool] = False
    default_epochs: ClassVar[int | None] = 6
    """Fewer than other models need, since shortlists are refreshed with the encoder."""

    training: TrainingConfig = param(
        factory=TrainingConfig, doc="training of encoder and classifiers; without a number of epochs, 6"
    )
    index: AnnConfig = param(factory=lambda: AnnConfig(rescore=False), doc="approximate nearest neighbor search")
    refresh_every: int = param(
        2, "epochs after which label embeddings and shortlists are computed again; also after the first epoch", low=1
    )
    label_encoder: LabelEncoderConfig = param(factory=LabelEncoderConfig, doc="training of the label embeddings")

    def _fit_retrieval(self, split: SplitSamples, checkpoints: CheckpointDirectory) -> None:
        threads = split.threads
        encoder = self._init_encoder(split.train_samples, split.train_Y, self.seed, threads)
        phi = encoder.encode(split.train_samples, threads)
        head = self._init_head(split, phi)
        sampler = RefreshedShortlists(
            split.samples,
            split.Y,
            split.rows,
            phi,
            shortlist_size=min(self.shortlist_size, split.Y.shape[1]),
            refresh_every=self.refresh_every,
            label_encoder=self.label_encoder,
            ann=self.index,
            seed=self.seed + 1,
            threads=threads,
        )
        del phi  # the sampler drops it after the first refresh
        validator = self._validator(split, split.samples, sampler, self.beta)
        learner = Learner(
            encoder,
            head,
            sampler,
            validator,
            split.samples,
            self._training_config(),
            seed=self.seed + 1,
            threads=threads,
            sample_weight=split.sample_weight,
        )
        title = "training"
        history = self._train(learner, split.rows, title=title, seed=self.seed + 2, checkpoint=checkpoints.path(title))
        with blas_threads(1):  # the bits of a product depend on the number of BLAS threads
            sampler.refresh_index(encoder, sampler.seed + len(history))  # label embeddings for the final encoder
        assert sampler.index is not None
        self.encoder_, self.label_index_ = encoder, sampler.index
        self.classifiers_ = shifted(head.classifiers, validator.bias_shift)
        self.metrics_by_epoch_ = validator.curve
        self._set_beta(validator.metrics_by_beta(encoder, head))

    def _encoded_bytes(self, sizes: DataSizes) -> int:
        label_embeddings = 4 * self._embedding_dim * sizes.n_labels
        return super()._encoded_bytes(sizes) + 3 * label_embeddings  # with Adam's moments

    def _training_config(self) -> TrainingConfig:
        """Return the training with a number of epochs."""
        training = self.training
        if training.epochs is not None:
            return training
        return training.clone().set_params(epochs=self.default_epochs, min_steps=training.min_steps or MIN_STEPS)

    def _retrieve(self, samples: Samples, k: int, threads: int, allowed: AllowedLabels | None = None) -> Retrieval:
        phi = self.encoder_.encode(samples, threads)
        found = self.label_index_.search(phi, k, threads) if k else no_candidates(len(phi))
        more = None
        if allowed is not None:
            more = self.label_index_.search_allowed(phi, allowed.k, threads, allowed.label_filter)
        return Retrieval(*found, phi, more)

    def _indexes(self) -> dict[str, AnnIndex]:
        return {"labels": self.label_index_.index}

    # ---- files ----

    def _save_index(self, writer: StoreWriter) -> dict[str, Any]:
        return {"labels": self.label_index_.save_to(writer, "labels_")}

    def _load_index(self, store: Store, state: dict[str, Any]) -> int:
        dim = self.encoder_.dim
        self.label_index_ = LabelIndex.load_from(store, state.get("labels"), "labels_", dim, self.n_labels)
        return dim
