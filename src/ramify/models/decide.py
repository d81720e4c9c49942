"""Probabilities and label sets of any model: fitted on held-out rows, applied to new ones."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ramify.base.errors import NotCalibratedError
from ramify.base.types import BoolArray, Csr, FloatArray, IntArray, LongArray
from ramify.io.inputs import Inputs, take_rows
from ramify.models.filtering import CALIBRATION_LABELS, RowFilters, rank_labels
from ramify.models.training_data import TrainingData
from ramify.native.matrix import ranking_hits
from ramify.rank.decision_rule import DecisionRule, HeldOut
from ramify.rank.decisions import Threshold, parse_rule, requested_rule
from ramify.rank.probabilities import Calibration, fit_calibration
from ramify.rank.widening import kept_labels

if TYPE_CHECKING:
    from ramify.models.base import Model
    from ramify.models.training_data import TrainingData


def fit_decisions(
    model: Model, inputs: Inputs, truth: Csr, rule: DecisionRule | str
) -> tuple[Calibration, DecisionRule]:
    """Fit probabilities and a rule to held-out rows with true labels (n × (L + unknown ones))."""
    rule = parse_rule(rule)
    ids, scores = model._ranked(inputs, min(CALIBRATION_LABELS, model.n_labels))
    first = second = np.arange(len(ids))
    if rule.has_guarantee:  # which needs rows that the probabilities have not seen
        order = np.random.default_rng(model.seed).permutation(len(ids))
        first, second = np.sort(order[::2]), np.sort(order[1::2])
    calibration = fit_calibration(scores[first], ranking_hits(ids[first], truth[first], 1))
    values = calibration(scores[second]) if rule.needs_probabilities else scores[second]
    return calibration, rule.fit(HeldOut(ids[second], values, truth[second], model.n_labels))


def cross_fit_decisions(
    model: Model, data: TrainingData, fraction: float, max_rows: int, rule: DecisionRule | str
) -> tuple[Calibration | None, DecisionRule | None]:
    """Fit probabilities and a rule with a copy of the model that is trained without a fraction of the rows."""
    inputs, Y, weights = data.inputs, data.Y, data.sample_weight
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must be between 0 and 1; got {fraction!r}")
    order = np.random.default_rng(model.seed).permutation(len(inputs))
    n_held = max(1, min(max_rows, round(fraction * len(inputs))))
    held, rest = np.sort(order[:n_held]), np.sort(order[n_held:])
    copy = model.clone()
    if directory := getattr(copy, "checkpoint_dir", None):  # those of the model itself stay what it resumes from
        copy.set_params(checkpoint_dir=str(Path(directory) / "calibration"))
    copy.fit(
        take_rows(inputs, rest).data,
        Y[rest],
        sample_weight=None if weights is None else weights[rest],
        label_catalogue=data.names_by_id(),
    )
    copy.calibrate(take_rows(inputs, held).data, Y[held], rule=rule)
    return copy.calibration_, copy.rule_


def choose_labels(
    model: Model, inputs: Inputs, rule: DecisionRule | str | None, allow: Any = None, deny: Any = None
) -> Csr:
    """Probabilities (n × L) of the labels that a rule chooses from the allowed ones; scores, if not calibrated.

    Without a rule it is that of the model.
    """
    decision = _rule_of(model) if rule is None else requested_rule(rule, model.rule_)
    calibration = check_calibrated(model) if decision.needs_probabilities else model.calibration_
    filters = RowFilters.of(model, allow, deny, len(inputs))

    def search(rows: LongArray, k: int) -> tuple[IntArray, FloatArray, BoolArray]:
        part = None if filters is None else filters.take(rows)
        ids, scores, values = rank_labels(model, take_rows(inputs, rows), k, part, calibration)
        return ids, values, decision.choose(ids, values if decision.needs_probabilities else scores)

    return kept_labels(search, len(inputs), model.n_labels, decision.width, decision.is_settled)


class available_if_calibrated:
    """Makes a method an attribute of calibrated models only, as `available_if` of scikit-learn does.

    scikit-learn asks for what an estimator has; to others a model without probabilities says what to do.
    """

    def __init__(self, method: Callable[..., Csr]) -> None:
        self._method = method
        self.__doc__, self.__name__ = method.__doc__, method.__name__

    def __get__(self, model: Model | None, owner: type[Model]) -> Callable[..., Csr]:
        if model is None:
            return self._method
        model._check_fitted()
        check_calibrated(model)
        return types.MethodType(self._method, model)


def check_calibrated(model: Model) -> Calibration:
    """Return the calibration of a model; raises `NotCalibratedError` if it has none."""
    if model.calibration_ is None:
        raise NotCalibratedError(
            f"this {type(model).__name__} has no probabilities: its scores are raw; call calibrate(X, y) with rows "
            "that it was not trained on, or train it with fit_calibrated (in the shell: ramify calibrate)"
        )
    return model.calibration_


def _rule_of(model: Model) -> DecisionRule:
    """Return the fitted rule of a model; without one, its threshold on raw scores, with a warning unless it was set."""
    if model.rule_ is not None:
        return model.rule_
    threshold = Threshold(model.threshold, of="score")
    if model.scores_are_probabilities or model.threshold != type(model).threshold:
        return threshold
    warnings.warn(
        f"this {type(model).__name__} has no decision rule: labels with a raw score of at least {model.threshold:g} "
        "are assigned, which may be far too many or too few; call calibrate(X, y) with held-out rows, pass rule=, "
        "or set the parameter threshold",
        UserWarning,
        stacklevel=4,
    )
    return threshold
