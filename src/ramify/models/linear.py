"""Linear models: beam search over one or several trees of linear classifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify import native
from ramify.base.config import param
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.mixed import Mixed
from ramify.base.sparse import indicator
from ramify.base.threads import resolve_threads
from ramify.base.types import Csr, FloatArray, IntArray
from ramify.io.inputs import Inputs
from ramify.io.store import Store, StoreWriter
from ramify.models.base import check_state
from ramify.models.features import FeatureModel
from ramify.rank.beam import LinearTree


@dataclass(kw_only=True, eq=False, repr=False)
class LinearModel(FeatureModel):
    """Base of models with trees of linear classifiers, `trees_`, over features."""

    beam_size: int = param(10, "nodes of a level that the search follows; more find more labels and take longer", low=1)

    # ---- prediction ----

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        X = self._transform_features(inputs)
        return self.search_features(X, k, resolve_threads(self.threads, len(X)))

    def search_features(self, X: Mixed, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k) of the best labels for features X (n × d)."""
        transform = self.trees_[0].transforms[-1]
        if len(self.trees_) == 1:
            ids, log_scores = self._search(self.trees_[0], X, k, threads)
            return ids, transform.finish(transform.spread(log_scores))
        width = min(2 * k, self.trees_[0].tree.n_labels)
        found = [self._search(tree, X, width, threads) for tree in self.trees_]
        ids, log_scores = native.matrix.blend_rankings(
            np.stack([ids for ids, _ in found]), np.stack([transform.spread(scores) for _, scores in found]), k, threads
        )
        return ids, transform.finish(log_scores)

    def _search(self, tree: LinearTree, X: Mixed, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        n_clusters = len(tree.tree.levels[-1]) - 1
        min_beam = -(-3 * k * n_clusters // (2 * len(tree.tree.labels)))  # enough clusters to hold k labels
        return tree.search(X, k, max(self.beam_size, min_beam), threads)

    def predict_selected(self, X: Any, selected: Any) -> Csr:
        """Score the selected labels only, each of them exactly, without a beam.

        Parameters
        ----------
        X : as in `predict_topk`
        selected : indicator (n × L) of the labels to score for each row

        Returns
        -------
        scores : (n × L) with the pattern of `selected`
        """
        inputs = self._check_predict_inputs(X)
        chosen = self.check_selected(selected, len(inputs))
        return self.score_features(self._transform_features(inputs), chosen, resolve_threads(self.threads))

    def check_selected(self, selected: Any, n: int) -> Csr:
        """Check an indicator of selected labels for n rows."""
        chosen = indicator(selected, "selected")
        if chosen.shape != (n, self.n_labels):
            shape = f"{chosen.shape[0]} × {chosen.shape[1]}"
            raise DataError(f"selected has the shape {shape}, expected {n} × {self.n_labels}")
        return chosen

    def score_features(self, X: Mixed, selected: Csr, threads: int) -> Csr:
        """Scores (n × L) of the selected labels for features X (n × d)."""
        transform = self.trees_[0].transforms[-1]
        parts = [tree.score_selected(X, selected, threads) for tree in self.trees_]
        logs = [transform.spread(part.data).astype(np.float64) for part in parts]
        mean = np.logaddexp.reduce(logs) - np.log(len(logs))
        result = parts[0]
        result.data = np.asarray(transform.finish(mean), np.float32)
        return result

    def export_tree(self, index: int = 0, *, n_representatives: int = 3) -> dict[str, Any]:
        """Return a label tree as nested dicts for JSON.

        Each node has its number of labels, its most frequent labels, and its children.

        Parameters
        ----------
        index : which tree of an ensemble
        n_representatives : number of labels that represent a node
        """
        self._check_fitted()
        tree = self.trees_[index].tree
        result: dict[str, Any] = tree.to_dict(self.labels_, self.label_counts_.counts, n_representatives)
        return result

    # ---- files ----

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        return {"features": self._save_features(writer), "trees": self.save_trees(writer)}

    def save_trees(self, writer: StoreWriter) -> list[dict[str, Any]]:
        """Write the trees into a model directory; return their description."""
        return [tree.save_to(writer, f"tree{i}_") for i, tree in enumerate(self.trees_)]

    def _load(self, store: Store, state: Any) -> None:
        state = check_state(store, state)
        self.load_trees(store, state.get("trees"), self._load_features(store, state), self.n_labels)

    def load_trees(self, store: Store, trees: Any, n_features: int | None, n_labels: int) -> None:
        """Open what `save_trees` wrote, for classifiers over `n_features` features."""
        if not isinstance(trees, list) or not trees:
            raise ModelFormatError(f"the manifest of {store.path} does not list the model's trees")
        self.trees_ = [LinearTree.load_from(store, info, f"tree{i}_", n_labels) for i, info in enumerate(trees)]
        for tree in self.trees_:
            if tree.n_sparse + tree.levels[0].dense.shape[1] != n_features:
                raise ModelFormatError(f"{store.path}: the weights do not match the features")
