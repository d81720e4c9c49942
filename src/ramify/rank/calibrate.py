"""Calibrators inside of models: from scores of (sample, label) pairs to the probability that the label is correct.

`TreeCalibrator` is a shallow decision tree over any features of a pair; `RowCalibrator` is logistic in the scores of a
ranking and keeps its order: scores that are probabilities on the few rows of a validation set. The calibration of
finished rankings, which every model has, is in `rank.probabilities`; both use `fit_logistic`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit

from ramify.base.errors import ModelFormatError
from ramify.base.types import AnyArray, DoubleArray, FloatArray, IntArray
from ramify.io.store import Store, StoreWriter
from ramify.native.linear import ScoreTree

MIN_SCORE, MAX_SCORE = np.float32(1e-6), np.float32(1 - 1e-6)
"""Bounds on scores, so that their logits are finite."""


@dataclass(frozen=True, eq=False)
class TreeCalibrator:
    """A decision tree as arrays with one entry per node; the children of a leaf are the leaf itself.

    Attributes
    ----------
    feature, threshold : a pair goes left if this feature is at most the threshold
    left, right : child nodes
    value : fraction of correct pairs at the node
    depth : steps from the root to the deepest leaf
    """

    feature: IntArray
    threshold: DoubleArray
    left: IntArray
    right: IntArray
    value: FloatArray
    depth: int

    @property
    def arrays(self) -> ScoreTree:
        """The arrays and the depth, for native code."""
        return self.feature, self.threshold, self.left, self.right, self.value, self.depth

    def __call__(self, features: AnyArray) -> FloatArray:
        """Probabilities (n,) of pairs with features (n, f)."""
        node = np.zeros(len(features), np.int32)
        rows = np.arange(len(features))
        for _ in range(self.depth):
            goes_left = features[rows, self.feature[node]] <= self.threshold[node]
            node = np.where(goes_left, self.left[node], self.right[node])
        return self.value[node]

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the tree to a model directory; return its description for the manifest."""
        for name in ("feature", "threshold", "left", "right", "value"):
            writer.array(f"{prefix}{name}", getattr(self, name))
        return {"depth": self.depth}

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, n_features: int) -> TreeCalibrator:
        """Open a tree that `save_to` wrote, for `n_features` features."""
        if not isinstance(info, dict) or not isinstance(info.get("depth"), int) or not 0 <= info["depth"] <= 64:
            raise ModelFormatError(f"the manifest of {store.path} does not describe the calibrator")
        value = store.array(f"{prefix}value", np.float32, ndim=1)
        n = len(value)
        return cls(
            store.array(f"{prefix}feature", np.int32, shape=(n,), bounds=(0, n_features)),
            store.array(f"{prefix}threshold", np.float64, shape=(n,)),
            store.array(f"{prefix}left", np.int32, shape=(n,), bounds=(0, max(1, n))),
            store.array(f"{prefix}right", np.int32, shape=(n,), bounds=(0, max(1, n))),
            value,
            info["depth"],
        )


def fit_tree_calibrator(features: AnyArray, correct: AnyArray, *, depth: int = 5, seed: int = 0) -> TreeCalibrator:
    """Fit a `TreeCalibrator` to features (n, f) of pairs and whether each is correct (n,)."""
    from sklearn.tree import DecisionTreeClassifier

    model = DecisionTreeClassifier(max_depth=depth, min_samples_leaf=20, random_state=seed)
    tree = model.fit(features, correct.astype(bool)).tree_
    is_leaf = tree.children_left < 0
    self_index = np.arange(tree.node_count)
    fractions = tree.value[:, 0, :] / tree.value[:, 0, :].sum(axis=1, keepdims=True)
    value = fractions[:, list(model.classes_).index(True)] if True in model.classes_ else np.zeros(tree.node_count)
    return TreeCalibrator(
        np.where(is_leaf, 0, tree.feature).astype(np.int32),
        np.where(is_leaf, 0.0, tree.threshold),
        np.where(is_leaf, self_index, tree.children_left).astype(np.int32),
        np.where(is_leaf, self_index, tree.children_right).astype(np.int32),
        value.astype(np.float32),
        int(tree.max_depth),
    )


