"""ELIAS: the index and the search are learned together with the classifiers (Gupta et al., 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy import sparse

from ramify.base import native
from ramify.base.config import param
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.inputs import Inputs
from ramify.base.mixed import Mixed
from ramify.base.ranking import Ranking
from ramify.base.sparse import as_csr
from ramify.base.threads import resolve_threads
from ramify.base.types import AnyArray, Csr, FloatArray, IntArray, LongArray
from ramify.index.graph import IndexReport, LabelGraph, build_clusters, build_edges, cluster_scores, matched_clusters
from ramify.io.labels import LabelVocabulary, align_labels
from ramify.io.store import Store, StoreWriter
from ramify.labels.representations import normalize_rows
from ramify.metrics.ranking import frequency_deciles
from ramify.metrics.report import evaluate
from ramify.models.base import refuse_given
from ramify.models.elias_ranker import WIDTH, SparseRanker, fit_ranker
from ramify.models.features import FeatureModel
from ramify.nn.encoder import Bag, BagEncoder
from ramify.nn.graph import Edges, GraphHead, GraphOptions, reached
from ramify.nn.tables import Adam
from ramify.nn.trainer import TrainingConfig, hold_out, train
from ramify.rank.linear import LinearConfig


@dataclass(kw_only=True, eq=False, repr=False)
class Elias(FeatureModel):
    """Learns a weighted graph from clusters to labels together with the encoder and the classifiers.

    First stage: clusters of labels are fixed, encoder and classifiers are trained. Second stage: labels hang on every
    cluster in which their points were found, and the weights of those edges are trained along.
    """

    kind: ClassVar[str] = "elias"

    encoder: BagEncoder = param(factory=BagEncoder, doc="how features become vectors")
    stages: Literal[1, 2] = param(2, "1: fixed clusters; 2: then a learned graph")
    n_clusters: int | None = param(None, "clusters, as a power of two; None: about a hundredth of the labels", low=1)
    n_edges: int | None = param(None, "edges of a cluster in the second stage; None: ten times its labels", low=1)
    alpha: float = param(10.0, "factor on the softmax of a cluster, cut at 1; less where there are few clusters", low=1)
    beta: float | None = param(None, "factor on the softmax of an edge, cut at 1; None: labels per cluster", low=1)
    beam_size: int = param(20, "clusters that the search explores", low=1)
    shortlist: int = param(2000, "labels that get a classifier's score", low=1)
    shortlist_weight: float = param(0.05, "weight of the loss that brings true labels onto the shortlist", low=0)
    first: TrainingConfig = param(factory=lambda: TrainingConfig(epochs=8), doc="training of the first stage")
    second: TrainingConfig = param(
        factory=lambda: TrainingConfig(epochs=6, rate=0.005, encoder_rate=0.003), doc="training of the second stage"
    )
    cluster_rate: float = param(0.1, "learning rate of the clusters in the second stage, as a share of `rate`", above=0)
    edge_rate: float = param(1.0, "learning rate of the edges, as a share of `rate`", above=0)
    ranker: Literal["sparse"] | None = param(
        None, "'sparse': linear classifiers rank what is found again (Elias++), unless validation is better without"
    )
    linear: LinearConfig = param(factory=LinearConfig, doc="how the classifiers of the ranker are trained")
    n_models: int = param(1, "models whose scores are averaged, each with clusters of its own", low=1)

    # ---- training ----

    def _fit(self, inputs: Inputs, labels: Csr, names: LabelVocabulary, **given: Any) -> None:
        refuse_given(self, given)
        X = self._fit_features(inputs)
        self.members_ = [self._fit_member(X, labels, number) for number in range(self.n_models)]

    def _fit_member(self, X: Mixed, Y: Csr, number: int) -> EliasMember:
        threads, seed = resolve_threads(self.threads), self.seed + 1000 * number
        title = "" if self.n_models == 1 else f" of model {number + 1}"
        n_labels = Y.shape[1]
        n_clusters = self.n_clusters or 2 ** max(0, math.ceil(math.log2(n_labels / 100)))
        options = GraphOptions(
            alpha=max(1.0, min(self.alpha, n_clusters / 4)),
            beta=max(1.0, self.beta or n_labels / n_clusters),
            beam_size=min(self.beam_size, n_clusters),
            shortlist=min(self.shortlist, n_labels),
            shortlist_weight=self.shortlist_weight,
        )
        rows, judged = hold_out(Y, self.first.validation, seed)
        encoder = Bag.start(_take(X, rows), Y[rows], self.encoder, seed=seed, threads=threads)
        vectors = encoder.encode(X, threads)
        cluster_of = build_clusters(_label_vectors(X, vectors, Y, threads), n_clusters, seed=seed, threads=threads)
        random = np.random.default_rng(seed)
        bound = 1 / math.sqrt(encoder.width)
        clusters = (
            random.uniform(-bound, bound, (n_clusters, encoder.width)).astype(np.float32),
            np.zeros(n_clusters, np.float32),
        )
        graph: LabelGraph | Edges = LabelGraph.from_clusters(cluster_of, n_clusters)
        head = GraphHead(clusters, graph, _start_labels(Y[rows], vectors[rows], options, threads), options)
        run = _Run(X, Y, rows, judged, threads, seed, self.verbose)
        member = run.train(encoder, head, self.first, 1.0, 1.0, f"first stage{title}")
        member.cluster_of = cluster_of
        if self.stages == 1:
            return self._with_ranker(member, run)
        vectors = member.encoder.encode(X, threads)
        logits = vectors @ member.clusters[0].T + member.clusters[1]
        matched = matched_clusters(logits[rows], options.beam_size, math.log(options.alpha))
        n_edges = min(self.n_edges or 10 * -(-n_labels // n_clusters), n_labels)
        begin, ends, _ = build_edges(matched, Y[rows], n_edges, cluster_of, threads=threads)
        starts = random.uniform(0, 1, len(ends)).astype(np.float32)
        edges = Edges(begin, ends, starts, options.beta, n_labels)
        head = GraphHead(member.clusters, edges, member.labels, options)
        first = member
        member = run.train(first.encoder, head, self.second, self.cluster_rate, self.edge_rate, f"second stage{title}")
        member.cluster_of, member.history = cluster_of, first.history + member.history
        return self._with_ranker(member, run)

    def _with_ranker(self, member: EliasMember, run: _Run) -> EliasMember:
        if self.ranker is None:
            return member
        vectors = member.encoder.encode(run.X, run.threads)
        found = member.search_vectors(vectors, min(WIDTH, run.Y.shape[1]), run.threads)
        member.ranker = fit_ranker(
            run.X,
            run.Y,
            vectors,
            found,
            run.rows,
            run.judged,
            self.linear,
            seed=run.seed,
            threads=run.threads,
        )
        return member

    # ---- prediction ----

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        X = self._make_features(inputs)
        threads = 1 if len(X) == 1 else resolve_threads(self.threads)
        if len(self.members_) == 1:
            ids, scores = self.members_[0].search(X, k, threads)
        else:
            found = [member.search(X, min(2 * k, self.n_labels), threads) for member in self.members_]
            ids, scores = native.blend_rankings(
                np.stack([ids for ids, _ in found]), np.stack([scores for _, scores in found]), k, threads
            )
        return ids, np.where(ids >= 0, np.exp(scores), -np.inf).astype(np.float32)

    # ---- looking at what was learned ----

    def index_report(self) -> IndexReport:
        """What the graph of the first model looks like: strong edges, clusters of frequent and rare labels."""
        self._check_fitted()
        member = self.members_[0]
        return IndexReport.of(member.graph, member.cluster_of, frequency_deciles(self.label_counts_.counts))

    def report(self) -> dict[str, list[list[str]]]:
        """Return the tables of `index_report`, and how training went."""
        history = [
            [f"{i + 1}", f"{loss:.5f}", f"{score:.2f}"] for i, (loss, score) in enumerate(self.members_[0].history)
        ]
        return {**self.index_report().tables(), "training": [["pass", "loss", "validation nDCG"], *history]}

    def prune(self, *, threshold: float | None = None, top: int | None = None) -> Self:
        """Drop weak edges of the graph: those that score below the threshold, or all but the `top` of each cluster.

        Every label keeps its strongest edge; the scores of the others stay as they were trained.
        """
        self._check_fitted()
        for member in self.members_:
            member.graph = member.graph.pruned(threshold=threshold, top=top)
        return self

    def shortlist_recall(self, X: Any, y: Any) -> float:
        """Share of the true labels, in percent, that the first model's search puts on its shortlist."""
        inputs = self._check_predict_inputs(X)
        known, n_known = align_labels(y, self.labels_)
        truth = known[:, :n_known].tocsr()
        if truth.shape[0] != len(inputs):
            raise DataError(f"X has {len(inputs)} rows, y has {truth.shape[0]}")
        vectors = self.members_[0].encoder.encode(self._make_features(inputs), resolve_threads(self.threads))
        lists = self.members_[0].shortlists(vectors, resolve_threads(self.threads))
        return float(100 * reached(lists, truth).mean()) if truth.nnz else math.nan

    # ---- files ----

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        return {
            "features": self._save_features(writer),
            "members": [member.save_to(writer, f"model{i}_") for i, member in enumerate(self.members_)],
        }

    def _load(self, store: Store, state: Any) -> None:
        members = state.get("members") if isinstance(state, dict) else None
        if not isinstance(members, list) or not members:
            raise ModelFormatError(f"the manifest of {store.path} does not name the model's parts")
        width = self._load_features(store, state) or 0
        self.members_ = [
            EliasMember.load_from(store, info, f"model{i}_", width, self.n_labels) for i, info in enumerate(members)
        ]


