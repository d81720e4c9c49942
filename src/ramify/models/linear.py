"""Linear models: beam search over one or several trees of linear classifiers."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ramify import native
from ramify.base.config import param
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.mixed import Mixed
from ramify.base.sparse import indicator, indicator_from_lists
from ramify.base.threads import resolve_threads
from ramify.base.types import ByteArray, Csr, FloatArray, IntArray
from ramify.features.words import column_words
from ramify.index.tree import LabelTree
from ramify.io.inputs import Inputs
from ramify.io.labels import label_rows
from ramify.io.store import Store, StoreWriter
from ramify.models.base import Model, check_state
from ramify.models.features import FeatureModel
from ramify.models.memory import DataSizes, Memory, measure_sizes
from ramify.models.training_data import TrainingData
from ramify.rank.beam import LinearTree
from ramify.rank.combine import member_width
from ramify.rank.explanation import Level, explain_path
from ramify.rank.filters import LabelFilter, fill_up, node_mask

MAX_EXACT_LABELS = 1000
"""Allowed labels up to which the beam holds all of their clusters: the search of a tree is exact."""
MAX_WIDER_BEAM = 4
"""Largest factor on the beam of a search among more allowed labels."""


class Beam(NamedTuple):
    """Nodes of a level that a search follows: the best `size`, none with a score below `min_score` times the best."""

    size: int
    min_score: float = 0.0


class TreeEnsemble(NamedTuple):
    """Trees of linear classifiers whose scores are averaged, over features X (n × d)."""

    trees: list[LinearTree]

    def search(
        self, X: Mixed, k: int, beam: Beam, threads: int, label_filter: LabelFilter | None = None
    ) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k) of the best labels, of the allowed ones if there is a filter."""
        transform = self.trees[0].transforms[-1]
        if len(self.trees) == 1:
            ids, log_scores = self._search_tree(self.trees[0], X, k, beam, threads, label_filter)
            return ids, transform.finish(transform.spread(log_scores))
        width = member_width(k, self.trees[0].tree.n_labels)
        found = [self._search_tree(tree, X, width, beam, threads, label_filter) for tree in self.trees]
        ids, log_scores = native.matrix.blend_rankings(
            np.stack([ids for ids, _ in found]), np.stack([transform.spread(scores) for _, scores in found]), k, threads
        )
        return ids, transform.finish(log_scores)

    @staticmethod
    def _search_tree(
        tree: LinearTree, X: Mixed, k: int, beam: Beam, threads: int, label_filter: LabelFilter | None
    ) -> tuple[IntArray, FloatArray]:
        n_clusters, n_leaves = len(tree.tree.levels[-1]) - 1, len(tree.tree.labels)
        if label_filter is None:
            min_beam = -(-3 * k * n_clusters // (2 * n_leaves))  # enough clusters to hold k labels
            return tree.search(X, k, max(beam.size, min_beam), threads, min_score=beam.min_score)
        mask, n_open, n_allowed = label_filter.prepared(tree, lambda: _open_nodes(tree.tree, label_filter))
        min_beam = n_open if n_allowed <= max(2 * k, MAX_EXACT_LABELS) else -(-3 * k * n_open // (2 * n_allowed))
        # Clusters with few allowed labels: more of them, for as many labels as without a filter.
        thinned = n_leaves * n_open / max(1, n_clusters * n_allowed)
        beam_size = int(beam.size * min(MAX_WIDER_BEAM, max(1.0, thinned)))
        min_score = beam.min_score if 2 * n_allowed > n_leaves else 0.0  # among few labels the best may be far below
        return tree.search(X, k, max(beam_size, min_beam), threads, min_score=min_score, mask=mask)

    def score_selected(self, X: Mixed, selected: Csr, threads: int) -> Csr:
        """Scores (n × L) of selected labels, each of them exactly, without a beam."""
        transform = self.trees[0].transforms[-1]
        parts = [tree.score_selected(X, selected, threads) for tree in self.trees]
        logs = [transform.spread(part.data).astype(np.float64) for part in parts]
        mean = np.logaddexp.reduce(logs) - np.log(len(logs))
        result = parts[0]
        result.data = np.asarray(transform.finish(mean), np.float32)
        return result

    def save_to(self, writer: StoreWriter) -> list[dict[str, Any]]:
        """Write the trees into a model directory; return their description."""
        return [tree.save_to(writer, f"tree{i}_") for i, tree in enumerate(self.trees)]

    @classmethod
    def load_from(cls, store: Store, info: Any, n_features: int | None, n_labels: int) -> TreeEnsemble:
        """Open what `save_to` wrote, for classifiers over `n_features` features."""
        if not isinstance(info, list) or not info:
            raise ModelFormatError(f"the manifest of {store.path} does not list the model's trees")
        trees = [LinearTree.load_from(store, entry, f"tree{i}_", n_labels) for i, entry in enumerate(info)]
        if any(tree.n_sparse + tree.levels[0].dense.shape[1] != n_features for tree in trees):
            raise ModelFormatError(f"{store.path}: the weights do not match the features")
        return cls(trees)


def _open_nodes(tree: LabelTree, label_filter: LabelFilter) -> tuple[ByteArray, int, int]:
    """Return the nodes with an allowed label below, the number of such leaf clusters, and that of allowed leaves."""
    mask = node_mask(tree, label_filter.allowed)
    n_leaves, n_clusters = len(tree.labels), len(tree.levels[-1]) - 1
    n_open = int(mask[-n_leaves - n_clusters : -n_leaves].sum()) if len(tree.levels) > 1 else 1
    return mask, max(1, n_open), int(mask[-n_leaves:].sum())


@dataclass(kw_only=True, eq=False, repr=False)
class TreeModel(Model):
    """Base of models that search trees of linear classifiers, `trees_`, over features of the input."""

    @abstractmethod
    def _tree_features(self, inputs: Inputs, threads: int) -> Mixed:
        """Features (n × d) of the classifiers."""

    @property
    @abstractmethod
    def _beam(self) -> Beam:
        """Nodes of a level that the search follows."""

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        threads = resolve_threads(self.threads, len(inputs))
        return TreeEnsemble(self.trees_).search(self._tree_features(inputs, threads), k, self._beam, threads)

    def _predict_allowed(self, inputs: Inputs, k: int, label_filter: LabelFilter) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k) of allowed labels: only clusters that have one are searched."""
        threads = resolve_threads(self.threads, len(inputs))
        X, wanted = self._tree_features(inputs, threads), min(k, len(label_filter))
        ids, scores = TreeEnsemble(self.trees_).search(X, k, self._beam, threads, label_filter)
        fill_up(ids[:, :wanted], scores[:, :wanted], label_filter, self.label_counts_.counts)
        return ids, scores

    def _explain_levels(self, inputs: Inputs, label_id: int) -> list[Level] | None:
        """Contributions on the path to the label, tree by tree; of several leaves, that with the highest score."""
        X = self._tree_features(inputs, 1)
        features = getattr(self, "features_", None)
        columns = X.sparse.indices
        if features is not None:
            terms, fractions = column_words(features, inputs.data[0], columns)
        else:
            terms, fractions = [f"feature {j}" for j in columns], sparse.eye(len(columns), format="csr")
        levels: list[Level] = []
        for i, tree in enumerate(self.trees_):
            title = "" if len(self.trees_) == 1 else f"tree {i + 1}, "
            leaves = np.flatnonzero(tree.tree.labels == label_id)
            paths = [explain_path(tree, X, int(leaf), terms, fractions, title) for leaf in leaves]
            levels += paths[int(np.argmax([path[-1].log_score for path in paths]))]
        return levels

    def predict_selected(self, X: Any, selected: Any) -> Csr:
        """Score the selected labels only, each of them exactly, without a beam.

        Parameters
        ----------
        X : as in `predict_topk`
        selected : the labels to score for each row, as lists of labels or as an indicator (n × L)

        Returns
        -------
        scores : (n × L) with the pattern of `selected`
        """
        inputs = self._check_predict_inputs(X)
        chosen, n = self._selected_labels(selected), len(inputs)
        if chosen.shape != (n, self.n_labels):
            shape = f"{chosen.shape[0]} × {chosen.shape[1]}"
            raise DataError(f"selected has the shape {shape}, expected {n} × {self.n_labels}")
        threads = resolve_threads(self.threads)
        return TreeEnsemble(self.trees_).score_selected(self._tree_features(inputs, threads), chosen, threads)

    def _selected_labels(self, selected: Any) -> Csr:
        if sparse.issparse(selected) or (isinstance(selected, np.ndarray) and selected.ndim == 2):
            return indicator(selected, "selected")
        rows, ids = label_rows(selected), self.labels_.ids
        unknown = next((label for row in rows for label in row if label not in ids), None)
        if unknown is not None:
            raise DataError(f"selected has the label {unknown!r}, which the model does not know")
        return indicator_from_lists([[ids[label] for label in row] for row in rows], self.n_labels)

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

    def _save_trees(self, writer: StoreWriter) -> list[dict[str, Any]]:
        return TreeEnsemble(self.trees_).save_to(writer)

    def _load_trees(self, store: Store, info: Any, n_features: int | None) -> None:
        self.trees_ = TreeEnsemble.load_from(store, info, n_features, self.n_labels).trees


@dataclass(kw_only=True, eq=False, repr=False)
class LinearModel(TreeModel, FeatureModel):
    """Base of models whose classifiers see the features of the input as they are."""

    beam_size: int = param(10, "nodes of a level that the search follows; more find more labels and take longer", low=1)

    def _tree_features(self, inputs: Inputs, threads: int) -> Mixed:
        return self._transform_features(inputs)

    def _training_memory(self, data: TrainingData) -> Memory:
        sizes = measure_sizes(data.inputs, data.Y, self.features)
        peak = max(sizes.making_features, sizes.features + self.classifier_bytes(sizes))
        return Memory(sizes.labels + peak, sizes.labels + sizes.vocabulary + self.kept_bytes(sizes))

    @abstractmethod
    def classifier_bytes(self, sizes: DataSizes, n_dense: int = 0) -> int:
        """Estimated bytes of the training on given features, and on `n_dense` further dense ones."""

    @abstractmethod
    def kept_bytes(self, sizes: DataSizes, n_dense: int = 0) -> int:
        """Estimated bytes of the trained classifiers."""

    @property
    def _beam(self) -> Beam:
        return Beam(self.beam_size)

    # ---- files ----

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        return {"features": self._save_features(writer), "trees": self._save_trees(writer)}

    def _load(self, store: Store, state: Any) -> None:
        state = check_state(store, state)
        self._load_trees(store, state.get("trees"), self._load_features(store, state))
