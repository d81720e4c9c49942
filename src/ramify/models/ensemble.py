"""Several models whose rankings are combined."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from ramify.base.config import param
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.progress import progress
from ramify.base.ranking import Ranking
from ramify.base.splits import hold_out
from ramify.base.types import Csr, DoubleArray, FloatArray, IntArray
from ramify.io.inputs import Inputs, take_rows
from ramify.io.labels import align_labels
from ramify.io.store import Store, StoreWriter
from ramify.metrics.ranking import ndcg_by_row
from ramify.models.base import Model
from ramify.models.member_checkpoints import MemberCheckpoints
from ramify.models.members import describe_members, load_members, members_of, save_members
from ramify.models.memory import Memory
from ramify.models.training_data import TrainingData
from ramify.rank.combine import MIN_WIDTH, Combination, combine_rankings, member_width
from ramify.rank.filters import LabelFilter

OWNER = "an Ensemble"
WEIGHTS = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Weights that validation chooses from, for each model after the first."""
MIN_CALIBRATION_ROWS = 50
"""Validation rows below which the models are not calibrated."""


@dataclass(kw_only=True, eq=False, repr=False)
class Ensemble(Model):
    """Combines the rankings of several models, of the same or of different kinds.

    Raw scores of different kinds of models are not comparable. Such models are calibrated on rows that none of them is
    trained on, and their probabilities are averaged (`combine="mean"`).

    >>> import ramify
    >>> model = Ensemble([ramify.Popular(), ramify.XRLinear()]).fit(["red fox", "red hen"], [["fox"], ["hen"]])
    >>> model.predict_topk(["a hen"], k=1).labels()[0][0][0]
    'hen'
    """

    kind: ClassVar[str] = "ensemble"

    models: tuple[Model, ...] = param((), "models to train and combine", positional=True)
    combine: Combination = param("mean", "combination of the scores")
    weights: tuple[float, ...] | Literal["validation"] | None = param(
        None,
        "weight of each model; None: equal weights; 'validation': chosen on rows that no model is trained on",
    )
    validation_size: int = param(2000, "rows held out if weights='validation', at most a tenth of the data", low=1)
    checkpoint_dir: str | None = param(
        None,
        "directory for checkpoints of trained models; an interrupted training resumes from there, to the same bits",
    )

    def _training_memory(self, data: TrainingData) -> Memory:
        return Memory.in_sequence(model._training_memory(data) for model in self.models)

    def check_params(self) -> None:
        """Check also that there are as many weights as models."""
        super().check_params()
        if isinstance(self.weights, tuple) and len(self.weights) != len(self.models):
            raise ValueError(f"Ensemble has {len(self.models)} models and {len(self.weights)} weights")

    # ---- training ----

    @classmethod
    def of(cls, models: Sequence[Model], X: Any = None, y: Any = None, **params: Any) -> Self:
        """Combine models that are already trained, on the same labels.

        Parameters
        ----------
        models : trained models; they do not change
        X, y : held-out rows, on which models without probabilities are calibrated, and weights="validation" chosen
        params : parameters of the ensemble
        """
        ensemble = cls(models=tuple(models), **params)
        first = _first(models)
        if any(list(model.labels_) != list(first.labels_) for model in models):
            raise DataError("the models were trained on different labels, or on the same ones in another order")
        if len({model.input_kind_ for model in models}) != 1 or len({model.n_features_in_ for model in models}) != 1:
            raise DataError("the models were trained on different kinds of input")
        for name in ("labels_", "label_counts_", "input_kind_", "n_features_in_"):
            setattr(ensemble, name, getattr(first, name))
        ensemble._set_decisions(None, None)
        ensemble.catalogue_ = first.catalogue_
        ensemble.models_, ensemble.weights_ = [copy.copy(model) for model in models], ensemble._given_weights()
        if X is None and ensemble.weights == "validation":
            raise ValueError("weights='validation' are chosen on held-out rows: pass them as Ensemble.of(models, X, y)")
        if X is None and ensemble._needs_probabilities and not all(model.is_calibrated for model in models):
            raise ValueError(
                "scores of different kinds of models cannot be averaged: pass held-out rows, of(models, X, y), "
                "call calibrate(X, y) of each model, or use combine='rank'"
            )
        if X is not None:
            truth, n_known = align_labels(y, ensemble.labels_)
            ensemble._fit_combination(X, truth[:, :n_known].tocsr())
        return ensemble

    def _fit(self, data: TrainingData) -> None:
        inputs, Y = data.inputs, data.Y
        _first(self.models)
        rows, validation = np.arange(len(inputs)), np.empty(0, np.int64)
        if self.weights == "validation" or self._needs_probabilities:
            others, held = hold_out(Y, self.validation_size, self.seed)
            if self.weights == "validation" or len(held) >= MIN_CALIBRATION_ROWS:
                rows, validation = others, held
        weights = None if data.sample_weight is None else data.sample_weight[rows]
        train, checkpoints = take_rows(inputs, rows).data, MemberCheckpoints(self.checkpoint_dir, self, data)
        names = data.names_by_id()
        self.models_ = []
        with progress("model", len(self.models), self.verbose, "models") as advance:
            for i, model in enumerate(self.models):
                self.models_.append(checkpoints.fit(model, f"model {i}", train, Y[rows], weights, names))
                advance(1)
        self.weights_ = self._given_weights()
        if len(validation):
            self._fit_combination(take_rows(inputs, validation).data, Y[validation])
        for model in self.models_:
            model.labels_ = data.labels  # so that each member also ranks the labels, not their ids
            model.catalogue_ = None
        checkpoints.clear()

    @property
    def _needs_probabilities(self) -> bool:
        return self.combine == "mean" and len({model.score_scale or model.kind for model in self.models}) > 1

    def _fit_combination(self, X: Any, Y: Csr) -> None:
        """Calibrate the models and choose the weights, if wanted, on held-out rows."""
        if self._needs_probabilities and Y.shape[0] >= MIN_CALIBRATION_ROWS:
            for model in self.models_:
                if not model.is_calibrated:
                    model.calibrate(X, Y)
        if self.weights == "validation":
            k = min(MIN_WIDTH, Y.shape[1])
            if not Y.nnz:
                raise DataError("no held-out row has a label of the models: there is nothing to choose weights by")
            self.weights_ = self._best_weights(self._rankings(X, k), Y)

    def _rankings(self, X: Any, k: int, allow: LabelFilter | None = None) -> list[Ranking]:
        """Rankings of all models, by probability where they are averaged."""
        calibrated = self._needs_probabilities and all(model.is_calibrated for model in self.models_)
        return [model.predict_topk(X, k, probabilities=calibrated, allow=allow) for model in self.models_]

    def _given_weights(self) -> list[float]:
        return list(self.weights) if isinstance(self.weights, tuple) else [1.0] * len(self.models)

    def _best_weights(self, rankings: list[Ranking], truth: Csr) -> list[float]:
        """Weights with the best validation nDCG@5; of equally good ones the most uniform.

        A worse model gets more weight than a better one only where that is better by more than two standard
        errors: among many choices, the best one on few rows is partly luck.
        """
        k, n, has_labels = min(5, truth.shape[1]), len(rankings), np.diff(truth.indptr) > 0
        single = [tuple(row) for row in np.eye(n).tolist()]
        choices = sorted(itertools.product([1.0], *[WEIGHTS] * (n - 1)), key=lambda w: float(np.var(w)))
        if n > 3:  # too many to try: equal weights, or a single model
            choices = [(1.0,) * n, *single]

        def ndcg(weights: tuple[float, ...]) -> DoubleArray:
            combined = combine_rankings(rankings, k, self.combine, weights)
            return np.asarray(ndcg_by_row(combined.ids, truth, k)[has_labels])

        found = {weights: ndcg(weights) for weights in choices}
        best = max(choices, key=lambda w: float(found[w].mean()))
        quality = [float(ndcg(weights).mean()) for weights in single]

        def is_in_order(weights: tuple[float, ...]) -> bool:
            pairs = itertools.permutations(range(n), 2)
            return all(weights[i] >= weights[j] for i, j in pairs if quality[i] > quality[j])

        ordered = max(filter(is_in_order, choices), key=lambda w: float(found[w].mean()))
        lead = found[best] - found[ordered]
        return list(ordered if lead.mean() <= 2 * lead.std() / np.sqrt(len(lead)) else best)

    # ---- prediction ----

    def _predict_topk(self, inputs: Inputs, k: int) -> tuple[IntArray, FloatArray]:
        width = member_width(k, self.n_labels)
        found = combine_rankings(self._rankings(inputs.data, width), k, self.combine, self.weights_)
        return found.ids, found.scores

    def _predict_allowed(self, inputs: Inputs, k: int, label_filter: LabelFilter) -> tuple[IntArray, FloatArray]:
        """Ids and scores (n, k) of allowed labels: each model searches them, where its scores do not depend on others.

        Ranks and the softmax of a row do, so that more labels are ranked until enough of them are allowed.
        """
        if self.combine not in ("mean", "sigmoid") or not len(label_filter):
            return super()._predict_allowed(inputs, k, label_filter)
        width = member_width(k, len(label_filter))
        found = combine_rankings(self._rankings(inputs.data, width, label_filter), k, self.combine, self.weights_)
        return found.ids, found.scores

    # ---- files ----

    def to_dict(self) -> dict[str, Any]:
        """Nested parameters as plain values; each model with its kind."""
        return {**super().to_dict(), "models": describe_members(self.models)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Restore what `to_dict` returned."""
        return super().from_dict({**values, "models": members_of(values.get("models", ()), OWNER)})

    def _set(self, path: str, value: Any) -> None:
        super()._set(path, members_of(value, OWNER) if path == "models" else value)

    def _save(self, writer: StoreWriter) -> dict[str, Any]:
        return {"models": save_members(self.models_, writer), "weights": self.weights_}

    def _load(self, store: Store, state: Any) -> None:
        parts = state.get("models") if isinstance(state, dict) else None
        weights = state.get("weights") if isinstance(state, dict) else None
        if not isinstance(parts, list) or not isinstance(weights, list) or len(parts) != len(weights) or not parts:
            raise ModelFormatError(f"the manifest of {store.path} does not describe the models of the ensemble")
        if not all(type(weight) in (int, float) and 0 <= weight < 1e30 for weight in weights):
            raise ModelFormatError(f"the manifest of {store.path} has weights of the ensemble that are not weights")
        self.weights_ = [float(weight) for weight in weights]
        self.models_ = load_members(store, parts, self.n_labels, "the ensemble")


def _first(models: Sequence[Model]) -> Model:
    if not models:
        raise ValueError(
            "an Ensemble needs models: Ensemble([XRLinear(), OneVsAll()]), or in the shell "
            '--set \'models=["xr-linear", "one-vs-all"]\''
        )
    return models[0]
