"""One trained model of ELIAS: everything that a search needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify import native
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.types import AnyArray, FloatArray, IntArray
from ramify.index.label_graph import LabelGraph, cluster_scores
from ramify.io.store import Store, StoreWriter
from ramify.models.elias_ranker import WIDTH, SparseRanker
from ramify.nn.encoder import Bag
from ramify.nn.points import Points
from ramify.nn.transformer import Transformer, TransformerEncoder


@dataclass(eq=False)
class EliasMember:
    """One trained model: everything that a search needs, as arrays that may lie on disk.

    Attributes
    ----------
    clusters, labels : weights (C, D) and (L, D), each with offsets
    cluster_of : (L,) cluster of each label in the first stage
    history : loss and validation nDCG@5 of each pass
    """

    encoder: Bag | Transformer
    clusters: tuple[FloatArray, FloatArray]
    graph: LabelGraph
    labels: tuple[FloatArray, FloatArray]
    log_alpha: float
    beam_size: int
    shortlist: int
    cluster_of: IntArray
    history: list[tuple[float, float]]
    ranker: SparseRanker | None = None

    def search(self, points: Points, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and log scores (n, k) of the best labels."""
        vectors = self.encoder.encode(points, threads)
        if self.ranker is None:
            return self.search_vectors(vectors, k, threads)
        ids, scores = self.search_vectors(vectors, max(k, min(WIDTH, self.graph.n_labels)), threads)
        ids, best, rest = ids[:, :WIDTH], scores[:, :WIDTH], (ids[:, WIDTH:], scores[:, WIDTH:])
        ranked = self.ranked_vectors(points, vectors)
        final = np.log(np.maximum(self.ranker.rank(points.features, ranked, ids, best, threads), 1e-38))
        ids, final = native.matrix.list_topk(ids, final, ids.shape[1], threads)
        if k > WIDTH:  # what was not ranked again stays behind, in its order
            behind = np.minimum(rest[1], final[:, -1:])
            ids, final = np.hstack([ids, rest[0]]), np.hstack([final, behind])
        return ids[:, :k], np.ascontiguousarray(final[:, :k], np.float32)

    @property
    def reads_vectors(self) -> bool:
        """Whether the points' features are vectors themselves, which the encoder only adapts."""
        return isinstance(self.encoder, Bag) and self.encoder.words is None

    def ranked_vectors(self, points: Points, vectors: FloatArray) -> FloatArray:
        """Vectors (n, D) that the ranker sees: those that were not trained on its own points, if there are any."""
        return points.features.dense if self.reads_vectors else vectors

    def search_vectors(self, vectors: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and log scores (n, k) of the best labels of vectors (n, D)."""
        return native.neural.search_graph(
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
        found = native.neural.explore_graph(
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
            "edge_begin": self.graph.indptr,
            "edge_labels": self.graph.labels,
            "edge_scores": self.graph.scores,
            "cluster_of": self.cluster_of,
        }
        for name, array in arrays.items():
            writer.array(f"{prefix}{name}", array)
        return {
            "encoder": self.encoder.save_to(writer, prefix if isinstance(self.encoder, Bag) else f"{prefix}encoder_"),
            "log_alpha": self.log_alpha,
            "beam_size": self.beam_size,
            "shortlist": self.shortlist,
            "history": [list(entry) for entry in self.history],
            "ranker": None if self.ranker is None else self.ranker.save_to(writer, f"{prefix}ranker_"),
        }

    @classmethod
    def load_from(
        cls,
        store: Store,
        info: Any,
        prefix: str,
        shape: tuple[int, int],
        n_labels: int,
        trained: TransformerEncoder | None,
    ) -> EliasMember:
        """Open what `save_to` wrote; arrays stay on disk until they are read.

        Parameters
        ----------
        shape : sparse and dense features of a point
        trained : the encoder's settings if a transformer was trained along
        """
        if not isinstance(info, dict) or not (
            isinstance(info.get("log_alpha"), float)
            and all(isinstance(info.get(name), int) and info[name] > 0 for name in ("beam_size", "shortlist"))
            and isinstance(info.get("history"), list)
        ):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the graph")
        encoder: Bag | Transformer
        if trained is not None:
            encoder = Transformer.load_from(store, info.get("encoder"), f"{prefix}encoder_", trained)
        else:
            encoder = Bag.load_from(store, info.get("encoder"), prefix, shape)
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
            else SparseRanker.load_from(store, info["ranker"], f"{prefix}ranker_", n_labels, shape[0], encoder.width),
        )
