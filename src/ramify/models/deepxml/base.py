"""Base of LightDXML and Astec: a search retrieves a shortlist of labels, and classifiers rank it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeGuard

import numpy as np

from ramify import native
from ramify.base.config import param
from ramify.base.errors import ModelFormatError
from ramify.base.threads import blas_threads, resolve_threads
from ramify.base.types import FloatArray, IntArray
from ramify.index.ann import AnnConfig, AnnIndex
from ramify.io.inputs import Inputs
from ramify.io.store import Store, StoreWriter
from ramify.metrics.propensity import LabelCounts, inverse_propensity
from ramify.models.base import check_state
from ramify.models.deepxml.candidates import AllowedLabels, Ranked, Retrieval, add_candidates, unlisted
from ramify.models.deepxml.reranker import RERANKED_LABELS, Reranker, is_fraction
from ramify.models.encoded import EncodedModel, SplitSamples
from ramify.models.memory import DataSizes
from ramify.models.training_data import TrainingData
from ramify.nn.checkpoint import CheckpointDirectory
from ramify.nn.config import TrainingConfig
from ramify.nn.encoders import Encoder, Transformer
from ramify.nn.encoders.samples import Samples
from ramify.nn.heads.classifiers import Classifiers, load_classifiers, save_classifiers, shifted
from ramify.nn.heads.initialization import init_classifiers
from ramify.nn.heads.losses import binary_cross_entropy
from ramify.nn.heads.shortlist import ShortlistHead
from ramify.nn.learner import Learner
from ramify.nn.sampling.fixed import FixedShortlists
from ramify.nn.validation import BlendValidator, CandidateSource, FixedCandidates
from ramify.rank.blend import BlendMetrics, append_labels, best_beta, scores_among, sigmoid_scores
from ramify.rank.calibrate import RowCalibrator, fit_row_calibrator
from ramify.rank.filters import LabelFilter, fill_up, keep_allowed

ROWS_PER_BLOCK = 4096
"""Samples whose candidates are in memory together."""
EXACT_LABELS = 1000
"""Allowed labels that are all scored, where scores do not depend on the row."""
CALIBRATED_LABELS = 100
"""Labels of a sample that the calibrator is fitted to."""


@dataclass(kw_only=True, eq=False, repr=False)
class DeepXMLModel(EncodedModel):
    """Base of models that retrieve labels by the similarity of embeddings and rank them with classifiers.

    A fitted model has `encoder_`, `classifiers_` and `beta_`, an index, and perhaps a `reranker_`. The blended score by
    which labels are ranked (`by_row_` or not) is no probability; `calibrator_`, fitted on the validation set, makes it
    one.
    """

    scores_are_probabilities: ClassVar[bool] = True
    blends_by_row: ClassVar[bool] = True
    """Whether the blended score of a label is relative to the other candidates (`rank.blend`)."""

    shortlist_size: int = param(
        300, "labels that are retrieved for a sample, in training and in prediction; more raise recall and cost", low=1
    )
    index: AnnConfig = param(factory=AnnConfig, doc="approximate nearest neighbor search")
    beta: float | None = param(
        None, "weight β of the classifier against the similarity; None: the best on the validation set", low=0, high=1
    )
    propensity_weight: float = param(
        0.5,
        "tail weighting: this multiple of the log inverse propensity of a label is added to its logit; 0: none; 1 and "
        "more find more tail labels at the cost of precision",
        low=0,
    )
    min_negative_probability: float = param(
        0.01, "negatives with a lower probability contribute no gradient; raising it speeds training up", low=0, high=1
    )
    reranker: bool = param(False, "train a second encoder with classifiers of its own on the best labels")
    training: TrainingConfig = param(factory=TrainingConfig, doc="training of encoder and classifiers")

    # ---- training ----

    def _fit(self, data: TrainingData) -> None:
        samples = self._fit_samples(data.inputs)
        split = self._split(samples, data, self.training.validation_size, self.seed)
        checkpoints = CheckpointDirectory(self.checkpoint_dir)
        self.by_row_ = self.blends_by_row
        self._fit_retrieval(split, checkpoints)
        self.reranker_: Reranker | None = None  # the re-ranker is trained on what is ranked without one
        if self.reranker:
            self.reranker_ = self._fit_reranker(split, checkpoints)
        self.calibrator_ = self._fit_calibrator(split)
        checkpoints.clear()

    def _encoded_bytes(self, sizes: DataSizes) -> int:
        shortlists = 8 * sizes.n_samples * min(self.shortlist_size, sizes.n_labels)
        return super()._encoded_bytes(sizes) + shortlists

    @abstractmethod
    def _fit_retrieval(self, split: SplitSamples, checkpoints: CheckpointDirectory) -> None:
        """Train encoder, classifiers and index."""

    def _init_head(self, split: SplitSamples, phi: FloatArray) -> ShortlistHead:
        """Return initial classifiers, given the embeddings (m, D) of the training rows."""
        loss = partial(binary_cross_entropy, min_negative_probability=self.min_negative_probability)
        n_scored = min(self.shortlist_size, split.Y.shape[1])
        return ShortlistHead(*init_classifiers(split.train_Y, phi, n_scored, split.threads), loss)

    def _validator(
        self, split: SplitSamples, samples: Samples, source: CandidateSource, beta: float | None
    ) -> BlendValidator:
        """Return the validation of blended scores; `samples` are those that the encoder in training reads."""
        inverse = inverse_propensity(LabelCounts.of(split.train_Y))
        # Tail weighting: the log inverse propensity of a label is added to its logit.
        shift = (self.propensity_weight * np.log(inverse)).astype(np.float32)
        held = samples.take(split.validation_rows)
        return BlendValidator(held, split.validation_Y, source, inverse, shift, beta, self.by_row_, split.threads)

    def _set_beta(self, metrics: dict[float, BlendMetrics]) -> None:
        """Choose the weight of the classifier, and keep the validation metrics of all weights."""
        self.beta_ = best_beta(metrics) if self.beta is None else self.beta
        self.metrics_by_beta_ = [[beta, found.precision, found.psp] for beta, found in metrics.items()]

    def _fit_reranker(self, split: SplitSamples, checkpoints: CheckpointDirectory) -> Reranker:
        """Train the re-ranker on the labels that the model ranks highest now."""
        width, threads = min(RERANKED_LABELS, split.Y.shape[1]), split.threads
        encoder = self._init_encoder(split.train_samples, split.train_Y, self.seed + 10, threads)
        head = self._init_head(split, encoder.encode(split.train_samples, threads))
        shortlists, *_ = self._rank_samples(split.train_samples, width, threads)
        ids, scores, _ = self._rank_samples(split.validation_samples, width, threads)
        source = FixedCandidates(ids, np.where(ids >= 0, scores, np.float32(0)))
        validator = self._validator(split, split.samples, source, beta=None)
        sampler = FixedShortlists(split.Y, split.rows, shortlists)
        learner = Learner(
            encoder,
            head,
            sampler,
            validator,
            split.samples,
            self.training,
            seed=self.seed + 11,
            threads=threads,
            sample_weight=split.sample_weight,
        )
        title = "re-ranker"
        self._train(learner, split.rows, title=title, seed=self.seed + 12, checkpoint=checkpoints.path(title))
        beta = best_beta(validator.metrics_by_beta(encoder, head), default=0.5)
        return Reranker(encoder, shifted(head.classifiers, validator.bias_shift), beta, self.by_row_)

    def _fit_calibrator(self, split: SplitSamples) -> RowCalibrator | None:
        """Fit the map from scores to probabilities on the validation set."""
        if len(split.validation_rows) == 0:
            return None
        width, threads = min(CALIBRATED_LABELS, split.Y.shape[1]), split.threads
        ids, scores, _ = self._rank_samples(split.validation_samples, width, threads)
        hits = native.matrix.ranking_hits(ids, split.validation_Y, threads)
        with blas_threads(1):  # the bits of a sum depend on the number of BLAS threads
            return fit_row_calibrator(scores, hits, self.by_row_)

    # ---- prediction ----

    @abstractmethod
    def _retrieve(self, samples: Samples, k: int, threads: int, allowed: AllowedLabels | None = None) -> Retrieval:
        """Retrieve k candidates of each sample, and the nearest allowed labels."""

    def _rank_samples(self, samples: Samples, k: int, threads: int, label_filter: LabelFilter | None = None) -> Ranked:
        """Rank the best labels; with a filter, the best allowed ones."""
        if len(samples) <= ROWS_PER_BLOCK:
            return self._rank_block(samples, k, threads, label_filter)
        rows = np.arange(len(samples))
        blocks = [rows[start : start + ROWS_PER_BLOCK] for start in range(0, len(rows), ROWS_PER_BLOCK)]
        ranked = [self._rank_block(samples.take(block), k, threads, label_filter) for block in blocks]
        return Ranked(*(np.concatenate(parts) for parts in zip(*ranked, strict=True)))

    def _rank_block(self, samples: Samples, k: int, threads: int, label_filter: LabelFilter | None) -> Ranked:
        """Rank samples whose candidates are in memory together."""
        if label_filter is not None:
            return self._rank_allowed(samples, k, threads, label_filter)
        n_labels = len(self.classifiers_[1])
        width = min(self.shortlist_size, n_labels)
        ids, similarities, phi, _ = self._retrieve(samples, width, threads)
        n_ranked = min(k, width) if self.reranker_ is None else width
        ids, scores = native.neural.rank_blended(
            self.classifiers_, self.beta_, self.by_row_, ids, sigmoid_scores(ids, similarities), phi, n_ranked, threads
        )
        if self.reranker_ is not None:
            ids, scores = self.reranker_.rank(samples, ids, scores, min(k, width), threads)
        best = scores[:, :1]
        if k > width:  # labels beyond the shortlist follow by similarity
            more, similarities, *_ = self._retrieve(samples, k, threads)
            more = unlisted(more, ids, n_labels)
            ids, scores = append_labels(ids, scores, more, sigmoid_scores(more, similarities), k, threads)
        return Ranked(ids, scores, best)

    def _rank_allowed(self, samples: Samples, k: int, threads: int, label_filter: LabelFilter) -> Ranked:
        """Rank the best allowed labels, with the scores that they have without a filter."""
        if not self.by_row_ and len(label_filter) <= EXACT_LABELS:
            return self._rank_all_allowed(samples, k, threads, label_filter)
        width = min(self.shortlist_size, len(self.classifiers_[1]))
        retrieved = self._retrieve(samples, width, threads, AllowedLabels(label_filter, max(k, width)))
        ids, similarities, phi, allowed = retrieved
        assert allowed is not None
        ids, similarities = add_candidates((ids, similarities), allowed, self.n_labels)
        similarity_scores = sigmoid_scores(ids, similarities)
        scores = scores_among(self.classifiers_, self.beta_, self.by_row_, ids, similarity_scores, phi, width, threads)
        is_allowed = (ids >= 0) & label_filter.allowed[np.maximum(ids, 0)]
        if self.reranker_ is not None:
            first = native.matrix.list_topk(ids[:, :width], scores[:, :width], min(RERANKED_LABELS, width), threads)
            own = np.where(is_allowed, ids, np.int32(-1)), np.where(is_allowed, scores, np.float32(-np.inf))
            ids, scores = (
                np.hstack([first[0], unlisted(own[0], first[0], self.n_labels)]),
                np.hstack([first[1], own[1]]),
            )
            width = first[0].shape[1]
            scores = self.reranker_.scores_among(samples, ids, scores, width, threads)
        best = scores[:, :width].max(axis=1, keepdims=True, initial=-np.inf)
        order = native.matrix.list_topk(ids, scores, ids.shape[1], threads)
        return Ranked(*keep_allowed(*order, label_filter.allowed, k), best)

    def _rank_all_allowed(self, samples: Samples, k: int, threads: int, label_filter: LabelFilter) -> Ranked:
        """Rank all allowed labels; the scores depend on no other ones, so that nothing else is searched."""
        retrieved = self._retrieve(samples, 0, threads, AllowedLabels(label_filter, len(label_filter)))
        assert retrieved.allowed is not None
        ids, similarities = retrieved.allowed
        n_ranked = k if self.reranker_ is None else max(1, ids.shape[1])
        ids, scores = native.neural.rank_blended(
            self.classifiers_,
            self.beta_,
            False,
            ids,
            sigmoid_scores(ids, similarities),
            retrieved.phi,
            n_ranked,
            threads,
        )
        if self.reranker_ is not None:
            scores = self.reranker_.scores_among(samples, ids, scores, 0, threads)
            ids, scores = native.matrix.list_topk(ids, scores, k, threads)
        return Ranked(ids, scores, scores[:, :1])

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        samples = self._transform_samples(inputs)
        return self._calibrated(self._rank_samples(samples, k, resolve_threads(self.threads, len(samples))))

    def _predict_allowed(self, inputs: Inputs, k: int, label_filter: LabelFilter) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k) of allowed labels, with the scores that they have among all labels.

        By row a score is relative to the best labels, so these are retrieved as well.
        """
        samples, wanted = self._transform_samples(inputs), min(k, len(label_filter))
        threads = resolve_threads(self.threads, len(samples))
        ids, scores = self._calibrated(self._rank_samples(samples, k, threads, label_filter))
        fill_up(ids[:, :wanted], scores[:, :wanted], label_filter, self.label_counts_.counts)
        return ids, scores

    def _calibrated(self, ranked: Ranked) -> tuple[IntArray, FloatArray]:
        ids, scores, best = ranked
        return ids, scores if self.calibrator_ is None else self.calibrator_(scores, best)

    def _explain_parts(self, inputs: Inputs, label_id: int) -> dict[str, float]:
        """Return the two parts of the blended score: classifier and similarity, each before normalization by row."""
        mask = np.zeros(self.n_labels, bool)
        mask[label_id] = True
        width = min(self.shortlist_size, self.n_labels)
        samples, allowed = self._transform_samples(inputs), AllowedLabels(LabelFilter(mask), 1)
        retrieved = self._retrieve(samples, width, 1, allowed)
        assert retrieved.allowed is not None
        (weights, bias), phi, (ids, similarities) = self.classifiers_, retrieved.phi, retrieved.allowed
        parts = {"beta": self.beta_, "logit of the classifier": float(phi[0] @ weights[label_id] + bias[label_id])}
        return parts | ({"cosine similarity": float(similarities[0, 0])} if (ids[0] == label_id).any() else {})

    def _transformers(self) -> list[Transformer]:
        encoders: list[Encoder] = [self.encoder_]
        if self.reranker_ is not None:
            encoders.append(self.reranker_.encoder)
        return [e for e in encoders if isinstance(e, Transformer)] or super()._transformers()

    # ---- reports ----

    def curves(self) -> dict[str, list[list[float]]]:
        """Validation P@1 and PSP@1 by the weight β of the classifier and by epoch: rows of x, P@1, PSP@1."""
        self._check_fitted()
        return {"beta": self.metrics_by_beta_, "epoch": self.metrics_by_epoch_}

    def report(self, X: Any = None, y: Any = None) -> dict[str, list[list[str]]]:
        """Return tables of the index, the blended score and the validation curves."""
        curves = {
            f"validation metrics by {name}": [
                [name, "P@1", "PSP@1"],
                *([f"{x:g}", f"{precision:.2f}", f"{psp:.2f}"] for x, precision, psp in rows),
            ]
            for name, rows in self.curves().items()
        }
        indexes = [
            [name, index.method, f"{len(index):,}", f"{index.search_width}", f"{index.recall:.1%}"]
            for name, index in self._indexes().items()
        ]
        reranker_beta = "none" if self.reranker_ is None else f"{self.reranker_.beta:g}"
        return {
            "index": [["index", "method", "vectors", "nprobe / ef_search", "recall"], *indexes],
            "blended score": [["beta", "beta of the re-ranker"], [f"{self.beta_:g}", reranker_beta]],
            **curves,
        }

    @abstractmethod
    def _indexes(self) -> dict[str, AnnIndex]:
        """Return the ANN indexes, by name."""

    # ---- files ----

    @abstractmethod
    def _save_index(self, writer: StoreWriter) -> dict[str, Any]:
        """Write what retrieval needs; return its description for the manifest."""

    @abstractmethod
    def _load_index(self, store: Store, state: dict[str, Any]) -> int:
        """Open what `_save_index` wrote; return the dimension of the embeddings that classifiers see."""

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        save_classifiers(writer, "classifier", self.classifiers_)
        return {
            **self._save_samples(writer),
            "encoder": self.encoder_.save_to(writer, "encoder_"),
            "index": self._save_index(writer),
            "ranking": {
                "beta": self.beta_,
                "by_row": self.by_row_,
                "metrics_by_beta": self.metrics_by_beta_,
                "metrics_by_epoch": self.metrics_by_epoch_,
                "reranker": None if self.reranker_ is None else self.reranker_.save_to(writer, "reranker_"),
                "calibrator": self.calibrator_,
            },
        }

    def _load(self, store: Store, state: Any) -> None:
        state = check_state(store, state)
        index, ranking = check_state(store, state.get("index")), check_state(store, state.get("ranking"))
        by_beta, by_epoch = ranking.get("metrics_by_beta"), ranking.get("metrics_by_epoch")
        by_row = ranking.get("by_row", True)  # as the first models of this format, which do not say so
        if (
            not isinstance(by_row, bool)
            or not is_fraction(ranking.get("beta"))
            or not _is_curve(by_beta)
            or not _is_curve(by_epoch)
        ):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the ranking")
        self.beta_, self.metrics_by_beta_, self.metrics_by_epoch_ = float(ranking["beta"]), by_beta, by_epoch
        self.by_row_ = by_row
        calibrator = ranking.get("calibrator")
        if calibrator is not None and not _are_numbers(calibrator, 4):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the calibration")
        self.calibrator_ = None if calibrator is None else RowCalibrator(*(float(x) for x in calibrator))
        shape = self._load_samples(store, state)
        self.encoder_ = self._load_encoder(store, state.get("encoder"), "encoder_", shape)
        self.classifiers_: Classifiers = load_classifiers(
            store, "classifier", self.n_labels, self._load_index(store, index)
        )
        self.reranker_, reranker = None, ranking.get("reranker")
        if reranker is not None:
            info = check_state(store, reranker)
            encoder = self._load_encoder(store, info.get("encoder"), "reranker_encoder_", shape)
            self.reranker_ = Reranker.load_from(store, info, "reranker_", encoder, self.n_labels, by_row)


def _is_curve(rows: Any) -> TypeGuard[list[list[float]]]:
    return isinstance(rows, list) and all(_are_numbers(row, 3) for row in rows)


def _are_numbers(row: Any, n: int) -> bool:
    return isinstance(row, list) and len(row) == n and all(isinstance(x, int | float) for x in row)
