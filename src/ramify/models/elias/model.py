"""ELIAS: the index is learned together with encoder and classifiers.

Gupta et al. (2022), ELIAS: End-to-End Learning to Index and Search in Large Output Spaces. The equations of the model
and of its loss are in `nn.heads.graph`.

Stage 1: labels are clustered by balanced 2-means of their PIFA representations, each label is connected to its own
cluster only, and encoder, cluster classifiers and label classifiers are trained.
Stage 2: the clusters that the search finds for the samples, M (n × C), give each cluster its edges, the `n_edges`
largest entries of a row of MᵀY; edge logits are trained along with everything else.
ELIAS++ (`ranker="sparse"`): sparse linear classifiers re-rank the best labels (`models.elias.ranker`).

Differences from the paper
- Labels are clustered by TF-IDF and the embeddings of the untrained encoder.
- Label classifiers start at the centroids of their samples, and again in stage 2 (`reset_classifiers`).
- The edges of a label start at twice the log ratio of their entry of MᵀY to the label's largest one; clusters and edges
  have learning rates of their own.
- α is lowered where there are few clusters; a training step uses a smaller shortlist (`train_shortlist_size`); the best
  epoch on a validation set is kept.
- Encoders: a bag of word embeddings by default, any transformer, frozen or fine-tuned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np

from ramify import native
from ramify.base.config import param
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.threads import blas_threads, resolve_threads
from ramify.base.types import FloatArray, IntArray, LongArray
from ramify.index.graph_report import GraphReport
from ramify.index.label_graph import (
    LabelGraph,
    build_clusters,
    build_edges,
    init_edge_logits,
    matched_clusters,
)
from ramify.io.inputs import Inputs
from ramify.io.labels import align_labels
from ramify.io.store import Store, StoreWriter
from ramify.labels.representations import pifa_mixed
from ramify.metrics.ranking import frequency_deciles
from ramify.models.base import check_state
from ramify.models.elias.graph_classifier import GraphClassifier
from ramify.models.elias.neighbors import TrainingTexts
from ramify.models.elias.ranker import RankerTraining, SparseRanker
from ramify.models.elias.report import history_table, is_listed, search_report
from ramify.models.encoded import SplitSamples
from ramify.models.ranked import RankedModel
from ramify.models.training_data import TrainingData
from ramify.nn.checkpoint import CheckpointDirectory
from ramify.nn.config import TrainingConfig
from ramify.nn.encoders import Encoder, Transformer
from ramify.nn.encoders.samples import with_embeddings
from ramify.nn.heads.classifiers import Classifiers, uniform_classifiers
from ramify.nn.heads.graph import GraphHead, GraphOptions, SearchSize, TrainedEdges, cluster_logits
from ramify.nn.heads.graph_torch import TorchGraphHead
from ramify.nn.heads.initialization import init_classifiers
from ramify.nn.learner import Learner
from ramify.nn.sampling.positives import Positives
from ramify.nn.trainer import History
from ramify.nn.validation import RankingValidator
from ramify.rank.combine import member_width
from ramify.rank.explanation import Neighbor
from ramify.rank.filters import LabelFilter, fill_up
from ramify.rank.linear import LinearConfig, ranking_config

MEMBER_SEED_STEP = 1000
"""Distance of the seeds of two members; a training uses the seeds that follow its own."""
MIN_CLUSTERS_PER_ALPHA = 4
"""α is at most C / 4: a larger one would cut too many cluster scores at 1."""


@dataclass(kw_only=True, eq=False, repr=False)
class Elias(RankedModel):
    """Learns a graph from clusters to labels, with scored edges, together with the encoder and the classifiers.

    Stage 1 trains encoder and classifiers over fixed clusters of labels; stage 2 connects labels to every cluster in
    which their samples were found, and trains the scores of these edges as well.
    """

    kind: ClassVar[str] = "elias"

    stages: Literal[1, 2] = param(2, "1: fixed clusters; 2: then a learned graph")
    n_clusters: int | None = param(
        None, "number of clusters C, rounded down to a power of two; None: about a hundredth of the labels", low=1
    )
    n_edges: int | None = param(
        None, "maximum edges of a cluster in stage 2 (κ); None: ten times the mean number of labels of a cluster", low=1
    )
    alpha: float = param(
        10.0, "factor α on the softmax of the clusters, cut at 1; lowered where there are few clusters", low=1
    )
    beta: float | None = param(None, "factor β on the softmax of the edges, cut at 1; None: labels per cluster", low=1)
    beam_size: int = param(
        20, "clusters that a search explores (b); half as many more with a ranker; raising it finds more labels", low=1
    )
    shortlist_size: int = param(2000, "labels that a search scores with their classifiers (K)", low=1)
    train_shortlist_size: int = param(1000, "shortlist size of a training step, at most `shortlist_size`", low=1)
    shortlist_loss_weight: float = param(
        0.05, "weight λ of the shortlist loss, which rewards high path scores of true labels", low=0
    )
    stage1: TrainingConfig = param(factory=TrainingConfig, doc="training of stage 1")
    stage2: TrainingConfig = param(
        factory=lambda: TrainingConfig(encoder_learning_rate=0.004),
        doc="training of stage 2; its validation set is that of stage 1",
    )
    reset_classifiers: bool = param(
        True, "initialize the label classifiers again in stage 2: those of stage 1 have overfitted its samples"
    )
    cluster_learning_rate_ratio: float = param(
        0.1, "learning rate of the cluster classifiers in stage 2, relative to `learning_rate`", above=0
    )
    edge_learning_rate_ratio: float = param(1.0, "learning rate of the edges, relative to `learning_rate`", above=0)
    ranker: Literal["sparse"] | None = param(
        None, "'sparse': linear classifiers re-rank the best labels (ELIAS++), unless validation is better without"
    )
    linear: LinearConfig = param(
        # With a dead zone the labels behind the first dozens tie, and R@100 is 2 % lower.
        factory=lambda: ranking_config(loss="logistic", tail_threshold=None).set_params(threshold=0.2),
        doc="training of the ranker's classifiers",
    )
    embedding_weight: float | None = param(
        None,
        "norm of the embedding that the ranker sees beside TF-IDF features of norm 1; None: 1 for a frozen "
        "transformer or dense features, 0.1 for an encoder trained on the same samples, whose embeddings overfit them",
        low=0,
    )
    keep_texts: bool = param(
        False, "keep the training texts in the model, so that `explain` shows the nearest ones; no effect on matrices"
    )
    n_models: int = param(1, "members whose scores are averaged, each with clusters of its own", low=1)

    # ---- training ----

    def _fit(self, data: TrainingData) -> None:
        samples = self._fit_samples(data.inputs)
        checkpoints = CheckpointDirectory(self.checkpoint_dir)
        self.members_ = []
        for index in range(self.n_models):
            seed = self.seed + MEMBER_SEED_STEP * index
            split = self._split(samples, data, self.stage1.validation_size, seed)
            name = "" if self.n_models == 1 else f" of model {index + 1}"
            with blas_threads(1):  # between native code; and the bits of a product depend on the number of threads
                self.members_.append(self._fit_member(split, seed, name, checkpoints))
        if all(member.ranker is None for member in self.members_):
            self.ranker_features_ = None
        self.texts_: TrainingTexts | None = None
        if self.keep_texts and data.inputs.kind in ("text", "fields"):
            phi = self.members_[0].encoder.encode(samples, resolve_threads(self.threads))
            self.texts_ = TrainingTexts.of(data.inputs.data, data.Y, phi)
        checkpoints.clear()

    def _fit_member(
        self, split: SplitSamples, seed: int, name: str, checkpoints: CheckpointDirectory
    ) -> GraphClassifier:
        """Train one member: stage 1, stage 2, ranker."""
        options = self._graph_options(split.Y.shape[1])
        encoder = self._init_encoder(split.train_samples, split.train_Y, seed, split.threads)
        phi = encoder.encode(split.samples, split.threads)

        # Stage 1: clusters of labels; encoder, cluster classifiers and label classifiers.
        cluster_of = self._cluster_labels(split, phi, seed)
        graph = LabelGraph.from_clusters(cluster_of, self._n_clusters(split.Y.shape[1]))
        cluster_classifiers = uniform_classifiers(graph.n_clusters, encoder.dim, seed)
        label_classifiers = self._init_label_classifiers(split, phi, options)
        head = self._make_head(cluster_classifiers, graph, label_classifiers, options)
        history = self._train_head(split, encoder, head, self.stage1, seed, f"stage 1{name}", checkpoints)

        if self.stages == 2:  # edges where the search finds the samples of a label, trained with everything else
            phi = encoder.encode(split.samples, split.threads)
            edges = self._build_edges(split, phi, head, cluster_of)
            label_classifiers = head.label_classifiers
            if self.reset_classifiers:
                label_classifiers = self._init_label_classifiers(split, phi, options)
            options = replace(
                options,
                cluster_learning_rate_ratio=self.cluster_learning_rate_ratio,
                edge_learning_rate_ratio=self.edge_learning_rate_ratio,
            )
            head = self._make_head(head.cluster_classifiers, edges, label_classifiers, options)
            history += self._train_head(split, encoder, head, self.stage2, seed, f"stage 2{name}", checkpoints)

        classifiers = head.cluster_classifiers, head.graph, head.label_classifiers
        member = GraphClassifier(encoder, *classifiers, head.log_alpha, cluster_of, history)
        if self.ranker is not None:
            member.ranker = self._fit_ranker(split, member, seed)
        return member

    def _n_clusters(self, n_labels: int) -> int:
        """Return the number of clusters, a power of two."""
        wanted = self.n_clusters or 2 ** max(0, math.ceil(math.log2(n_labels / 100)))
        depth = int(math.log2(min(wanted, n_labels)))
        return 1 << depth

    def _graph_options(self, n_labels: int) -> GraphOptions:
        n_clusters = self._n_clusters(n_labels)
        return GraphOptions(
            alpha=max(1.0, min(self.alpha, n_clusters / MIN_CLUSTERS_PER_ALPHA)),
            beta=max(1.0, self.beta or n_labels / n_clusters),
            beam_size=min(self.beam_size, n_clusters),
            shortlist_size=min(self.train_shortlist_size, self.shortlist_size, n_labels),
            shortlist_loss_weight=self.shortlist_loss_weight,
        )

    def _cluster_labels(self, split: SplitSamples, phi: FloatArray, seed: int) -> IntArray:
        """Cluster (L,) of each label, by its PIFA representation in TF-IDF and embeddings φ (n, D)."""
        features = with_embeddings(split.samples.features, phi)
        Z = pifa_mixed(features, split.Y, normalize_y=False, threads=split.threads)
        return build_clusters(Z, self._n_clusters(split.Y.shape[1]), seed=seed, threads=split.threads)

    def _init_label_classifiers(self, split: SplitSamples, phi: FloatArray, options: GraphOptions) -> Classifiers:
        return init_classifiers(split.train_Y, phi[split.rows], options.shortlist_size, split.threads)

    def _build_edges(
        self, split: SplitSamples, phi: FloatArray, head: GraphHead | TorchGraphHead, cluster_of: IntArray
    ) -> TrainedEdges:
        """Connect each cluster with the labels whose training samples the search sends there."""
        n_labels = split.Y.shape[1]
        options = head.options
        logits = cluster_logits(head.cluster_classifiers, phi)[split.rows]
        M = matched_clusters(logits, options.beam_size, math.log(options.alpha))
        n_edges = min(self.n_edges or 10 * -(-n_labels // self._n_clusters(n_labels)), n_labels)
        indptr, labels, weights = build_edges(M, split.train_Y, n_edges, cluster_of, threads=split.threads)
        return TrainedEdges(indptr, labels, init_edge_logits(labels, weights, n_labels), options.beta, n_labels)

    def _make_head(
        self,
        cluster_classifiers: Classifiers,
        graph: LabelGraph | TrainedEdges,
        label_classifiers: Classifiers,
        options: GraphOptions,
    ) -> GraphHead | TorchGraphHead:
        """Return the native head on a CPU, the torch head where the encoder runs on another device."""
        if self.transformer_ is None or self.transformer_.device == "cpu":
            return GraphHead(cluster_classifiers, graph, label_classifiers, options)
        return TorchGraphHead(cluster_classifiers, graph, label_classifiers, options, self.transformer_.device)

    def _train_head(
        self,
        split: SplitSamples,
        encoder: Encoder,
        head: GraphHead | TorchGraphHead,
        config: TrainingConfig,
        seed: int,
        title: str,
        checkpoints: CheckpointDirectory,
    ) -> History:
        """Train encoder and head, and leave both in their best state; return the history."""
        learner = Learner(
            encoder,
            head,
            Positives(split.Y),
            RankingValidator(split.validation_samples, split.validation_Y, split.threads),
            split.samples,
            config,
            seed=seed + 1,
            threads=split.threads,
            sample_weight=split.sample_weight,
        )
        return self._train(learner, split.rows, title=title, seed=seed + 2, checkpoint=checkpoints.path(title))

    @property
    def _has_ranker(self) -> bool:
        return self.ranker is not None

    def _fit_ranker(self, split: SplitSamples, member: GraphClassifier, seed: int) -> SparseRanker | None:
        """Train the sparse ranker on what the member finds for its training samples."""
        phi, threads = member.encoder.encode(split.samples, split.threads), split.threads
        weight, size = self.embedding_weight, self._search_size(member)
        if weight is None:
            weight = 1.0 if member.adapts_dense_features else 0.1

        def search(rows: LongArray) -> tuple[IntArray, FloatArray]:
            return member.search_embeddings(phi[rows], member.n_ranked, size, threads)

        features, embeddings = split.samples.ranker_features, member.ranker_embeddings(split.samples, phi)
        training = RankerTraining(
            features,
            split.Y,
            embeddings,
            search,
            self.linear,
            float(weight),
            member.cluster_of,
            seed,
            threads,
            split.sample_weight,
        )
        return training.fit(split.rows, split.validation_rows)

    # ---- prediction ----

    def _search_size(self, member: GraphClassifier) -> SearchSize:
        """Return the present size of a search; the beam is half as wide again if `ranker` is set, for more to rank."""
        n_clusters = member.graph.n_clusters
        beam_size = min(self.beam_size, n_clusters)
        if self.ranker is not None:
            beam_size = min(3 * beam_size // 2, n_clusters)
        return SearchSize(beam_size, min(self.shortlist_size, member.graph.n_labels))

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        return self._search(inputs, k, [(member, self._search_size(member)) for member in self.members_])

    def _predict_allowed(self, inputs: Inputs, k: int, label_filter: LabelFilter) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k) of allowed labels, found in a graph that has edges to these only."""
        members = []
        for member in self.members_:
            graph = label_filter.prepared(member.graph, partial(member.graph.restricted, label_filter.allowed))
            # Every cluster is explored where that costs no more than a usual search.
            n_edges = len(graph.labels) / max(1, len(member.graph.labels)) * member.graph.n_clusters
            size = self._search_size(member)
            beam_size = member.graph.n_clusters if n_edges <= 4 * size.beam_size else 4 * size.beam_size
            size = SearchSize(min(beam_size, member.graph.n_clusters), max(size.shortlist_size, k))
            members.append((member.with_graph(graph), size))
        ids, scores = self._search(inputs, k, members)
        wanted = min(k, len(label_filter))
        fill_up(ids[:, :wanted], scores[:, :wanted], label_filter, self.label_counts_.counts)
        return ids, scores

    def _search(
        self, inputs: Inputs, k: int, members: Sequence[tuple[GraphClassifier, SearchSize]]
    ) -> tuple[IntArray, FloatArray]:
        samples = self._transform_samples(inputs)
        threads = resolve_threads(self.threads, len(samples))
        width = k if len(members) == 1 else member_width(k, self.n_labels)
        found = [member.search(samples, width, size, threads) for member, size in members]
        if len(found) == 1:
            ids, scores = found[0]
        else:
            ids, scores = native.matrix.blend_rankings(
                np.stack([ids for ids, _ in found]), np.stack([scores for _, scores in found]), k, threads
            )
        return ids, np.where(ids >= 0, np.exp(scores), -np.inf).astype(np.float32)

    def _explain_parts(self, inputs: Inputs, label_id: int) -> dict[str, float]:
        member = self.members_[0]
        return member.path_to(label_id, member.encoder.encode(self._transform_samples(inputs), 1))

    def _explain_neighbors(self, inputs: Inputs, label_id: int) -> list[Neighbor]:
        if self.texts_ is None:
            return []
        phi = self.members_[0].encoder.encode(self._transform_samples(inputs), 1)
        return self.texts_.nearest(phi[0], label_id, self.labels_)

    def _transformers(self) -> list[Transformer]:
        trained = [member.encoder for member in self.members_ if isinstance(member.encoder, Transformer)]
        return trained or super()._transformers()

    # ---- the learned index ----

    def prune(self, *, threshold: float | None = None, top: int | None = None, fraction: float | None = None) -> Self:
        """Drop weak edges: those that score below `threshold`, all but the `top` of a cluster, or all but a fraction.

        A fraction keeps the best edges of each label, and costs the least accuracy for its size. Every label keeps its
        strongest edge; the scores of the remaining edges do not change.
        """
        self._check_fitted()
        self.members_ = [
            member.with_graph(member.graph.pruned(threshold=threshold, top=top, fraction=fraction))
            for member in self.members_
        ]
        return self

    def shortlist_recall(self, X: Any, y: Any) -> float:
        """Percentage of the true labels that the first member's search puts onto its shortlist."""
        inputs = self._check_predict_inputs(X)
        aligned, n_known = align_labels(y, self.labels_)
        truth = aligned[:, :n_known].tocsr()
        if truth.shape[0] != len(inputs):
            raise DataError(f"X has {len(inputs)} rows, y has {truth.shape[0]}")
        member, threads = self.members_[0], resolve_threads(self.threads)
        phi = member.encoder.encode(self._transform_samples(inputs), threads)
        shortlists = member.shortlists(phi, self._search_size(member), threads)
        return float(100 * is_listed(shortlists, truth).mean()) if truth.nnz else math.nan

    def index_report(self, X: Any = None, y: Any = None) -> GraphReport:
        """Describe the graph of the first member: scores of its edges, clusters of frequent and of tail labels.

        With data X and its labels y, also the recall of the search, by label frequency and with pruned graphs.
        """
        self._check_fitted()
        member = self.members_[0]
        report = GraphReport.of(member.graph, member.cluster_of, frequency_deciles(self.label_counts_.counts))
        return report if X is None else replace(report, search=search_report(self, X, y))

    def report(self, X: Any = None, y: Any = None) -> dict[str, list[list[str]]]:
        """Return the tables of `index_report`, and the training history."""
        return {**self.index_report(X, y).tables(), "training": history_table(self.members_[0].history)}

    # ---- files ----

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        members = [member.save_to(writer, f"model{i}_") for i, member in enumerate(self.members_)]
        texts = None if self.texts_ is None else self.texts_.save_to(writer, "texts_")
        return {**self._save_samples(writer), "members": members, "texts": texts}

    def _load(self, store: Store, state: Any) -> None:
        state = check_state(store, state)
        members = state.get("members")
        if not isinstance(members, list) or not members or not all(isinstance(info, dict) for info in members):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the model's members")
        shape = self._load_samples(store, state)
        n_ranked = self._load_ranker_features(store, state, shape[0])
        self.members_ = []
        for i, info in enumerate(members):
            prefix = f"model{i}_"
            encoder = self._load_encoder(store, info.get("encoder"), f"{prefix}encoder_", shape)
            self.members_.append(GraphClassifier.load_from(store, info, prefix, encoder, n_ranked, self.n_labels))
        dim = self.members_[0].encoder.dim
        self.texts_ = TrainingTexts.load_from(store, state.get("texts"), "texts_", dim, self.n_labels)
