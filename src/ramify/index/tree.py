"""Label trees: every label stands at one or more places under a path of nodes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ramify.base.errors import DataError, ModelFormatError
from ramify.base.sparse import as_csr, csr_from_parts, indptr_from_counts
from ramify.base.types import AnyArray, Csr, IntArray, LongArray
from ramify.io.store import Store, StoreWriter

_OWN = object()
"""Stands for the node that holds labels which end higher up than others."""


@dataclass(frozen=True, eq=False)
class LabelTree:
    """A tree whose leaves are labels, all at one depth.

    Nodes of a level are numbered so that the children of a node lie side by side. The last level holds the places of
    the labels; a label may have several places (overlapping clusters), and has at least one.

    Attributes
    ----------
    levels : for each level, borders (n_parents + 1,) of the children of each node of the level above; the first level
        has the one parent that is the root
    labels : (n_places,) label at each place of the last level
    """

    levels: tuple[LongArray, ...]
    labels: IntArray
    n_labels: int

    def __post_init__(self) -> None:
        n_above = 1
        for borders in self.levels:
            if len(borders) != n_above + 1 or borders[0] != 0 or np.any(np.diff(borders) < 0):
                raise DataError("the levels of the tree do not fit together")
            n_above = int(borders[-1])
        if not self.levels or n_above != len(self.labels):
            raise DataError(f"the tree has {n_above} places for {len(self.labels)} labels")
        if len(self.labels) and not (self.labels.min() >= 0 and self.labels.max() < self.n_labels):
            raise DataError(f"the tree names labels outside 0 to {self.n_labels - 1}")
        if len(self.labels) < self.n_labels:
            raise DataError(f"{len(self.labels)} places are not enough for {self.n_labels} labels: some have no place")

    def check_complete(self) -> LabelTree:
        """Raise `DataError` if a label has no place, else return the tree; opening a model does without."""
        missing = np.flatnonzero(np.bincount(self.labels, minlength=self.n_labels) == 0)
        if len(missing):
            raise DataError(f"{len(missing)} labels have no place in the tree, the first is number {missing[0]}")
        return self

    # ---- a user's own trees ----

    @classmethod
    def flat(cls, n_labels: int) -> LabelTree:
        """Every label directly under the root: one-vs-all."""
        return cls((np.array([0, n_labels], np.int64),), np.arange(n_labels, dtype=np.int32), n_labels)

    @classmethod
    def from_chain(cls, chain: Sequence[Any]) -> LabelTree:
        """Tree from cluster matrices C, top down: C[t] (nodes of level t × nodes of the level above).

        The first has one column, or is left away if it would only say that all its nodes are under the root. A row with
        several entries is a node, or label, that stands under several parents.
        """
        matrices = [as_csr(C, f"chain[{t}]") for t, C in enumerate(chain)]
        if not matrices:
            raise DataError("the chain of cluster matrices is empty")
        if matrices[0].shape[1] != 1:
            matrices.insert(0, sparse.csr_matrix(np.ones((matrices[0].shape[1], 1), np.float32)))
        levels: list[LongArray] = []
        places = np.zeros(1, np.int64)  # node at each place of the level above
        for t, C in enumerate(matrices):
            if t and C.shape[1] != matrices[t - 1].shape[0]:
                raise DataError(
                    f"chain[{t}] has {C.shape[1]} columns, but there are {matrices[t - 1].shape[0]} nodes above it"
                )
            below = C.T.tocsr()[places]  # children of each place
            levels.append(below.indptr.astype(np.int64))
            places = below.indices.astype(np.int64)
        return cls(tuple(levels), places.astype(np.int32), matrices[-1].shape[0]).check_complete()

    @classmethod
    def from_paths(cls, paths: Sequence[Any]) -> LabelTree:
        """Tree from the path of each label, in the order of the labels.

        A path lists the names of the nodes from the top down, without the label itself: ``["science", "physics"]``. A
        label that has several paths gets a list of tuples: ``[("science", "physics"), ("history",)]``.
        """
        every = [_as_paths(path, label) for label, path in enumerate(paths)]
        if not every:
            raise DataError("there are no labels to make a tree of")
        depth = max(len(path) for places in every for path in places)
        # Labels that end higher up share a node of their own on each level below.
        rows = sorted(
            ((path + (_OWN,) * (depth - len(path)), label) for label, places in enumerate(every) for path in places),
            key=lambda row: (tuple((name is not _OWN, type(name).__name__, str(name)) for name in row[0]), row[1]),
        )
        levels: list[list[int]] = [[0] for _ in range(depth + 1)]
        counts = [0] * (depth + 1)
        previous: tuple[Any, ...] | None = None
        for path, _ in rows:
            first_new = 0
            if previous is not None:
                while first_new < depth and path[first_new] == previous[first_new]:
                    first_new += 1
            for t in range(first_new, depth):
                counts[t] += 1
                levels[t + 1].append(counts[t + 1])  # the new node has no children yet
            counts[depth] += 1
            for t in range(depth):
                levels[t + 1][-1] = counts[t + 1]
            previous = path
        levels[0].append(counts[0])
        if depth == 0:
            levels[0] = [0, counts[0]]
        return cls(
            tuple(np.array(borders, np.int64) for borders in levels),
            np.array([label for _, label in rows], np.int32),
            len(every),
        )

    @classmethod
    def from_parents(cls, parents: Any, nodes_of_labels: Any = None) -> LabelTree:
        """Tree from a taxonomy: the parent of each node, -1 for those at the top.

        Parameters
        ----------
        parents : (n_nodes,) number of each node's parent
        nodes_of_labels : (L,) node of each label; a label may be an inner node. None: the nodes without children, in
            order
        """
        parents = np.asarray(parents)
        if parents.ndim != 1 or parents.dtype.kind not in "iu":
            raise DataError("parents must be a list of whole numbers, -1 for nodes at the top")
        n = len(parents)
        if n and not (parents.min() >= -1 and parents.max() < n):
            raise DataError(f"parents must lie between -1 and {n - 1}")
        inner = np.zeros(n, bool)
        inner[parents[parents >= 0]] = True
        nodes = np.flatnonzero(~inner) if nodes_of_labels is None else np.asarray(nodes_of_labels)
        if nodes.ndim != 1 or (len(nodes) and not (nodes.min() >= 0 and nodes.max() < n)):
            raise DataError(f"nodes_of_labels must lie between 0 and {n - 1}")
        paths = []
        for node in nodes.tolist():
            path = [node] if inner[node] else []
            above = int(parents[node])
            while above >= 0:
                path.append(above)
                above = int(parents[above])
                if len(path) > n:
                    raise DataError(f"the parents of node {node} run in a circle")
            paths.append(tuple(reversed(path)))
        return cls.from_paths(paths)

    # ---- reading ----

    @property
    def depth(self) -> int:
        """Number of levels, that of the labels included."""
        return len(self.levels)

    @property
    def widths(self) -> list[int]:
        """Number of nodes of each level."""
        return [int(borders[-1]) for borders in self.levels]

    @property
    def repeats(self) -> bool:
        """Whether some label stands at several places."""
        return len(self.labels) > self.n_labels

    def parents(self, level: int) -> LongArray:
        """Return the node above each node of a level."""
        return np.repeat(np.arange(len(self.levels[level]) - 1), np.diff(self.levels[level]))

    def places(self) -> tuple[LongArray, IntArray]:
        """Places of each label: borders (L + 1,) and places."""
        order = np.argsort(self.labels, kind="stable").astype(np.int32)
        return indptr_from_counts(np.bincount(self.labels, minlength=self.n_labels)), order

    def project(self, Y: Csr) -> list[Csr]:
        """Labels of each point (n × L) as nodes of each level, top down; values add up where labels meet in a node."""
        borders, places = self.places()
        to_places = csr_from_parts(
            np.ones(len(places), np.float32), places, borders.astype(np.int32), (self.n_labels, len(places))
        )
        current: Csr = sparse.csr_matrix(Y @ to_places)
        current.sort_indices()
        result = [current]
        for level in range(self.depth - 1, 0, -1):
            above = self.parents(level).astype(current.indices.dtype)[current.indices]
            # Children of one node lie side by side, so the parents of sorted nodes are sorted as well.
            current = csr_from_parts(
                current.data.copy(), above, current.indptr.copy(), (current.shape[0], self.widths[level - 1])
            )
            current.has_sorted_indices = True
            current.has_canonical_format = False
            current.sum_duplicates()
            result.append(current)
        return result[::-1]

    def to_dict(self, names: Sequence[Hashable] | None = None, counts: AnyArray | None = None, n_named: int = 3) -> Any:
        """Nested dicts of the tree, for JSON: each node with its size, its most frequent labels, and what is below it.

        Parameters
        ----------
        names : name of each label; None: its number
        counts : (L,) training points of each label, to choose the labels that stand for a node; None: the first ones
        n_named : how many labels stand for a node
        """
        weight = np.zeros(self.n_labels) if counts is None else np.asarray(counts)

        def name(label: int) -> Any:
            value = label if names is None else names[label]
            return value if isinstance(value, str | int | float) or value is None else str(value)

        spans = [np.asarray(self.levels[-1])]  # places below each node, level by level, bottom up
        for borders in reversed(self.levels[:-1]):
            spans.append(spans[-1][np.asarray(borders)])
        spans.reverse()  # spans[t]: of the nodes above level t

        def node(level: int, number: int) -> dict[str, Any]:
            below = self.labels[spans[level][number] : spans[level][number + 1]]
            typical = below[np.lexsort((below, -weight[below]))[:n_named]]
            entry: dict[str, Any] = {"n_labels": len(below), "representative": [name(int(i)) for i in typical]}
            first, last = self.levels[level][number], self.levels[level][number + 1]
            if level == self.depth - 1:
                entry["labels"] = [name(int(i)) for i in below]
            else:
                entry["children"] = [node(level + 1, child) for child in range(int(first), int(last))]
            return entry

        return node(0, 0)

    # ---- files ----

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the tree into a model's directory."""
        for t, borders in enumerate(self.levels):
            writer.array(f"{prefix}children{t}", borders)
        writer.array(f"{prefix}labels", self.labels)
        return {"depth": self.depth}

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, n_labels: int) -> LabelTree:
        """Open what `save_to` wrote."""
        depth = info.get("depth") if isinstance(info, dict) else None
        if not isinstance(depth, int) or isinstance(depth, bool) or not 1 <= depth <= 1000:
            raise ModelFormatError(f"the manifest of {store.path} does not say how deep the tree is")
        levels = tuple(store.array(f"{prefix}children{t}", np.int64, ndim=1) for t in range(depth))
        labels = store.array(f"{prefix}labels", np.int32, ndim=1)
        try:
            return cls(levels, labels, n_labels)
        except DataError as error:
            raise ModelFormatError(f"{store.path}: {error}") from error


def paths_in_order(paths: Mapping[Hashable, Any], names: Iterable[Hashable]) -> list[Any]:
    """Paths of labels given by name, in the order of the label numbers."""
    found = []
    for name in names:
        if name not in paths:
            raise DataError(f"the label {name!r} has no path in the given tree")
        found.append(paths[name])
    return found


def _as_paths(given: Any, label: int) -> list[tuple[Any, ...]]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise DataError(f"the path of label {label} must be a list of node names; got {given!r}")
    if given and all(isinstance(path, tuple | list) for path in given):
        return list(dict.fromkeys(tuple(path) for path in given))
    return [tuple(given)]
