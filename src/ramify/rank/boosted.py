"""Gradient-boosted trees over a few features: trained by scikit-learn, kept as arrays, evaluated natively."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit
from threadpoolctl import threadpool_limits

from ramify import native
from ramify.base.errors import ModelFormatError
from ramify.base.sparse import ascends
from ramify.base.types import AnyArray, FloatArray, IntArray, LongArray
from ramify.io.store import Store, StoreWriter

MAX_LEAVES = 32
"""Leaves of a tree: the bits of a mask."""
MIN_PARALLEL = 50_000
"""Rows below which one thread learns: starting others takes longer."""
_ALL = 0xFFFFFFFF
_ARRAYS = ("indptr", "features", "thresholds", "masks", "leaves")


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """A sum of trees: the probability of a row is σ(bias + the leaves that it reaches).

    Attributes
    ----------
    indptr : (trees + 1,) splits of each tree
    features, thresholds : (splits,) a row goes to the right where its feature exceeds the threshold
    masks : (splits,) uint32, bits of the leaves of the tree that are left if it does
    leaves : (trees, 32) values, from left to right
    """

    indptr: LongArray
    features: IntArray
    thresholds: FloatArray
    masks: AnyArray
    leaves: FloatArray
    bias: float
    n_features: int

    def __call__(self, X: FloatArray, threads: int = 1) -> FloatArray:
        """Probabilities (n,) of rows X (n, d); fastest where X is stored by columns."""
        if X.shape[1] != self.n_features:
            raise ValueError(f"the trees have {self.n_features} features; got {X.shape[1]}")
        trees = self.indptr, self.features, self.thresholds, self.masks, self.leaves
        sums = native.linear.score_boosted(trees, np.ascontiguousarray(X.T, np.float32), threads)
        probabilities: FloatArray = expit(np.float32(self.bias) + sums)
        return probabilities

    # ---- files ----

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the trees to a model directory; return their description for the manifest."""
        for name in _ARRAYS:
            writer.array(f"{prefix}{name}", getattr(self, name))
        return {"n_trees": len(self.leaves), "bias": self.bias, "n_features": self.n_features}

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, n_features: int) -> BoostedTrees:
        """Open what `save_to` wrote, for rows of `n_features`."""
        n, bias, d = (
            (info.get(key) for key in ("n_trees", "bias", "n_features")) if isinstance(info, dict) else [None] * 3
        )
        if type(n) is not int or type(bias) is not float or d != n_features or not 0 <= n < 2**31:
            raise ModelFormatError(f"the manifest of {store.path} does not describe the boosted trees")
        features = store.array(f"{prefix}features", np.int32, ndim=1, bounds=(0, max(1, n_features)))
        thresholds = store.array(f"{prefix}thresholds", np.float32, shape=features.shape)
        masks = store.array(f"{prefix}masks", np.uint32, shape=features.shape)
        leaves = store.array(f"{prefix}leaves", np.float32, shape=(n, MAX_LEAVES))
        indptr = store.array(f"{prefix}indptr", np.int64, shape=(n + 1,))
        if not ascends(indptr, len(features)):
            raise ModelFormatError(f"{store.path}: the boosted trees overlap")
        if not (np.isfinite(leaves).all() and np.isfinite(thresholds).all() and np.isfinite(bias)):
            raise ModelFormatError(f"{store.path}: the boosted trees have values that are not finite")
        return cls(indptr, features, thresholds, masks, leaves, bias, n_features)


def fit_boosted(
    X: FloatArray,
    targets: AnyArray,
    *,
    n_trees: int = 100,
    n_leaves: int = 31,
    learning_rate: float = 0.1,
    sample_weight: AnyArray | None = None,
    seed: int = 0,
    threads: int = 1,
) -> BoostedTrees | None:
    """Train trees of at most `n_leaves` on rows X (n, d) and targets (n,); None if all targets are the same."""
    if not targets.any() or targets.all():
        return None
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        max_iter=n_trees, max_leaf_nodes=min(n_leaves, MAX_LEAVES), learning_rate=learning_rate, max_bins=127,
        min_samples_leaf=max(1, min(40, len(X) // 40)), l2_regularization=1.0, early_stopping=False,
        random_state=seed % 2**32,
    )  # fmt: skip
    with threadpool_limits(threads if len(X) >= MIN_PARALLEL else 1):
        model.fit(X, targets.astype(bool), sample_weight=sample_weight)
    return _exported(model, X.shape[1])


def _exported(model: Any, n_features: int) -> BoostedTrees:
    """Arrays of a classifier of scikit-learn with two classes."""
    counts, features, thresholds, masks = [], list[int](), list[float](), list[int]()
    leaves = np.zeros((len(model._predictors), MAX_LEAVES), np.float32)
    for t, (predictor,) in enumerate(model._predictors):
        n_before = len(features)
        _add_tree(predictor.nodes, 0, leaves[t], 0, features, thresholds, masks)
        counts.append(len(features) - n_before)
    return BoostedTrees(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.array(features, np.int32),
        _round_down(np.array(thresholds, np.float64)),
        np.array(masks, np.uint32),
        leaves,
        float(np.ravel(model._baseline_prediction)[0]),
        n_features,
    )


def _add_tree(
    nodes: Any, at: int, leaves: FloatArray, first: int, features: list[int], thresholds: list[float], masks: list[int]
) -> int:
    """Append the splits below a node whose leaves start with number `first`; return the number of its leaves."""
    node = nodes[at]
    if node["is_leaf"]:
        leaves[first] = node["value"]
        return 1
    place = len(features)
    features.append(int(node["feature_idx"]))
    thresholds.append(float(node["num_threshold"]))
    masks.append(_ALL)
    n_left = _add_tree(nodes, int(node["left"]), leaves, first, features, thresholds, masks)
    masks[place] = _ALL & ~(((1 << n_left) - 1) << first)
    return n_left + _add_tree(nodes, int(node["right"]), leaves, first + n_left, features, thresholds, masks)


def _round_down(thresholds: Any) -> FloatArray:
    """Largest float32 at most each threshold: the same rows, whose values are float32, exceed it."""
    rounded: FloatArray = thresholds.astype(np.float32)
    above = rounded.astype(np.float64) > thresholds
    rounded[above] = np.nextafter(rounded[above], np.float32(-np.inf))
    return rounded
