"""ELIAS: the index is learned together with encoder and classifiers.

Gupta et al. (2022), ELIAS: End-to-End Learning to Index and Search in Large Output Spaces. The equations of the model
and of its loss are in `nn.heads.graph`.

Stage 1: labels are clustered by balanced 2-means of their PIFA representations, each label hangs on its cluster, and
encoder, cluster classifiers and label classifiers are trained.
Stage 2: the clusters that the search finds for the samples, M (n × C), give each cluster its edges, the `n_edges`
largest entries of a row of MᵀY; edge weights are trained along with everything else.
Elias++ (`ranker="sparse"`): sparse linear classifiers re-rank the best labels (`models.elias.ranker`).

Differences from the paper
- Label classifiers start at the centroids of their samples, and again in stage 2 (`reset_classifiers`).
- Edge logits start from the logarithm of their weight in MᵀY; clusters and edges have learning rates of their own.
- α is lowered where there are few clusters, β defaults to the number of labels per cluster.
- Encoders: a bag of word embeddings by default, any transformer, frozen or fine-tuned.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from ramify import native
from ramify.base.config import param
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.sparse import entry_rows
from ramify.base.splits import hold_out
from ramify.base.threads import resolve_threads
from ramify.base.types import Csr, FloatArray, IntArray
from ramify.index.graph_report import PRUNING_METRICS, GraphReport, PruningResult, SearchReport
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
from ramify.metrics.report import evaluate
from ramify.models.base import TrainingData, check_state
from ramify.models.elias.graph_classifier import GraphClassifier, SearchSize
from ramify.models.elias.ranker import RANKED_LABELS, RankerTraining
from ramify.models.elias.training import MemberTraining
from ramify.models.encoded import EncodedModel
from ramify.nn.checkpoint import CheckpointDirectory
from ramify.nn.encoders import Encoder, Transformer
from ramify.nn.encoders.samples import Samples, with_embeddings
from ramify.nn.heads.graph import GraphHead, GraphOptions, TrainedEdges
from ramify.nn.heads.graph_torch import TorchGraphHead
from ramify.nn.heads.initialization import init_classifiers
from ramify.nn.trainer import TrainingConfig
from ramify.rank.linear import LinearConfig, ranking_config

REPORT_THRESHOLDS = (0.01, 0.05, 0.1, 0.25, 0.5)
REPORT_FRACTIONS = (0.5, 0.3, 0.2, 0.1)
"""Prunings in the report: edges above a score, and a fraction of the edges."""


@dataclass(kw_only=True, eq=False, repr=False)
class Elias(EncodedModel):
    """Learns a weighted graph from clusters to labels together with the encoder and the classifiers.

    Stage 1 trains encoder and classifiers over fixed clusters of labels; stage 2 connects labels to every cluster in
    which their samples were found, and trains the weights of these edges as well.
    """

    kind: ClassVar[str] = "elias"

    stages: Literal[1, 2] = param(2, "1: fixed clusters; 2: then a learned graph")
    n_clusters: int | None = param(
        None, "number of clusters C, a power of two; None: about a hundredth of the labels", low=1
    )
    n_edges: int | None = param(
        None, "maximum edges of a cluster in stage 2 (κ); None: ten times its number of labels", low=1
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
    shortlist_loss_weight: float = param(0.05, "weight λ of the loss that brings true labels onto the shortlist", low=0)
    stage1: TrainingConfig = param(factory=TrainingConfig, doc="training of stage 1")
    stage2: TrainingConfig = param(
        factory=lambda: TrainingConfig(encoder_learning_rate=0.004), doc="training of stage 2"
    )
    reset_classifiers: bool = param(
        True, "initialize the label classifiers again in stage 2: those of stage 1 have overfitted its samples"
    )
    cluster_learning_rate_ratio: float = param(
        0.1, "learning rate of the cluster classifiers in stage 2, relative to `learning_rate`", above=0
    )
    edge_learning_rate_ratio: float = param(1.0, "learning rate of the edges, relative to `learning_rate`", above=0)
    ranker: Literal["sparse"] | None = param(
        None, "'sparse': linear classifiers re-rank the best labels (Elias++), unless validation is better without"
    )
    linear: LinearConfig = param(
        factory=lambda: ranking_config(threshold=0.2), doc="training of the ranker's classifiers"
    )
    embedding_weight: float | None = param(
        None,
        "norm of the embedding that the ranker sees beside TF-IDF features of norm 1; None: 1 for a frozen "
        "transformer, 0.1 for an encoder trained on the same samples, whose embeddings overfit them",
        low=0,
    )
    n_models: int = param(1, "members whose scores are averaged, each with clusters of its own", low=1)
    checkpoint_dir: str | None = param(
        None, "directory for checkpoints; an interrupted training resumes from there, to the same bits"
    )

    # ---- training ----

    def _fit(self, data: TrainingData) -> None:
        samples = self._fit_samples(data.inputs)
        checkpoints = CheckpointDirectory(self.checkpoint_dir)
        self.members_ = [
            self._fit_member(self._member_training(samples, data.Y, index, checkpoints), index)
            for index in range(self.n_models)
        ]
        checkpoints.clear()

    def _member_training(
        self, samples: Samples, Y: Csr, index: int, checkpoints: CheckpointDirectory
    ) -> MemberTraining:
        seed = self.seed + 1000 * index
        rows, validation_rows = hold_out(Y, self.stage1.validation_size, seed)
        threads = resolve_threads(self.threads)
        settings = self._training_settings()
        return MemberTraining(samples, Y, rows, validation_rows, checkpoints, settings, seed, threads, self.verbose)

    def _fit_member(self, run: MemberTraining, index: int) -> GraphClassifier:
        """Train one member: stage 1, stage 2, ranker."""
        title = "" if self.n_models == 1 else f" of model {index + 1}"
        options = self._graph_options(run.Y.shape[1])
        encoder = self._init_encoder(run.samples.take(run.rows), run.Y[run.rows], run.seed, run.threads)
        member = self._fit_stage1(run, encoder, options, f"stage 1{title}")
        if self.stages == 2:
            member = self._fit_stage2(run, member, options, f"stage 2{title}")
        if self.ranker is not None:
            self._fit_ranker(run, member)
        return member

    def _graph_options(self, n_labels: int) -> GraphOptions:
        n_clusters = self._n_clusters(n_labels)
        return GraphOptions(
            alpha=max(1.0, min(self.alpha, n_clusters / 4)),
            beta=max(1.0, self.beta or n_labels / n_clusters),
            beam_size=min(self.beam_size, n_clusters),
            shortlist_size=min(self.train_shortlist_size, self.shortlist_size, n_labels),
            shortlist_loss_weight=self.shortlist_loss_weight,
        )

    def _n_clusters(self, n_labels: int) -> int:
        return self.n_clusters or 2 ** max(0, math.ceil(math.log2(n_labels / 100)))

    def _fit_stage1(self, run: MemberTraining, encoder: Encoder, options: GraphOptions, title: str) -> GraphClassifier:
        """Cluster the labels; train encoder, cluster classifiers and label classifiers."""
        rows, n_clusters = run.rows, self._n_clusters(run.Y.shape[1])
        phi = encoder.encode(run.samples, run.threads)
        features = with_embeddings(run.samples.features, phi)
        Z = pifa_mixed(features, run.Y, normalize_y=False, threads=run.threads)
        cluster_of = build_clusters(Z, n_clusters, seed=run.seed, threads=run.threads)
        bound = 1 / math.sqrt(encoder.dim)
        weights = np.random.default_rng(run.seed).uniform(-bound, bound, (n_clusters, encoder.dim))
        clusters = weights.astype(np.float32), np.zeros(n_clusters, np.float32)
        labels = init_classifiers(run.Y[rows], phi[rows], options.shortlist_size, run.threads)
        graph = LabelGraph.from_clusters(cluster_of, n_clusters)
        head = self._make_head(clusters, graph, labels, options)
        history = run.run(encoder, head, self.stage1, title)
        return _graph_classifier(encoder, head, cluster_of, history)

    def _fit_stage2(
        self, run: MemberTraining, stage1: GraphClassifier, options: GraphOptions, title: str
    ) -> GraphClassifier:
        """Build edges where the search finds the samples of a label; train their weights with everything else."""
        rows, n_labels = run.rows, run.Y.shape[1]
        phi = stage1.encoder.encode(run.samples, run.threads)
        logits = phi @ stage1.clusters[0].T + stage1.clusters[1]
        M = matched_clusters(logits[rows], options.beam_size, math.log(options.alpha))
        n_edges = min(self.n_edges or 10 * -(-n_labels // self._n_clusters(n_labels)), n_labels)
        indptr, ends, weights = build_edges(M, run.Y[rows], n_edges, stage1.cluster_of, threads=run.threads)
        edges = TrainedEdges(indptr, ends, init_edge_logits(ends, weights, n_labels), options.beta, n_labels)
        options = replace(
            options,
            cluster_learning_rate_ratio=self.cluster_learning_rate_ratio,
            edge_learning_rate_ratio=self.edge_learning_rate_ratio,
        )
        labels = stage1.labels
        if self.reset_classifiers:
            labels = init_classifiers(run.Y[rows], phi[rows], options.shortlist_size, run.threads)
        head = self._make_head(stage1.clusters, edges, labels, options)
        history = run.run(stage1.encoder, head, self.stage2, title)
        return _graph_classifier(stage1.encoder, head, stage1.cluster_of, stage1.history + history)

    def _make_head(
        self,
        clusters: tuple[FloatArray, FloatArray],
        graph: LabelGraph | TrainedEdges,
        labels: tuple[FloatArray, FloatArray],
        options: GraphOptions,
    ) -> GraphHead | TorchGraphHead:
        """Return the native head on a CPU, the torch head where the encoder runs on another device."""
        if self.transformer_ is None or self.transformer_.device == "cpu":
            return GraphHead(clusters, graph, labels, options)
        return TorchGraphHead(clusters, graph, labels, options, self.transformer_.device)

    def _fit_ranker(self, run: MemberTraining, member: GraphClassifier) -> None:
        """Train the sparse ranker on what the member finds for its training samples."""
        phi = member.encoder.encode(run.samples, run.threads)
        width, size = min(RANKED_LABELS, run.Y.shape[1]), self._search_size(member, with_ranker=True)
        weight = self.embedding_weight
        if weight is None:
            weight = 1.0 if member.has_frozen_embeddings else 0.1
        training = RankerTraining(
            run.samples.features,
            run.Y,
            member.ranker_embeddings(run.samples, phi),
            lambda rows: member.search_embeddings(phi[rows], width, size, run.threads),
            self.linear,
            float(weight),
            run.seed,
            run.threads,
        )
        member.ranker = training.fit(run.rows, run.validation_rows)

    # ---- prediction ----

    def _search_size(self, member: GraphClassifier, *, with_ranker: bool) -> SearchSize:
        """Return the present search parameters; with a ranker the search is wider, as its result is re-ranked."""
        n_clusters = member.graph.n_clusters
        beam_size = min(self.beam_size, n_clusters)
        if with_ranker:
            beam_size = min(3 * beam_size // 2, n_clusters)
        return SearchSize(beam_size, min(self.shortlist_size, member.graph.n_labels))

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        samples = self._transform_samples(inputs)
        threads = resolve_threads(self.threads, len(samples))
        width = k if len(self.members_) == 1 else min(2 * k, self.n_labels)
        found = [
            member.search(samples, width, self._search_size(member, with_ranker=self.ranker is not None), threads)
            for member in self.members_
        ]
        if len(found) == 1:
            ids, scores = found[0]
        else:
            ids, scores = native.matrix.blend_rankings(
                np.stack([ids for ids, _ in found]), np.stack([scores for _, scores in found]), k, threads
            )
        return ids, np.where(ids >= 0, np.exp(scores), -np.inf).astype(np.float32)

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
        size = self._search_size(member, with_ranker=self.ranker is not None)
        shortlists = member.shortlists(phi, size, threads)
        return float(100 * _is_listed(shortlists, truth).mean()) if truth.nnz else math.nan

    def index_report(self, X: Any = None, y: Any = None) -> GraphReport:
        """Describe the graph of the first member: scores of its edges, clusters of frequent and of tail labels.

        With data X and its labels y, also the recall of the search, by label frequency and with pruned graphs.
        """
        self._check_fitted()
        member = self.members_[0]
        report = GraphReport.of(member.graph, member.cluster_of, frequency_deciles(self.label_counts_.counts))
        return report if X is None else replace(report, search=self._search_report(X, y))

    def _search_report(self, X: Any, y: Any) -> SearchReport:
        width = min(100, self.n_labels)
        ks = [k for k in (1, 3, 5, 10, 20, 50, 100) if k <= width]
        full = evaluate(self.predict_topk(X, width), y, self.label_counts_, ks=ks)
        names = [name for name in PRUNING_METRICS if int(name.split("@")[1]) in ks]
        pruning = [PruningResult("all", 1.0, {name: full[name] for name in names})]
        n_edges = self._n_edges()
        for description, options in _prunings():
            pruned = copy.copy(self).prune(**options)  # the copy shares everything but its members' graphs
            metrics = evaluate(pruned.predict_topk(X, width), y, self.label_counts_, ks=ks)
            kept = pruned._n_edges() / max(1, n_edges)
            pruning.append(PruningResult(description, kept, {name: metrics[name] for name in names}))
        recall = {k: full[f"R@{k}"] for k in ks}
        return SearchReport(recall, self.shortlist_recall(X, y), full.deciles()[f"R@{ks[-1]}"], pruning)

    def _n_edges(self) -> int:
        return sum(len(member.graph.labels) for member in self.members_)

    def report(self, X: Any = None, y: Any = None) -> dict[str, list[list[str]]]:
        """Return the tables of `index_report`, and the training history."""
        tables = self.index_report(X, y).tables()
        history = [
            [f"{i + 1}", f"{loss:.5f}", f"{score:.2f}"] for i, (loss, score) in enumerate(self.members_[0].history)
        ]
        return {**tables, "training": [["epoch", "loss", "validation nDCG@5"], *history]}

    # ---- files ----

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        members = [member.save_to(writer, f"model{i}_") for i, member in enumerate(self.members_)]
        return {**self._save_samples(writer), "members": members}

    def _load(self, store: Store, state: Any) -> None:
        state = check_state(store, state)
        members = state.get("members")
        if not isinstance(members, list) or not members or not all(isinstance(info, dict) for info in members):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the model's members")
        shape = self._load_samples(store, state)
        self.members_ = []
        for i, info in enumerate(members):
            prefix = f"model{i}_"
            encoder = self._load_encoder(store, info.get("encoder"), f"{prefix}encoder_", shape)
            self.members_.append(GraphClassifier.load_from(store, info, prefix, encoder, shape[0], self.n_labels))


def _graph_classifier(
    encoder: Encoder, head: GraphHead | TorchGraphHead, cluster_of: IntArray, history: list[tuple[float, float]]
) -> GraphClassifier:
    """Return the member that a trained encoder and head make up."""
    arrays = head.arrays()
    return GraphClassifier(
        encoder,
        (arrays["cluster_weights.values"], arrays["cluster_bias.values"]),
        head.graph,
        (arrays["labels.weights"], arrays["labels.bias"]),
        head.log_alpha,
        cluster_of,
        history,
    )


def _is_listed(shortlists: IntArray, Y: Csr) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether each label of Y (n × L), in the order of its entries, is on the shortlist (n, k) of its row."""
    true = entry_rows(Y).astype(np.int64) * Y.shape[1] + Y.indices
    listed = (np.arange(len(shortlists), dtype=np.int64)[:, None] * Y.shape[1] + shortlists)[shortlists >= 0]
    return np.isin(true, listed)


def _prunings() -> list[tuple[str, dict[str, Any]]]:
    """Prunings of the report: a description, and the arguments of `prune`."""
    return [(f"score ≥ {t:g}", {"threshold": t}) for t in REPORT_THRESHOLDS] + [
        (f"best {fraction:.0%}", {"fraction": fraction}) for fraction in REPORT_FRACTIONS
    ]
