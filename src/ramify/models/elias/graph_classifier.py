"""A trained member of ELIAS: encoder, graph and classifiers, ready to search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ramify import native
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.types import AnyArray, FloatArray, IntArray
from ramify.index.label_graph import LabelGraph, cluster_scores
from ramify.io.store import Store, StoreWriter
from ramify.models.base import check_history
from ramify.models.elias.ranker import RANKED_LABELS, SparseRanker
from ramify.nn.encoders import Bag, Encoder
from ramify.nn.encoders.samples import Samples


class SearchSize(NamedTuple):
    """Size of a search: clusters to explore, and labels to score with their classifiers."""

    beam_size: int
    shortlist_size: int


@dataclass(eq=False)
class GraphClassifier:
    """Everything that a search needs, as arrays that may be memory-mapped; notation as in `nn.heads.graph`.

    Attributes
    ----------
    clusters, labels : weights (C, D) and (L, D), each with a bias
    cluster_of : (L,) cluster of each label in stage 1
    history : loss and validation nDCG@5 of each epoch
    ranker : re-ranks the best labels (Elias++)
    """

    encoder: Encoder
    clusters: tuple[FloatArray, FloatArray]
    graph: LabelGraph
    labels: tuple[FloatArray, FloatArray]
    log_alpha: float
    cluster_of: IntArray
    history: list[tuple[float, float]]
    ranker: SparseRanker | None = None

    def with_graph(self, graph: LabelGraph) -> GraphClassifier:
        """Return a copy with another graph; all other arrays are shared."""
        return replace(self, graph=graph)

    def search(self, samples: Samples, k: int, size: SearchSize, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and log scores (n, k) of the best labels."""
        phi = self.encoder.encode(samples, threads)
        if self.ranker is None:
            return self.search_embeddings(phi, k, size, threads)
        n_ranked = min(RANKED_LABELS, self.graph.n_labels)
        ids, scores = self.search_embeddings(phi, max(k, n_ranked), size, threads)
        rest_ids, rest_scores = ids[:, RANKED_LABELS:], scores[:, RANKED_LABELS:]
        ids, scores = ids[:, :RANKED_LABELS], scores[:, :RANKED_LABELS]
        ranked = self.ranker.rank(samples.features, self.ranker_embeddings(samples, phi), ids, scores, threads)
        ids, best = native.matrix.list_topk(ids, np.log(np.maximum(ranked, 1e-38)), ids.shape[1], threads)
        if k > RANKED_LABELS:  # labels that were not re-ranked follow in their order
            ids, best = np.hstack([ids, rest_ids]), np.hstack([best, np.minimum(rest_scores, best[:, -1:])])
        return ids[:, :k], np.ascontiguousarray(best[:, :k], np.float32)

    def search_embeddings(self, phi: FloatArray, k: int, size: SearchSize, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and log scores (n, k) of the best labels for embeddings (n, D), before re-ranking."""
        width = max(size.shortlist_size, k)
        return native.neural.search_graph(
            self.graph.arrays, self.clusters, self.labels, self.log_alpha, size.beam_size, width, phi, k, threads
        )

    def shortlists(self, phi: FloatArray, size: SearchSize, threads: int) -> IntArray:
        """Labels (n, K) that are scored with their classifiers, padded with -1."""
        logits = (phi @ self.clusters[0].T + self.clusters[1]).astype(np.float32)
        scores = np.minimum(cluster_scores(logits, self.log_alpha)[0], 0)
        shortlists, *_ = native.neural.explore_graph(
            self.graph.arrays,
            self.graph.n_labels,
            scores,
            logits,
            size.beam_size,
            size.shortlist_size,
            None,
            threads,
        )
        return shortlists

    @property
    def has_frozen_embeddings(self) -> bool:
        """Whether the dense features of samples are embeddings that the encoder only adapts."""
        return isinstance(self.encoder, Bag) and self.encoder.words is None

    def ranker_embeddings(self, samples: Samples, phi: FloatArray) -> FloatArray:
        """Embeddings (n, D) for the ranker: if possible those that were not trained on the same samples."""
        return samples.features.dense if self.has_frozen_embeddings else phi

    # ---- files ----

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write everything into a model directory."""
        arrays: dict[str, AnyArray] = {
            "cluster_weights": self.clusters[0],
            "cluster_bias": self.clusters[1],
            "label_weights": self.labels[0],
            "label_bias": self.labels[1],
            "edge_indptr": self.graph.indptr,
            "edge_labels": self.graph.labels,
            "edge_scores": self.graph.scores,
            "cluster_of": self.cluster_of,
        }
        for name, array in arrays.items():
            writer.array(f"{prefix}{name}", array)
        return {
            "encoder": self.encoder.save_to(writer, f"{prefix}encoder_"),
            "log_alpha": self.log_alpha,
            "history": [list(entry) for entry in self.history],
            "ranker": None if self.ranker is None else self.ranker.save_to(writer, f"{prefix}ranker_"),
        }

    @classmethod
    def load_from(
        cls, store: Store, info: dict[str, Any], prefix: str, encoder: Encoder, n_sparse: int, n_labels: int
    ) -> GraphClassifier:
        """Open what `save_to` wrote, with an encoder that is open already; `n_sparse` bounds the ranker's features."""
        if not isinstance(info.get("log_alpha"), float):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the label graph")
        indptr = store.array(f"{prefix}edge_indptr", np.int64, ndim=1)
        n_clusters = len(indptr) - 1
        try:
            graph = LabelGraph(
                indptr,
                store.array(f"{prefix}edge_labels", np.int32, ndim=1),
                store.array(f"{prefix}edge_scores", np.float32, ndim=1),
                n_labels,
            )
        except DataError as error:
            raise ModelFormatError(f"{store.path}: {error}") from error

        def classifiers(name: str, n: int) -> tuple[FloatArray, FloatArray]:
            return (
                store.array(f"{prefix}{name}_weights", np.float32, shape=(n, encoder.dim)),
                store.array(f"{prefix}{name}_bias", np.float32, shape=(n,)),
            )

        ranker = info.get("ranker")
        return cls(
            encoder,
            classifiers("cluster", n_clusters),
            graph,
            classifiers("label", n_labels),
            info["log_alpha"],
            store.array(f"{prefix}cluster_of", np.int32, shape=(n_labels,), bounds=(0, max(1, n_clusters))),
            check_history(store, info.get("history")),
            None
            if ranker is None
            else SparseRanker.load_from(store, ranker, f"{prefix}ranker_", n_labels, n_sparse, encoder.dim),
        )
