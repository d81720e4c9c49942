"""Score calibration: what share of pairs with such scores is right, by a shallow decision tree or by place in a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

from ramify.base.errors import ModelFormatError
from ramify.base.types import AnyArray, DoubleArray, FloatArray, IntArray
from ramify.io.store import Store, StoreWriter

INSIDE = np.float32(1e-6), np.float32(1 - 1e-6)
"""Scores beyond these say no more."""


@dataclass(frozen=True, eq=False)
class Calibrator:
    """A decision tree as arrays, one entry a node; leaves are their own children.

    Attributes
    ----------
    feature, threshold : which feature is compared, and with what; up to it goes left
    left, right : children
    value : share of right pairs at the node
    """

    feature: IntArray
    threshold: DoubleArray
    left: IntArray
    right: IntArray
    value: FloatArray
    depth: int

    def __call__(self, features: AnyArray) -> FloatArray:
        """Shares (n,) for features (n, f)."""
        at = np.zeros(len(features), np.int32)
        rows = np.arange(len(features))
        for _ in range(self.depth):
            goes_left = features[rows, self.feature[at]] <= self.threshold[at]
            at = np.where(goes_left, self.left[at], self.right[at])
        return self.value[at]

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the tree into a model's directory."""
        for name in ("feature", "threshold", "left", "right", "value"):
            writer.array(f"{prefix}{name}", getattr(self, name))
        return {"depth": self.depth}

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, n_features: int) -> Calibrator:
        """Open what `save_to` wrote."""
        if not isinstance(info, dict) or not isinstance(info.get("depth"), int) or not 0 <= info["depth"] <= 64:
            raise ModelFormatError(f"the manifest of {store.path} does not describe the calibration")
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


def fit_calibrator(features: AnyArray, right: AnyArray, *, depth: int = 5, seed: int = 0) -> Calibrator:
    """Learn which share of pairs is right from features (n, f) and whether each pair was (n,)."""
    from sklearn.tree import DecisionTreeClassifier

    model = DecisionTreeClassifier(max_depth=depth, min_samples_leaf=20, random_state=seed)
    tree = model.fit(features, right.astype(bool)).tree_
    is_leaf = tree.children_left < 0
    own = np.arange(tree.node_count)
    shares = tree.value[:, 0, :] / tree.value[:, 0, :].sum(axis=1, keepdims=True)
    share = shares[:, list(model.classes_).index(True)] if True in model.classes_ else np.zeros(tree.node_count)
    return Calibrator(
        np.where(is_leaf, 0, tree.feature).astype(np.int32),
        np.where(is_leaf, 0.0, tree.threshold),
        np.where(is_leaf, own, tree.children_left).astype(np.int32),
        np.where(is_leaf, own, tree.children_right).astype(np.int32),
        share.astype(np.float32),
        int(tree.max_depth),
    )


class RowCalibrator(NamedTuple):
    """Chances of labels from their scores, a row's best one and how far behind it they are; the order in a row stays.

    σ(offset + own · logit(score) + best · logit(largest) - behind · (1 - score / largest)), slopes from 0 up.
    """

    offset: float
    own: float
    best: float
    behind: float

    def __call__(self, scores: FloatArray) -> FloatArray:
        """Chances (n, k) of scores (n, k) from 0 to 1, best first; -inf, where a row has ended, stays."""
        own, best, ahead = _row_features(scores)
        chances = expit(self.offset + self.own * own + self.best * best + self.behind * ahead)
        return np.where(scores > -np.inf, chances, scores).astype(np.float32, copy=False)


def _row_features(scores: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Logits (n, k) of scores and (n, 1) of each row's best, and minus how far (n, k) the ones are behind the other."""
    inside: FloatArray = np.minimum(np.maximum(scores, INSIDE[0]), INSIDE[1])
    own: FloatArray = logit(inside)
    return own, own[:, :1], inside / inside[:, :1] - np.float32(1)


def fit_row_calibrator(scores: FloatArray, right: AnyArray) -> RowCalibrator | None:
    """Learn from scores (n, k) of ranked labels and whether each is right (n, k); None if all are, or none is."""
    there = scores > -np.inf
    known = right[there].astype(np.float64)
    if known.sum() in (0, len(known)):
        return None
    parts = [np.broadcast_to(part, scores.shape)[there] for part in _row_features(scores)]
    features = np.stack(parts, axis=1).astype(np.float64)
    spread = np.maximum(features.std(axis=0), 1e-12)
    features /= spread

    def loss(numbers: DoubleArray) -> tuple[float, DoubleArray]:
        logits = numbers[0] + features @ numbers[1:]
        away = (expit(logits) - known) / len(known)
        return float(np.mean(np.logaddexp(0, logits) - known * logits)), np.append(away.sum(), away @ features)

    start, bounds = [logit(known.mean()), 0.0, 0.0, 0.0], [(None, None), *[(0, None)] * 3]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return RowCalibrator(float(found.x[0]), *(float(slope) for slope in found.x[1:] / spread))
