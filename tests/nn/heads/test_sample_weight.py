"""Weights of samples in every head: one of weight 2 counts as two, in the loss and in every trained array."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify.index.label_graph import LabelGraph
from ramify.nn.heads.all_labels import AllLabels
from ramify.nn.heads.graph import GraphHead, GraphOptions, TrainedEdges
from ramify.nn.heads.losses import binary_cross_entropy, squared_hinge
from ramify.nn.heads.shortlist import ShortlistHead
from ramify.nn.optim import Adam

DIM, N_LABELS, N_CLUSTERS = 5, 12, 3
OPTIONS = GraphOptions(1.2, 1.2, 2, N_LABELS, 0.3)


def classifiers(m):
    random = np.random.default_rng(m)
    return random.standard_normal((m, DIM)).astype(np.float32), random.standard_normal(m).astype(np.float32)


def fixed_graph():
    return LabelGraph.from_clusters((np.arange(N_LABELS) % N_CLUSTERS).astype(np.int32), N_CLUSTERS)


def trained_edges():
    edges = np.tile(np.arange(N_LABELS, dtype=np.int32), N_CLUSTERS)
    logits = np.random.default_rng(3).standard_normal(len(edges)).astype(np.float32)
    return TrainedEdges(np.arange(N_CLUSTERS + 1) * N_LABELS, edges, logits, OPTIONS.beta, N_LABELS)


def torch_head(graph):
    pytest.importorskip("torch")
    from ramify.nn.heads.graph_torch import TorchGraphHead

    return TorchGraphHead(classifiers(N_CLUSTERS), graph, classifiers(N_LABELS), OPTIONS)


HEADS = {
    "all labels": lambda: AllLabels(*classifiers(N_LABELS)),
    "shortlist, cross-entropy": lambda: ShortlistHead(*classifiers(N_LABELS), binary_cross_entropy),
    "shortlist, squared hinge": lambda: ShortlistHead(*classifiers(N_LABELS), squared_hinge),
    "fixed graph": lambda: GraphHead(classifiers(N_CLUSTERS), fixed_graph(), classifiers(N_LABELS), OPTIONS),
    "graph": lambda: GraphHead(classifiers(N_CLUSTERS), trained_edges(), classifiers(N_LABELS), OPTIONS),
    "graph in torch": lambda: torch_head(trained_edges()),
}


def batch(n=6):
    """Embeddings, and targets: two positives of each sample, and for the heads with shortlists some negatives."""
    random = np.random.default_rng(0)
    Y = np.zeros((n, N_LABELS))
    for i in range(n):
        Y[i, [i, i + 4]] = 1
    return random.standard_normal((n, DIM)).astype(np.float32), Y


def targets_of(Y, name):
    if not name.startswith("shortlist"):
        return sparse.csr_matrix(Y, dtype=np.float32)
    rows, labels = np.nonzero(np.ones_like(Y))  # explicit zeros are negatives
    return sparse.csr_matrix((Y[rows, labels].astype(np.float32), labels, np.arange(len(Y) + 1) * N_LABELS), Y.shape)


@pytest.mark.parametrize("name", HEADS)
def test_weight_2_is_a_duplicate(name):
    phi, Y = batch()
    counts = np.array([2, 1, 3, 1, 1, 1])
    weights = (counts / counts.mean()).astype(np.float32)
    repeated = np.repeat(np.arange(len(phi)), counts)
    weighted, plain, unweighted = (HEADS[name]() for _ in range(3))
    loss, d_phi = weighted.step(phi, targets_of(Y, name), Adam(0.1, 1, epsilon=1.0), 1, weights)
    expected, slopes = plain.step(phi[repeated], targets_of(Y[repeated], name), Adam(0.1, 1, epsilon=1.0), 1)
    assert loss == pytest.approx(expected, rel=1e-5)
    of_sample = np.zeros_like(phi)
    np.add.at(of_sample, repeated, slopes)
    assert d_phi == pytest.approx(of_sample, rel=1e-4, abs=1e-7)
    unweighted.step(phi, targets_of(Y, name), Adam(0.1, 1, epsilon=1.0), 1)
    for array, value in weighted.arrays().items():
        assert value == pytest.approx(plain.arrays()[array], rel=1e-4, abs=1e-6)
    assert any(not np.allclose(value, unweighted.arrays()[key], atol=1e-5) for key, value in weighted.arrays().items())


@pytest.mark.parametrize("name", HEADS)
def test_equal_weights_change_nothing(name):
    phi, Y = batch()
    weighted, plain = HEADS[name](), HEADS[name]()
    found = weighted.step(phi, targets_of(Y, name), Adam(0.1, 1), 1, np.ones(len(phi), np.float32))
    expected = plain.step(phi, targets_of(Y, name), Adam(0.1, 1), 1)
    assert found[0] == expected[0]
    assert np.array_equal(found[1], expected[1])
    for array, value in weighted.arrays().items():
        assert np.array_equal(value, plain.arrays()[array])