@dataclass(eq=False)
class EliasMember:
    """One trained model: everything that a search needs, as arrays that may lie on disk.

    Attributes
    ----------
    clusters, labels : weights (C, D) and (L, D), each with offsets
    cluster_of : (L,) cluster of each label in the first stage
    history : loss and validation nDCG@5 of each pass
    """

    encoder: Bag
    clusters: tuple[FloatArray, FloatArray]
    graph: LabelGraph
    labels: tuple[FloatArray, FloatArray]
    log_alpha: float
    beam_size: int
    shortlist: int
    cluster_of: IntArray
    history: list[tuple[float, float]]
    ranker: SparseRanker | None = None

    def search(self, X: Mixed, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and log scores (n, k) of the best labels."""
        vectors = self.encoder.encode(X, threads)
        if self.ranker is None:
            return self.search_vectors(vectors, k, threads)
        ids, scores = self.search_vectors(vectors, max(k, min(WIDTH, self.graph.n_labels)), threads)
        ids, best, rest = ids[:, :WIDTH], scores[:, :WIDTH], (ids[:, WIDTH:], scores[:, WIDTH:])
        final = np.log(np.maximum(self.ranker.rank(X, vectors, ids, best, threads), 1e-38))
        order = np.lexsort((ids, -final), axis=1)
        ids, final = np.take_along_axis(ids, order, 1), np.take_along_axis(final, order, 1)
        final = np.where(ids >= 0, final, -np.inf)
        if k > WIDTH:  # what was not ranked again stays behind, in its order
            behind = np.minimum(rest[1], final[:, -1:])
            ids, final = np.hstack([ids, rest[0]]), np.hstack([final, behind])
        return ids[:, :k], np.ascontiguousarray(final[:, :k], np.float32)

    def search_vectors(self, vectors: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and log scores (n, k) of the best labels of vectors (n, D)."""
        return native.search_graph(
            self.graph.arrays,
            self.clusters,
            self.labels,
            self.log_alpha,
            self.beam_size,
            max(self.shortlist, k),
            vectors,
            k,
            threads,
        )

    def shortlists(self, vectors: FloatArray, threads: int) -> IntArray:
        """Labels (n, K) that get a classifier's score, -1 behind the last."""
        logits = (vectors @ self.clusters[0].T + self.clusters[1]).astype(np.float32)
        found = native.explore(
            self.graph.arrays,
            self.graph.n_labels,
            np.minimum(cluster_scores(logits, self.log_alpha)[0], 0),
            logits,
            self.beam_size,
            self.shortlist,
            None,
            threads,
        )
        return found[0]

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write everything into a model's directory."""
        arrays: dict[str, AnyArray] = {
            "cluster_weights": self.clusters[0],
            "cluster_offset": self.clusters[1],
            "label_weights": self.labels[0],
            "label_offset": self.labels[1],
            "edge_begin": self.graph.begin,
            "edge_labels": self.graph.labels,
            "edge_scores": self.graph.scores,
            "cluster_of": self.cluster_of,
        }
        for name, array in arrays.items():
            writer.array(f"{prefix}{name}", array)
        return {
            "encoder": self.encoder.save_to(writer, prefix),
            "log_alpha": self.log_alpha,
            "beam_size": self.beam_size,
            "shortlist": self.shortlist,
            "history": [list(entry) for entry in self.history],
            "ranker": None if self.ranker is None else self.ranker.save_to(writer, f"{prefix}ranker_"),
        }

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, n_features: int, n_labels: int) -> EliasMember:
        """Open what `save_to` wrote; arrays stay on disk until they are read."""
        if not isinstance(info, dict) or not (
            isinstance(info.get("log_alpha"), float)
            and all(isinstance(info.get(name), int) and info[name] > 0 for name in ("beam_size", "shortlist"))
            and isinstance(info.get("history"), list)
        ):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the graph")
        encoder = Bag.load_from(store, info.get("encoder"), prefix, n_features)
        begin = store.array(f"{prefix}edge_begin", np.int64, ndim=1)
        n_clusters = len(begin) - 1
        try:
            graph = LabelGraph(
                begin,
                store.array(f"{prefix}edge_labels", np.int32, ndim=1),
                store.array(f"{prefix}edge_scores", np.float32, ndim=1),
                n_labels,
            )
        except DataError as error:
            raise ModelFormatError(f"{store.path}: {error}") from error

        def weights(name: str, n: int) -> tuple[FloatArray, FloatArray]:
            return (
                store.array(f"{prefix}{name}_weights", np.float32, shape=(n, encoder.width)),
                store.array(f"{prefix}{name}_offset", np.float32, shape=(n,)),
            )

        return cls(
            encoder,
            weights("cluster", n_clusters),
            graph,
            weights("label", n_labels),
            info["log_alpha"],
            info["beam_size"],
            info["shortlist"],
            store.array(f"{prefix}cluster_of", np.int32, shape=(n_labels,), bounds=(0, max(1, n_clusters))),
            [(float(loss), float(score)) for loss, score in info["history"]],
            None
            if info.get("ranker") is None
            else SparseRanker.load_from(store, info["ranker"], f"{prefix}ranker_", n_labels),
        )


