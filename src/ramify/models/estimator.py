"""Models as scikit-learn estimators: scores, tags, metadata routing and pickling."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from ramify.base.errors import DataError
from ramify.base.estimators import MetadataRouting, classifier_tags
from ramify.base.html import html_table
from ramify.base.types import AnyArray, Csr
from ramify.io.labels import align_labels
from ramify.io.packed import pack, unpacked
from ramify.metrics.ranking import ndcg_by_row

if TYPE_CHECKING:
    from ramify.models.base import Model

SCORED_LABELS = 100
"""`decision_function` scores this many labels of each row."""
SCORE_CUTOFF = 5


class Estimator(MetadataRouting):
    """What makes a `Model` an estimator of scikit-learn."""

    def decision_function(self: Any, X: Any) -> Csr:
        """Return the scores of the best 100 labels of each row (n × L); a label that is not stored was not ranked."""
        self._check_fitted()
        scores: Csr = self.predict_topk(X, SCORED_LABELS).to_csr()
        return scores

    def score(self: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return nDCG@5 of the ranked labels, from 0 to 1: the mean over the rows that have a label.

        This is what `GridSearchCV` and `cross_val_score` maximize unless `scoring` is given. scikit-learn's own
        default, the fraction of rows with exactly the right set of labels, is near 0 where labels are many.
        """
        ranking = self.predict_topk(X, SCORE_CUTOFF)
        truth, _ = align_labels(y, self.labels_)
        if truth.shape[0] != len(ranking):
            raise DataError(f"X has {len(ranking)} rows, but y has {truth.shape[0]}")
        values = ndcg_by_row(ranking.ids, truth, SCORE_CUTOFF)
        weights = np.ones(len(values)) if sample_weight is None else check_sample_weight(sample_weight, len(values))
        weights = np.where(np.isnan(values), 0.0, weights)
        total = float(weights.sum())
        return float(np.nansum(values * weights) / total) if total > 0 else 0.0

    def __sklearn_tags__(self) -> Any:
        return classifier_tags()

    def _repr_html_(self: Any) -> str:
        """Show the model in a notebook: its parameters, and what it was fitted on."""
        defaults = {info.path: info.default for info in type(self).describe()}
        rows = [["parameter", "value", "meaning"]]
        for info in type(self).describe(defaults=self):
            is_default = info.path in defaults and defaults[info.path] == info.default
            rows.append([f"{info.path}{'' if is_default else ' *'}", repr(info.default), info.doc])
        caption, notes = f"{type(self).__name__}, not fitted", ["* differs from the default"]
        if self.__sklearn_is_fitted__():
            n_samples = self.label_counts_.n_samples
            caption = f"{type(self).__name__}: {self.n_labels:,} labels, fitted on {n_samples:,} samples"
        return f"<details><summary>{escape(repr(self))}</summary>{html_table(rows, caption, notes)}</details>"

    def __reduce__(self: Any) -> tuple[Any, ...]:
        """Pickle the directory that `save` writes, so that a model can be copied to the workers of joblib."""
        request = getattr(self, "_metadata_request", None)
        if self.__sklearn_is_fitted__():
            return _unpickle, (type(self), pack(self.save), request)
        params = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return _rebuild, (type(self), params, request)


def _rebuild(cls: type[Model], params: dict[str, Any], request: Any) -> Model:
    return _with_request(cls(**params), request)


def _unpickle(cls: type[Model], packed: bytes, request: Any) -> Model:
    with unpacked(packed) as directory:
        return _with_request(cls.load(directory), request)


def _with_request(model: Model, request: Any) -> Model:
    if request is not None:
        model._metadata_request = request
    return model


def check_sample_weight(weights: Any, n: int) -> Any:
    """Validate weights of samples (n,): finite and not negative."""
    try:
        values = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        raise DataError(f"sample_weight must be numbers, one for each of the {n} rows; got {weights!r:.60}") from None
    if values.shape != (n,):
        raise DataError(f"sample_weight must have one weight for each of the {n} rows; its shape is {values.shape}")
    if not np.isfinite(values).all() or (n and values.min() < 0):
        raise DataError("sample_weight must be finite and not negative")
    if n and not values.any():
        raise DataError("all weights in sample_weight are zero")
    return values


def label_array(vocabulary: Iterable[Any]) -> AnyArray:
    """Labels (L,) in the order of their ids: integers, or objects."""
    labels = list(vocabulary)
    is_int = all(type(label) is int and -(2**63) <= label < 2**63 for label in labels)
    # Strings stay objects: a fixed-width array would pad each to the longest, and strip trailing NULs.
    classes = np.empty(len(labels), np.int64 if is_int else object)
    for i, label in enumerate(labels):  # one by one: NumPy would take tuples for rows
        classes[i] = label
    return classes
