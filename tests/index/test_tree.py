"""Label trees from cluster matrices, paths and taxonomies; projection of labels, export and files."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import sparse

from ramify import DataError, ModelFormatError
from ramify.index.tree import LabelTree
from ramify.io.store import Store, StoreWriter


def labels_under(tree, level, node):
    """Labels below a node, by recursion over the children pointers."""
    nodes = [node]
    for indptr in tree.levels[level + 1 :]:
        nodes = [c for n in nodes for c in range(indptr[n], indptr[n + 1])]
    return sorted(int(tree.labels[n]) for n in nodes)


def test_flat():
    tree = LabelTree.flat(4)
    assert tree.widths == [4]
    assert labels_under(tree, 0, 2) == [2]


def test_from_chain():
    C = sparse.csr_matrix(np.array([[0, 1], [1, 0], [1, 0], [0, 1], [1, 0]]))
    for chain in ([C], [sparse.csr_matrix(np.ones((2, 1))), C]):
        tree = LabelTree.from_chain(chain)
        assert tree.widths == [2, 5]
        assert [labels_under(tree, 0, n) for n in (0, 1)] == [[1, 2, 4], [0, 3]]
        assert not tree.repeats
    overlapping = LabelTree.from_chain([sparse.csr_matrix(np.array([[1, 1], [1, 0], [0, 1]]))])
    assert overlapping.repeats
    assert [labels_under(overlapping, 0, n) for n in (0, 1)] == [[0, 1], [0, 2]]
    inner = LabelTree.from_chain([sparse.csr_matrix(np.array([[1, 1], [1, 0]])), sparse.eye(2, format="csr")])
    assert inner.widths == [2, 3, 3]  # a node with two parents is repeated
    with pytest.raises(DataError, match="no leaf"):
        LabelTree.from_chain([sparse.csr_matrix(np.array([[1, 0], [0, 0]]))])
    with pytest.raises(DataError, match="columns"):
        LabelTree.from_chain([sparse.csr_matrix(np.ones((3, 1))), C])
    with pytest.raises(DataError, match="empty"):
        LabelTree.from_chain([])


def test_from_paths():
    tree = LabelTree.from_paths([("a", "b"), ("a", "c"), ("d",), (), ("a", "b")])
    assert tree.depth == 3
    groups = [labels_under(tree, 0, n) for n in range(tree.widths[0])]
    assert sorted(groups) == [[0, 1, 4], [2], [3]]
    assert [0, 4] in [labels_under(tree, 1, n) for n in range(tree.widths[1])]
    several = LabelTree.from_paths([[("a",), ("b",)], ("a",)])
    assert several.repeats
    assert sorted(labels_under(several, 0, n) for n in range(2)) == [[0], [0, 1]]
    assert LabelTree.from_paths([(), ()]).widths == [2]
    for wrong in ("ab", 5):
        with pytest.raises(DataError, match="path of label 0"):
            LabelTree.from_paths([wrong])


def test_from_parents():
    #       0       1
    #      2 3      4
    #     5   6
    parents = [-1, -1, 0, 0, 1, 2, 3]
    tree = LabelTree.from_parents(parents)  # labels: the leaves 4, 5, 6
    assert tree.n_labels == 3
    assert sorted(labels_under(tree, 0, n) for n in range(tree.widths[0])) == [[0], [1, 2]]
    taxonomy = LabelTree.from_parents(parents, [0, 2, 5])  # inner nodes are labels too
    assert sorted(map(int, taxonomy.labels)) == [0, 1, 2]
    for wrong, message in [([1, 0], "cycle"), ([5], "between"), ([[1]], "integers"), ([0.5], "integers")]:
        with pytest.raises(DataError, match=message):
            LabelTree.from_parents(wrong, [0])


def test_project_sums_labels_below_each_node():
    random = np.random.default_rng(0)
    paths = [tuple(random.integers(0, 3, 2).tolist()) for _ in range(20)]
    paths[3] = [(0, 1), (2, 2)]
    tree = LabelTree.from_paths(paths)
    Y = sparse.csr_matrix((random.random((30, 20)) < 0.2) * random.random((30, 20)), dtype=np.float32)
    levels = tree.project(Y)
    assert [m.shape[1] for m in levels] == tree.widths
    for t, matrix in enumerate(levels):
        dense = matrix.toarray()
        assert matrix.has_sorted_indices
        for node in range(tree.widths[t]):
            assert np.allclose(dense[:, node], Y[:, labels_under(tree, t, node)].sum(axis=1).A1, atol=1e-5)


def test_to_dict():
    tree = LabelTree.from_paths([("a",), ("b",), ("a",), ("b",)])
    out = json.loads(json.dumps(tree.to_dict(["w", "x", ("y", 1), "z"], counts=[1, 2, 9, 2], n_representatives=1)))
    assert out["n_labels"] == 4
    assert out["representative"] == ["('y', 1)"]
    first, second = out["children"]
    assert first["labels"] == ["w", "('y', 1)"]
    assert second["representative"] == ["x"]  # the first of equal counts
    assert LabelTree.flat(2).to_dict()["labels"] == [0, 1]


def test_save_and_load(tmp_path):
    tree = LabelTree.from_paths([("a", "b"), ("a", "c"), ("d",)])
    with StoreWriter(tmp_path / "m") as writer:
        info = tree.save_to(writer, "t_")
        writer.manifest("x", {}, {})
    again = LabelTree.load_from(Store(tmp_path / "m"), info, "t_", 3)
    assert again.widths == tree.widths
    assert np.array_equal(again.labels, tree.labels)
    for wrong, n_labels in ((None, 3), ({"depth": 0}, 3), ({"depth": 9}, 3), (info, 2), (info, 4)):
        with pytest.raises(ModelFormatError):
            LabelTree.load_from(Store(tmp_path / "m"), wrong, "t_", n_labels)
