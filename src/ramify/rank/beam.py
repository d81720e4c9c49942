"""Beam search over a tree of packed linear classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify import native
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.mixed import Mixed
from ramify.base.threads import resolve_threads
from ramify.base.types import AnyArray, ByteArray, Csr, FloatArray, IntArray, LongArray
from ramify.index.tree import LabelTree
from ramify.io.store import Store, StoreWriter
from ramify.rank.scores import Transform

_ARRAYS = ("heads", "table", "codebook", "bias", "dense")


@dataclass(frozen=True, eq=False)
class PackedLevel:
    """The weights of one level, packed for search (cpp/packed.h); sparse ones are rounded to 256 values.

    Attributes
    ----------
    heads : (s + 1,) where the block of each sparse feature begins
    table : blocks of all features
    codebook : (256,) the values that weights take
    bias : (n_nodes,) what the constant feature adds
    dense : (n_nodes, e) weights of dense features
    """

    heads: AnyArray
    table: ByteArray
    codebook: FloatArray
    bias: FloatArray
    dense: FloatArray

    @classmethod
    def pack(
        cls,
        W: Csr,
        children: LongArray,
        n_sparse: int,
        bias: float,
        threads: int | None = None,
        extra: FloatArray | None = None,
    ) -> PackedLevel:
        """Pack weights (nodes × (d + 1)) as `fit_ovr` returns them; d - n_sparse features are dense.

        `extra` (nodes,) is added to their scores.
        """
        d = W.shape[1] - 1
        heads, table, codebook = native.linear.pack_weights(W, n_sparse, children, resolve_threads(threads))
        constant = bias * W[:, d].toarray().ravel()
        if extra is not None:
            constant += extra
        dense = W[:, n_sparse:d].toarray() if d > n_sparse else np.empty((W.shape[0], 0))
        return cls(heads, table, codebook, constant.astype(np.float32), np.ascontiguousarray(dense, np.float32))


class LinearTree:
    """A label tree with a linear classifier at each node, ready to search."""

    def __init__(
        self, tree: LabelTree, levels: Sequence[PackedLevel], transforms: Sequence[Transform], n_sparse: int
    ) -> None:
        if not len(levels) == len(transforms) <= tree.depth:
            raise DataError(f"{len(levels)} levels of weights and {len(transforms)} transforms for {tree.depth} levels")
        self.tree = tree
        self.levels = list(levels)
        self.transforms = list(transforms)
        self.n_sparse = n_sparse
        whole = len(levels) == tree.depth  # a part of a tree, while it is trained, ranks nodes
        self._native = native.linear.BeamTree(n_sparse, tree.labels if whole else None, tree.n_labels, tree.repeats)
        for borders, level, transform in zip(tree.levels, levels, transforms, strict=False):
            self._native.add_level(
                borders,
                level.heads,
                level.table,
                level.codebook,
                level.bias,
                level.dense,
                transform.kind,
                transform.power,
            )
        self._places: tuple[LongArray, IntArray] | None = None

    def search(self, X: Any, k: int, beam_size: int, threads: int = 1) -> tuple[IntArray, FloatArray]:
        """Ids and log scores (n, k) of the best labels of each row, or, of a part of a tree, of the best nodes."""
        mixed = self._check(X)
        csr = mixed.sparse
        return self._native.search(
            csr.indptr, csr.indices, csr.data, mixed.dense, len(self.levels), beam_size, k, threads
        )

    def score_selected(self, X: Any, selected: Csr, threads: int = 1) -> Csr:
        """Log scores of the given labels (n × L, by pattern) only; no beam, every one is scored."""
        mixed = self._check(X)
        if selected.shape != (len(mixed), self.tree.n_labels):
            raise DataError(f"selected is {selected.shape}, needed is {len(mixed)} × {self.tree.n_labels}")
        if self._places is None:
            self._places = self.tree.places()
        csr = mixed.sparse
        scores = self._native.score_selected(
            csr.indptr,
            csr.indices,
            csr.data,
            mixed.dense,
            selected.indptr.astype(np.int64),
            selected.indices.astype(np.int32),
            *self._places,
            threads,
        )
        result = selected.astype(np.float32)
        result.data = scores
        return result

    def _check(self, X: Any) -> Mixed:
        mixed = Mixed.of(X)
        if mixed.sparse.shape[1] != self.n_sparse:
            raise DataError(f"X has {mixed.sparse.shape[1]} sparse features; the tree was trained on {self.n_sparse}")
        return mixed

    # ---- files ----

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write tree and weights into a model's directory."""
        for t, level in enumerate(self.levels):
            for name in _ARRAYS:
                writer.array(f"{prefix}{name}{t}", getattr(level, name))
        return {
            "tree": self.tree.save_to(writer, prefix),
            "transforms": [transform.name for transform in self.transforms],
            "n_sparse": self.n_sparse,
        }

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, n_labels: int) -> LinearTree:
        """Open what `save_to` wrote. The weights are looked at only when a query needs them."""
        if not isinstance(info, dict) or not isinstance(info.get("n_sparse"), int):
            raise ModelFormatError(f"the manifest of {store.path} does not describe the tree's weights")
        tree = LabelTree.load_from(store, info.get("tree"), prefix, n_labels)
        names = info.get("transforms")
        if not isinstance(names, list) or len(names) != tree.depth or not all(isinstance(name, str) for name in names):
            raise ModelFormatError(f"the manifest of {store.path} does not fit the depth of the tree")
        dtypes = {
            "heads": np.uint32,
            "table": np.uint8,
            "codebook": np.float32,
            "bias": np.float32,
            "dense": np.float32,
        }
        levels = []
        for t in range(tree.depth):
            arrays = {
                name: store.array(f"{prefix}{name}{t}", dtypes[name], ndim=2 if name == "dense" else 1)
                for name in _ARRAYS
            }
            levels.append(PackedLevel(**arrays))
        try:
            return cls(tree, levels, [Transform.parse(name) for name in names], info["n_sparse"])
        except ValueError as error:
            raise ModelFormatError(f"{store.path}: {error}") from error
