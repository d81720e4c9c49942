"""ELIAS: the index and the search are learned together with the classifiers (Gupta et al., 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np

from ramify import native
from ramify.base.config import param
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.splits import hold_out
from ramify.base.threads import resolve_threads
from ramify.base.types import Csr, FloatArray, IntArray
from ramify.index.graph_report import PRUNING_METRICS, GraphReport, PruningResult, SearchReport
from ramify.index.label_graph import LabelGraph, build_clusters, build_edges, init_edge_logits, matched_clusters
from ramify.io.inputs import Inputs
from ramify.io.labels import LabelVocabulary, align_labels
from ramify.io.store import Store, StoreWriter
from ramify.labels.representations import pifa_mixed
from ramify.metrics.ranking import frequency_deciles
from ramify.metrics.report import Evaluation, evaluate
from ramify.models.base import refuse_given
from ramify.models.elias_member import EliasMember
from ramify.models.elias_ranker import WIDTH, fit_ranker
from ramify.models.elias_training import EliasRun
from ramify.models.encoded import EncodedModel, joined
from ramify.nn.graph import Edges, GraphHead, GraphOptions, reached, start_labels
from ramify.nn.points import Points
from ramify.nn.torch_graph import TorchGraphHead
from ramify.nn.trainer import TrainingConfig, remove_checkpoint
from ramify.nn.transformer import Transformer
from ramify.rank.linear import LinearConfig, ranking_config


@dataclass(kw_only=True, eq=False, repr=False)
class Elias(EncodedModel):
    """Learns a weighted graph from clusters to labels together with the encoder and the classifiers.

    First stage: clusters of labels are fixed, encoder and classifiers are trained. Second stage: labels hang on every
    cluster in which their points were found, and the weights of those edges are trained along.
    """

    kind: ClassVar[str] = "elias"

    stages: Literal[1, 2] = param(2, "1: fixed clusters; 2: then a learned graph")
    n_clusters: int | None = param(None, "clusters, as a power of two; None: about a hundredth of the labels", low=1)
    n_edges: int | None = param(None, "edges of a cluster in the second stage; None: ten times its labels", low=1)
    alpha: float = param(10.0, "factor on the softmax of a cluster, cut at 1; less where there are few clusters", low=1)
    beta: float | None = param(None, "factor on the softmax of an edge, cut at 1; None: labels per cluster", low=1)
    beam_size: int = param(20, "clusters that the search explores; half as many more with a ranker", low=1)
    shortlist: int = param(2000, "labels that get a classifier's score in a search", low=1)
    train_shortlist: int = param(1000, "the same in a training step, at most `shortlist`", low=1)
    shortlist_weight: float = param(0.05, "weight of the loss that brings true labels onto the shortlist", low=0)
    first: TrainingConfig = param(factory=TrainingConfig, doc="training of the first stage")
    second: TrainingConfig = param(
        factory=lambda: TrainingConfig(encoder_rate=0.004), doc="training of the second stage"
    )
    fresh_labels: bool = param(
        True, "the classifiers of the second stage start anew: those of the first have learned its points by heart"
    )
    cluster_rate: float = param(0.1, "learning rate of the clusters in the second stage, as a share of `rate`", above=0)
    edge_rate: float = param(1.0, "learning rate of the edges, as a share of `rate`", above=0)
    ranker: Literal["sparse"] | None = param(
        None, "'sparse': linear classifiers rank what is found again (Elias++), unless validation is better without"
    )
    linear: LinearConfig = param(
        factory=lambda: ranking_config(threshold=0.2), doc="how the classifiers of the ranker are trained"
    )
    vector_weight: float | None = param(
        None,
        "length of the vector that the ranker sees beside features of length 1; None: 1 for vectors of a frozen "
        "transformer, 0.1 for those of an encoder that was trained on the same points, which say too much about them",
        low=0,
    )
    n_models: int = param(1, "models whose scores are averaged, each with clusters of its own", low=1)
    checkpoints: str | None = param(None, "folder for checkpoints; a training that was interrupted goes on from there")

    # ---- training ----

    def _fit(self, inputs: Inputs, labels: Csr, names: LabelVocabulary, **given: Any) -> None:
        refuse_given(self, given)
        points = self._fit_points(inputs)
        self.members_ = [self._fit_member(points, labels, number) for number in range(self.n_models)]
        if self.checkpoints is not None:  # what is finished needs none; anything else in that folder stays
            for place in Path(self.checkpoints).glob("*-stage*"):
                remove_checkpoint(place)

    def _fit_member(self, points: Points, Y: Csr, number: int) -> EliasMember:
        threads, seed = resolve_threads(self.threads), self.seed + 1000 * number
        title = "" if self.n_models == 1 else f" of model {number + 1}"
        n_labels = Y.shape[1]
        n_clusters = self.n_clusters or 2 ** max(0, math.ceil(math.log2(n_labels / 100)))
        options = GraphOptions(
            alpha=max(1.0, min(self.alpha, n_clusters / 4)),
            beta=max(1.0, self.beta or n_labels / n_clusters),
            beam_size=min(self.beam_size, n_clusters),
            shortlist=min(self.train_shortlist, self.shortlist, n_labels),
            shortlist_weight=self.shortlist_weight,
        )
        rows, judged = hold_out(Y, self.first.validation, seed)
        encoder = self._start_encoder(points.take(rows), Y[rows], seed, threads)
        vectors = encoder.encode(points, threads)
        cluster_of = build_clusters(
            pifa_mixed(joined(points.features, vectors), Y, normalize_y=False, threads=threads),
            n_clusters,
            seed=seed,
            threads=threads,
        )
        random = np.random.default_rng(seed)
        bound = 1 / math.sqrt(encoder.width)
        clusters = (
            random.uniform(-bound, bound, (n_clusters, encoder.width)).astype(np.float32),
            np.zeros(n_clusters, np.float32),
        )
        graph: LabelGraph | Edges = LabelGraph.from_clusters(cluster_of, n_clusters)
        head = self._make_head(
            clusters, graph, start_labels(Y[rows], vectors[rows], options.shortlist, threads), options
        )
        checkpoint = None if self.checkpoints is None else Path(self.checkpoints)
        run = EliasRun(points, Y, rows, judged, cluster_of, threads, seed, self.verbose, self._settings(), checkpoint)
        member = run.train(encoder, head, self.first, f"first stage{title}")
        if self.stages == 1:
            return self._finished(member, run)
        vectors = member.encoder.encode(points, threads)
        logits = vectors @ member.clusters[0].T + member.clusters[1]
        matched = matched_clusters(logits[rows], options.beam_size, math.log(options.alpha))
        n_edges = min(self.n_edges or 10 * -(-n_labels // n_clusters), n_labels)
        begin, ends, weights = build_edges(matched, Y[rows], n_edges, cluster_of, threads=threads)
        edges = Edges(begin, ends, init_edge_logits(ends, weights, n_labels), options.beta, n_labels)
        options = replace(options, cluster_share=self.cluster_rate, edge_share=self.edge_rate)
        labels = member.labels
        if self.fresh_labels:
            labels = start_labels(Y[rows], vectors[rows], options.shortlist, threads)
        first, head = member, self._make_head(member.clusters, edges, labels, options)
        member = run.train(first.encoder, head, self.second, f"second stage{title}")
        member.history = first.history + member.history
        return self._finished(member, run)

    def _make_head(
        self,
        clusters: tuple[FloatArray, FloatArray],
        graph: LabelGraph | Edges,
        labels: tuple[FloatArray, FloatArray],
        options: GraphOptions,
    ) -> GraphHead | TorchGraphHead:
        """Native on a processor, torch where the encoder runs on another device."""
        if self.transformer_ is None or self.transformer_.device == "cpu":
            return GraphHead(clusters, graph, labels, options)
        return TorchGraphHead(clusters, graph, labels, options, self.transformer_.device)

    def _finished(self, member: EliasMember, run: EliasRun) -> EliasMember:
        member.shortlist = min(self.shortlist, run.Y.shape[1])
        if self.ranker is None:
            return member
        member.beam_size = min(3 * member.beam_size // 2, member.graph.n_clusters)  # what is found is looked at again
        vectors = member.encoder.encode(run.points, run.threads)
        width = min(WIDTH, run.Y.shape[1])
        raw = member.reads_vectors
        weight = self.vector_weight if self.vector_weight is not None else 1.0 if raw else 0.1
        member.ranker = fit_ranker(
            run.points.features,
            run.Y,
            member.ranked_vectors(run.points, vectors),
            lambda rows: member.search_vectors(vectors[rows], width, run.threads),
            run.rows,
            run.judged,
            self.linear,
            vector_weight=float(weight),
            seed=run.seed,
            threads=run.threads,
        )
        return member

    # ---- prediction ----

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        points = self._make_points(inputs)
        threads = resolve_threads(self.threads, len(points))
        if len(self.members_) == 1:
            ids, scores = self.members_[0].search(points, k, threads)
        else:
            found = [member.search(points, min(2 * k, self.n_labels), threads) for member in self.members_]
            ids, scores = native.matrix.blend_rankings(
                np.stack([ids for ids, _ in found]), np.stack([scores for _, scores in found]), k, threads
            )
        return ids, np.where(ids >= 0, np.exp(scores), -np.inf).astype(np.float32)

    def _transformers(self) -> list[Transformer]:
        trained = [member.encoder for member in self.members_ if isinstance(member.encoder, Transformer)]
        return trained or super()._transformers()

    # ---- looking at what was learned ----

    def index_report(self, X: Any = None, y: Any = None) -> GraphReport:
        """What the graph of the first model looks like: strong edges, clusters of frequent and rare labels.

        With data X and their labels y also what a search finds: recall, the deciles that it comes from, and what is
        left of it with fewer edges.
        """
        self._check_fitted()
        member = self.members_[0]
        found = GraphReport.of(member.graph, member.cluster_of, frequency_deciles(self.label_counts_.counts))
        return found if X is None else replace(found, search=self._search_report(X, y))

    def _search_report(self, X: Any, y: Any) -> SearchReport:
        width = min(100, self.n_labels)
        ks = [k for k in (1, 3, 5, 10, 20, 50, 100) if k <= width]
        whole = evaluate(self.predict_topk(X, width), y, self.label_counts_, ks=ks)
        graphs = [member.graph for member in self.members_]
        n_edges = sum(len(graph.labels) for graph in graphs)

        def row(how: str, result: Evaluation) -> PruningResult:
            kept = sum(len(member.graph.labels) for member in self.members_) / max(1, n_edges)
            return PruningResult(how, kept, {m: result[m] for m in PRUNING_METRICS if int(m.split("@")[1]) in ks})

        pruning = [row("all", whole)]
        for how, options in _prunings():
            try:
                result = evaluate(self.prune(**options).predict_topk(X, width), y, self.label_counts_, ks=ks)
                pruning.append(row(how, result))
            finally:
                for member, graph in zip(self.members_, graphs, strict=True):
                    member.graph = graph
        return SearchReport(
            {k: whole[f"R@{k}"] for k in ks}, self.shortlist_recall(X, y), whole.deciles()[f"R@{ks[-1]}"], pruning
        )

    def report(self, X: Any = None, y: Any = None) -> dict[str, list[list[str]]]:
        """Return the tables of `index_report`, and how training went."""
        history = [
            [f"{i + 1}", f"{loss:.5f}", f"{score:.2f}"] for i, (loss, score) in enumerate(self.members_[0].history)
        ]
        training = [["pass", "loss", "validation nDCG"], *history]
        return {**self.index_report(X, y).tables(), "training": training}

    def prune(self, *, threshold: float | None = None, top: int | None = None, fraction: float | None = None) -> Self:
        """Drop weak edges: those that score below the threshold, all but the `top` of each cluster, or all but a share.

        A share keeps the best edges of each label, and costs the least for its size. Every label keeps its
        strongest edge; the scores of the others stay as they were trained.
        """
        self._check_fitted()
        for member in self.members_:
            member.graph = member.graph.pruned(threshold=threshold, top=top, fraction=fraction)
        return self

    def shortlist_recall(self, X: Any, y: Any) -> float:
        """Share of the true labels, in percent, that the first model's search puts on its shortlist."""
        inputs = self._check_predict_inputs(X)
        known, n_known = align_labels(y, self.labels_)
        truth = known[:, :n_known].tocsr()
        if truth.shape[0] != len(inputs):
            raise DataError(f"X has {len(inputs)} rows, y has {truth.shape[0]}")
        vectors = self.members_[0].encoder.encode(self._make_points(inputs), resolve_threads(self.threads))
        lists = self.members_[0].shortlists(vectors, resolve_threads(self.threads))
        return float(100 * reached(lists, truth).mean()) if truth.nnz else math.nan

    # ---- files ----

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        return {
            **self._save_points(writer),
            "members": [member.save_to(writer, f"model{i}_") for i, member in enumerate(self.members_)],
        }

    def _load(self, store: Store, state: Any) -> None:
        members = state.get("members") if isinstance(state, dict) else None
        if not isinstance(members, list) or not members:
            raise ModelFormatError(f"the manifest of {store.path} does not name the model's parts")
        shape, trained = self._load_points(store, state)
        self.members_ = [
            EliasMember.load_from(store, info, f"model{i}_", shape, self.n_labels, trained)
            for i, info in enumerate(members)
        ]


def _prunings() -> list[tuple[str, dict[str, Any]]]:
    """Ways to prune a graph, from the mildest on: by threshold, and to a share of its edges."""
    return [(f"score ≥ {t:g}", {"threshold": t}) for t in (0.01, 0.05, 0.1, 0.25, 0.5)] + [
        (f"best {share:.0%}", {"fraction": share}) for share in (0.5, 0.3, 0.2, 0.1)
    ]
