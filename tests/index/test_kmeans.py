"""Hierarchical clustering of labels: balanced 2-means and k-means, against reference implementations."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import reference
from scipy import sparse

from ramify import native
from ramify.index.kmeans import TreeConfig, build_tree

pytestmark = pytest.mark.native


def vectors(n=200, d=60, seed=0, n_topics=8):
    """Label representations Z (n × d) around a few topics."""
    random = np.random.default_rng(seed)
    topics = random.random((n_topics, d)) * (random.random((n_topics, d)) < 0.2)
    Z = topics[np.arange(n) % n_topics] + 0.1 * random.random((n, d)) * (random.random((n, d)) < 0.2)
    return sparse.csr_matrix(Z / np.linalg.norm(Z, axis=1, keepdims=True), dtype=np.float32)


def leaf_clusters(tree):
    """Labels of each cluster of the last level but one."""
    return [tree.labels[a:b] for a, b in itertools.pairwise(tree.levels[-1])]


def topic_purity(tree, topics):
    """Fraction of the pairs of labels of one topic that are in the same leaf cluster."""
    cluster_of = np.empty(len(topics), int)
    for c, members in enumerate(leaf_clusters(tree)):
        cluster_of[members] = c
    same = topics[:, None] == topics[None, :]
    return (cluster_of[:, None] == cluster_of[None, :])[same].mean()


def test_balanced_2means_against_the_reference():
    Z = vectors(n=64)
    order = native.linear.balanced_2means(Z, 1, True, 50, 0.0, 5, 1)
    left = set(order[:32].tolist())
    # The native code draws the two initial labels; some pair leads the reference to the same halves.
    dense = Z.toarray().astype(np.float64)
    solutions = {
        frozenset(part.tolist())
        for a in range(64)
        for b in (0, 1, 2, 3, 5, 13, 40)
        if a != b
        for part in reference.balanced_2means(dense, 1, lambda members, a=a, b=b: (a, b), 50)
    }
    assert frozenset(left) in solutions


def balanced_tree(Z, **params):
    return build_tree(Z, TreeConfig(**{"method": "balanced-2means", "max_depth": None, "branching": 16, **params}))


@pytest.mark.parametrize("spherical", [True, False])
def test_balanced_2means_finds_topics_in_clusters_of_equal_size(spherical):
    tree = balanced_tree(vectors(n=256), branching=4, max_leaf_size=32, spherical=spherical, n_terms=None)
    assert tree.widths == [2, 8, 256]
    assert {len(cluster) for cluster in leaf_clusters(tree)} == {32}
    assert topic_purity(tree, np.arange(256) % 8) > 0.8
    odd = balanced_tree(vectors(n=203), max_leaf_size=30)
    sizes = [len(cluster) for cluster in leaf_clusters(odd)]
    assert max(sizes) - min(sizes) <= 1
    assert odd.widths == [8, 203]


def test_branching_leaf_size_and_depth_shape_the_tree():
    Z = vectors(n=130)
    assert balanced_tree(Z, max_leaf_size=200).widths == [130]
    assert balanced_tree(Z, branching=2, max_leaf_size=10).widths == [2, 4, 8, 16, 130]
    assert balanced_tree(Z, branching=2, max_leaf_size=10, max_depth=1).widths == [16, 130]
    assert balanced_tree(Z, branching=3, max_leaf_size=10).widths == [2, 6, 16, 130]
    assert balanced_tree(Z[:1], max_leaf_size=1).widths == [1]
    assert sorted(balanced_tree(Z[:5], max_leaf_size=1).labels) == list(range(5))
    for method in ("balanced-2means", "kmeans"):
        for n in (2, 3):
            few = build_tree(Z[:n], TreeConfig(method=method, branching=2, max_leaf_size=1, max_depth=None))
            assert sorted(few.labels) == list(range(n))
        dense = build_tree(Z.toarray(), TreeConfig(method=method, branching=5, max_leaf_size=10, max_depth=None))
        assert sorted(dense.labels) == list(range(130))


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("spherical", [True, False])
def test_kmeans_finds_topics(balanced, spherical):
    Z = vectors(n=240)
    found = np.stack([native.linear.kmeans(Z, 8, balanced, spherical, 50, 0.0, seed, 2) for seed in range(5)])
    sizes = np.stack([np.bincount(row, minlength=8) for row in found])
    if balanced:
        assert sizes.max() <= 30
    topics = np.arange(240) % 8
    same = topics[:, None] == topics[None, :]
    purity = max((row[:, None] == row[None, :])[same].mean() for row in found)
    assert purity > 0.75


def test_converged_kmeans_is_a_fixed_point():
    """Every label is in the cluster with the nearest centroid."""
    Z = vectors(n=150, seed=3)
    cluster = native.linear.kmeans(Z, 6, False, True, 200, 0.0, 1, 1)
    dense = Z.toarray().astype(np.float64)
    used = np.unique(cluster)
    centroids = np.stack([dense[cluster == c].sum(axis=0) for c in used])
    centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
    similarity = dense @ centroids.T
    chosen = similarity[np.arange(150), np.searchsorted(used, cluster)]
    assert np.all(chosen >= similarity.max(axis=1) - 1e-5)


def test_kmeans_trees():
    Z = vectors(n=300)
    tree = build_tree(Z, TreeConfig(method="kmeans", max_depth=None, branching=6, max_leaf_size=20))
    assert max(len(cluster) for cluster in leaf_clusters(tree)) <= 20
    shallow = build_tree(Z, TreeConfig(method="kmeans", branching=6, max_leaf_size=20, max_depth=1))
    assert shallow.depth == 2
    assert max(len(cluster) for cluster in leaf_clusters(shallow)) <= 20  # too large clusters become several siblings
    balanced = build_tree(Z, TreeConfig(method="kmeans", branching=6, max_leaf_size=50, balanced=True))
    assert [len(cluster) for cluster in leaf_clusters(balanced)] == [50] * 6


def test_min_leaf_size_gives_nodes_with_few_labels_fewer_children():
    Z = vectors(n=400)
    sizes = {}
    for minimum in (1, 25):
        tree = build_tree(Z, TreeConfig(branching=40, max_leaf_size=60, min_leaf_size=minimum, max_depth=2))
        sizes[minimum] = [len(members) for members in leaf_clusters(tree)]
        assert sum(sizes[minimum]) == 400
        assert max(sizes[minimum]) <= 60
    assert np.mean(sizes[25]) >= 25 > np.mean(sizes[1])
    assert len(build_tree(Z, TreeConfig(max_leaf_size=60, min_leaf_size=10**6, max_depth=1)).levels[0]) == 2


def test_zero_and_identical_rows_are_assigned_to_clusters():
    Z = vectors(n=100).tolil()
    Z[::3] = 0
    for config in (
        TreeConfig(method="balanced-2means", max_depth=None, branching=16, max_leaf_size=10),
        TreeConfig(method="kmeans", max_depth=None, branching=5, max_leaf_size=10),
        TreeConfig(method="kmeans", max_depth=None, branching=5, max_leaf_size=10, balanced=True),
    ):
        for matrix in (
            sparse.csr_matrix(Z),
            sparse.csr_matrix((100, 7), dtype=np.float32),
            np.ones((100, 3), np.float32),
        ):
            tree = build_tree(matrix, config)
            assert sorted(tree.labels) == list(range(100))
            assert max(len(cluster) for cluster in leaf_clusters(tree)) <= 10


def test_same_tree_for_any_number_of_threads():
    Z = vectors(n=9000, d=300, n_topics=40)
    for config in (
        TreeConfig(method="balanced-2means", max_depth=None, branching=16, max_leaf_size=50),
        TreeConfig(method="kmeans", branching=10, max_leaf_size=200, max_iterations=5),
    ):
        trees = [build_tree(Z, config, seed=2, threads=threads) for threads in (1, 2, 5)]
        assert all(np.array_equal(tree.labels, trees[0].labels) for tree in trees)
        other = build_tree(Z, config, seed=3)
        assert not np.array_equal(other.labels, trees[0].labels)


@pytest.mark.parametrize("n", [1, 5, 100])
def test_largest_entries(n):
    random = np.random.default_rng(0)
    matrix = sparse.random(50, 40, 0.3, "csr", np.float32, random, data_rvs=lambda k: random.integers(-4, 5, k))
    for threads in (1, 3):
        cut = native.matrix.largest_entries(matrix, n, threads)
        assert cut.has_sorted_indices
        assert (cut != reference.largest_entries(matrix, n)).nnz == 0
    wide = matrix.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert (native.matrix.largest_entries(wide, n, 1) != cut).nnz == 0