class RowCalibrator(NamedTuple):
    """Probability of a label from its score s and the best score s₁ of its row; it keeps the order within a row.

    p = σ(bias + score_slope · logit(s) + best_slope · logit(s₁) - gap_slope · (1 - s / s₁)), with slopes ≥ 0
    """

    bias: float
    score_slope: float
    best_slope: float
    gap_slope: float

    def __call__(self, scores: FloatArray, best_scores: FloatArray | None = None) -> FloatArray:
        """Probabilities (n, k) of scores (n, k) in [0, 1], best first; padding of -inf is kept.

        `best_scores` (n, 1) are those of the whole rows, where `scores` are of some labels only.
        """
        score, best, gap = _row_features(scores, best_scores)
        logits = self.bias + self.score_slope * score + self.best_slope * best + self.gap_slope * gap
        return np.where(scores > -np.inf, expit(logits), scores).astype(np.float32, copy=False)


def _row_features(
    scores: FloatArray, best_scores: FloatArray | None = None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Features logit(s) (n, k), logit(s₁) (n, 1) and s / s₁ - 1 (n, k) of scores (n, k), best first."""
    clipped: FloatArray = np.clip(scores, MIN_SCORE, MAX_SCORE)
    best: FloatArray = clipped[:, :1] if best_scores is None else np.clip(best_scores, MIN_SCORE, MAX_SCORE)
    return logit(clipped), logit(best), clipped / best - np.float32(1)


def fit_row_calibrator(scores: FloatArray, correct: AnyArray, by_row: bool = True) -> RowCalibrator | None:
    """Fit a `RowCalibrator` to scores (n, k), best first, and whether each label is correct (n, k).

    Minimizes the cross-entropy. Returns None if all labels are correct, or none is. If not `by_row`, the best score of
    the row has no weight: the probability of a label does not depend on other labels.
    """
    valid = scores > -np.inf
    targets = correct[valid].astype(np.float64)
    if targets.sum() in (0, len(targets)):
        return None
    columns = [np.broadcast_to(part, scores.shape)[valid] for part in _row_features(scores)][: 3 if by_row else 1]
    features = np.stack(columns, axis=1).astype(np.float64)
    bias, *slopes = fit_logistic(features, targets, is_bounded=(True,) * features.shape[1]).tolist()
    return RowCalibrator(bias, *slopes, *[0.0] * (3 - len(slopes)))


def fit_logistic(
    features: DoubleArray, targets: DoubleArray, is_bounded: Sequence[bool], penalty: float = 0.0
) -> DoubleArray:
    """Bias and slopes (1 + f,) of a logistic regression on features (n, f), of lowest cross-entropy.

    Parameters
    ----------
    targets : (n,) 0 or 1
    is_bounded : (f,) which slopes must not be negative, so that an order is kept
    penalty : weight of the squared slopes, of features of unit variance: it keeps those of separable data finite
    """
    scale = np.maximum(features.std(axis=0), 1e-12)
    scaled = features / scale

    def loss(a: DoubleArray) -> tuple[float, DoubleArray]:
        logits = a[0] + scaled @ a[1:]
        d_logits = (expit(logits) - targets) / len(targets)
        cross_entropy = float(np.mean(np.logaddexp(0, logits) - targets * logits))
        gradient = np.append(d_logits.sum(), d_logits @ scaled + 2 * penalty * a[1:])
        return cross_entropy + penalty * float(a[1:] @ a[1:]), gradient

    bounds = [(None, None), *((0 if bounded else None, None) for bounded in is_bounded)]
    init = np.zeros(1 + features.shape[1])
    init[0] = logit(targets.mean())
    from scipy.optimize import minimize  # here, since it takes longer to import than a model to load

    solution = minimize(loss, init, jac=True, method="L-BFGS-B", bounds=bounds).x
    return np.append(solution[0], solution[1:] / scale)
