from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify.base.mixed import Mixed
from ramify.nn.encoder import Bag, BagEncoder, padded_rows, word_vectors
from ramify.nn.points import Points
from ramify.nn.tables import Adam

pytestmark = pytest.mark.native


def corpus(n=60, n_words=40, n_labels=9, seed=0):
    random = np.random.default_rng(seed)
    X = sparse.random(n, n_words, density=0.2, random_state=seed, format="csr", dtype=np.float32)
    Y = sparse.csr_matrix((random.random((n, n_labels)) < 0.2).astype(np.float32))
    return X, Y


def slow(bag, X):
    h = np.maximum(X.sparse @ bag.words.weights, 0) if bag.words is not None else X.dense
    return h + np.maximum(h @ bag.residual.values.T + bag.offset.values, 0)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_vectors_as_the_slow_twin_has_them(kind):
    X, Y = corpus()
    mixed = Mixed.of(X if kind == "sparse" else X.toarray())
    bag = Bag.start(mixed, Y, BagEncoder(width=12), seed=1, threads=1)
    assert bag.width == (12 if kind == "sparse" else 40)
    vectors = bag.encode(Points(mixed), 1)
    assert vectors == pytest.approx(slow(bag, mixed), abs=1e-4)
    assert bag.forward(Points(mixed), 1)[0] == pytest.approx(vectors, abs=1e-4)
    assert np.array_equal(bag.encode(Points(mixed), 3), vectors)
    one = Mixed(mixed.sparse[4], mixed.dense[4:5])
    assert np.array_equal(bag.encode(Points(one), 1)[0], vectors[4])


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_learns_what_it_is_told(kind):
    X, Y = corpus()
    mixed = Mixed.of(X if kind == "sparse" else X.toarray())
    bag = Bag.start(mixed, Y, BagEncoder(width=16), seed=0, threads=1)
    goal = np.abs(np.random.default_rng(5).standard_normal((60, bag.width))).astype(np.float32)

    def distance():
        return float(np.square(bag.encode(Points(mixed), 1) - goal).mean())

    before = distance()
    for number in range(1, 200):
        vectors, tape = bag.forward(Points(mixed), 2)
        bag.backward(tape, 2 * (vectors - goal) / len(goal), Adam(0.02, number), 2)
    assert distance() < 0.5 * before


def test_word_vectors_hold_both_signs_and_tell_texts_apart():
    X, Y = corpus(n=200, n_words=60, n_labels=5)
    words = word_vectors(X, Y, 20, power_steps=3, random=np.random.default_rng(0), threads=2)
    assert words.shape == (60, 20)
    assert words[:, :10] == pytest.approx(-words[:, 10:])
    lengths = np.linalg.norm(X @ words, axis=1)
    assert 2 < np.sqrt(np.mean(lengths**2)) < 8
    again = word_vectors(X, Y, 20, power_steps=3, random=np.random.default_rng(0), threads=1)
    assert np.array_equal(words, again)
    # More numbers than the corpus has directions.
    assert np.isfinite(word_vectors(X[:3], Y[:3], 50, power_steps=1, random=np.random.default_rng(0), threads=1)).all()


def test_rows_as_lists():
    X = sparse.csr_matrix(np.array([[0, 2, 0, 3], [0, 0, 0, 0], [1, 0, 0, 0]], np.float32))
    lists, values = padded_rows(X)
    assert lists.tolist() == [[1, 3], [-1, -1], [0, -1]]
    assert values.tolist() == [[2, 3], [0, 0], [1, 0]]
