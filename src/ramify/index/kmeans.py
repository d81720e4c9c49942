"""Trees by clustering label vectors: balanced halves collapsed to wider nodes, or k-means proper."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import sparse

from ramify import native
from ramify.base.config import Config, param
from ramify.base.sparse import as_csr, indptr_from_counts
from ramify.base.threads import resolve_threads
from ramify.base.types import Csr, FloatArray, IntArray, LongArray
from ramify.index.tree import LabelTree


@dataclass(kw_only=True, eq=False, repr=False)
class TreeConfig(Config):
    """How a label tree is made."""

    method: Literal["halves", "kmeans"] = param(
        "kmeans", "'halves': 2-means that cut in the middle, levels collapsed to `branching`; 'kmeans': k-means proper"
    )
    branching: int = param(100, "children of a node above the leaves", low=2)
    max_leaf: int = param(100, "labels under one leaf at most", low=1)
    max_depth: int | None = param(2, "levels of nodes above the labels at most; None: as many as it takes", low=1)
    balanced: bool = param(False, "'kmeans': clusters of equal size ('halves' always are)")
    spherical: bool = param(True, "compare by angle; else by distance")
    max_iterations: int = param(20, "rounds of k-means", low=1)
    tolerance: float = param(0.002, "k-means ends when no more than this share of the labels moves", low=0, high=1)
    n_terms: int | None = param(
        128, "largest entries of a label vector that clustering looks at; None: all, which is slower", low=1
    )


def build_tree(Z: Csr | FloatArray, config: TreeConfig, *, seed: int = 0, threads: int | None = None) -> LabelTree:
    """Cluster label vectors Z (L × d) into a tree.

    Labels without a vector get a place too: in the smallest clusters, or, in halves, by their number in the middle.
    """
    n_labels = Z.shape[0]
    if n_labels <= config.max_leaf:
        return LabelTree.flat(n_labels)
    n_threads = resolve_threads(threads)
    vectors = as_csr(sparse.csr_matrix(Z), "Z")
    if config.n_terms is not None:
        vectors = native.matrix.largest_entries(vectors, config.n_terms, n_threads)
    build = _halves if config.method == "halves" else _kmeans
    return build(vectors, config, seed, n_threads)


def _halves(Z: Csr, config: TreeConfig, seed: int, threads: int) -> LabelTree:
    n_labels = Z.shape[0]
    depth = max(1, math.ceil(math.log2(n_labels / config.max_leaf)))
    depth = min(depth, int(math.log2(n_labels)))
    order, borders = balanced_parts(Z, depth, config, seed, threads)
    levels = [borders]
    n_nodes = 1 << depth
    while n_nodes > config.branching and (config.max_depth is None or len(levels) < config.max_depth):
        n_above = -(-n_nodes // config.branching)
        levels.append(np.minimum(np.arange(n_above + 1) * config.branching, n_nodes))
        n_nodes = n_above
    levels.append(np.array([0, n_nodes], np.int64))
    return LabelTree(tuple(level.astype(np.int64) for level in reversed(levels)), order, n_labels)


def balanced_parts(Z: Csr, depth: int, config: TreeConfig, seed: int, threads: int) -> tuple[IntArray, LongArray]:
    """Labels in the order of 2^depth parts of equal size, and the borders of the parts."""
    order = native.linear.balanced_2means(
        Z, depth, config.spherical, config.max_iterations, config.tolerance, seed, threads
    )
    borders = np.array([0, Z.shape[0]], np.int64)
    for _ in range(depth):
        middle = borders[:-1] + np.diff(borders) // 2
        borders = np.append(np.stack([borders[:-1], middle], axis=1).ravel(), Z.shape[0])
    return order, borders


def _kmeans(Z: Csr, config: TreeConfig, seed: int, threads: int) -> LabelTree:
    """Level by level: a node with too many labels is split, one with few enough gets a single child."""
    max_depth = config.max_depth or 60
    groups: list[IntArray] = [np.arange(Z.shape[0], dtype=np.int32)]
    levels: list[LongArray] = []
    while len(levels) < max_depth and max(len(group) for group in groups) > config.max_leaf:
        below: list[IntArray] = []
        borders = [0]
        for number, group in enumerate(groups):
            node_seed = (seed * 1_000_003 + len(levels) * 1_000_000_007 + number) % (1 << 63)
            # On the last level that max_depth allows, what is still too large becomes several siblings.
            last = len(levels) + 1 == max_depth
            waiting = [(group, len(group) > config.max_leaf, config.branching)]
            while waiting:
                part, is_large, n_clusters = waiting.pop()
                if not is_large:
                    below.append(part)
                    continue
                parts = _split(Z, part, n_clusters, config, node_seed, threads)
                waiting += [
                    (p, last and len(p) > config.max_leaf, min(config.branching, 2 * -(-len(p) // config.max_leaf)))
                    for p in reversed(parts)
                ]
            borders.append(len(below))
        levels.append(np.array(borders, np.int64))
        groups = below
    levels.append(indptr_from_counts([len(group) for group in groups]))
    return LabelTree(tuple(levels), np.concatenate(groups), Z.shape[0])


def _split(Z: Csr, group: IntArray, n_clusters: int, config: TreeConfig, seed: int, threads: int) -> list[IntArray]:
    n_clusters = min(n_clusters, len(group))
    found = native.linear.kmeans(
        Z[group], n_clusters, config.balanced, config.spherical, config.max_iterations, config.tolerance, seed, threads
    )
    parts = [group[found == c] for c in range(n_clusters)]
    parts = [part for part in parts if len(part)]
    # Vectors that are all alike end in one cluster: cut it anyway, or the tree would never end.
    return parts if len(parts) > 1 else [np.asarray(part) for part in np.array_split(group, n_clusters)]
