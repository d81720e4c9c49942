"""A trained member of ELIAS: encoder, graph and classifiers, ready to search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ramify import native
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.types import AnyArray, FloatArray, IntArray
from ramify.index.label_graph import LabelGraph, cluster_scores
from ramify.io.store import Store, StoreWriter
from ramify.models.elias.ranker import RANKED_LABELS, SparseRanker
from ramify.models.encoded import check_history
from ramify.nn.encoders import Bag, Encoder
from ramify.nn.encoders.samples import Samples
from ramify.nn.heads.classifiers import Classifiers, load_classifiers, save_classifiers
from ramify.nn.heads.graph import SearchSize, cluster_logits, search_labels
from ramify.nn.trainer import History


@dataclass(eq=False)
class GraphClassifier:
    """Everything that a search needs, as arrays that may be memory-mapped; notation as in `nn.heads.graph`.

    Attributes
    ----------
    cluster_classifiers, label_classifiers : weights (C, D) and (L, D), each with a bias
    cluster_of : (L,) cluster of each label in stage 1
    history : loss and validation nDCG@5 of each validation
    ranker : re-ranks the best labels (ELIAS++)
    """

    encoder: Encoder
    cluster_classifiers: Classifiers
    graph: LabelGraph
    label_classifiers: Classifiers
    log_alpha: float
    cluster_of: IntArray
    history: History
    ranker: SparseRanker | None = None

    def with_graph(self, graph: LabelGraph) -> GraphClassifier:
        """Return a copy with another graph; all other arrays are shared."""
        return replace(self, graph=graph)

    def search(self, samples: Samples, k: int, size: SearchSize, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and log scores (n, k) of the best labels."""
        phi = self.encoder.encode(samples, threads)
        if self.ranker is None:
            return self.search_embeddings(phi, k, size, threads)
        ids, scores = self.search_embeddings(phi, max(k, self.n_ranked), size, threads)
        ranked, rest = slice(None, RANKED_LABELS), slice(RANKED_LABELS, None)
        embeddings = self.ranker_embeddings(samples, phi)
        best_ids, best_scores = self.ranker.rank(
            samples.ranker_features, embeddings, ids[:, ranked], scores[:, ranked], min(k, RANKED_LABELS), threads
        )
        if k <= RANKED_LABELS:
            return best_ids, best_scores
        # Labels that were not re-ranked follow in their order.
        rest_scores = np.minimum(scores[:, rest], best_scores[:, -1:])
        return np.hstack([best_ids, ids[:, rest]]), np.hstack([best_scores, rest_scores])

    def search_embeddings(self, phi: FloatArray, k: int, size: SearchSize, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and log scores (n, k) of the best labels for embeddings (n, D), before re-ranking."""
        classifiers = self.cluster_classifiers, self.label_classifiers
        return search_labels(self.graph, *classifiers, self.log_alpha, size, phi, k, threads)

    @property
    def n_ranked(self) -> int:
        """Number of labels that a ranker re-ranks."""
        return min(RANKED_LABELS, self.graph.n_labels)

    def shortlists(self, phi: FloatArray, size: SearchSize, threads: int) -> IntArray:
        """Labels (n, K) that are scored with their classifiers, padded with -1."""
        logits = cluster_logits(self.cluster_classifiers, phi)
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
    def adapts_dense_features(self) -> bool:
        """Whether the encoder only adapts the dense features of samples: frozen embeddings, or the user's own."""
        return isinstance(self.encoder, Bag) and self.encoder.is_residual_layer

    def ranker_embeddings(self, samples: Samples, phi: FloatArray) -> FloatArray:
        """Embeddings (n, D) for the ranker: if possible those that were not trained on the same samples."""
        return samples.features.dense if self.adapts_dense_features else phi

    def path_to(self, label_id: int, phi: FloatArray) -> dict[str, float]:
        """Return the best path of the graph to a label for one embedding (1, D), and the logit of its classifier."""
        clusters = np.minimum(cluster_scores(cluster_logits(self.cluster_classifiers, phi), self.log_alpha)[0][0], 0)
        edges = np.flatnonzero(self.graph.labels == label_id)
        weights, bias = self.label_classifiers
        parts = {"logit of the classifier": float(phi[0] @ weights[label_id] + bias[label_id])}
        if len(edges):
            cluster_of = np.searchsorted(self.graph.indptr, edges, side="right") - 1
            best = int(np.argmax(clusters[cluster_of] + self.graph.scores[edges]))
            cluster, edge = int(cluster_of[best]), float(np.exp(self.graph.scores[edges[best]]))
            parts |= {"cluster": cluster, "score of the cluster": float(np.exp(clusters[cluster]))}
            parts["score of its edge to the label"] = edge
        return parts

    # ---- files ----

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write everything into a model directory."""
        arrays: dict[str, AnyArray] = {
            "edge_indptr": self.graph.indptr,
            "edge_labels": self.graph.labels,
            "edge_scores": self.graph.scores,
            "cluster_of": self.cluster_of,
        }
        for name, array in arrays.items():
            writer.array(f"{prefix}{name}", array)
        save_classifiers(writer, f"{prefix}cluster", self.cluster_classifiers)
        save_classifiers(writer, f"{prefix}label", self.label_classifiers)
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
        ranker = info.get("ranker")
        return cls(
            encoder,
            load_classifiers(store, f"{prefix}cluster", n_clusters, encoder.dim),
            graph,
            load_classifiers(store, f"{prefix}label", n_labels, encoder.dim),
            info["log_alpha"],
            store.array(f"{prefix}cluster_of", np.int32, shape=(n_labels,), bounds=(0, max(1, n_clusters))),
            check_history(store, info.get("history")),
            None
            if ranker is None
            else SparseRanker.load_from(store, ranker, f"{prefix}ranker_", n_labels, n_sparse, encoder.dim),
        )
