"""Decision rules: which labels of a ranking a row gets.

A rule sees the candidates of each row with their probabilities, best first, and chooses some of them. Most rules choose
the first ones; where they cut is a parameter, or fitted on held-out rows. Rules are small, immutable objects: `fit`
returns a fitted copy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from ramify.base.errors import DataError, ModelFormatError, check_integer
from ramify.base.types import BoolArray, FloatArray, IntArray, LongArray
from ramify.io.store import Store, StoreWriter
from ramify.rank.conformal import hoeffding_bentkus, largest_mean
from ramify.rank.decision_rule import DecisionRule, HeldOut, check_fraction, mean_f1

GRID = np.arange(1, 100) / 100
"""Probabilities that thresholds are chosen from."""
OWN_RULE = "default"
"""Names the fitted rule of a model in a request."""
MAX_FITTED_K = 50
"""Largest number of labels that `TopK` chooses by itself."""


@dataclass(frozen=True)
class Threshold(DecisionRule):
    """Chooses labels from a probability on; None: the best for F1 by sample, when fitted.

    With ``of="score"`` the threshold applies to raw scores, which are not comparable between models.
    """

    name: ClassVar[str] = "threshold"
    found_by_fit: ClassVar[tuple[str, ...]] = ("value",)

    value: float | None = None
    of: str = "probability"

    def __post_init__(self) -> None:
        if self.of not in ("probability", "score"):
            raise ValueError(f"Threshold.of must be 'probability' or 'score'; got {self.of!r}")
        if self.value is not None and self.of == "probability":
            check_fraction("Threshold", "value", self.value)

    @property
    def needs_probabilities(self) -> bool:  # type: ignore[override]
        """Whether the threshold applies to probabilities."""
        return self.of == "probability"

    def fit(self, data: HeldOut) -> Self:
        """Choose the threshold with the best F1 by sample."""
        if self.value is not None:
            return self
        hits, n_true = data.hits, data.n_true
        counts = ((data.probabilities >= t).sum(axis=1) for t in GRID)
        return replace(self, value=float(GRID[int(np.argmax([mean_f1(hits, n_true, k) for k in counts]))]))

    def choose(self, ids: IntArray, probabilities: FloatArray) -> BoolArray:
        """Candidates that reach the threshold."""
        if self.value is None:
            raise self._not_fitted()
        return (probabilities >= self.value) & (ids >= 0)


@dataclass(frozen=True)
class TopK(DecisionRule):
    """Chooses the k best labels of every row; None: the best k for F1 by sample, when fitted."""

    name: ClassVar[str] = "top-k"
    found_by_fit: ClassVar[tuple[str, ...]] = ("k",)
    needs_probabilities: ClassVar[bool] = False

    k: int | None = None

    def __post_init__(self) -> None:
        if self.k is not None:
            check_integer(self.k, "TopK.k")

    @property
    def width(self) -> int:
        """The k of the rule."""
        return self.k or MAX_FITTED_K

    def is_settled(self, width: int) -> bool:
        """Whether there are k candidates."""
        return width >= self.width

    def fit(self, data: HeldOut) -> Self:
        """Choose the k with the best F1 by sample."""
        if self.k is not None:
            return self
        hits, n_true = data.hits, data.n_true
        ks = range(1, min(MAX_FITTED_K, hits.shape[1]) + 1)
        return replace(self, k=max(ks, key=lambda k: mean_f1(hits, n_true, np.full(len(hits), k))))

    def choose(self, ids: IntArray, probabilities: FloatArray) -> BoolArray:
        """Return the first k candidates."""
        if self.k is None:
            raise self._not_fitted()
        return (np.arange(ids.shape[1]) < self.k) & (ids >= 0)


@dataclass(frozen=True)
class MaximizeF1(DecisionRule):
    """Chooses as many labels of each row as maximize its expected F1.

    The first k labels are expected to have the F1 2 Σ_{j≤k} p_j / (k + m), with m true labels. m is estimated as
    slope · Σ_j p_j + offset; fitted, both are those with the best F1 on held-out rows: a record also has labels that
    are no candidates.
    """

    name: ClassVar[str] = "maximize-f1"
    found_by_fit: ClassVar[tuple[str, ...]] = ("slope", "offset")

    slope: float = 1.0
    offset: float = 0.0

    def fit(self, data: HeldOut) -> Self:
        """Choose slope and offset with the best F1 by sample."""
        hits, n_true = data.hits, data.n_true
        options = [replace(self, slope=a, offset=b) for a in (0.5, 0.75, 1.0, 1.25) for b in (0.0, 0.25, 0.5, 1.0, 1.5)]
        return max(options, key=lambda rule: mean_f1(hits, n_true, rule._counts(data.probabilities)))

    def choose(self, ids: IntArray, probabilities: FloatArray) -> BoolArray:
        """Return the first candidates of each row, at least one."""
        return (np.arange(ids.shape[1]) < self._counts(probabilities)[:, None]) & (ids >= 0)

    def _counts(self, probabilities: FloatArray) -> LongArray:
        p = np.maximum(probabilities, 0).astype(np.float64)
        k = np.arange(1, p.shape[1] + 1)
        n_true = self.slope * p.sum(axis=1, keepdims=True) + self.offset
        return np.asarray(np.argmax(np.cumsum(p, axis=1) / (k + n_true), axis=1) + 1, np.int64)


@dataclass(frozen=True)
class ExpectedCount(DecisionRule):
    """Chooses as many labels of each row as it is expected to have: the sum of the probabilities, rounded.

    Fitted, the sum is scaled so that on held-out rows the mean number of labels is the true one.
    """

    name: ClassVar[str] = "expected-count"
    found_by_fit: ClassVar[tuple[str, ...]] = ("scale",)

    scale: float = 1.0

    def fit(self, data: HeldOut) -> Self:
        """Scale the sums to the number of true labels."""
        total = float(np.maximum(data.probabilities, 0).sum())
        return replace(self, scale=float(data.n_true.sum()) / total if total > 0 else 1.0)

    def choose(self, ids: IntArray, probabilities: FloatArray) -> BoolArray:
        """Return the first candidates of each row."""
        counts = np.round(self.scale * np.maximum(probabilities, 0).sum(axis=1))
        return np.asarray((np.arange(ids.shape[1]) < counts[:, None]) & (ids >= 0))


@dataclass(frozen=True)
class TargetRecall(DecisionRule):
    """Chooses labels from the highest threshold on with which rows get this fraction of their true labels.

    The expected recall of new rows is at least `recall`, with probability `confidence` over the held-out rows. With
    ``confidence=None`` it is on average over them (conformal risk control): fewer labels are chosen, and the recall
    falls short of the target by a little for about half of the choices of held-out rows. Labels that the model does not
    know count as misses.
    """

    name: ClassVar[str] = "target-recall"
    found_by_fit: ClassVar[tuple[str, ...]] = ("threshold",)
    has_guarantee: ClassVar[bool] = True

    recall: float = 0.5
    confidence: float | None = 0.9
    threshold: float | None = None

    def __post_init__(self) -> None:
        check_fraction("TargetRecall", "recall", self.recall)
        if self.confidence is not None:
            check_fraction("TargetRecall", "confidence", self.confidence)

    def fit(self, data: HeldOut) -> Self:
        """Choose the threshold by a bound on the expected fraction of missed labels."""
        n_true, hits = data.n_true, data.hits
        rows, _ = np.nonzero(hits)
        n = int((n_true > 0).sum())
        found = data.probabilities[hits]
        order = np.argsort(-found, kind="stable")
        recall = np.cumsum(1 / n_true[rows][order])  # sum over the rows, after each further threshold
        # Equal probabilities pass a threshold together.
        is_last = np.append(found[order][1:] != found[order][:-1], True) if len(order) else np.zeros(0, bool)
        needed = n * (1 - largest_mean(n, 1 - self.recall, self.confidence))
        enough = np.flatnonzero((recall >= needed) & is_last)
        if not len(enough):
            best = 100 * float(recall[-1]) / n if len(recall) else 0.0
            raise DataError(
                f"a recall of {self.recall:g} cannot be guaranteed: the {hits.shape[1]} best labels of {n:,} held-out "
                f"rows have a recall of {best:.1f} %; lower the target or pass more rows"
            )
        return replace(self, threshold=float(found[order][enough[0]]))

    def choose(self, ids: IntArray, probabilities: FloatArray) -> BoolArray:
        """Candidates that reach the threshold."""
        if self.threshold is None:
            raise self._not_fitted()
        return (probabilities >= np.float32(self.threshold)) & (ids >= 0)


@dataclass(frozen=True)
class TargetPrecision(DecisionRule):
    """Chooses labels from the lowest threshold on with which this fraction of a row's labels is true.

    The expected precision of new rows that get labels is at least `precision`, with probability `confidence` over the
    held-out rows (Learn then Test, with Bonferroni's correction for the thresholds that are tested).
    """

    name: ClassVar[str] = "target-precision"
    found_by_fit: ClassVar[tuple[str, ...]] = ("threshold",)
    has_guarantee: ClassVar[bool] = True

    precision: float = 0.5
    confidence: float = 0.9
    threshold: float | None = None

    def __post_init__(self) -> None:
        check_fraction("TargetPrecision", "precision", self.precision)
        check_fraction("TargetPrecision", "confidence", self.confidence)

    def fit(self, data: HeldOut) -> Self:
        """Choose the threshold by Learn then Test."""
        hits = data.hits
        found = np.cumsum(hits, axis=1)
        losses, sizes = [], []
        for t in GRID:
            counts = (data.probabilities >= t).sum(axis=1)
            rows = np.flatnonzero(counts)
            losses.append(1 - float(np.mean(found[rows, counts[rows] - 1] / counts[rows])) if len(rows) else 1.0)
            sizes.append(len(rows))
        p_values = hoeffding_bentkus(losses, sizes, 1 - self.precision)
        passed = np.flatnonzero(p_values <= (1 - self.confidence) / len(GRID))
        if not len(passed):
            best = int(np.argmin(losses))
            raise DataError(
                f"a precision of {self.precision:g} cannot be guaranteed with confidence {self.confidence:g}: the best "
                f"is {100 * (1 - losses[best]):.1f} %, on {sizes[best]:,} of {len(hits):,} held-out rows that then get "
                "labels; lower the target or pass more rows"
            )
        return replace(self, threshold=float(GRID[passed[0]]))

    def choose(self, ids: IntArray, probabilities: FloatArray) -> BoolArray:
        """Candidates that reach the threshold."""
        if self.threshold is None:
            raise self._not_fitted()
        return (probabilities >= self.threshold) & (ids >= 0)


@dataclass(frozen=True, eq=False)
class PerLabelThreshold(DecisionRule):
    """Chooses labels from a probability on that each label has of its own: the best for its F1 on held-out rows.

    Labels with fewer than `min_samples` held-out samples among the candidates share one threshold. For macro-F1.
    """

    name: ClassVar[str] = "per-label-threshold"
    found_by_fit: ClassVar[tuple[str, ...]] = ("thresholds",)

    min_samples: int = 5
    thresholds: FloatArray | None = field(default=None, repr=False)

    def fit(self, data: HeldOut) -> Self:
        """Choose the thresholds."""
        n_labels = data.truth.shape[1]
        thresholds = np.full(data.n_labels, Threshold().fit(data).value, np.float32)
        valid = data.ids >= 0
        labels, p, hits = data.ids[valid], data.probabilities[valid], data.hits[valid]
        order = np.lexsort((-p, labels))
        labels, p, hits = labels[order], p[order], hits[order]
        starts = np.flatnonzero(np.append(True, labels[1:] != labels[:-1])) if len(labels) else np.zeros(0, np.int64)
        sizes = np.diff(np.append(starts, len(labels)))
        total: LongArray = np.cumsum(hits) - np.repeat((np.cumsum(hits) - hits)[starts], sizes)
        position = np.arange(len(labels)) - np.repeat(starts, sizes) + 1
        n_true = np.bincount(data.truth.indices, minlength=n_labels)
        f1 = 2 * total / (position + n_true[labels])
        f1[np.append((labels[1:] == labels[:-1]) & (p[1:] == p[:-1]), False)] = -1  # equal ones pass together
        for start, size in zip(starts, sizes, strict=True):
            label = labels[start]
            if total[start + size - 1] >= self.min_samples:
                best = start + int(np.argmax(f1[start : start + size]))
                below = p[best + 1] if best + 1 < start + size else 0.0
                thresholds[label] = (p[best] + max(below, 0.0)) / 2
        return replace(self, thresholds=thresholds)

    def choose(self, ids: IntArray, probabilities: FloatArray) -> BoolArray:
        """Candidates that reach the threshold of their label."""
        if self.thresholds is None:
            raise self._not_fitted()
        return (probabilities >= self.thresholds[np.maximum(ids, 0)]) & (ids >= 0)

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters; the thresholds are an array."""
        return {"name": self.name, "min_samples": self.min_samples}

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the thresholds, too."""
        if self.thresholds is not None:
            writer.array(f"{prefix}thresholds", self.thresholds)
        return {**self.to_dict(), "is_fitted": self.thresholds is not None}

    @classmethod
    def load_from(cls, store: Store, info: dict[str, Any], prefix: str, n_labels: int) -> Self:
        """Open what `save_to` wrote."""
        is_fitted = info.pop("is_fitted", False)
        rule = cls(**info)
        if not is_fitted:
            return rule
        return replace(rule, thresholds=store.array(f"{prefix}thresholds", np.float32, shape=(n_labels,)))


RULES: dict[str, type[DecisionRule]] = {
    cls.name: cls
    for cls in (MaximizeF1, Threshold, PerLabelThreshold, TopK, ExpectedCount, TargetPrecision, TargetRecall)
}
_VALUES = {"threshold": ("value", float), "top-k": ("k", int), "target-precision": ("precision", float),
           "target-recall": ("recall", float)}  # fmt: skip


def parse_rule(rule: DecisionRule | str) -> DecisionRule:
    """Return a rule given as itself or as text, such as "maximize-f1", "top-k=5" or "target-precision=0.7"."""
    if isinstance(rule, DecisionRule):
        return rule
    name, has_value, text = str(rule).partition("=")
    if name not in RULES or (has_value and name not in _VALUES):
        raise ValueError(f"unknown decision rule {rule!r}; use {', '.join(RULES)}, some with a value, such as top-k=5")
    if not has_value:
        return RULES[name]()
    key, convert = _VALUES[name]
    try:
        value = convert(text)
    except ValueError:
        raise ValueError(f"the decision rule {name} takes a number; got {text!r}") from None
    return RULES[name](**{key: value})


def requested_rule(rule: DecisionRule | str, fitted: DecisionRule | None) -> DecisionRule:
    """Return the rule that a request names: the fitted rule of the model, if it is of this kind and these parameters.

    "default" is the fitted rule, whatever it is; a name without a value, such as "target-recall", any of its kind.
    """
    if rule == OWN_RULE and fitted is None:
        raise ValueError("the model has no decision rule of its own; name one, such as top-k=5")
    if fitted is not None and (rule == OWN_RULE or rule == fitted.name):
        return fitted
    requested = parse_rule(rule)
    return fitted if fitted is not None and requested.is_fitted_by(fitted) else requested


def load_rule(store: Store, info: Any, prefix: str, n_labels: int) -> DecisionRule:
    """Open a rule of any kind from a model directory."""
    name = info.get("name") if isinstance(info, dict) else None
    if not isinstance(name, str) or name not in RULES:
        raise ModelFormatError(f"the manifest of {store.path} does not describe the decision rule")
    try:
        values = {key: value for key, value in info.items() if key != "name"}
        for key, value in values.items():
            is_number = isinstance(value, int | float) and math.isfinite(value)
            if not is_number and key != "of" and not (value is None and key not in ("slope", "offset", "scale")):
                raise ValueError(f"{key} is {value!r}")
        return RULES[name].load_from(store, values, prefix, n_labels)
    except (TypeError, ValueError) as error:
        raise ModelFormatError(f"{store.path}: invalid decision rule: {error}") from error
