"""Explanations of any model: exact contributions of linear models, or the effect of leaving out each word."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from ramify.base.errors import DataError
from ramify.base.types import Label
from ramify.rank.explanation import Explanation

if TYPE_CHECKING:
    from ramify.models.base import Model

MAX_WORDS = 500
"""Words of a text that are left out one by one: the first ones."""
_WORD = re.compile(r"\w+")


def explain(model: Model, x: Any, label: Any, without: str | Sequence[str]) -> Explanation:
    """Explain the score of a label for one sample; see `Model.explain`."""
    X = _one_row(x)
    inputs = model._check_predict_inputs(X)
    document = inputs.data[0] if inputs.kind in ("text", "fields") else None
    if label is None:
        label = model.predict_topk(X, 1).labels()[0][0][0]
    try:
        ids = model.label_filter(allow=[label]).ids
    except DataError as error:
        raise DataError(str(error).removeprefix("allow: ")) from None
    if len(ids) != 1:
        raise DataError(f"{len(ids)} labels have the name {label!r}; pass the label itself")
    label_id = int(ids[0])
    label = model.labels_[label_id]
    ranking = model.predict_topk(X, 1, allow=[label])
    probability = None
    if model.is_calibrated:
        probability = float(model.predict_topk(X, 1, probabilities=True, allow=[label]).scores[0, 0])
    levels = model._explain_levels(inputs, label_id)
    if levels is not None:
        method, terms = "linear", _label_terms(levels)
    else:
        method, terms = "leave-one-out", [] if document is None else _leave_one_out(model, document, label)
    without = [without] if isinstance(without, str) else without
    removed = None
    if len(without):
        if document is None:
            raise DataError("words can be left out of texts only")
        less = model.predict_topk([without_words(document, set(map(str.lower, without)))], 1, allow=[label])
        removed = (list(without), float(less.scores[0, 0]))
    return Explanation(
        document,
        label,
        _name_of(model, label),
        float(ranking.scores[0, 0]),
        probability,
        method,
        terms,
        levels or [],
        model._explain_parts(inputs, label_id),
        removed,
        model._explain_neighbors(inputs, label_id),
    )


def _name_of(model: Model, label: Label) -> str | None:
    """Return the name of a label in the catalogue of the model, if there is one."""
    entry = None if model.catalogue_ is None else model.catalogue_.get_entry(label)
    return None if entry is None else entry.name()


def _one_row(x: Any) -> Any:
    if isinstance(x, str | dict):
        return [x]
    if isinstance(x, np.ndarray) and x.ndim == 1:
        return x[None, :]
    if not hasattr(x, "shape") and not isinstance(x, list | tuple):
        raise DataError(f"explain takes one text, dict of text fields or row of features; got {type(x).__name__}")
    n = x.shape[0] if hasattr(x, "shape") else len(x)
    if n != 1:
        raise DataError(f"explain takes one sample; got {n}")
    return x


def _label_terms(levels: Sequence[Any]) -> list[tuple[str, float]]:
    """Contributions at the label itself, the mean over the trees."""
    last = [level for level in levels if level.title.endswith("label")]
    total: dict[str, float] = {}
    for level in last:
        for term, value in level.contributions:
            total[term] = total.get(term, 0.0) + value / len(last)
    return sorted(total.items(), key=lambda pair: -abs(pair[1]))


def _leave_one_out(model: Model, document: Any, label: Any) -> list[tuple[str, float]]:
    """Words with the fall of the score without them, the largest first."""
    text = document if isinstance(document, str) else " ".join(document.values())
    words = list(dict.fromkeys(word.lower() for word in _WORD.findall(text)))[:MAX_WORDS]
    variants = [document, *(without_words(document, {word}) for word in words)]
    scores = model.predict_topk(variants, 1, allow=[label]).scores[:, 0].astype(np.float64)
    falls = [(word, float(scores[0] - score)) for word, score in zip(words, scores[1:], strict=True)]
    return sorted(falls, key=lambda pair: -abs(pair[1]))


def without_words(document: Any, words: Set[str]) -> Any:
    """Return a text, or a dict of text fields, without some words, given in lower case."""
    if isinstance(document, dict):
        return {name: without_words(text, words) for name, text in document.items()}
    return _WORD.sub(lambda match: "" if match[0].lower() in words else match[0], document)
