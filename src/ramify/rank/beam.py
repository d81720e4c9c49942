"""Beam search in a label tree with a linear classifier at each node (PECOS: Yu et al. 2022).

From the root down, each level scores the children of the nodes in the beam and keeps the best `beam_size` of them:

    log score(x, node) = transform(w_node · x, log score(x, parent))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ramify import native
from ramify.base.errors import DataError, ModelFormatError
from ramify.base.mixed import Mixed
from ramify.base.threads import resolve_threads
from ramify.base.types import AnyArray, ByteArray, Csr, FloatArray, IntArray, LongArray
from ramify.index.tree import LabelTree
from ramify.io.store import Store, StoreWriter
from ramify.rank.score_transforms import ScoreTransform

ARRAYS: dict[str, tuple[DTypeLike, int]] = {
    "block_starts": (np.uint32, 1),
    "blocks": (np.uint8, 1),
    "codebook": (np.float32, 1),
    "bias": (np.float32, 1),
    "dense": (np.float32, 2),
}
"""Type and number of dimensions of the arrays of a saved level."""


@dataclass(frozen=True, eq=False)
class PackedLevel:
    """Weights of the nodes of one level, packed for search; weights of sparse features are rounded to 8 bits.

    Attributes
    ----------
    block_starts : (s + 1,) start of the block of each sparse feature, in units of 4 bytes
    blocks : the blocks: nodes and weights of each feature (cpp/linear/packed.h)
    codebook : (256,) weight of each code, a floating-point number of 8 bits
    bias : (n_nodes,) constant term of each node's margin
    dense : (n_nodes, e) weights of the dense features
    """

    block_starts: AnyArray
    blocks: ByteArray
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
        """Pack weights W (n_nodes × (d + 1)) from `fit_ovr`.

        Parameters
        ----------
        children : (n_parents + 1,) children pointers of the level
        n_sparse : number of sparse features; the other d - n_sparse are dense
        bias : value of the constant feature
        extra : (n_nodes,) added to the margins
        """
        d = W.shape[1] - 1
        block_starts, blocks, codebook = native.linear.pack_weights(W, n_sparse, children, resolve_threads(threads))
        dense = W[:, n_sparse:d].toarray() if d > n_sparse else np.empty((W.shape[0], 0))
        constant = constant_terms(W, bias, extra)
        return cls(block_starts, blocks, codebook, constant, np.ascontiguousarray(dense, np.float32))


def constant_terms(W: Csr, bias: float, extra: FloatArray | None) -> FloatArray:
    """Constant term (n_nodes,) of each margin, from weights W (n_nodes × (d + 1)) and extra margins (n_nodes,)."""
    constant = bias * W[:, W.shape[1] - 1].toarray().ravel()
    if extra is not None:
        constant += extra
    return np.asarray(constant, np.float32)


class LinearTree:
    """A label tree with a linear classifier at each node.

    With weights for the first levels only, as during training, it searches nodes instead of labels.
    """

    def __init__(
        self, tree: LabelTree, levels: Sequence[PackedLevel], transforms: Sequence[ScoreTransform], n_sparse: int
    ) -> None:
        if not len(levels) == len(transforms) <= tree.depth:
            raise DataError(
                f"a tree of {tree.depth} levels cannot have weights for {len(levels)} and score transforms for "
                f"{len(transforms)} of them"
            )
        self.tree = tree
        self.levels = list(levels)
        self.transforms = list(transforms)
        self.n_sparse = n_sparse
        complete = len(levels) == tree.depth
        self._native = native.linear.BeamTree(n_sparse, tree.labels if complete else None, tree.n_labels, tree.repeats)
        for children, level, transform in zip(tree.levels, levels, transforms, strict=False):
            self._native.add_level(
                children=children,
                block_starts=level.block_starts,
                blocks=level.blocks,
                codebook=level.codebook,
                bias=level.bias,
                dense=level.dense,
                transform=transform.kind,
                power=transform.power,
                is_norm=transform.is_norm,
            )
        self._leaves_of_labels: tuple[LongArray, IntArray] | None = None

    def search(
        self,
        X: Any,
        k: int,
        beam_size: int,
        threads: int = 1,
        *,
        min_score: float = 0.0,
        mask: ByteArray | None = None,
    ) -> tuple[IntArray, FloatArray]:
        """Ids and log scores (n, k) of the best labels of each row, or of the best nodes if levels are missing.

        Of each level, the beam keeps the best `beam_size` nodes, without those whose score is below `min_score` times
        the best one, unless their children are needed to find as many nodes or labels as are wanted. With a mask, over
        the nodes of all levels from the top down, only nodes of the mask enter the beam.
        """
        mixed = self._check(X)
        csr = mixed.sparse
        return self._native.search(
            csr.indptr,
            csr.indices,
            csr.data,
            mixed.dense,
            len(self.levels),
            beam_size,
            k,
            max_gap=-math.log(min_score) if min_score > 0 else math.inf,
            threads=threads,
            mask=mask,
        )

    def score_selected(self, X: Any, selected: Csr, threads: int = 1) -> Csr:
        """Log scores of the labels that `selected` (n × L) has entries for, computed without a beam."""
        mixed = self._check(X)
        if selected.shape != (len(mixed), self.tree.n_labels):
            raise DataError(
                f"selected must be {len(mixed)} rows × {self.tree.n_labels} labels; it is "
                f"{selected.shape[0]} × {selected.shape[1]}"
            )
        if self._leaves_of_labels is None:
            self._leaves_of_labels = self.tree.leaves_of_labels()
        csr = mixed.sparse
        scores = self._native.score_selected(
            csr.indptr,
            csr.indices,
            csr.data,
            mixed.dense,
            selected.indptr.astype(np.int64),
            selected.indices.astype(np.int32),
            *self._leaves_of_labels,
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

    # ---- saving ----

    def save_to(self, writer: StoreWriter, prefix: str) -> dict[str, Any]:
        """Write tree and weights to a model directory; return their description for the manifest."""
        for t, level in enumerate(self.levels):
            for name in ARRAYS:
                writer.array(f"{prefix}{name}{t}", getattr(level, name))
        return {
            "tree": self.tree.save_to(writer, prefix),
            "transforms": [transform.name for transform in self.transforms],
            "n_sparse": self.n_sparse,
        }

    @classmethod
    def load_from(cls, store: Store, info: Any, prefix: str, n_labels: int) -> LinearTree:
        """Open a tree that `save_to` wrote, memory-mapped: weights are read when a query needs them."""
        n_sparse = info.get("n_sparse") if isinstance(info, dict) else None
        if not isinstance(n_sparse, int) or not 0 <= n_sparse <= 2**31 - 1:
            raise ModelFormatError(f"the manifest of {store.path} does not describe the weights of the tree")
        tree = LabelTree.load_from(store, info.get("tree"), prefix, n_labels)
        names = info.get("transforms")
        if not isinstance(names, list) or len(names) != tree.depth or not all(isinstance(name, str) for name in names):
            raise ModelFormatError(
                f"the manifest of {store.path} must name {tree.depth} score transforms; got {names!r}"
            )
        levels = [
            PackedLevel(
                **{name: store.array(f"{prefix}{name}{t}", dtype, ndim=ndim) for name, (dtype, ndim) in ARRAYS.items()}
            )
            for t in range(tree.depth)
        ]
        try:
            return cls(tree, levels, [ScoreTransform.parse(name) for name in names], n_sparse)
        except ValueError as error:
            raise ModelFormatError(f"{store.path}: {error}") from error
