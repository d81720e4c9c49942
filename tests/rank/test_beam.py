"""Beam search against exhaustive scoring in NumPy, on trees of many shapes and on damaged arrays."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import reference
from scipy import sparse
from variants import digests

from ramify import DataError, ModelFormatError, native
from ramify.base.mixed import Mixed
from ramify.index.tree import LabelTree
from ramify.rank.beam import LinearTree, PackedLevel
from ramify.rank.score_transforms import ScoreTransform

pytestmark = pytest.mark.native

# So few distinct weights that packing does not quantize them.
VALUES = np.array([-2, -0.75, -0.5, -0.25, 0.125, 0.5, 1, 3], np.float32)


def make_tree(kind, random):
    if kind == "flat":
        return LabelTree.flat(17)
    if kind == "wide":  # chunks of more than 256 nodes
        return LabelTree.from_chain([sparse.csr_matrix(np.eye(3)[np.arange(700) % 3])])
    if kind == "many":  # more than 256 chunks: 16-bit ids, and bitmaps for frequent features
        top = sparse.csr_matrix(np.eye(20)[np.arange(600) % 20])
        return LabelTree.from_chain([top, sparse.csr_matrix(np.eye(600)[random.permutation(1300) % 600])])
    if kind == "overlapping":
        C = (random.random((60, 8)) < 0.2).astype(float)
        C[np.arange(60), np.arange(60) % 8] = 1
        return LabelTree.from_chain([sparse.csr_matrix(C)])
    paths = [tuple(random.integers(0, 4, random.integers(0, 4)).tolist()) for _ in range(90)]
    return LabelTree.from_paths(paths)


KINDS = ["flat", "wide", "many", "overlapping", "paths"]


def make_model(kind, transform="l3-hinge", n_sparse=50, n_dense=0, seed=0):
    """A tree and its weights (n_nodes, d + 1) of each level."""
    random = np.random.default_rng(seed)
    tree = make_tree(kind, random)
    weights, levels = [], []
    for children, width in zip(tree.levels, tree.widths, strict=True):
        frequency = np.repeat([0.02, 0.2, 0.9], [n_sparse - 20, 15, 5])  # rare and frequent features
        W = random.choice(VALUES, (width, n_sparse)) * (random.random((width, n_sparse)) < frequency)
        W = np.hstack([W, random.standard_normal((width, n_dense + 1))]).astype(np.float32)
        weights.append(W)
        levels.append(PackedLevel.pack(sparse.csr_matrix(W), children, n_sparse, 0.5, threads=2))
    transforms = [ScoreTransform.parse(transform)] * tree.depth
    return LinearTree(tree, levels, transforms, n_sparse), weights


def queries(n=40, n_sparse=50, n_dense=0, seed=1):
    random = np.random.default_rng(seed)
    X = sparse.random(n, n_sparse, 0.3, "csr", np.float32, random)
    X = sparse.vstack([sparse.csr_matrix((1, n_sparse), dtype=np.float32), X[1:]], format="csr")  # an empty row
    return Mixed(sparse.csr_matrix(X), random.standard_normal((n, n_dense)).astype(np.float32))


def exhaustive_scores(model, weights, X):
    """Log scores (n, L) of every label, at its best leaf."""
    dense = np.hstack([X.sparse.toarray(), X.dense])
    transform = model.transforms[0]
    scores = reference.tree_scores(
        dense, model.tree.levels, [W[:, :-1] for W in weights], [0.5 * W[:, -1] for W in weights], transform.log_score
    )
    best = np.full((len(X), model.tree.n_labels), -np.inf)
    for leaf, label in enumerate(model.tree.labels):
        best[:, label] = np.maximum(best[:, label], scores[:, leaf])
    return best


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("transform", ["l3-hinge", "l1.5-hinge", "l12-norm", "sigmoid", "noop"])
@pytest.mark.parametrize("n_dense", [0, 37])
def test_unlimited_beam_scores_every_label(kind, transform, n_dense):
    model, weights = make_model(kind, transform, n_dense=n_dense)
    X = queries(n=150, n_dense=n_dense)
    expected = exhaustive_scores(model, weights, X)
    n_labels = model.tree.n_labels
    ids, scores = model.search(X, n_labels, 10**6)
    assert np.array_equal(np.sort(ids, axis=1), np.tile(np.arange(n_labels), (len(X), 1)))
    assert np.all(np.diff(scores, axis=1) <= 0)
    assert np.allclose(scores, np.take_along_axis(expected, ids, axis=1), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["many", "paths"])
@pytest.mark.parametrize("transform", ["l1-hinge", "l4-norm", "sigmoid"])
@pytest.mark.parametrize("wide_margins", [False, True])
def test_branch_and_bound_finds_what_expanding_every_node_finds(kind, transform, wide_margins):
    """A search for all labels expands every leaf cluster of the beam; one for k labels stops early: the same bits."""
    model, _ = make_model(kind, transform)
    if wide_margins:  # labels whose bonus exceeds the distance of many parents
        levels = [dataclasses.replace(level, bias=level.bias.copy()) for level in model.levels]
        levels[-1].bias[::7] += 5000
        model = LinearTree(model.tree, levels, model.transforms, model.n_sparse)
    X = queries(n=300)
    for k, beam in ((1, 50), (3, 20), (10, 50), (100, 50), (5, 10**6)):
        ids, scores = model.search(X, k, beam)
        all_ids, all_scores = model.search(X, max(k, model.tree.n_labels), beam)
        assert np.array_equal(ids, all_ids[:, :k])
        assert np.array_equal(scores, all_scores[:, :k])
        for row in range(0, 300, 7):
            one = model.search(Mixed(X.sparse[row], X.dense[row : row + 1]), k, beam)
            assert np.array_equal(one[0][0], ids[row])
            assert np.array_equal(one[1][0], scores[row])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("transform", "min_score"),
    [("l3-hinge", 0.0), ("l3-hinge", 0.1), ("l4-norm", 0.5), ("sigmoid", 0.3), ("noop", 0.5)],
)
def test_narrow_beam_against_the_reference(kind, transform, min_score):
    model, weights = make_model(kind, transform)
    X = queries()
    dense = X.sparse.toarray()
    ids, scores = model.search(X, 7, 4, min_score=min_score)
    for row in range(len(X)):
        nodes, beam_scores = np.array([0]), np.array([0.0], np.float32)
        for t, (indptr, W) in enumerate(zip(model.tree.levels, weights, strict=True)):
            children = np.concatenate([np.arange(indptr[n], indptr[n + 1]) for n in nodes])
            parents = np.concatenate(
                [np.full(indptr[n + 1] - indptr[n], g) for n, g in zip(nodes, beam_scores, strict=True)]
            )
            last = t == model.tree.depth - 1
            raw = W[children, :-1] @ dense[row] + 0.5 * W[children, -1]
            found = model.transforms[t].log_score(raw, parents, are_labels=last)
            if last:
                best = {}
                for label, score in zip(model.tree.labels[children], found, strict=True):
                    best[label] = max(best.get(label, -np.inf), score)
                expected = np.sort(np.array(list(best.values())))[::-1][:7]
                assert np.allclose(scores[row][ids[row] >= 0], expected, rtol=1e-3, atol=1e-3)
                assert all(
                    np.isclose(best[i], s, rtol=1e-3, atol=1e-3)
                    for i, s in zip(ids[row], scores[row], strict=True)
                    if i >= 0
                )
                continue
            keep = np.lexsort((children, -found))[:4]
            nodes, beam_scores = children[keep], found[keep]
            to_labels = t == model.tree.depth - 2
            if transform != "noop" and min_score > 0 and not (to_labels and model.tree.repeats):
                close = model.transforms[t].spread(beam_scores) >= model.transforms[t].spread(beam_scores[0]) + np.log(
                    min_score
                )
                below = np.cumsum(np.diff(model.tree.levels[t + 1])[nodes])
                needed = np.concatenate([[0], below[:-1]]) < (7 if to_labels else 4)
                nodes, beam_scores = nodes[close | needed], beam_scores[close | needed]


def test_distant_nodes_are_dropped():
    model, _ = make_model("many", "l4-norm")
    X = queries(n=300)
    every, few = model.search(X, 20, 50), model.search(X, 20, 50, min_score=0.9)
    assert np.all(few[0] >= 0)  # still 20 labels
    assert np.any(every[0] != few[0])
    assert np.all(few[1] <= every[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [70, 700])  # searched by row, and by chunk
def test_same_bits_for_single_rows_and_any_number_of_threads(kind, n):
    model, _ = make_model(kind, n_dense=5)
    X = queries(n=n, n_dense=5)
    ids, scores = model.search(X, 9, 3, threads=1)
    for threads in (2, 5):
        again = model.search(X, 9, 3, threads=threads)
        assert np.array_equal(again[0], ids)
        assert np.array_equal(again[1], scores)
    for row in (0, 1, *range(33, n, 31)):
        one = model.search(Mixed(X.sparse[row], X.dense[row : row + 1]), 9, 3)
        assert np.array_equal(one[0][0], ids[row])
        assert np.array_equal(one[1][0], scores[row])
    wide = X.sparse.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert np.array_equal(model.search(Mixed(wide, X.dense), 9, 3)[1], scores)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_selected_labels(kind):
    model, weights = make_model(kind, n_dense=3)
    X = queries(n_dense=3)
    expected = exhaustive_scores(model, weights, X)
    selected = sparse.csr_matrix((np.random.default_rng(0).random(expected.shape) < 0.05).astype(np.float32))
    for threads in (1, 3):
        scores = model.score_selected(X, selected, threads)
        assert np.array_equal(scores.indices, selected.indices)
        rows = np.repeat(np.arange(len(X)), np.diff(scores.indptr))
        assert np.allclose(scores.data, expected[rows, scores.indices], rtol=1e-3, atol=1e-3)
    with pytest.raises(DataError, match="selected must be"):
        model.score_selected(X, selected[1:])


@pytest.mark.parametrize(("smallest", "error"), [(2, 1 / 64), (0.2, 1 / 32), (0.01, 1 / 16), (1e-6, 1 / 16)])
def test_weights_are_rounded_as_far_as_their_range_requires(smallest, error):
    """Codes have 7 bits for exponent and mantissa: the wider the range of the weights, the fewer for the mantissa."""
    random = np.random.default_rng(0)
    W = np.exp(random.uniform(np.log(smallest), np.log(30), (300, 80))).astype(np.float32)
    W *= random.choice([-1, 0, 1], W.shape)
    with_bias = np.hstack([W, np.zeros((300, 1), np.float32)])
    level = PackedLevel.pack(sparse.csr_matrix(with_bias), np.array([0, 300]), 80, 1.0)
    model = LinearTree(LabelTree.flat(300), [level], [ScoreTransform.parse("noop")], 80)
    ids, scores = model.search(sparse.eye(80, format="csr", dtype=np.float32), 300, 1)
    found = np.zeros_like(W)
    found[ids.T, np.arange(80)[None, :]] = scores.T
    assert np.array_equal(found == 0, W == 0)
    step = np.where(np.abs(W) < level.codebook[0], level.codebook[0], error * np.abs(W))  # below the range: its end
    assert np.all(np.abs(found - W) <= 1.0001 * step)
    assert np.all(np.isin(found[found != 0], level.codebook))
    large = np.abs(W) > 0.01
    assert abs(np.mean(found[large] / W[large]) - 1) < error / 10  # rounded to the nearest


@pytest.mark.parametrize("change", [{0: 0.0}, {3: 1.0}, {200: np.nan}, slice(None, None, -1)])
def test_other_codebooks_are_refused(change):
    model, _ = make_model("paths")
    codebook = model.levels[0].codebook.copy()
    if isinstance(change, slice):
        codebook = codebook[change].copy()
    else:
        codebook[list(change)] = list(change.values())
    levels = [dataclasses.replace(model.levels[0], codebook=codebook), *model.levels[1:]]
    with pytest.raises(ValueError, match="codebook"):
        LinearTree(model.tree, levels, model.transforms, 50)


def test_long_queries_have_the_same_bits_in_batches():
    """Weights are added up for 1,024 features at a time."""
    model, _ = make_model("many", n_sparse=3000)
    X = sparse.random(300, 3000, 0.7, "csr", np.float32, np.random.default_rng(5))
    ids, scores = model.search(X, 8, 3, threads=2)
    for row in range(0, 300, 41):
        one = model.search(X[row], 8, 3)
        assert np.array_equal(one[0][0], ids[row])
        assert np.array_equal(one[1][0], scores[row])


def test_very_negative_margins_do_not_tie():
    W = sparse.csr_matrix(np.array([[-6.0, 0], [-7.0, 0], [-8.0, 0], [2, 0]], np.float32))
    tree = LabelTree.flat(4)
    model = LinearTree(tree, [PackedLevel.pack(W, tree.levels[0], 1, 1.0)], [ScoreTransform.parse("l3-hinge")], 1)
    ids, scores = model.search(sparse.csr_matrix(np.ones((1, 1), np.float32)), 4, 1)
    assert ids.tolist() == [[3, 0, 1, 2]]
    assert len(set(scores[0])) == 4


@pytest.mark.parametrize("n", [5, 300])  # searched by row, and by chunk
def test_margins_beyond_one_order_labels_but_not_clusters(n):
    """Independent of the ids of the labels."""
    transform = ScoreTransform.parse("l4-norm")
    margins = np.array([2.1, 9, 2.2, 1.5, 0.5, 44, 4, 3], np.float32)
    for order in (np.arange(8), np.random.default_rng(0).permutation(8)):
        tree = LabelTree.from_chain([sparse.csr_matrix(np.eye(2)[order % 2])])
        clusters = sparse.csr_matrix(np.array([[2, 0], [30, 0]], np.float32))  # both beyond a margin of 1
        leaves = np.zeros((8, 2), np.float32)
        leaves[:, 0] = margins[order][tree.labels]
        levels = [
            PackedLevel.pack(W, children, 1, 1.0)
            for W, children in zip((clusters, sparse.csr_matrix(leaves)), tree.levels, strict=True)
        ]
        model = LinearTree(tree, levels, [transform] * 2, 1)
        ids, scores = model.search(sparse.csr_matrix(np.ones((n, 1), np.float32)), 8, 2)
        assert order[ids].tolist() == [np.argsort(-margins).tolist()] * n
        parent = transform.log_score(np.float32(30), are_labels=False)
        expected = transform.log_score(margins, parent)[order[ids[0]]]
        assert np.allclose(scores[0], expected, rtol=0.02, atol=1e-6)


def test_batches_with_uneven_rows():
    """Short, long, equal and empty rows give the same bits as single queries."""
    random = np.random.default_rng(2)
    model, _ = make_model("many", n_sparse=400)
    short, long = (
        sparse.random(3000, 400, 0.004, "csr", np.float32, random),
        sparse.random(8, 400, 1, "csr", np.float32, random),
    )
    equal = sparse.vstack([short[7]] * 2500)
    for X in (
        short,
        sparse.vstack([short, long, equal], format="csr"),
        sparse.csr_matrix((200, 400), dtype=np.float32),
    ):
        ids, scores = model.search(X, 5, 2, threads=3)
        for row in range(0, X.shape[0], 97):
            one = model.search(X[row], 5, 2)
            assert np.array_equal(one[0][0], ids[row])
            assert np.array_equal(one[1][0], scores[row])


@pytest.mark.parametrize("kind", ["many", "paths"])
@pytest.mark.parametrize("n", [20, 400])
def test_damaged_arrays_never_crash_a_search(kind, n):
    model, _ = make_model(kind)
    X = queries(n=n)
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(150):
        levels = list(model.levels)
        t = random.integers(len(levels))
        name = ["block_starts", "blocks"][random.integers(2)]
        array = getattr(levels[t], name).copy()
        view = array.view(np.uint8)
        for _ in range(random.integers(1, 20)):
            view[random.integers(len(view))] = random.integers(256)
        levels[t] = dataclasses.replace(levels[t], **{name: array})
        damaged = LinearTree(model.tree, levels, model.transforms, 50)
        with contextlib.suppress(ModelFormatError):  # an error or some result, never a crash
            damaged.search(X, 5, 3)
            continue
        refused += 1
    assert refused > 20


@pytest.mark.parametrize("n", [3, 300])
def test_a_tree_without_nodes_finds_nothing(n):
    tree = LabelTree((np.zeros(2, np.int64), np.zeros(1, np.int64)), np.empty(0, np.int32), 0)
    nothing = sparse.csr_matrix((0, 51), dtype=np.float32)
    levels = [PackedLevel.pack(nothing, children, 50, 1.0) for children in tree.levels]
    model = LinearTree(tree, levels, [ScoreTransform.parse("l3-hinge")] * 2, 50)
    ids, scores = model.search(queries(n), 4, 2)
    assert np.all(ids == -1)
    assert np.all(scores == -np.inf)


def model_with_repeated_rows(n_features):
    """A model whose bitmaps name the same row for each of many chunks: four rows in every byte of them."""
    n_chunks = 4096
    tree = LabelTree.from_chain([sparse.identity(n_chunks, format="csr")])
    groups = np.zeros(n_chunks // 64, [("bits", "<u8"), ("row", "<u4"), ("bytes", "<u4")])
    groups["bits"] = 2**64 - 1
    block = np.concatenate([
        np.array([2 * 64 + 1], "<u4").view(np.uint8),
        groups.view(np.uint8),
        np.zeros(2 * 64, np.uint8),  # all rows start where the first one does
        np.array([0, 1, 128, 0], np.uint8),  # one weight, in the first column
    ])  # fmt: skip
    nothing = sparse.csr_matrix((n_chunks, n_features + 1), dtype=np.float32)
    levels = [PackedLevel.pack(nothing, children, n_features, 1.0) for children in tree.levels]
    starts = (np.arange(n_features + 1) * (len(block) // 4)).astype(np.uint32)
    blocks = np.concatenate([*[block] * n_features, levels[1].blocks])
    levels[1] = dataclasses.replace(levels[1], block_starts=starts, blocks=blocks)
    return LinearTree(tree, levels, [ScoreTransform.parse("l3-hinge")] * 2, n_features)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the unit of ru_maxrss")
def test_a_damaged_table_takes_a_small_multiple_of_its_size():
    code = """
