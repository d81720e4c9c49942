"""Rankings of allowed labels: one filter for all rows, or one for each, for models with and without an index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ramify.base.errors import DataError
from ramify.base.ranking import strictly_descending
from ramify.base.types import AnyArray, FloatArray, IntArray, LongArray
from ramify.io.inputs import Inputs, take_rows
from ramify.rank.filters import LabelFilter, fill_up, keep_allowed
from ramify.rank.probabilities import Calibration

if TYPE_CHECKING:
    from ramify.models.base import Model

CALIBRATION_LABELS = 100
"""Best labels of a held-out row that probabilities and decision rules are fitted to."""


@dataclass(frozen=True, eq=False)
class RowFilters:
    """The filters of a request.

    Attributes
    ----------
    filters : those that differ
    of_row : (n,) which of them each row has
    """

    filters: list[LabelFilter]
    of_row: LongArray

    @classmethod
    def of(cls, model: Model, allow: Any, deny: Any, n: int) -> RowFilters | None:
        """Return the filters of n rows, as `Model.predict_topk` takes them; None if every label is allowed."""
        if allow is None and deny is None:
            return None
        by_row = [_is_by_row(given) for given in (allow, deny)]
        if not any(by_row):
            return cls([_make_filter(model, allow, deny)], np.zeros(n, np.int64))
        for given, is_by_row in zip((allow, deny), by_row, strict=True):
            if is_by_row and len(given) != n:
                raise DataError(f"there are {len(given)} filters for {n} rows")
        filters: dict[Any, tuple[int, LabelFilter]] = {}
        of_row = np.empty(n, np.int64)
        for i in range(n):
            pair = allow[i] if by_row[0] else allow, deny[i] if by_row[1] else deny
            key = tuple(
                given if given is None or isinstance(given, LabelFilter) else frozenset(given) for given in pair
            )
            if key not in filters:
                filters[key] = len(filters), _make_filter(model, *pair)
            of_row[i] = filters[key][0]
        return cls([label_filter for _, label_filter in filters.values()], of_row)

    def take(self, rows: AnyArray) -> RowFilters:
        """Return the filters of some rows (m,)."""
        return RowFilters(self.filters, self.of_row[rows])


def rank_labels(
    model: Model, inputs: Inputs, k: int, filters: RowFilters | None, calibration: Calibration | None
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Ids, scores and probabilities (n, k) of the best allowed labels; without a calibration, scores twice.

    A probability does not depend on the filter: it is that of the label in the ranking of all labels.
    """
    if filters is None:
        ids, scores = model._ranked(inputs, k)
    else:
        ids, scores = _filtered_ranking(model, inputs, k, filters)
    if calibration is None:
        return ids, scores, scores
    if filters is None:
        return ids, scores, strictly_descending(ids, calibration(scores))
    everything = model._ranked(inputs, min(CALIBRATION_LABELS, model.n_labels))
    return ids, scores, strictly_descending(ids, calibration.of_allowed((ids, scores), everything))


def _filtered_ranking(model: Model, inputs: Inputs, k: int, filters: RowFilters) -> tuple[IntArray, FloatArray]:
    """Ids and scores (n, k) of allowed labels; rows with the same filter are searched together."""
    if len(filters.filters) == 1:
        ids, scores = model._predict_allowed(inputs, k, filters.filters[0])
        return ids, strictly_descending(ids, scores)
    ids = np.full((len(inputs), k), -1, np.int32)
    scores = np.full((len(inputs), k), -np.inf, np.float32)
    for i in np.unique(filters.of_row):
        rows = np.flatnonzero(filters.of_row == i)
        ids[rows], scores[rows] = model._predict_allowed(take_rows(inputs, rows), k, filters.filters[i])
    return ids, strictly_descending(ids, scores)


def rank_more_labels(model: Model, inputs: Inputs, k: int, label_filter: LabelFilter) -> tuple[IntArray, FloatArray]:
    """Ids and scores (n, k) of allowed labels: rank ever more labels until enough of them are allowed.

    Labels that the search of a model does not reach follow by frequency.
    """
    wanted, n_labels = min(k, len(label_filter)), model.n_labels
    least = max(4 * k, CALIBRATION_LABELS)  # as many as an unfiltered ranking may have, with the same scores
    width = min(n_labels, max(least, 2 * k * n_labels // max(1, len(label_filter))))
    while True:
        ids, scores = keep_allowed(*model._predict_topk(inputs, width), label_filter.allowed, k)
        if width == n_labels or np.all((ids >= 0).sum(axis=1) >= wanted):
            break
        width = min(4 * width, n_labels)
    fill_up(ids[:, :wanted], scores[:, :wanted], label_filter, model.label_counts_.counts)
    return ids, scores


def _make_filter(model: Model, allow: Any, deny: Any) -> LabelFilter:
    """Return the filter of what is allowed and not denied, each given as labels or as a filter."""
    prepared = [given for given in (allow, deny) if isinstance(given, LabelFilter)]
    for given in prepared:
        if len(given.allowed) != model.n_labels:
            raise DataError(f"the filter has {len(given.allowed)} labels, the model {model.n_labels}")
    if not prepared:
        return model.label_filter(allow=allow, deny=deny)
    if deny is None:
        return prepared[0]
    allowed = allow if isinstance(allow, LabelFilter) else model.label_filter(allow=allow)
    rest = ~deny.allowed if isinstance(deny, LabelFilter) else model.label_filter(deny=deny).allowed
    return LabelFilter(allowed.allowed & rest)


def _is_by_row(given: Any) -> bool:
    """Whether there is a filter for each row; a tuple is a label."""
    kinds = (list, set, frozenset, LabelFilter, type(None))
    return isinstance(given, list) and len(given) > 0 and all(isinstance(entry, kinds) for entry in given)
