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
    """Label vectors around a few topics."""
    random = np.random.default_rng(seed)
    topics = random.random((n_topics, d)) * (random.random((n_topics, d)) < 0.2)
    Z = topics[np.arange(n) % n_topics] + 0.1 * random.random((n, d)) * (random.random((n, d)) < 0.2)
    return sparse.csr_matrix(Z / np.linalg.norm(Z, axis=1, keepdims=True), dtype=np.float32)


def leaves(tree):
    borders = tree.levels[-1]
    return [tree.labels[a:b] for a, b in itertools.pairwise(borders)]


def together(tree, topics):
    """Share of pairs of one topic that share a leaf."""
    leaf = np.empty(len(topics), int)
    for number, members in enumerate(leaves(tree)):
        leaf[members] = number
    same = topics[:, None] == topics[None, :]
    return (leaf[:, None] == leaf[None, :])[same].mean()


def test_halves_as_in_the_slow_twin():
    Z = vectors(n=64)
    order = native.linear.balanced_2means(Z, 1, True, 50, 0.0, 5, 1)
    left = set(order[:32].tolist())
    # Whatever the two members that the native code started from, some start of the twin ends in the same halves.
    dense = Z.toarray().astype(np.float64)
    ends = {
        frozenset(part.tolist())
        for a in range(64)
        for b in (0, 1, 2, 3, 5, 13, 40)
        if a != b
        for part in reference.balanced_2means(dense, 1, lambda members, a=a, b=b: (a, b), 50)
    }
    assert frozenset(left) in ends


@pytest.mark.parametrize("spherical", [True, False])
def test_halves_find_topics_and_are_balanced(spherical):
    Z = vectors(n=256)
    tree = build_tree(
        Z, TreeConfig(method="halves", max_depth=None, branching=4, max_leaf=32, spherical=spherical, n_terms=None)
    )
    assert tree.widths == [2, 8, 256]
    assert {len(leaf) for leaf in leaves(tree)} == {32}
    assert together(tree, np.arange(256) % 8) > 0.8
    odd = build_tree(vectors(n=203), TreeConfig(method="halves", max_depth=None, branching=16, max_leaf=30))
    sizes = [len(leaf) for leaf in leaves(odd)]
    assert max(sizes) - min(sizes) <= 1
    assert odd.widths == [8, 203]


def test_shapes_of_trees():
    Z = vectors(n=130)
    assert build_tree(Z, TreeConfig(method="halves", max_depth=None, branching=16, max_leaf=200)).widths == [130]
    assert build_tree(Z, TreeConfig(method="halves", max_depth=None, branching=2, max_leaf=10)).widths == [
        2,
        4,
        8,
        16,
        130,
    ]
    assert build_tree(Z, TreeConfig(method="halves", branching=2, max_leaf=10, max_depth=1)).widths == [16, 130]
    assert build_tree(Z, TreeConfig(method="halves", max_depth=None, branching=3, max_leaf=10)).widths == [
        2,
        6,
        16,
        130,
    ]
    assert build_tree(Z[:1], TreeConfig(method="halves", max_depth=None, branching=16, max_leaf=1)).widths == [1]
    assert (
        build_tree(Z[:5], TreeConfig(method="halves", max_depth=None, branching=16, max_leaf=1)).labels.tolist() != []
    )
    for method in ("halves", "kmeans"):
        for n in (2, 3):
            few = build_tree(Z[:n], TreeConfig(method=method, branching=2, max_leaf=1, max_depth=None))
            assert sorted(few.labels) == list(range(n))
    for config in (
        TreeConfig(method="halves", max_depth=None, branching=16, max_leaf=10),
        TreeConfig(method="kmeans", max_depth=None, branching=5, max_leaf=10),
    ):
        assert sorted(build_tree(Z.toarray(), config).labels) == list(range(130))  # dense vectors too


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
    agree = max((row[:, None] == row[None, :])[same].mean() for row in found)
    assert agree > 0.75


def test_a_settled_kmeans_is_a_fixed_point():
    """Every label is in the cluster whose centre is nearest, and centres are what their members say."""
    Z = vectors(n=150, seed=3)
    cluster = native.linear.kmeans(Z, 6, False, True, 200, 0.0, 1, 1)
    dense = Z.toarray().astype(np.float64)
    used = np.unique(cluster)
    centres = np.stack([dense[cluster == c].sum(axis=0) for c in used])
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    similarity = dense @ centres.T
    chosen = similarity[np.arange(150), np.searchsorted(used, cluster)]
    assert np.all(chosen >= similarity.max(axis=1) - 1e-5)


def test_kmeans_trees():
    Z = vectors(n=300)
    tree = build_tree(Z, TreeConfig(method="kmeans", max_depth=None, branching=6, max_leaf=20))
    assert max(len(leaf) for leaf in leaves(tree)) <= 20
    shallow = build_tree(Z, TreeConfig(method="kmeans", branching=6, max_leaf=20, max_depth=1))
    assert shallow.depth == 2
    assert max(len(leaf) for leaf in leaves(shallow)) <= 20  # what is too large is split into siblings
    balanced = build_tree(Z, TreeConfig(method="kmeans", branching=6, max_leaf=50, balanced=True))
    assert [len(leaf) for leaf in leaves(balanced)] == [50] * 6


def test_labels_without_data_and_labels_all_alike_get_a_place():
    Z = vectors(n=100).tolil()
    Z[::3] = 0
    for config in (
        TreeConfig(method="halves", max_depth=None, branching=16, max_leaf=10),
        TreeConfig(method="kmeans", max_depth=None, branching=5, max_leaf=10),
        TreeConfig(method="kmeans", max_depth=None, branching=5, max_leaf=10, balanced=True),
    ):
        for matrix in (
            sparse.csr_matrix(Z),
            sparse.csr_matrix((100, 7), dtype=np.float32),
            np.ones((100, 3), np.float32),
        ):
            tree = build_tree(matrix, config)
            assert sorted(tree.labels) == list(range(100))
            assert max(len(leaf) for leaf in leaves(tree)) <= 10


def test_same_tree_with_any_number_of_threads():
    Z = vectors(n=9000, d=300, n_topics=40)
    for config in (
        TreeConfig(method="halves", max_depth=None, branching=16, max_leaf=50),
        TreeConfig(method="kmeans", branching=10, max_leaf=200, max_iterations=5),
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
