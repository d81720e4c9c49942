from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify import DataError
from ramify.base.mixed import Mixed
from ramify.nn.encoder import Bag, BagEncoder, padded_rows, read_vectors, word_vectors
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


def test_word_vectors_from_a_file(tmp_path):
    X, Y = corpus(n_words=4)
    terms = ["red", "fox", "hen", "whale"]
    path = tmp_path / "words.vec"
    path.write_text("3 2\nfox 1.0 -2.0\nwhale 0.5 0\nzebra 1 1\n", encoding="utf-8")
    rows, vectors = read_vectors(str(path), terms, 3)
    assert dict(zip(rows.tolist(), vectors.tolist(), strict=True)) == {1: [1, -2], 3: [0.5, 0]}
    config = BagEncoder(width=6, vectors=str(path))
    plain = Bag.start(Mixed.of(X), Y, BagEncoder(width=6), seed=0, threads=1, terms=terms).words.weights
    given = Bag.start(Mixed.of(X), Y, config, seed=0, threads=1, terms=terms).words.weights
    assert np.array_equal(given[[0, 2]], plain[[0, 2]])
    assert given[1, 1] == pytest.approx(-2 * given[1, 0])
    assert given[1, 4:] == pytest.approx(-given[1, :2])
    assert np.linalg.norm(given[[1, 3]]) == pytest.approx(np.linalg.norm(plain[[1, 3]]), rel=1e-4)
    with pytest.raises(DataError, match="need texts"):
        Bag.start(Mixed.of(X), Y, config, seed=0, threads=1)
    with pytest.raises(DataError, match="at most half"):
        read_vectors(str(path), terms, 1)
    path.write_text("fox 1 2\nhen 1 x\n", encoding="utf-8")
    with pytest.raises(DataError, match="vec:2: could not"):
        read_vectors(str(path), terms, 3)
    path.write_text("zebra 1 2\n", encoding="utf-8")
    with pytest.raises(DataError, match="none of"):
        read_vectors(str(path), terms, 3)
