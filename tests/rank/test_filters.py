"""Filters in beam search against scoring every allowed label."""

from __future__ import annotations

import numpy as np
import pytest

import ramify
from ramify.index.tree import LabelTree
from ramify.rank.filters import node_mask


@pytest.fixture(scope="module")
def model(pydoc):
    train = pydoc.split("train")
    return ramify.XRLinear(verbose=0, tree=ramify.TreeConfig(branching=8, max_leaf_size=12)).fit(
        train.texts[:2500], train.labels()[:2500]
    )


def exact(model, X, ids, k):
    """Ranking of the allowed labels by their scores without a beam."""
    selected = np.zeros((len(X), model.n_labels), np.int8)
    selected[:, ids] = 1
    return ramify.Ranking.from_csr(model.predict_selected(X, selected), k)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("n_allowed", [1, 3, 10, 60, 600])
@pytest.mark.parametrize("n_rows", [3, 300])  # a batch goes down the tree level by level
def test_few_allowed_labels_are_found_exactly(model, pydoc, n_allowed, n_rows, threads):
    X = pydoc.split("test").texts[:n_rows]
    ids = np.random.default_rng(n_allowed).permutation(model.n_labels)[:n_allowed]
    allow = model.label_filter(allow=[model.labels_[i] for i in ids])
    assert len(allow) == n_allowed
    model.set_params(threads=threads)
    found, expected = model.predict_topk(X, 5, allow=allow), exact(model, X, ids, 5)
    k = min(5, n_allowed)
    assert np.allclose(found.scores[:, :k], expected.scores[:, :k], rtol=1e-5)
    assert np.mean(found.ids[:, :k] == expected.ids[:, :k]) > 0.99  # equal scores may change places
    assert np.all(found.ids[:, k:] == -1)


def test_denied_labels_are_replaced_by_the_next_ones(model, pydoc):
    """A beam without some labels has room for others, so the next ones need not be exactly those of a wider ranking."""
    X = pydoc.split("test").texts[:50]
    plain = model.predict_topk(X, 30)
    denied = {label for row in plain.top(3).labels() for label, _ in row}
    found = model.predict_topk(X, 10, deny=denied)
    exact_scores = model.predict_selected(X, found.to_csr() != 0)
    assert np.allclose(exact_scores.data, found.to_csr().data, rtol=1e-5)
    overlap = []
    for row, other in zip(plain.labels(), found.labels(), strict=True):
        labels, kept = {label for label, _ in other}, [label for label, _ in row if label not in denied][:10]
        assert len(labels) == 10
        assert not labels & denied
        overlap.append(len(labels & set(kept)) / max(1, len(kept)))
    assert np.mean(overlap) > 0.8


def test_masks_of_nodes():
    tree = LabelTree.from_paths([["a", "x"], ["a", "y"], ["b", "z"], ["b", "z"]])
    for allowed in (np.array([0, 1, 0, 0], bool), np.array([0, 0, 0, 1], bool), np.zeros(4, bool), np.ones(4, bool)):
        mask, start = node_mask(tree, allowed), 0
        below = [{int(label)} for label in tree.labels]
        expected = [[bool(allowed[list(labels)].any()) for labels in below]]
        for children in reversed(tree.levels[1:]):
            below = [
                set().union(*below[a:b]) for a, b in zip(children[:-1].tolist(), children[1:].tolist(), strict=True)
            ]
            expected.append([bool(allowed[list(labels)].any()) if labels else False for labels in below])
        for level in reversed(expected):
            assert mask[start : start + len(level)].tolist() == [int(x) for x in level]
            start += len(level)
        assert start == len(mask)


def test_a_mask_must_fit_the_tree(model):
    tree = model.trees_[0]
    X = model._transform_features(model._check_predict_inputs(["a"]))
    with pytest.raises(ValueError, match="one entry for each node"):
        tree.search(X, 3, 5, 1, mask=np.ones(3, np.uint8))


def test_filters_of_another_model_are_refused(model):
    other = ramify.Popular().fit(["a"], [["x"]])
    with pytest.raises(ramify.DataError, match="the filter has 1 labels"):
        model.predict_topk(["a"], allow=other.label_filter())
    with pytest.raises(ramify.DataError, match="the filter has 1 labels"):
        model.predict_topk(["a"], deny=other.label_filter())
    assert "1 of 1 labels" in repr(other.label_filter())
