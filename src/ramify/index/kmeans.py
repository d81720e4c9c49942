"""Label trees by hierarchical clustering of label representations Z (L × d).

Two methods: balanced 2-means, whose binary levels are collapsed to the wanted branching factor (Parabel: Prabhu et al.
2018; PECOS: Yu et al. 2022), and k-means with as many clusters as a node has children (Bonsai: Khandagale et al. 2020).
"""

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

MAX_DEPTH = 60
"""Bound on the levels of a k-means tree without `max_depth`."""


@dataclass(kw_only=True, eq=False, repr=False)
class TreeConfig(Config):
    """Parameters of a label tree."""

    method: Literal["balanced-2means", "kmeans"] = param(
        "kmeans",
        "clustering of the labels; 'balanced-2means': binary splits into halves, collapsed to `branching` children; "
        "'kmeans': k-means with `branching` clusters per node",
    )
    branching: int = param(
        100, "children of a node above the leaf clusters (PECOS: B); raising it makes the tree shallower", low=2
    )
    max_leaf_size: int = param(
        100, "labels per leaf cluster at most; raising it lets a beam reach more labels, and takes longer", low=1
    )
    min_leaf_size: int = param(
        16,
        "kmeans: mean number of labels per leaf cluster at least: nodes with few labels get fewer children; raising it "
        "trains faster and makes models smaller",
        low=1,
    )
    max_depth: int | None = param(2, "levels of clusters above the labels at most; None: no limit", low=1)
    balanced: bool = param(False, "kmeans: clusters of equal size; those of 'balanced-2means' always are")
    spherical: bool = param(True, "cluster by cosine similarity; False: by Euclidean distance")
    max_iterations: int = param(10, "k-means iterations per node at most", low=1, high=2**31 - 1)
    tolerance: float = param(
        0.002, "k-means stops when no more than this fraction of the labels changes its cluster", low=0, high=1
    )
    n_terms: int | None = param(
        128,
        "entries of a label representation, the largest ones, that are clustered; raising it takes longer; None: all",
        low=1,
    )


def build_tree(Z: Csr | FloatArray, config: TreeConfig, *, seed: int = 0, threads: int | None = None) -> LabelTree:
    """Cluster label representations Z (L × d) into a tree.

    Labels with a zero row are assigned too: k-means puts them into the smallest clusters, balanced 2-means splits them
    by id.
    """
    n_labels = Z.shape[0]
    if n_labels <= config.max_leaf_size:
        return LabelTree.flat(n_labels)
    n_threads = resolve_threads(threads)
    Z = as_csr(sparse.csr_matrix(Z), "Z")
    if config.n_terms is not None:
        Z = native.matrix.largest_entries(Z, config.n_terms, n_threads)
    build = _build_balanced_2means if config.method == "balanced-2means" else _build_kmeans
    return build(Z, config, seed, n_threads)


def _build_balanced_2means(Z: Csr, config: TreeConfig, seed: int, threads: int) -> LabelTree:
    n_labels = Z.shape[0]
    depth = max(1, math.ceil(math.log2(n_labels / config.max_leaf_size)))
    depth = min(depth, int(math.log2(n_labels)))
    order, indptr = balanced_clusters(Z, depth, config, seed, threads)
    levels = [indptr]  # from the bottom up
    n_nodes = 1 << depth
    while n_nodes > config.branching and (config.max_depth is None or len(levels) < config.max_depth):
        n_parents = -(-n_nodes // config.branching)
        levels.append(np.minimum(np.arange(n_parents + 1) * config.branching, n_nodes))
        n_nodes = n_parents
    levels.append(np.array([0, n_nodes], np.int64))
    return LabelTree(tuple(level.astype(np.int64) for level in reversed(levels)), order, n_labels)


def balanced_clusters(Z: Csr, depth: int, config: TreeConfig, seed: int, threads: int) -> tuple[IntArray, LongArray]:
    """Split labels Z (L × d) `depth` times into halves by 2-means.

    Returns
    -------
    order, indptr : (L,) and (2^depth + 1,); cluster c holds the labels order[indptr[c] : indptr[c + 1]]
    """
    order = native.linear.balanced_2means(
        Z, depth, config.spherical, config.max_iterations, config.tolerance, seed, threads
    )
    indptr = np.array([0, Z.shape[0]], np.int64)
    for _ in range(depth):
        middle = indptr[:-1] + np.diff(indptr) // 2
        indptr = np.append(np.stack([indptr[:-1], middle], axis=1).ravel(), Z.shape[0])
    return order, indptr


def _build_kmeans(Z: Csr, config: TreeConfig, seed: int, threads: int) -> LabelTree:
    """Split level by level: a cluster with more than `max_leaf_size` labels is split, a smaller one gets one child."""
    max_depth = config.max_depth or MAX_DEPTH
    clusters: list[IntArray] = [np.arange(Z.shape[0], dtype=np.int32)]
    levels: list[LongArray] = []
    while len(levels) < max_depth and max(len(cluster) for cluster in clusters) > config.max_leaf_size:
        children: list[IntArray] = []
        indptr = [0]
        for node, cluster in enumerate(clusters):
            children += split_node(Z, cluster, (len(levels), node), config, seed, threads)
            indptr.append(len(children))
        levels.append(np.array(indptr, np.int64))
        clusters = children
    levels.append(indptr_from_counts([len(cluster) for cluster in clusters]))
    return LabelTree(tuple(levels), np.concatenate(clusters), Z.shape[0])


def split_node(
    Z: Csr, cluster: IntArray, position: tuple[int, int], config: TreeConfig, seed: int, threads: int
) -> list[IntArray]:
    """Split the labels of one node of a k-means tree, rows of Z, into those of its children.

    `position` is the level of the node, 0 for the root, and its index in the level; together with the seed it
    determines the random numbers, so that nodes can be split in any order.
    """
    level, node = position
    node_seed = (seed * 1_000_003 + level * 1_000_000_007 + node) % (1 << 63)
    # On the last level that max_depth allows, a child that is still too large is replaced by its own parts.
    is_last = level + 1 == (config.max_depth or MAX_DEPTH)
    min_leaf_size = min(config.min_leaf_size, config.max_leaf_size)
    branching = min(config.branching, max(2, len(cluster) // min_leaf_size))
    children: list[IntArray] = []
    stack = [(cluster, len(cluster) > config.max_leaf_size, branching)]
    while stack:
        labels, is_large, n_clusters = stack.pop()
        if not is_large:
            children.append(labels)
            continue
        for part in reversed(_split(Z, labels, n_clusters, config, node_seed, threads)):
            n_parts = min(config.branching, 2 * -(-len(part) // config.max_leaf_size))
            stack.append((part, is_last and len(part) > config.max_leaf_size, n_parts))
    return children


def _split(Z: Csr, labels: IntArray, n_clusters: int, config: TreeConfig, seed: int, threads: int) -> list[IntArray]:
    n_clusters = min(n_clusters, len(labels))
    cluster_of = native.linear.kmeans(
        Z[labels], n_clusters, config.balanced, config.spherical, config.max_iterations, config.tolerance, seed, threads
    )
    parts = [labels[cluster_of == c] for c in range(n_clusters)]
    parts = [part for part in parts if len(part)]
    # Identical vectors end up in one cluster; splitting it by id guarantees that the recursion terminates.
    return parts if len(parts) > 1 else [np.asarray(part) for part in np.array_split(labels, n_clusters)]
