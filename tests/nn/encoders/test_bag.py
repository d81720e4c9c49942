"""Bag-of-embeddings encoder against its formula in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify import DataError, ModelFormatError
from ramify.base.mixed import Mixed
from ramify.io.store import Store, StoreWriter
from ramify.nn.encoders.bag import Bag, BagEncoder, spectral_norm
from ramify.nn.encoders.samples import Samples, with_embeddings
from ramify.nn.optim import Adam

pytestmark = pytest.mark.native


def corpus(n=60, n_words=40, n_labels=9, seed=0):
    random = np.random.default_rng(seed)
    X = sparse.random(n, n_words, density=0.2, random_state=seed, format="csr", dtype=np.float32)
    Y = sparse.csr_matrix((random.random((n, n_labels)) < 0.2).astype(np.float32))
    return X, Y


def features_of(X, kind):
    return Mixed.of(X if kind == "sparse" else X.toarray())


def reference_embeddings(bag, X):
    h = np.maximum(X.sparse @ bag.words.weights, 0) if bag.words is not None else X.dense
    return h + np.maximum(h @ bag.residual.values.T + bag.bias.values, 0)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_embeddings_match_the_reference_implementation(kind):
    X, Y = corpus()
    features = features_of(X, kind)
    bag = Bag.initialize(features, Y, BagEncoder(dim=12), seed=1, threads=1)
    assert bag.dim == (12 if kind == "sparse" else 40)
    embeddings = bag.encode(Samples(features), 1)
    assert embeddings == pytest.approx(reference_embeddings(bag, features), abs=1e-4)
    assert bag.forward(Samples(features), 1)[0] == pytest.approx(embeddings, abs=1e-4)
    assert np.array_equal(bag.encode(Samples(features), 3), embeddings)
    one = Mixed(features.sparse[4], features.dense[4:5])
    assert np.array_equal(bag.encode(Samples(one), 1)[0], embeddings[4])


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_training_approaches_given_embeddings(kind):
    X, Y = corpus()
    samples = Samples(features_of(X, kind))
    bag = Bag.initialize(samples.features, Y, BagEncoder(dim=16), seed=0, threads=1)
    goal = np.abs(np.random.default_rng(5).standard_normal((60, bag.dim))).astype(np.float32)

    def distance():
        return float(np.square(bag.encode(samples, 1) - goal).mean())

    before = distance()
    for step in range(1, 200):
        embeddings, tape = bag.forward(samples, 2)
        bag.backward(tape, 2 * (embeddings - goal) / len(goal), Adam(0.02, step), 2)
    assert distance() < 0.5 * before


def test_gradients_match_finite_differences():
    X, Y = corpus()
    samples = Samples(Mixed.of(X))
    bag = Bag.initialize(samples.features, Y, BagEncoder(dim=6), seed=0, threads=1)
    weight = np.random.default_rng(1).standard_normal((60, 6)).astype(np.float32)  # the loss is Σ weight ⊙ φ
    before = {name: array.astype(np.float64) for name, array in bag.arrays().items()}

    def loss(name, at, by):
        arrays = {key: array.copy() for key, array in before.items()}
        arrays[name][at] += by
        h = np.maximum(X @ arrays["words.weights"], 0)
        phi = h + np.maximum(h @ arrays["residual.values"].T + arrays["bias.values"], 0)
        return float((weight * phi).sum())

    _, tape = bag.forward(samples, 1)
    bag.backward(tape, weight, Adam(1.0, 1, epsilon=100), 1)
    for name, at in [("residual.values", (2, 3)), ("bias.values", (4,)), ("words.weights", (7, 1))]:
        slope = (loss(name, at, 1e-5) - loss(name, at, -1e-5)) / 2e-5
        step = before[name][at] - float(bag.arrays()[name][at])
        gradient = 100 * step / (1 - abs(step))  # the first step of Adam is g / (|g| + epsilon)
        assert abs(slope) > 0.1
        assert gradient == pytest.approx(slope, rel=1e-3)


def test_without_configuration_only_the_residual_layer_is_trained():
    X, Y = corpus()
    features = Mixed(X, np.ones((60, 5), np.float32))
    bag = Bag.initialize(features, Y, None, seed=0, threads=1)
    assert bag.words is None
    assert bag.dim == 5
    assert set(bag.arrays()) == {"residual.values", "bias.values"}
    with_words = Bag.initialize(features, Y, BagEncoder(dim=6), seed=0, threads=1)
    assert bag.default_epochs < with_words.default_epochs
    assert bag.learning_rate(0.01) < with_words.learning_rate(0.01) == 0.01


def test_spectral_norm_of_the_residual_layer_is_bounded():
    random = np.random.default_rng(0)
    matrix = random.standard_normal((9, 9)).astype(np.float32)
    assert spectral_norm(matrix, iterations=200) == pytest.approx(np.linalg.norm(matrix, 2), rel=1e-3)
    assert spectral_norm(np.zeros((3, 3), np.float32)) == 0
    X, Y = corpus()
    samples = Samples(Mixed.of(X))
    norms = []
    for bound in (None, 0.5):
        bag = Bag.initialize(samples.features, Y, BagEncoder(dim=6), seed=0, threads=1)
        bag.max_spectral_norm = bound
        for step in range(1, 30):
            embeddings, tape = bag.forward(samples, 1)
            bag.backward(tape, -np.ones_like(embeddings), Adam(0.05, step), 1)
        norms.append(np.linalg.norm(bag.residual.values, 2))
    assert norms[0] > 1
    assert norms[1] <= 0.51


def test_pretrained_word_embeddings(tmp_path):
    X, Y = corpus(n_words=4)
    terms = ["red", "fox", "hen", "whale"]
    path = tmp_path / "words.vec"
    path.write_text("3 2\nfox 1.0 -2.0\nwhale 0.5 0\nzebra 1 1\n", encoding="utf-8")
    config = BagEncoder(dim=6, pretrained=str(path))
    plain = Bag.initialize(Mixed.of(X), Y, BagEncoder(dim=6), seed=0, threads=1, terms=terms).words.weights
    given = Bag.initialize(Mixed.of(X), Y, config, seed=0, threads=1, terms=terms).words.weights
    assert np.array_equal(given[[0, 2]], plain[[0, 2]])
    assert given[1, 1] == pytest.approx(-2 * given[1, 0])
    assert given[1, 4:] == pytest.approx(-given[1, :2])
    assert np.linalg.norm(given[[1, 3]]) == pytest.approx(np.linalg.norm(plain[[1, 3]]), rel=1e-4)
    with pytest.raises(DataError, match="need texts"):
        Bag.initialize(Mixed.of(X), Y, config, seed=0, threads=1)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_saves_and_loads(tmp_path, kind):
    X, Y = corpus()
    features = features_of(X, kind)
    bag = Bag.initialize(features, Y, BagEncoder(dim=6), seed=0, threads=1)
    with StoreWriter(tmp_path / "model") as writer:
        info = bag.save_to(writer, "encoder_")
        writer.manifest("test", {}, {})
    store, shape = Store(tmp_path / "model"), (features.sparse.shape[1], features.dense.shape[1])
    again = Bag.load_from(store, info, "encoder_", shape)
    assert np.array_equal(again.encode(Samples(features), 1), bag.encode(Samples(features), 1))
    with pytest.raises(ModelFormatError, match="does not describe the encoder"):
        Bag.load_from(store, {}, "encoder_", shape)
    with pytest.raises(ModelFormatError):
        Bag.load_from(store, info, "encoder_", (shape[0] + 1, shape[1] + 1))


def test_samples_select_rows_and_join_embeddings():
    X, _ = corpus()
    samples = Samples(Mixed(X, np.arange(120, dtype=np.float32).reshape(60, 2)))
    part = samples.take(np.array([5, 2]))
    assert len(part) == 2
    assert np.array_equal(part.features.sparse.toarray(), X.toarray()[[5, 2]])
    assert part.features.dense.tolist() == [[10, 11], [4, 5]]
    joined = with_embeddings(samples.features, np.full((60, 3), 2, np.float32), 0.5)
    assert np.linalg.norm(joined.dense, axis=1) == pytest.approx(0.5)
    norms = np.sqrt(joined.sparse.multiply(joined.sparse).sum(axis=1).A1)
    assert norms[norms > 0] == pytest.approx(1)