@dataclass(frozen=True)
class _Run:
    """The data of one training."""

    X: Mixed
    Y: Csr
    rows: LongArray
    judged: LongArray
    threads: int
    seed: int
    verbose: int

    def train(
        self,
        encoder: Bag,
        head: GraphHead,
        config: TrainingConfig,
        cluster_share: float,
        edge_share: float,
        title: str,
    ) -> EliasMember:
        """Train encoder and head; return the state that was best on the held-out rows."""
        random = np.random.default_rng(self.seed + 1)
        keep = 1.0 - config.dropout

        def step(rows: LongArray, number: int, factor: float) -> float:
            vectors, tape = encoder.forward(_take(self.X, rows), self.threads)
            mask = np.where(random.random(vectors.shape, np.float32) < keep, np.float32(1 / keep), np.float32(0))
            rate = factor * config.rate
            loss, d_vectors = head.step(
                vectors * mask,
                self.Y[rows],
                Adam(rate, number, weight_decay=config.weight_decay),
                cluster_share * rate,
                edge_share * rate,
                self.threads,
            )
            adam = Adam(factor * config.encoder_rate, number, weight_decay=config.weight_decay)
            encoder.backward(tape, d_vectors * mask, adam, self.threads)
            return loss

        def state() -> EliasMember:
            return EliasMember(
                encoder,
                (head.cluster_weights.values, head.cluster_offset.values),
                head.graph,
                (head.labels.weights, head.labels.offset),  # type: ignore[arg-type]
                head.log_alpha,
                head.options.beam_size,
                head.options.shortlist,
                np.zeros(self.Y.shape[1], np.int32),
                [],
            )

        held = _take(self.X, self.judged)

        def judge() -> float:
            k = min(5, self.Y.shape[1])
            ids, scores = state().search(held, k, self.threads)
            ranking = Ranking(ids, scores, self.Y.shape[1])
            return float(evaluate(ranking, self.Y[self.judged], ks=[k])[f"nDCG@{k}"])

        def snapshot() -> EliasMember:
            now = state()
            now.encoder = encoder.snapshot()
            now.clusters = now.clusters[0].copy(), now.clusters[1].copy()
            now.labels = now.labels[0].copy(), now.labels[1].copy()
            return now

        best, history = train(
            self.rows,
            step,
            judge if len(self.judged) else None,
            snapshot,
            config,
            title=title,
            seed=self.seed + 2,
            verbose=self.verbose,
        )
        best.history = history
        member: EliasMember = best
        return member


