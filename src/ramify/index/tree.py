"""Label trees: hierarchical clusterings with labels as leaves (Parabel: Prabhu et al. 2018; PECOS: Yu et al. 2022)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ramify.base.errors import DataError, ModelFormatError, check_integer
from ramify.base.sparse import as_csr, ascends, csr_from_parts, indptr_from_counts
from ramify.base.types import AnyArray, Csr, IntArray, LongArray
from ramify.io.store import Store, StoreWriter

_PADDING = object()
"""Name of the nodes that extend shorter paths to the depth of the tree."""


@dataclass(frozen=True, eq=False)
class LabelTree:
    """A tree whose leaves are labels, all at the same depth.

    The nodes of a level are ordered so that the children of a node are contiguous. The nodes of the last level are the
    leaves. A leaf holds one label; a label has at least one leaf, and several where clusters overlap.

    Attributes
    ----------
    levels : for each level, top down, the children pointers (n_parents + 1,): node i of the level above has the
        children from levels[t][i] to levels[t][i + 1]. The only parent of the first level is the root
    labels : (n_leaves,) label of each leaf
    """

    levels: tuple[LongArray, ...]
    labels: IntArray
    n_labels: int

    def __post_init__(self) -> None:
        n_parents = 1
        for t, indptr in enumerate(self.levels):
            if len(indptr) != n_parents + 1 or not ascends(indptr):
                raise DataError(f"level {t} of the tree needs {n_parents + 1} children pointers that ascend from 0")
            n_parents = int(indptr[-1])
        if not self.levels or n_parents != len(self.labels):
            raise DataError(f"the tree has {n_parents} leaves, but labels for {len(self.labels)}")
        if len(self.labels) and not (self.labels.min() >= 0 and self.labels.max() < self.n_labels):
            raise DataError(f"the tree has label ids outside 0 to {self.n_labels - 1}")
        if len(self.labels) < self.n_labels:
            raise DataError(f"{self.n_labels} labels on {len(self.labels)} leaves: some have no leaf in the tree")

    def check_complete(self) -> LabelTree:
        """Raise `DataError` if a label has no leaf, else return the tree. Loading a model skips this O(L) check."""
        missing = np.flatnonzero(np.bincount(self.labels, minlength=self.n_labels) == 0)
        if len(missing):
            raise DataError(f"{len(missing)} labels have no leaf in the tree; the first is label {missing[0]}")
        return self

    # ---- construction ----

    @classmethod
    def flat(cls, n_labels: int) -> LabelTree:
        """Tree with every label directly under the root, as in one-vs-all."""
        n_labels = check_integer(n_labels, "n_labels", 0, np.iinfo(np.int32).max)
        return cls((np.array([0, n_labels], np.int64),), np.arange(n_labels, dtype=np.int32), n_labels)

    @classmethod
    def from_chain(cls, chain: Sequence[Any]) -> LabelTree:
        """Tree from cluster matrices, top down: C[t] (nodes of level t × nodes of the level above).

        The first matrix has one column; it may be left out if it would only put all its nodes under the root. A row
        with several entries is a node, or label, with several parents.
        """
        matrices = [as_csr(C, f"chain[{t}]") for t, C in enumerate(chain)]
        if not matrices:
            raise DataError("the chain of cluster matrices is empty")
        if matrices[0].shape[1] != 1:
            matrices.insert(0, sparse.csr_matrix(np.ones((matrices[0].shape[1], 1), np.float32)))
        levels: list[LongArray] = []
        rows = np.zeros(1, np.int64)  # row of the matrix above of each node; repeated for nodes with several parents
        for t, C in enumerate(matrices):
            if t and C.shape[1] != matrices[t - 1].shape[0]:
                raise DataError(
                    f"chain[{t}] has {C.shape[1]} columns; the level above has {matrices[t - 1].shape[0]} nodes"
                )
            children = C.T.tocsr()[rows]
            levels.append(children.indptr.astype(np.int64))
            rows = children.indices.astype(np.int64)
        return cls(tuple(levels), rows.astype(np.int32), matrices[-1].shape[0]).check_complete()

    @classmethod
    def from_paths(cls, paths: Sequence[Any]) -> LabelTree:
        """Tree from the path of each label, in the order of the labels.

        A path lists the names of the nodes from the top down, without the label itself: ``["science", "physics"]``. A
        label with several paths gets a list of tuples: ``[("science", "physics"), ("history",)]``.
        """
        paths_of_labels = [_as_paths(path, label) for label, path in enumerate(paths)]
        if not paths_of_labels:
            raise DataError("a tree needs the path of at least one label")
        depth = max(len(path) for label_paths in paths_of_labels for path in label_paths)
        leaves = sorted(
            (
                (path + (_PADDING,) * (depth - len(path)), label)
                for label, label_paths in enumerate(paths_of_labels)
                for path in label_paths
            ),
            key=lambda leaf: (
                tuple((name is not _PADDING, type(name).__name__, str(name)) for name in leaf[0]),
                leaf[1],
            ),
        )
        levels: list[list[int]] = [[0] for _ in range(depth + 1)]
        counts = [0] * (depth + 1)  # nodes so far of each level
        previous: tuple[Any, ...] | None = None
        for path, _ in leaves:
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
            tuple(np.array(indptr, np.int64) for indptr in levels),
            np.array([label for _, label in leaves], np.int32),
            len(paths_of_labels),
        )

    @classmethod
    def from_parents(cls, parents: Any, nodes_of_labels: Any = None) -> LabelTree:
        """Tree from a taxonomy.

        Parameters
        ----------
        parents : (n_nodes,) index of each node's parent; -1 for top-level nodes
        nodes_of_labels : (L,) node of each label, which may be an inner node; None: the nodes without children, in
            order
        """
        parents = np.asarray(parents)
        if parents.ndim != 1 or parents.dtype.kind not in "iu":
            raise DataError("parents must be a list of integers, with -1 for top-level nodes")
        n = len(parents)
        if n and not (parents.min() >= -1 and parents.max() < n):
            raise DataError(f"parents must be between -1 and {n - 1}")
        inner = np.zeros(n, bool)
        inner[parents[parents >= 0]] = True
        nodes = np.flatnonzero(~inner) if nodes_of_labels is None else np.asarray(nodes_of_labels)
        if nodes.ndim != 1 or (len(nodes) and not (nodes.min() >= 0 and nodes.max() < n)):
            raise DataError(f"nodes_of_labels must be between 0 and {n - 1}")
        paths = []
        for node in nodes.tolist():
            path = [node] if inner[node] else []
            ancestor = int(parents[node])
            while ancestor >= 0:
                path.append(ancestor)
                ancestor = int(parents[ancestor])
                if len(path) > n:
                    raise DataError(f"the ancestors of node {node} form a cycle")
            paths.append(tuple(reversed(path)))
        return cls.from_paths(paths)

    # ---- structure ----

    @property
    def depth(self) -> int:
        """Number of levels, including that of the leaves."""
        return len(self.levels)

    @property
    def widths(self) -> list[int]:
        """Number of nodes of each level."""
        return [int(indptr[-1]) for indptr in self.levels]

    @property
    def repeats(self) -> bool:
        """Whether some label has several leaves."""
        return len(self.labels) > self.n_labels

    def parents(self, level: int) -> LongArray:
        """Parent of each node of a level, as an index into the level above."""
        return np.repeat(np.arange(len(self.levels[level]) - 1), np.diff(self.levels[level]))

    def leaves_of_labels(self) -> tuple[LongArray, IntArray]:
        """Leaves of each label: indptr (L + 1,) and leaves (n_leaves,)."""
        leaves = np.argsort(self.labels, kind="stable").astype(np.int32)
        return indptr_from_counts(np.bincount(self.labels, minlength=self.n_labels)), leaves

    def project(self, Y: Csr) -> list[Csr]:
        """Y (n × L) aggregated to the nodes of each level (n × nodes), top down: a node sums the labels below it."""
        indptr, leaves = self.leaves_of_labels()
        label_to_leaf = csr_from_parts(
            np.ones(len(leaves), np.float32), leaves, indptr.astype(np.int32), (self.n_labels, len(leaves))
        )
        current: Csr = sparse.csr_matrix(Y @ label_to_leaf)
        current.sort_indices()
        result = [current]
        for level in range(self.depth - 1, 0, -1):
            parents = self.parents(level).astype(current.indices.dtype)[current.indices]
            # The children of a node are contiguous, so the parents of sorted nodes are sorted too.
            current = csr_from_parts(
                current.data.copy(), parents, current.indptr.copy(), (current.shape[0], self.widths[level - 1])
            )
            current.has_sorted_indices = True
            current.has_canonical_format = False
            current.sum_duplicates()
            result.append(current)
        return result[::-1]

    def to_dict(
        self, labels: Sequence[Hashable] | None = None, counts: AnyArray | None = None, n_representatives: int = 3
    ) -> Any:
        """Return the tree as nested dicts for JSON; each node has its size, representative labels and children.

        Parameters
        ----------
        labels : the labels, by id; None: their ids
        counts : (L,) number of samples of each label; the most frequent labels represent a node. None: the first ones
        n_representatives : representative labels per node
        """
        frequency = np.zeros(self.n_labels) if counts is None else np.asarray(counts)

        def as_json(label_id: int) -> Any:
            label = label_id if labels is None else labels[label_id]
            return label if isinstance(label, str | int | float) or label is None else str(label)

        leaf_indptrs = [np.asarray(self.levels[-1])]  # leaves below each node, from the bottom level up
        for indptr in reversed(self.levels[:-1]):
            leaf_indptrs.append(leaf_indptrs[-1][np.asarray(indptr)])
        leaf_indptrs.reverse()

        def describe(level: int, node: int) -> dict[str, Any]:
            """Describe a node of the level above `level`."""
            below = self.labels[leaf_indptrs[level][node] : leaf_indptrs[level][node + 1]]
            frequent = below[np.lexsort((below, -frequency[below]))[:n_representatives]]
            entry: dict[str, Any] = {"n_labels": len(below), "representative": [as_json(int(i)) for i in frequent]}
            if level == self.depth - 1:
                entry["labels"] = [as_json(int(i)) for i in below]
            else:
                first, last = self.levels[level][node], self.levels[level][node + 1]
                entry["children"] = [describe(level + 1, child) for child in range(int(first), int(last))]
            return entry

        return describe(0, 0)

    # ---- saving ----

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write the tree to a model directory; return its description for the manifest."""
        for t, indptr in enumerate(self.levels):
            writer.array(f"{prefix}children{t}", indptr)
        writer.array(f"{prefix}labels", self.labels)
        return {"depth": self.depth}

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, n_labels: int) -> LabelTree:
        """Open a tree that `save_to` wrote."""
        depth = info.get("depth") if isinstance(info, dict) else None
        if not isinstance(depth, int) or isinstance(depth, bool) or not 1 <= depth <= 1000:
            raise ModelFormatError(f"the manifest of {store.path} has no valid depth of the tree; it has {depth!r}")
        levels = tuple(store.array(f"{prefix}children{t}", np.int64, ndim=1) for t in range(depth))
        labels = store.array(f"{prefix}labels", np.int32, ndim=1)
        try:
            return cls(levels, labels, n_labels)
        except DataError as error:
            raise ModelFormatError(f"{store.path}: {error}") from error


def paths_in_order(paths: Mapping[Hashable, Any], labels: Iterable[Hashable]) -> list[Any]:
    """Paths of the labels in the order of their ids, from a mapping of label to path."""
    ordered = []
    for label in labels:
        if label not in paths:
            raise DataError(f"label {label!r} has no path in the given tree")
        ordered.append(paths[label])
    return ordered


def _as_paths(given: Any, label: int) -> list[tuple[Any, ...]]:
    """One or several paths of a label as a list of tuples, without repeated ones."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise DataError(f"the path of label {label} must be a list of node names; got {given!r}")
    if given and all(isinstance(path, tuple | list) for path in given):
        return list(dict.fromkeys(tuple(path) for path in given))
    return [tuple(given)]
