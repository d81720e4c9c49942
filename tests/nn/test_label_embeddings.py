"""Label embeddings against their formula."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify.nn.label_embeddings import TEMPERATURE, LabelEncoder, LabelEncoderConfig, label_centroids


def pairs(m=7, dim=5, seed=0):
    random = np.random.default_rng(seed)
    centroids, embeddings = (random.standard_normal((m, dim)).astype(np.float32) for _ in range(2))
    positives = sparse.csr_matrix((random.random((m, m)) < 0.2) | np.eye(m, dtype=bool), dtype=np.float32)
    return centroids, embeddings, positives


def reference_loss(centroids, embeddings, positives, weights, bias):
    """One pair after the other."""
    total, label_embeddings = 0.0, []
    for centroid, embedding in zip(centroids, embeddings, strict=True):
        psi = weights @ centroid + bias
        label_embeddings.append(psi)
        total += np.log(1 + np.sum((psi - embedding) ** 2))
    if positives is not None:
        cosine = [[p @ v / np.linalg.norm(p) / np.linalg.norm(v) for v in embeddings] for p in label_embeddings]
        negative = positives.toarray().T == 0
        for i, row in enumerate(cosine):
            logits = [c / TEMPERATURE for j, c in enumerate(row) if j == i or negative[i, j]]
            total += np.log(np.sum(np.exp(logits))) - row[i] / TEMPERATURE
    return total / len(centroids)


@pytest.mark.parametrize("in_batch_negatives", [False, True])
def test_loss_and_gradients(in_batch_negatives):
    centroids, embeddings, positives = pairs()
    positives = positives if in_batch_negatives else None
    encoder = LabelEncoder(5, LabelEncoderConfig())
    encoder.weights.values += np.random.default_rng(1).standard_normal((5, 5)).astype(np.float32) / 5
    encoder.bias.values += 0.3

    def loss_at(weights, bias):
        return reference_loss(centroids.astype(float), embeddings.astype(float), positives, weights, bias)

    weights, bias = encoder.weights.values.astype(float), encoder.bias.values.astype(float)
    loss, d_psi = encoder.gradients(centroids, embeddings, positives)
    assert loss == pytest.approx(loss_at(weights, bias), rel=1e-5)
    slopes = np.zeros(5)
    for i in range(5):
        step = 1e-5 * np.eye(5)[i]
        slopes[i] = (loss_at(weights, bias + step) - loss_at(weights, bias - step)) / 2e-5
    assert d_psi.sum(axis=0) == pytest.approx(slopes, abs=2e-4)
    d_weights = d_psi.T @ centroids
    for at in ((0, 0), (3, 1), (2, 4)):
        step = np.zeros((5, 5))
        step[at] = 1e-5
        slope = (loss_at(weights + step, bias) - loss_at(weights - step, bias)) / 2e-5
        assert d_weights[at] == pytest.approx(slope, abs=2e-4)


def test_centroids():
    Y = sparse.csr_matrix(np.array([[1, 0, 1], [1, 0, 0]], np.float32))
    embeddings = np.array([[1, 2], [3, 6]], np.float32)
    assert label_centroids(embeddings, Y, 1).tolist() == [[2, 4], [0, 0], [1, 2]]


def test_before_training_label_embeddings_are_the_centroids():
    centroids, *_ = pairs()
    assert np.array_equal(LabelEncoder(5, LabelEncoderConfig()).encode(centroids), centroids)


@pytest.mark.parametrize("in_batch_negatives", [False, True])
def test_training_moves_labels_towards_their_samples(in_batch_negatives):
    random = np.random.default_rng(0)
    centers = random.standard_normal((40, 16)).astype(np.float32)
    label_of = random.integers(0, 40, 2000)
    embeddings = centers[label_of] + 0.3 * random.standard_normal((2000, 16)).astype(np.float32)
    Y = sparse.csr_matrix((np.ones(2000, np.float32), (np.arange(2000), label_of)), (2000, 40))
    rotation = np.linalg.qr(random.standard_normal((16, 16)))[0].astype(np.float32)
    centroids = label_centroids(embeddings, Y, 1) @ rotation
    config = LabelEncoderConfig(epochs=30, learning_rate=0.01, batch_size=256, in_batch_negatives=in_batch_negatives)
    encoder = LabelEncoder(16, config)

    def precision():
        psi = encoder.encode(centroids)
        unit = psi / np.linalg.norm(psi, axis=1, keepdims=True)
        return np.mean((embeddings @ unit.T).argmax(axis=1) == label_of)

    before = precision()
    losses = encoder.train(centroids, embeddings, Y, 0)
    assert losses[-1] < losses[0]
    assert precision() > 0.9 > before
    again = LabelEncoder(16, config)
    assert again.train(centroids, embeddings, Y, 0) == losses
    assert np.array_equal(again.encode(centroids), encoder.encode(centroids))


def test_an_epoch_has_at_most_max_pairs():
    random = np.random.default_rng(0)
    embeddings = random.standard_normal((60, 4)).astype(np.float32)
    Y = sparse.csr_matrix((random.random((60, 9)) < 0.4).astype(np.float32))
    centroids, trained = label_centroids(embeddings, Y, 1), []
    for max_pairs in (None, 10**6, 20):
        encoder = LabelEncoder(4, LabelEncoderConfig(max_pairs=max_pairs, batch_size=10, learning_rate=0.01))
        encoder.train(centroids, embeddings, Y, 3)
        trained.append(encoder.weights.values.copy())
    assert np.array_equal(trained[0], trained[1])
    moved = [float(np.abs(weights - np.eye(4)).max()) for weights in trained]
    assert moved[1] > 0.05
    assert 0 < moved[2] <= 0.0201  # two steps
