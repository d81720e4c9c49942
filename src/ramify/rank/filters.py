"""Label filters: which labels a prediction may contain, prepared once and used for many requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from ramify.base.errors import DataError
from ramify.base.types import AnyArray, BoolArray, ByteArray, FloatArray, IntArray, Label
from ramify.index.tree import LabelTree
from ramify.io.catalogue import LabelCatalogue, LabelEntry
from ramify.io.labels import LabelVocabulary

Prepared = TypeVar("Prepared")
Predicate = Callable[[Label, LabelEntry | None], bool]
"""Whether a label, with its catalogue entry, is allowed."""


@dataclass(frozen=True, eq=False)
class LabelFilter:
    """The labels that a prediction may contain; `Model.label_filter` makes one.

    Attributes
    ----------
    allowed : (L,) whether each label is allowed
    ids : (m,) the allowed labels
    """

    allowed: BoolArray
    ids: IntArray = field(init=False)
    _prepared: dict[int, tuple[Any, Any]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", np.flatnonzero(self.allowed).astype(np.int32))

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"<LabelFilter: {len(self):,} of {len(self.allowed):,} labels>"

    def prepared(self, index: Any, prepare: Callable[[], Prepared]) -> Prepared:
        """Return what `prepare` computes for an index, from the second time on without computing it."""
        if id(index) not in self._prepared:
            self._prepared[id(index)] = (index, prepare())  # the index is kept, so that its id stays its own
        return self._prepared[id(index)][1]  # type: ignore[no-any-return]


def make_filter(
    labels: LabelVocabulary,
    catalogue: LabelCatalogue | None,
    *,
    allow: Iterable[Label] | None = None,
    deny: Iterable[Label] | None = None,
    allow_prefix: str | tuple[str, ...] | None = None,
    where: Predicate | None = None,
) -> LabelFilter:
    """Return the filter of labels that meet all conditions; see `Model.label_filter`."""
    allowed = np.ones(len(labels), bool)
    if allow is not None:
        allowed &= _mask(allow, labels, catalogue, "allow")
    if deny is not None:
        allowed &= ~_mask(deny, labels, catalogue, "deny")
    if allow_prefix is not None:
        allowed &= np.fromiter((str(label).startswith(allow_prefix) for label in labels), bool, count=len(labels))
    if where is not None:
        entry = (lambda label: None) if catalogue is None else catalogue.get_entry
        allowed &= np.fromiter((bool(where(label, entry(label))) for label in labels), bool, count=len(labels))
    return LabelFilter(allowed)


def _mask(given: Iterable[Label], labels: LabelVocabulary, catalogue: LabelCatalogue | None, what: str) -> BoolArray:
    """Mask (L,) of labels given by themselves or by a name of the catalogue."""
    if isinstance(given, str | bytes):
        raise DataError(f"{what} must be a collection of labels; got the text {given!r}")
    mask = np.zeros(len(labels), bool)
    for label in given:
        found = [label] if label in labels.ids else []
        if not found and catalogue is not None and isinstance(label, str):
            named = map(labels.from_text, catalogue.by_name.get(label.casefold(), []))  # a file has texts
            found = [other for other in named if other in labels.ids]
        if not found:
            raise DataError(f"{what}: the model knows no label {label!r}, nor has its catalogue a label of this name")
        mask[[labels.ids[other] for other in found]] = True
    return mask


def node_mask(tree: LabelTree, allowed: BoolArray) -> ByteArray:
    """Which nodes of all levels of a tree, top down, have an allowed label below."""
    ends = np.cumsum([int(children[-1]) for children in tree.levels])
    mask = np.zeros(ends[-1], np.uint8)
    nodes = np.flatnonzero(allowed[tree.labels])
    for t in range(len(tree.levels) - 1, -1, -1):
        children, level = tree.levels[t], mask[ends[t] - int(tree.levels[t][-1]) : ends[t]]
        level[nodes] = 1
        if len(nodes) < len(level) // 16:
            nodes = np.unique(np.searchsorted(children, nodes, side="right") - 1)
        else:
            below = np.concatenate([[0], np.cumsum(level, dtype=np.int64)])
            nodes = np.flatnonzero(below[children[1:]] > below[children[:-1]])
    return mask


def keep_allowed(ids: IntArray, scores: FloatArray, allowed: BoolArray, k: int) -> tuple[IntArray, FloatArray]:
    """Ids and scores (n, k) of the allowed labels of a ranking (n, m), in their order."""
    return select(ids, scores, (ids >= 0) & allowed[np.maximum(ids, 0)], k)


def select(ids: IntArray, scores: FloatArray, chosen: BoolArray, k: int) -> tuple[IntArray, FloatArray]:
    """Ids and scores (n, k) of the first k chosen labels of a ranking (n, m), padded."""
    order = np.argsort(~chosen, axis=1, kind="stable")[:, :k]
    kept, shape = np.take_along_axis(chosen, order, 1), (len(ids), k)
    found, values = np.full(shape, -1, np.int32), np.full(shape, -np.inf, np.float32)
    np.copyto(found[:, : order.shape[1]], np.take_along_axis(ids, order, 1), where=kept)
    np.copyto(values[:, : order.shape[1]], np.take_along_axis(scores, order, 1), where=kept)
    return found, values


def fill_up(ids: IntArray, scores: FloatArray, label_filter: LabelFilter, counts: AnyArray) -> None:
    """Put allowed labels, the most frequent first, into the padding of a ranking (n, k), below all others."""
    if ids.shape[1] == 0 or ids[:, -1].min(initial=0) >= 0:
        return
    by_frequency = label_filter.ids[np.argsort(-counts[label_filter.ids], kind="stable")]
    for row in np.flatnonzero(ids[:, -1] < 0):
        n = int((ids[row] >= 0).sum())
        first = by_frequency[: ids.shape[1]]  # at most n of them are in the row
        rest = first[~np.isin(first, ids[row, :n])][: ids.shape[1] - n]
        lowest = scores[row, n - 1] if n else np.float32(0)
        ids[row, n : n + len(rest)] = rest
        scores[row, n : n + len(rest)] = lowest - np.abs(lowest) * np.float32(0.5)
