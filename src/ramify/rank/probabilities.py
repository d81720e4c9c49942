"""Probabilities: a calibration of the scores of any model, fitted on rows that the model was not trained on.

For the label at rank r of a row with scores s₁ > s₂ > …

    g(s) = logit of the fraction of correct labels among those with a score like s      isotonic over all candidates
    z_r  = a₀ + a₁ g(s_r) + a₂ g(s₁) - a₃ ln r - a₄ [r > 1],    a₁, a₃, a₄ ≥ 0             logistic regression
    p_r  = isotonic function of z_r, one for rank 1, one for ranks 2 to 5, one for the rest

g makes scores of any kind comparable, a₂ those of different rows: the same score means less in a row whose best score
is high. A running minimum along the row keeps the order of the labels, so a ranking by probability is the ranking by
score. With few rows g is the logit of the score (or the score itself, where it is no number from 0 to 1) and p = σ(z):
Platt scaling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit

from ramify.base.errors import DataError, ModelFormatError
from ramify.base.types import AnyArray, BoolArray, DoubleArray, FloatArray, IntArray
from ramify.io.store import Store, StoreWriter
from ramify.rank.calibrate import fit_logistic

CALIBRATED_WIDTH = 50
"""Labels of a row that a calibration is fitted to; the probabilities of further labels are extrapolated."""
MIN_ISOTONIC_ROWS = 500
"""Rows below which Platt scaling is used: an isotonic function of few rows follows their noise."""
RANK_GROUPS = (0, 1, 5)
"""First rank, from 0, of each group with an isotonic function of its own."""
MIN_PROBABILITY, MAX_PROBABILITY = 1e-6, 1 - 1e-6
"""No held-out rows show that a label is impossible, or certain."""


class MonotoneMap(NamedTuple):
    """A piecewise linear, non-decreasing function by its knots x and y (m,); constant beyond the first and last."""

    x: DoubleArray
    y: DoubleArray

    @classmethod
    def fit(cls, x: AnyArray, y: AnyArray) -> MonotoneMap:
        """Isotonic regression of y (n,) on x (n,)."""
        from sklearn.isotonic import IsotonicRegression

        model = IsotonicRegression().fit(np.asarray(x, np.float64), np.asarray(y, np.float64))
        return cls(np.asarray(model.X_thresholds_, np.float64), np.asarray(model.y_thresholds_, np.float64))

    def __call__(self, x: AnyArray) -> DoubleArray:
        """Values of the same shape as x."""
        return np.interp(x, self.x, self.y)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Maps the scores of rankings to probabilities; see the module.

    Attributes
    ----------
    coefficients : (5,) a₀ to a₄
    own : from a score to the fraction of correct labels; None with Platt scaling
    maps : from z to the probability, for each group of ranks; empty with Platt scaling
    n_rows : rows that it was fitted to
    takes_logits : Platt scaling: whether g is the logit of the score
    """

    coefficients: DoubleArray
    own: MonotoneMap | None
    maps: tuple[MonotoneMap, ...]
    n_rows: int
    takes_logits: bool = True

    @property
    def method(self) -> str:
        """The method by name: "isotonic" or "platt"."""
        return "platt" if self.own is None else "isotonic"

    def __repr__(self) -> str:
        return f"<Calibration: {self.method}, {self.n_rows:,} rows>"

    def __call__(self, scores: FloatArray) -> FloatArray:
        """Probabilities (n, k) of the scores (n, k) of a ranking, best first; padding of -inf is kept."""
        if scores.shape[1] == 0 or len(scores) == 0:
            return scores
        valid = scores > -np.inf
        g = self._own(scores, valid)
        p = self._probabilities(g, g[:, :1], np.broadcast_to(np.arange(g.shape[1]), g.shape))
        return np.where(valid, np.minimum.accumulate(p, axis=1), -np.inf).astype(np.float32)

    def of_allowed(self, allowed: tuple[IntArray, FloatArray], everything: tuple[IntArray, FloatArray]) -> FloatArray:
        """Probabilities (n, k) of the labels that a filter allows: those that they have in the ranking of all labels.

        Labels that this ranking does not have, or only with another score because a search did not reach them, get the
        probability of their score, at the rank that they would have.

        Parameters
        ----------
        allowed, everything : ids and scores, (n, k) and (n, m), of the allowed labels and of all labels, best first
        """
        (ids, scores), (all_ids, all_scores) = allowed, everything
        if ids.size == 0 or all_ids.size == 0:
            return self(scores)
        # Labels are looked up as row · stride + id, the scores of both rankings being equal up to rounding only.
        stride = 2 + max(int(ids.max()), int(all_ids.max()))
        rows = np.arange(len(ids), dtype=np.int64)[:, None] * stride
        keys, wanted = (rows + all_ids).ravel(), rows + ids
        order = np.argsort(keys, kind="stable")
        position = order[np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)]
        valid = ids >= 0
        is_listed = valid & (keys[position] == wanted)
        is_listed &= np.isclose(scores, all_scores.ravel()[position], rtol=1e-4, atol=1e-7)
        g = self._own(scores, valid)
        best = np.maximum(self._own(all_scores[:, :1], all_scores[:, :1] > -np.inf), g)
        rank = np.stack([np.searchsorted(-row, -own) for row, own in zip(all_scores, scores, strict=True)])
        listed = np.where(is_listed, self(all_scores).ravel()[position], np.nan)
        # The others lie between the labels of the ranking that are before and after them.
        lower = np.fmax.accumulate(listed[:, ::-1], axis=1)[:, ::-1]
        others = np.fmin(np.fmax(self._probabilities(g, best, rank), lower), np.fmin.accumulate(listed, axis=1))
        p = np.where(is_listed, listed, others)
        return np.where(valid, np.minimum.accumulate(p, axis=1), -np.inf).astype(np.float32)

    def _probabilities(self, g: DoubleArray, best: DoubleArray, rank: AnyArray) -> DoubleArray:
        """Probabilities (n, k) of labels with g(s), g(s₁) of their rows, (n, 1) or (n, k), and ranks from 0."""
        z = _features(g, best, rank) @ self.coefficients[1:] + self.coefficients[0]
        if self.maps:
            group = np.searchsorted(RANK_GROUPS, rank, side="right") - 1
            for i, monotone in enumerate(self.maps):
                z[group == i] = monotone(z[group == i])
        else:
            z = expit(z)
        return np.asarray(np.clip(z, MIN_PROBABILITY, MAX_PROBABILITY))

    def _own(self, scores: FloatArray, valid: BoolArray) -> DoubleArray:
        return _own_logits(np.where(valid, scores, 0).astype(np.float64), self.own, self.takes_logits)

    # ---- files ----

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the calibration into a model directory; return its description for the manifest."""
        maps = [] if self.own is None else [self.own, *self.maps]
        knots = np.concatenate([np.stack([m.x, m.y]) for m in maps], axis=1) if maps else np.empty((2, 0))
        writer.array(f"{prefix}knots", knots)
        return {
            "coefficients": [float(a) for a in self.coefficients],
            "sizes": [len(m.x) for m in maps],
            "n_rows": self.n_rows,
            "takes_logits": self.takes_logits,
        }

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str) -> Calibration:
        """Open what `save_to` wrote."""
        info = info if isinstance(info, dict) else {}
        coefficients, sizes = info.get("coefficients"), info.get("sizes")
        if (
            not isinstance(coefficients, list)
            or len(coefficients) != 5
            or not all(isinstance(a, float) and np.isfinite(a) for a in coefficients)
            or not isinstance(sizes, list)
            or len(sizes) not in (0, 1 + len(RANK_GROUPS))
            or not all(isinstance(n, int) and n > 0 for n in sizes)
            or not isinstance(info.get("n_rows"), int)
            or not isinstance(info.get("takes_logits"), bool)
        ):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the calibration")
        knots = store.array(f"{prefix}knots", np.float64, shape=(2, sum(sizes)))
        if not np.isfinite(knots).all():
            raise ModelFormatError(f"{store.path}: the calibration is not finite")
        parts = np.split(knots, np.cumsum(sizes)[:-1], axis=1) if sizes else []
        maps = [MonotoneMap(*part) for part in parts]
        a = np.array(coefficients)
        return cls(a, maps[0] if maps else None, tuple(maps[1:]), info["n_rows"], info["takes_logits"])


def fit_calibration(scores: FloatArray, correct: AnyArray) -> Calibration:
    """Fit a calibration to the scores (n, k) of rankings, best first, and whether each label is correct (n, k)."""
    scores, correct = scores[:, :CALIBRATED_WIDTH], np.asarray(correct, bool)[:, :CALIBRATED_WIDTH]
    valid = scores > -np.inf
    targets = correct[valid].astype(np.float64)
    if targets.sum() in (0, len(targets)):
        what = "none" if targets.sum() == 0 else "all"
        raise DataError(f"{what} of the predicted labels are true: probabilities cannot be fitted to these rows")
    is_isotonic = len(scores) >= MIN_ISOTONIC_ROWS and min(targets.sum(), len(targets) - targets.sum()) >= 100
    own = MonotoneMap.fit(scores[valid], targets) if is_isotonic else None
    takes_logits = bool(scores[valid].min() >= 0 and scores[valid].max() <= 1)
    g = _own_logits(np.where(valid, scores, 0).astype(np.float64), own, takes_logits)
    features = _features(g, g[:, :1], np.broadcast_to(np.arange(g.shape[1]), g.shape))
    # a₁, a₃ and a₄ are not negative: the order of a row is kept.
    coefficients = fit_logistic(features[valid], targets, is_bounded=(True, False, True, True), penalty=1e-6)
    maps: list[MonotoneMap] = []
    if is_isotonic:
        z = features @ coefficients[1:] + coefficients[0]
        ends = (*RANK_GROUPS[1:], max(scores.shape[1], RANK_GROUPS[-1] + 1))
        for first, end in zip(RANK_GROUPS, ends, strict=True):
            group = valid[:, first:end]
            if group.any():
                maps.append(MonotoneMap.fit(z[:, first:end][group], correct[:, first:end][group]))
            else:
                maps.append(maps[-1])
    return Calibration(coefficients, own, tuple(maps), len(scores), takes_logits)


def _own_logits(scores: DoubleArray, own: MonotoneMap | None, takes_logits: bool) -> DoubleArray:
    """g(s) (n, k) of each score."""
    if own is None and not takes_logits:
        return scores
    return np.asarray(logit(np.clip(scores if own is None else own(scores), MIN_PROBABILITY, MAX_PROBABILITY)))


def _features(g: DoubleArray, best: DoubleArray, rank: AnyArray) -> DoubleArray:
    """Features (n, k, 4) of labels with ranks (n, k) from 0: g(s), g(s₁), - ln r, - [r > 1]."""
    columns = (g, best, -np.log1p(rank), -1.0 * (rank > 0))
    return np.stack([np.broadcast_to(column, g.shape) for column in columns], axis=2)
