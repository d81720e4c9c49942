"""Linear classifiers on candidate lists: packed weights, margins and rankings against a reference implementation."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
import reference
from scipy import sparse
from variants import digests

from ramify import ModelFormatError, native
from ramify.native.linear import Candidates, LinearClassifiers
from ramify.rank.score_transforms import ScoreTransform

pytestmark = pytest.mark.native

# Weights of at most 8 significant bits: packing does not round them.
VALUES = np.array([-2, -0.75, -0.5, -0.25, 0.125, 0.5, 1, 3], np.float32)
SIZES = [1, 15, 64, 65, 700, 70_000]
"""Numbers of labels: less than a group, whole words, and more than 16-bit positions."""


def make_weights(n_labels, random):
    """Sparse weights (n_labels × 30): features without weights, rare ones (lists), and frequent ones (bitmaps)."""
    frequency = np.repeat([0.0, 3 / n_labels, 0.05, 0.4, 1.0], [3, 10, 5, 10, 2])
    columns = []
    for f in frequency:
        rows = np.flatnonzero(random.random(n_labels) < f)
        columns.append(sparse.csc_matrix((random.choice(VALUES, len(rows)), (rows, 0 * rows)), (n_labels, 1)))
    return sparse.csr_matrix(sparse.hstack(columns), dtype=np.float32)


def pack(W, dim, random):
    """Classifiers with sparse weights W (L × d) in an order of their own."""
    positions = random.permutation(W.shape[0]).astype(np.int32)
    by_feature = W[np.argsort(positions)].T.tocsr()
    dense = random.standard_normal((W.shape[0], dim)).astype(np.float32)
    bias = random.standard_normal(W.shape[0]).astype(np.float32)
    return LinearClassifiers(*native.linear.pack_features(by_feature, 2), positions, dense, bias)


def make_candidates(n_labels, dim, n, width, random, index=np.int32):
    X = sparse.random(n, 30, 0.4, "csr", np.float32, random)
    X.indptr, X.indices = X.indptr.astype(index), X.indices.astype(index)
    X.data[: X.indptr[1]] = 0
    embeddings = random.standard_normal((n, dim)).astype(np.float32)
    embeddings[1] = 0
    ids = np.stack([random.choice(n_labels, width, replace=n_labels < width) for _ in range(n)]).astype(np.int32)
    ids[random.random(ids.shape) < 0.2] = -1
    ids[2] = -1
    return Candidates(X, embeddings, 0.3, ids)


def make_problem(n_labels, dim=21, n=35, width=40, seed=0, index=np.int32):
    random = np.random.default_rng([n_labels, seed])
    W = make_weights(n_labels, random)
    return W, pack(W, dim, random), make_candidates(n_labels, dim, n, width, random, index)


def make_tree(random):
    """A decision tree of three levels over the four features."""
    n = 7
    left, right = np.arange(n), np.arange(n)
    left[:3], right[:3] = [1, 3, 5], [2, 4, 6]
    thresholds = np.array([0.2, 0.1, 0.4, 0, 0, 0, 0])
    feature = np.array([2, 0, 1, 0, 0, 0, 0])
    arrays = (feature.astype(np.int32), thresholds, left.astype(np.int32), right.astype(np.int32))
    return (*arrays, random.random(n).astype(np.float32), 2)


@pytest.mark.parametrize("n_labels", SIZES)
@pytest.mark.parametrize("threads", [1, 3])
def test_packed_weights_are_those_of_the_matrix(n_labels, threads):
    random = np.random.default_rng(n_labels)
    W = make_weights(n_labels, random).T.tocsr()
    found = reference.unpack_features(*native.linear.pack_features(W, threads), n_labels)
    assert np.array_equal(found, W.toarray())


def test_weights_are_rounded_to_nearest():
    """Ties go to the even neighbor, the largest floats do not overflow, and small ones keep their precision."""
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-9), 3.4e38, -1e-30, 0.1], np.float32)
    W = sparse.csr_matrix(values[:, None])
    found = reference.unpack_features(*native.linear.pack_features(W, 1), 1)[:, 0]
    assert found[:4].tolist() == [1.0, 1.0, 1 + 2**-6, -1.0]
    assert np.isfinite(found).all()
    assert found == pytest.approx(values, rel=2**-7)


@pytest.mark.parametrize("n_labels", SIZES)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_margins_of_candidates(n_labels, index):
    W, classifiers, candidates = make_problem(n_labels, index=index)
    expected = reference.candidate_margins(W, classifiers.dense, classifiers.bias, *candidates)
    margins = native.linear.score_candidates(classifiers, candidates, 1)
    assert margins == pytest.approx(expected, abs=1e-5)
    assert np.array_equal(margins, native.linear.score_candidates(classifiers, candidates, 3))
    X, embeddings, norm, ids = candidates
    for row in (0, 1, 2, 17):
        part = Candidates(X[row], embeddings[row : row + 1], norm, ids[row : row + 1])
        assert np.array_equal(native.linear.score_candidates(classifiers, part, 1)[0], margins[row])


@pytest.mark.parametrize("n_labels", [64, 700])
@pytest.mark.parametrize(("transform", "power"), [("sigmoid", 0.35), ("l3-hinge", 1.0), ("noop", 0.0)])
@pytest.mark.parametrize("with_tree", [False, True])
def test_rankings_of_candidates(n_labels, transform, power, with_tree):
    W, classifiers, candidates = make_problem(n_labels, dim=5)
    random = np.random.default_rng(1)
    log_scores = -5 * random.random(candidates.ids.shape).astype(np.float32)
    counts = random.integers(1, 50, n_labels)
    tree = make_tree(random) if with_tree else None
    score = ScoreTransform.parse(transform)
    options = {"power": power, "tree": tree, "tree_weight": 0.1, "counts": counts}
    native_options = {**options, "transform": score.kind, "transform_power": score.power, "k": 7}
    ids, scores = native.linear.rank_candidates(classifiers, candidates, log_scores, **native_options, threads=1)
    margins = reference.candidate_margins(W, classifiers.dense, classifiers.bias, *candidates)
    expected = reference.blended_scores(margins, score.log_score, candidates.ids, log_scores, **options)
    for row in range(len(ids)):
        best = {i: s for i, s in zip(candidates.ids[row].tolist(), expected[row], strict=True) if i >= 0}
        given = ids[row][ids[row] >= 0].tolist()
        n_given = min(7, (candidates.ids[row] >= 0).sum())
        assert len(given) == n_given
        assert np.all(ids[row, n_given:] == -1)
        assert np.all(scores[row, n_given:] == -np.inf)
        assert np.all(np.diff(scores[row, :n_given]) <= 0)
        assert scores[row, :n_given] == pytest.approx(sorted(best.values(), reverse=True)[:7], abs=1e-4)
        assert scores[row, :n_given] == pytest.approx([best[i] for i in given], abs=1e-4)
    again = native.linear.rank_candidates(classifiers, candidates, log_scores, **native_options, threads=3)
    assert np.array_equal(ids, again[0])
    assert np.array_equal(scores, again[1])


def test_scores_are_finite_where_probabilities_vanish():
    _, classifiers, candidates = make_problem(64)
    log_scores = np.full(candidates.ids.shape, -np.inf, np.float32)
    for power in (0.0, 0.5):
        ids, scores = native.linear.rank_candidates(
            classifiers, candidates, log_scores, power=power, transform=ScoreTransform.SIGMOID, transform_power=1.0,
            tree=None, tree_weight=0.0, counts=np.ones(64, np.int64), k=5, threads=1,
        )  # fmt: skip
        assert np.isfinite(scores[ids >= 0]).all()
        assert np.exp(scores[ids >= 0]).min() > 0


def test_no_sparse_features():
    random = np.random.default_rng(0)
    empty = sparse.csr_matrix((0, 9), dtype=np.float32)
    dense, bias = random.standard_normal((9, 4)).astype(np.float32), np.zeros(9, np.float32)
    classifiers = LinearClassifiers(*native.linear.pack_features(empty, 1), np.arange(9, dtype=np.int32), dense, bias)
    embeddings = random.standard_normal((3, 4)).astype(np.float32)
    ids = np.tile(np.arange(9, dtype=np.int32), (3, 1))
    candidates = Candidates(sparse.csr_matrix((3, 0), dtype=np.float32), embeddings, 2.0, ids)
    unit = 2 * embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    assert native.linear.score_candidates(classifiers, candidates, 1) == pytest.approx(unit @ dense.T, abs=1e-5)


@pytest.mark.parametrize("n_labels", [65, 700, 70_000])
def test_damaged_weights_never_crash(n_labels):
    """Any bytes in the blocks and their starts give margins or an error."""
    _, classifiers, candidates = make_problem(n_labels, n=4)
    random = np.random.default_rng(0)
    n_refused = 0
    for trial in range(300):
        starts, blocks = classifiers.block_starts.copy(), classifiers.blocks.copy()
        if trial % 3 == 0:  # the sizes of a block
            at = int(starts[random.integers(len(starts) - 1)]) * 4
            blocks[at : at + 4] = random.integers(0, 256, len(blocks[at : at + 4]))
        elif trial % 3 == 1:
            blocks[random.integers(0, len(blocks), 2000)] = 255
        else:
            starts[random.integers(len(starts))] = random.integers(0, 2**32)
        if trial % 10 == 0:
            blocks = blocks[: random.integers(len(blocks))]
        damaged = classifiers._replace(block_starts=starts, blocks=np.ascontiguousarray(blocks))
        with contextlib.suppress(ModelFormatError):  # an error or some result, never a crash
            native.linear.score_candidates(damaged, candidates, 1)
            continue
        n_refused += 1
    assert n_refused > 50
    # What was borrowed during a failure is not used again.
    whole = native.linear.score_candidates(classifiers, candidates, 1)
    with contextlib.suppress(ModelFormatError):
        native.linear.score_candidates(classifiers._replace(blocks=classifiers.blocks[:40]), candidates, 1)
    assert np.array_equal(native.linear.score_candidates(classifiers, candidates, 1), whole)


def test_what_does_not_fit_together_is_refused():
    _, classifiers, candidates = make_problem(64)
    with pytest.raises(ValueError, match="features"):
        native.linear.score_candidates(classifiers, candidates._replace(X=candidates.X[:, :9].tocsr()), 1)
    for change in ({"bias": classifiers.bias[:5]}, {"dense": classifiers.dense[:, :3].copy()}):
        with pytest.raises(ValueError, match="do not fit"):
            native.linear.score_candidates(classifiers._replace(**change), candidates, 1)
    feature, threshold, left, right, value, depth = make_tree(np.random.default_rng(0))
    for tree in (
        (feature + 2, threshold, left, right, value, depth),
        (feature, threshold, left + 1, right, value, depth),
        (feature[:0], threshold[:0], left[:0], right[:0], value[:0], 0),
    ):
        with pytest.raises(ValueError, match="decision tree"):
            native.linear.rank_candidates(
                classifiers, candidates, np.zeros(candidates.ids.shape, np.float32), power=1.0, transform=1,
                transform_power=1.0, tree=tree, tree_weight=0.1, counts=np.ones(64, np.int64), k=3, threads=1,
            )  # fmt: skip


def test_every_instruction_set_gives_the_same_bits():
    code = """
import hashlib
from test_rank_candidates import SIZES, make_problem
from ramify import ModelFormatError, native
parts = []
for n_labels in SIZES:
    _, classifiers, candidates = make_problem(n_labels)
    parts += [part.tobytes() for part in (native.linear.score_candidates(classifiers, candidates, 2),)]
print(native.matrix.isa(), hashlib.sha256(b"".join(parts)).hexdigest())
"""
    found = digests(code, Path(__file__).parent)
    assert len(set(found.values())) == 1, found
