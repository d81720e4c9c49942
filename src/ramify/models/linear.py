"""What the linear models share: search over one or several trees, files."""

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
from ramify.models.features import FeatureModel
from ramify.rank.beam import LinearTree


@dataclass(kw_only=True, eq=False, repr=False)
class LinearModel(FeatureModel):
    """Base of models that end in trees of linear classifiers, `trees_`, over features of the input."""

    beam_size: int = param(10, "nodes of a level that the search follows", low=1)

    # ---- prediction ----

    def _ranked_features(self, inputs: Inputs) -> Mixed:
        """Return what the classifiers see of the input."""
        return self._make_features(inputs)

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        X = self._ranked_features(inputs)
        # Single queries stay on their thread: starting another takes longer than the answer.
        threads = resolve_threads(self.threads, len(X))
        transform = self.trees_[0].transforms[-1]
        if len(self.trees_) == 1:
            ids, log_scores = self._search(self.trees_[0], X, k, threads)
            return ids, transform.finish(transform.spread(log_scores))
        width = min(2 * k, self.n_labels)
        found = [self._search(tree, X, width, threads) for tree in self.trees_]
        ids, log_scores = native.matrix.blend_rankings(
            np.stack([ids for ids, _ in found]), np.stack([transform.spread(scores) for _, scores in found]), k, threads
        )
        return ids, transform.finish(log_scores)

    def _search(self, tree: LinearTree, X: Mixed, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        n_leaves = len(tree.tree.levels[-1]) - 1
        reach = -(-3 * k * n_leaves // (2 * len(tree.tree.labels)))  # enough leaves to find k labels in
        return tree.search(X, k, max(self.beam_size, reach), threads)

    def predict_selected(self, X: Any, selected: Any) -> Csr:
        """Scores of the given labels only (n × L, by the pattern of `selected`), each of them looked at, no beam.

        Parameters
        ----------
        X : as in `predict_topk`
        selected : indicator (n × L) of the labels to score for each row
        """
        inputs = self._check_predict_inputs(X)
        pattern = indicator(selected, "selected")
        if pattern.shape != (len(inputs), self.n_labels):
            raise DataError(
                f"selected is {pattern.shape[0]} × {pattern.shape[1]}, needed is {len(inputs)} × {self.n_labels}"
            )
        features = self._ranked_features(inputs)
        threads = resolve_threads(self.threads)
        transform = self.trees_[0].transforms[-1]
        parts = [tree.score_selected(features, pattern, threads) for tree in self.trees_]
        logs = [transform.spread(part.data).astype(np.float64) for part in parts]
        mean = np.logaddexp.reduce(logs) - np.log(len(logs))
        result = parts[0]
        result.data = np.asarray(transform.finish(mean), np.float32)
        return result

    def export_tree(self, number: int = 0, *, n_named: int = 3) -> dict[str, Any]:
        """Return a label tree as nested dicts for JSON, with the names of the labels.

        Each node has its size, the most frequent of its labels, and what is below it.

        Parameters
        ----------
        number : which tree of an ensemble
        n_named : how many labels stand for a node
        """
        self._check_fitted()
        tree: dict[str, Any] = self.trees_[number].tree.to_dict(self.labels_, self.label_counts_.counts, n_named)
        return tree

    # ---- files ----

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        return {"features": self._save_features(writer), "trees": self._save_trees(writer)}

    def _save_trees(self, writer: StoreWriter) -> list[dict[str, Any]]:
        return [tree.save_to(writer, f"tree{i}_") for i, tree in enumerate(self.trees_)]

    def _load(self, store: Store, state: Any) -> None:
        if not isinstance(state, dict):
            raise ModelFormatError(f"the manifest of {store.path} does not name the model's parts")
        self._load_trees(store, state, self._load_features(store, state))

    def _load_trees(self, store: Store, state: dict[str, Any], width: int | None) -> None:
        """Open the trees, whose classifiers see so many features."""
        trees = state.get("trees")
        if not isinstance(trees, list) or not trees:
            raise ModelFormatError(f"the manifest of {store.path} does not name the model's trees")
        self.trees_ = [LinearTree.load_from(store, info, f"tree{i}_", self.n_labels) for i, info in enumerate(trees)]
        for tree in self.trees_:
            if tree.n_sparse + tree.levels[0].dense.shape[1] != width:
                raise ModelFormatError(f"{store.path}: the weights do not fit the features")
