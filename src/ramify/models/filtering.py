"""Rankings of allowed labels: one filter for all rows, or one for each, for models with and without an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ramify.base.errors import DataError
from ramify.base.ranking import strictly_descending
from ramify.base.types import FloatArray, IntArray
from ramify.io.inputs import Inputs, take_rows
from ramify.rank.filters import LabelFilter, fill_up, keep_allowed

if TYPE_CHECKING:
    from ramify.models.base import Model


def filtered_ranking(model: Model, inputs: Inputs, k: int, allow: Any, deny: Any) -> tuple[IntArray, FloatArray]:
    """Ids and scores (n, k) of allowed labels; rows with the same filter are searched together."""
    filters = [_as_filter(model, *pair) for pair in _pairs(allow, deny, len(inputs))]
    if len(filters) == 1:
        ids, scores = model._predict_allowed(inputs, k, filters[0])
        return ids, strictly_descending(ids, scores)
    ids = np.full((len(inputs), k), -1, np.int32)
    scores = np.full((len(inputs), k), -np.inf, np.float32)
    groups: dict[bytes, list[int]] = {}
    for row, label_filter in enumerate(filters):
        groups.setdefault(label_filter.ids.tobytes(), []).append(row)
    for rows in groups.values():
        part = take_rows(inputs, np.array(rows))
        ids[rows], scores[rows] = model._predict_allowed(part, k, filters[rows[0]])
    return ids, strictly_descending(ids, scores)


def rank_more_labels(model: Model, inputs: Inputs, k: int, label_filter: LabelFilter) -> tuple[IntArray, FloatArray]:
    """Ids and scores (n, k) of allowed labels: rank ever more labels until enough of them are allowed.

    Labels that the search of a model does not reach follow by frequency.
    """
    wanted, n_labels = min(k, len(label_filter)), model.n_labels
    width = min(n_labels, max(4 * k, 2 * k * n_labels // max(1, len(label_filter))))
    while True:
        ids, scores = keep_allowed(*model._predict_topk(inputs, width), label_filter.allowed, k)
        if width == n_labels or np.all((ids >= 0).sum(axis=1) >= wanted):
            break
        width = min(4 * width, n_labels)
    fill_up(ids[:, :wanted], scores[:, :wanted], label_filter, model.label_counts_.counts)
    return ids, scores


def _as_filter(model: Model, allow: Any, deny: Any) -> LabelFilter:
    if not isinstance(allow, LabelFilter):
        return model.label_filter(allow=allow, deny=deny)
    if len(allow.allowed) != model.n_labels:
        raise DataError(f"the filter has {len(allow.allowed)} labels, the model {model.n_labels}")
    return allow if deny is None else LabelFilter(allow.allowed & model.label_filter(deny=deny).allowed)


def _pairs(allow: Any, deny: Any, n: int) -> list[tuple[Any, Any]]:
    """Allowed and denied labels of each row; a single pair if they are the same for all rows."""
    by_row = [_is_by_row(given) for given in (allow, deny)]
    if not any(by_row):
        return [(allow, deny)]
    for given, is_by_row in zip((allow, deny), by_row, strict=True):
        if is_by_row and len(given) != n:
            raise DataError(f"there are {len(given)} filters for {n} rows")
    return [(allow[i] if by_row[0] else allow, deny[i] if by_row[1] else deny) for i in range(n)]


def _is_by_row(given: Any) -> bool:
    """Whether there is a filter for each row; a tuple is a label."""
    kinds = (list, set, frozenset, LabelFilter, type(None))
    return isinstance(given, list) and len(given) > 0 and all(isinstance(entry, kinds) for entry in given)