def _take(X: Mixed, rows: LongArray) -> Mixed:
    return Mixed(X.sparse[rows], X.dense[rows])


def _start_labels(Y: Csr, vectors: FloatArray, options: GraphOptions, threads: int) -> tuple[FloatArray, FloatArray]:
    """Return label classifiers (L, D) to start from: they look towards the middle of their points.

    A vector that is unlike a label's points gets the logit of a shortlist's mean, one that is just like them about 0.
    """
    share = min(0.5, Y.nnz / max(1, Y.shape[0]) / options.shortlist)
    offset = math.log(max(share, 1e-6) / (1 - share))
    middle = vectors.mean(axis=0)
    around = vectors - middle
    length = float(np.sqrt(np.mean(np.square(around).sum(axis=1))))
    weights = normalize_rows(native.spmm_dense(Y.T.tocsr(), np.ascontiguousarray(around, np.float32), threads))
    weights *= np.float32(-offset / max(length, 1e-6))
    return weights, (offset - weights @ middle).astype(np.float32)


def _label_vectors(X: Mixed, vectors: FloatArray, Y: Csr, threads: int) -> Csr:
    """What a label looks like to the clustering: the sum of its points, features beside vectors, rows of length 1."""
    points = Y.T.tocsr()
    dense = sparse.csr_matrix(native.spmm_dense(points, normalize_rows(vectors), threads))
    if X.sparse.shape[1] == 0:
        return as_csr(normalize_rows(dense), "Z")
    words = native.spmm(points, normalize_rows(X.sparse), threads, unit_rows=False)
    return as_csr(normalize_rows(as_csr(sparse.hstack([words, dense], format="csr"), "Z")), "Z")
