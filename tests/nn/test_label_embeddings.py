"""Places of labels, against formulas."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify.nn.label_encoder import TEMPERATURE, LabelEncoder, LabelEncoderConfig, label_means


def pairs(m=7, width=5, seed=0):
    random = np.random.default_rng(seed)
    means, vectors = (random.standard_normal((m, width)).astype(np.float32) for _ in range(2))
    taken = sparse.csr_matrix((random.random((m, m)) < 0.2) | np.eye(m, dtype=bool), dtype=np.float32)
    return means, vectors, taken


def plain_loss(means, vectors, taken, weights, offset, relu):
    """One pair after the other."""
    total, places = 0.0, []
    for mean, vector in zip(means, vectors, strict=True):
        place = weights @ mean + offset
        place = np.maximum(place, 0) if relu else place
        places.append(place)
        total += np.log(1 + np.sum((place - vector) ** 2))
    if taken is not None:
        cosine = [[p @ v / np.linalg.norm(p) / np.linalg.norm(v) for v in vectors] for p in places]
        allowed = taken.toarray().T == 0
        for i, row in enumerate(cosine):
            others = [c / TEMPERATURE for j, c in enumerate(row) if j == i or allowed[i, j]]
            total += np.log(np.sum(np.exp(others))) - row[i] / TEMPERATURE
    return total / len(means)


@pytest.mark.parametrize("negatives", [False, True])
@pytest.mark.parametrize("activation", ["none", "relu"])
def test_loss_and_gradients_are_those_of_the_formula(activation, negatives):
    means, vectors, taken = pairs()
    taken = taken if negatives else None
    encoder = LabelEncoder(5, LabelEncoderConfig(activation=activation))
    encoder.weights.values += np.random.default_rng(1).standard_normal((5, 5)).astype(np.float32) / 5
    encoder.offset.values += 0.3

    def loss_at(weights, offset):
        return plain_loss(means.astype(float), vectors.astype(float), taken, weights, offset, activation == "relu")

    weights, offset = encoder.weights.values.astype(float), encoder.offset.values.astype(float)
    loss, d_places = encoder.gradients(means, vectors, taken)
    assert loss == pytest.approx(loss_at(weights, offset), rel=1e-5)
    slopes = np.zeros(5)
    for i in range(5):
        step = 1e-5 * np.eye(5)[i]
        slopes[i] = (loss_at(weights, offset + step) - loss_at(weights, offset - step)) / 2e-5
    assert d_places.sum(axis=0) == pytest.approx(slopes, abs=2e-4)


def test_means():
    Y = sparse.csr_matrix(np.array([[1, 0, 1], [1, 0, 0]], np.float32))
    vectors = np.array([[1, 2], [3, 6]], np.float32)
    assert label_means(vectors, Y, 1).tolist() == [[2, 4], [0, 0], [1, 2]]


@pytest.mark.parametrize("negatives", [False, True])
def test_labels_move_towards_their_points(negatives):
    random = np.random.default_rng(0)
    middles = random.standard_normal((40, 16)).astype(np.float32)
    of = random.integers(0, 40, 2000)
    vectors = middles[of] + 0.3 * random.standard_normal((2000, 16)).astype(np.float32)
    Y = sparse.csr_matrix((np.ones(2000, np.float32), (np.arange(2000), of)), (2000, 40))
    means = label_means(vectors, Y, 1) @ np.linalg.qr(random.standard_normal((16, 16)))[0].astype(np.float32)
    config = LabelEncoderConfig(epochs=30, rate=0.01, batch_size=256, negatives=negatives)
    encoder = LabelEncoder(16, config)

    def found():
        places = encoder.encode(means)
        unit = places / np.linalg.norm(places, axis=1, keepdims=True)
        return np.mean((vectors @ unit.T).argmax(axis=1) == of)

    before = found()
    losses = encoder.train(means, vectors, Y, 0)
    assert losses[-1] < losses[0]
    assert found() > 0.9 > before
    again = LabelEncoder(16, config)
    assert again.train(means, vectors, Y, 0) == losses
    assert np.array_equal(again.encode(means), encoder.encode(means))


def test_a_pass_looks_at_some_pairs_only():
    random = np.random.default_rng(0)
    vectors = random.standard_normal((60, 4)).astype(np.float32)
    Y = sparse.csr_matrix((random.random((60, 9)) < 0.4).astype(np.float32))
    means, changed = label_means(vectors, Y, 1), []
    for pairs_at_most in (None, 10**6, 20):
        encoder = LabelEncoder(4, LabelEncoderConfig(pairs=pairs_at_most, batch_size=10, rate=0.01))
        encoder.train(means, vectors, Y, 3)
        changed.append(encoder.weights.values.copy())
    assert np.array_equal(changed[0], changed[1])
    away = [float(np.abs(weights - np.eye(4)).max()) for weights in changed]
    assert away[1] > 0.05
    assert 0 < away[2] <= 0.0201  # two steps