import resource
import numpy as np
from scipy import sparse
from ramify import ModelFormatError
from test_beam import model_with_repeated_rows
model = model_with_repeated_rows(2048)
X = sparse.csr_matrix(np.ones((5000, 1), np.float32))
X.resize(5000, 2048)
assert model.search(X[:2], 5, 3)[0].shape == (2, 5)  # by itself a query reads only what it needs
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    model.search(X, 5, 20)
except ModelFormatError:
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / len(model.levels[1].blocks))
"""
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parent.parent)])
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) < 60  # of it 64 MB are scores of the batch


def test_inconsistent_arguments_are_refused():
    model, _ = make_model("paths")
    with pytest.raises(DataError, match="sparse features"):
        model.search(sparse.csr_matrix((1, 9), dtype=np.float32), 1, 1)
    with pytest.raises(ValueError, match="dense"):
        model.search(queries(n_dense=2), 1, 1)
    level = model.levels[0]
    for change in (
        {"block_starts": level.block_starts[:-1]},
        {"blocks": level.blocks[:10]},
        {"bias": level.bias[1:]},
        {"codebook": level.codebook[1:]},
    ):
        with pytest.raises(ValueError, match="fit"):
            LinearTree(model.tree, [dataclasses.replace(level, **change), *model.levels[1:]], model.transforms, 50)


def test_blend_rankings_is_the_log_of_the_mean():
    random = np.random.default_rng(0)
    ids = np.stack([[random.permutation(30)[:8] for _ in range(25)] for _ in range(3)]).astype(np.int32)
    ids[1, 4, 3:] = -1
    scores = (-5 * random.random((3, 25, 8))).astype(np.float32)
    scores[ids < 0] = -np.inf
    for threads in (1, 3):
        best, logs = native.matrix.blend_rankings(ids, scores, 40, threads)
        for row in range(25):
            sums = {}
            for r in range(3):
                for i, s in zip(ids[r, row], scores[r, row], strict=True):
                    if i >= 0:
                        sums[i] = sums.get(i, 0) + np.exp(float(s)) / 3
            order = sorted(sums, key=lambda i: (-np.float32(np.log(sums[i])), i))
            n = len(order)
            assert best[row, :n].tolist() == order
            assert np.all(best[row, n:] == -1)
            assert np.allclose(logs[row, :n], [np.log(sums[i]) for i in order], atol=1e-5)


def test_every_instruction_set_gives_the_same_bits():
    code = """
import hashlib
from test_beam import KINDS, make_model, queries
from ramify import native
parts = []
for kind in KINDS:
    model, _ = make_model(kind, n_dense=21)
    for n in (40, 400):
        ids, scores = model.search(queries(n, n_dense=21), 9, 3)
        parts += [ids.tobytes(), scores.tobytes()]
print(native.matrix.isa(), hashlib.sha256(b"".join(parts)).hexdigest())
"""
    found = digests(code, Path(__file__).parent)
    assert len(set(found.values())) == 1, found
