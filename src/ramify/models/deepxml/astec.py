"""Astec, the DeepXML model that LightDXML is compared with: four modules, trained one after the other.

Dahiya et al. (2021), DeepXML: A Deep Extreme Multi-Label Learning Framework Applied to Short Text Documents.

1. Surrogate task: the encoder learns to classify clusters of labels, and is frozen.
2. Retrieval: shortlists from two indexes, one of the label centroids and one of the training samples, whose labels vote
   with weight `neighbor_weight`.
3. Classifiers: a residual layer of bounded spectral norm adapts the frozen embeddings, and classifiers are trained on
   the shortlists and some random negatives.
4. Re-ranker: a second encoder with classifiers of its own, trained on the labels that are ranked highest.

Differences from the paper
- The blended score, its β and the propensity shift are those of LightDXML; scores are calibrated to probabilities.
- The surrogate clusters come from balanced 2-means of PIFA representations.
- The most frequent labels are on every shortlist; easy negatives contribute no gradient.
- The indexes are IVF indexes over int8 codes instead of HNSW.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ramify import native
from ramify.base.config import param
from ramify.base.errors import ModelFormatError
from ramify.base.mixed import Mixed
from ramify.base.sparse import ascends, csr_from_parts, pattern
from ramify.base.types import BoolArray, Csr, FloatArray, IntArray
from ramify.index.ann import AnnIndex
from ramify.index.label_graph import build_clusters
from ramify.io.store import Store, StoreWriter
from ramify.labels.representations import pifa_mixed
from ramify.models.deepxml.base import DeepXMLModel
from ramify.models.deepxml.candidates import AllowedLabels, Retrieval
from ramify.models.encoded import SplitSamples
from ramify.models.memory import DataSizes
from ramify.nn.checkpoint import CheckpointDirectory
from ramify.nn.config import TrainingConfig
from ramify.nn.encoders import Bag, Encoder
from ramify.nn.encoders.samples import Samples, with_embeddings
from ramify.nn.heads.all_labels import AllLabels
from ramify.nn.heads.classifiers import shifted
from ramify.nn.heads.initialization import init_classifiers
from ramify.nn.label_embeddings import label_centroids
from ramify.nn.label_index import LabelIndex
from ramify.nn.learner import Learner
from ramify.nn.sampling.fixed import FixedShortlists
from ramify.nn.sampling.positives import Positives
from ramify.nn.validation import FixedCandidates, RankingValidator
from ramify.rank.blend import sigmoid_scores


@dataclass(kw_only=True, eq=False, repr=False)
class Astec(DeepXMLModel):
    """Trains an encoder on clusters of labels, freezes it, and trains classifiers on the nearest labels of samples."""

    kind: ClassVar[str] = "astec"

    reranker: bool = param(True, "train a second encoder with classifiers of its own on the best labels")
    n_clusters: int | None = param(
        None,
        "clusters of the surrogate task, rounded down to a power of two; None: about an eighth of the labels",
        low=1,
    )
    surrogate: TrainingConfig = param(
        factory=TrainingConfig,
        doc="training of the encoder on the surrogate task; its validation set is that of `training`",
    )
    n_neighbors: int = param(50, "nearest training samples whose labels are candidates", low=1)
    neighbor_weight: float = param(
        0.075, "weight of the neighbors' labels in the similarity of a candidate", low=0, high=1
    )
    random_negatives: int = param(150, "random negatives of each sample, beside its shortlist", low=0)
    max_spectral_norm: float = param(
        1.0, "bound of the spectral norm of the residual layer on the frozen embeddings", above=0
    )

    # ---- training ----

    def _fit_retrieval(self, split: SplitSamples, checkpoints: CheckpointDirectory) -> None:
        Y, rows, threads = split.Y, split.rows, split.threads
        self.encoder_ = self._fit_surrogate(split, checkpoints)
        frozen = self.encoder_.encode(split.samples, threads)
        self._build_indexes(frozen[rows], split.train_Y, threads)

        samples = Samples(Mixed.of(frozen))
        self.transfer_ = Bag.initialize(
            samples.features,
            split.train_Y,
            None,
            seed=self.seed + 3,
            threads=threads,
            max_spectral_norm=self.max_spectral_norm,
        )
        head = self._init_head(split, frozen[rows])
        n_labels, width = Y.shape[1], min(self.shortlist_size, Y.shape[1])
        nearest, _ = self._search(frozen[rows], n_labels, width, threads)
        n_random = min(self.random_negatives, n_labels)
        others = np.random.default_rng(self.seed + 5).integers(0, n_labels, (len(rows), n_random), np.int32)
        sampler = FixedShortlists(Y, rows, np.hstack([others, nearest]))
        ids, similarities = self._search(frozen[split.validation_rows], n_labels, width, threads)
        source = FixedCandidates(ids, sigmoid_scores(ids, similarities))
        validator = self._validator(split, samples, source, self.beta)
        learner = Learner(
            self.transfer_,
            head,
            sampler,
            validator,
            samples,
            self.training,
            seed=self.seed + 4,
            threads=threads,
            sample_weight=split.sample_weight,
        )
        title = "classifiers"
        self._train(learner, rows, title=title, seed=self.seed + 6, checkpoint=checkpoints.path(title))
        self.classifiers_ = shifted(head.classifiers, validator.bias_shift)
        self.metrics_by_epoch_ = validator.curve
        self._set_beta(validator.metrics_by_beta(self.transfer_, head))

    def _fit_surrogate(self, split: SplitSamples, checkpoints: CheckpointDirectory) -> Encoder:
        """Train an encoder to classify clusters of labels."""
        threads = split.threads
        encoder = self._init_encoder(split.train_samples, split.train_Y, self.seed, threads)
        phi = encoder.encode(split.train_samples, threads)
        features = with_embeddings(split.train_samples.features, phi)
        Z = pifa_mixed(features, split.train_Y, normalize_y=False, threads=threads)
        clusters = _cluster_indicator(split.Y, self._cluster_labels(Z, split.Y.shape[1], threads))
        head = AllLabels(*init_classifiers(clusters[split.rows], phi, clusters.shape[1], threads))
        learner = Learner(
            encoder,
            head,
            Positives(clusters),
            RankingValidator(split.validation_samples, clusters[split.validation_rows], threads),
            split.samples,
            self.surrogate,
            seed=self.seed + 1,
            threads=threads,
            sample_weight=split.sample_weight,
        )
        title = "surrogate task"
        self._train(learner, split.rows, title=title, seed=self.seed + 2, checkpoint=checkpoints.path(title))
        return encoder

    def _cluster_labels(self, Z: Csr | FloatArray, n_labels: int, threads: int) -> IntArray:
        n_clusters = self.n_clusters or 2 ** max(0, round(math.log2(n_labels / 8)))
        return build_clusters(Z, n_clusters, seed=self.seed, threads=threads)

    def _build_indexes(self, phi: FloatArray, Y: Csr, threads: int) -> None:
        """Index the centroids of the labels, and the training samples (m, D) with their labels Y (m × L)."""
        counts = np.bincount(Y.indices, minlength=Y.shape[1])
        known = np.flatnonzero(counts).astype(np.int32)
        centroids, width = label_centroids(phi, Y, threads)[known], min(self.shortlist_size, Y.shape[1])
        common: dict[str, Any] = {"queries": phi, "seed": self.seed, "threads": threads}
        self.label_index_ = LabelIndex.build(centroids, known, counts[known], self.index, k=width, **common)
        self.sample_index_ = AnnIndex.build(phi, self.index, k=min(self.n_neighbors, len(phi)), **common)
        self.sample_labels_ = Y.indptr.astype(np.int64), Y.indices.astype(np.int32)

    def _encoded_bytes(self, sizes: DataSizes) -> int:
        """Add the first encoder with its classifiers, embeddings and indexes, which are kept beside the re-ranker."""
        dim, n_labels, n = self._embedding_dim, sizes.n_labels, sizes.n_samples
        return super()._encoded_bytes(sizes) + self._word_bytes(sizes) + 5 * dim * (n_labels + n)

    # ---- prediction ----

    def _search(self, frozen: FloatArray, n_labels: int, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Candidates (n, k) for frozen embeddings (n, D) by label centroids and neighbors, and their similarities."""
        found, near = self.label_index_.search(frozen, k, threads), self._near(frozen, threads)
        return self._merged(found, near, n_labels, None, k, threads)

    def _near(self, frozen: FloatArray, threads: int) -> tuple[IntArray, FloatArray]:
        """Training samples nearest to frozen embeddings (n, D), and their similarities."""
        return self.sample_index_.search(frozen, min(self.n_neighbors, len(self.sample_index_)), threads)

    def _merged(
        self,
        labels: tuple[IntArray, FloatArray],
        near: tuple[IntArray, FloatArray],
        n_labels: int,
        allowed: BoolArray | None,
        k: int,
        threads: int,
    ) -> tuple[IntArray, FloatArray]:
        """Labels found by their centroids, and the allowed (L,) ones of the nearest samples."""
        return native.ann.merge_neighbor_labels(
            labels,
            near,
            self.sample_labels_,
            n_labels,
            self.neighbor_weight,
            None if allowed is None else allowed.view(np.uint8),
            k,
            threads,
        )

    def _search_allowed(
        self, frozen: FloatArray, near: tuple[IntArray, FloatArray], allowed: AllowedLabels, threads: int
    ) -> tuple[IntArray, FloatArray]:
        """Candidates as of `_search`, from the allowed labels only."""
        label_filter = allowed.label_filter
        k = min(allowed.k, len(label_filter))
        if k == 0:
            return np.empty((len(frozen), 0), np.int32), np.empty((len(frozen), 0), np.float32)
        nearest = self.label_index_.search_allowed(frozen, k, threads, label_filter)
        return self._merged(nearest, near, len(self.classifiers_[1]), label_filter.allowed, k, threads)

    def _retrieve(self, samples: Samples, k: int, threads: int, allowed: AllowedLabels | None = None) -> Retrieval:
        frozen = self.encoder_.encode(samples, threads)
        near, n_labels = self._near(frozen, threads), len(self.classifiers_[1])
        found = self._merged(self.label_index_.search(frozen, k, threads), near, n_labels, None, k, threads)
        more = None if allowed is None else self._search_allowed(frozen, near, allowed, threads)
        return Retrieval(*found, self.transfer_.encode(Samples(Mixed.of(frozen)), threads), more)

    def _indexes(self) -> dict[str, AnnIndex]:
        return {"labels": self.label_index_.index, "samples": self.sample_index_}

    # ---- files ----

    def _save_index(self, writer: StoreWriter) -> dict[str, Any]:
        for name, array in zip(("sample_indptr", "sample_labels"), self.sample_labels_, strict=True):
            writer.array(name, array)
        return {
            "transfer": self.transfer_.save_to(writer, "transfer_"),
            "labels": self.label_index_.save_to(writer, "labels_"),
            "samples": self.sample_index_.save_to(writer, "samples_"),
        }

    def _load_index(self, store: Store, state: dict[str, Any]) -> int:
        dim = self.encoder_.dim
        self.transfer_ = Bag.load_from(store, state.get("transfer"), "transfer_", (0, dim))
        self.label_index_ = LabelIndex.load_from(store, state.get("labels"), "labels_", dim, self.n_labels)
        indptr = store.array("sample_indptr", np.int64, ndim=1)
        n_samples = max(1, len(indptr) - 1)
        self.sample_index_ = AnnIndex.load_from(store, state.get("samples"), "samples_", dim, n_samples)
        labels = store.array("sample_labels", np.int32, ndim=1, bounds=(0, self.n_labels))
        if len(indptr) != len(self.sample_index_) + 1 or not ascends(indptr, len(labels)):
            raise ModelFormatError(f"{store.path}: the labels of the indexed samples do not match them")
        self.sample_labels_ = indptr, labels
        return dim


def _cluster_indicator(Y: Csr, cluster_of: IntArray) -> Csr:
    """Clusters (n × C) of the labels Y (n × L) of each sample."""
    n_labels, n_clusters = Y.shape[1], int(cluster_of.max()) + 1
    indptr = np.arange(n_labels + 1)
    membership = csr_from_parts(np.ones(n_labels, np.float32), cluster_of, indptr, (n_labels, n_clusters))
    clusters = pattern((Y @ membership).tocsr())
    clusters.sort_indices()
    return clusters
