"""The graph in torch beside the native kernels: the same loss, gradients, steps and answers."""

from __future__ import annotations

import numpy as np
import pytest
from neural import logit_gradients
from scipy import sparse

from ramify.index.label_graph import LabelGraph
from ramify.nn.graph import Edges, GraphHead, GraphOptions
from ramify.nn.tables import Adam

torch = pytest.importorskip("torch")

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def heads(stage, seed=0, device="cpu", n=14, n_labels=40, n_clusters=6, d=7, shortlist=15):
    """A native head and its twin with the same weights."""
    from ramify.nn.torch_graph import TorchGraphHead

    random = np.random.default_rng(seed)
    # Scores that are cut at 1 tie; then torch may choose other labels.
    options = GraphOptions(1.2, 1.2, 2, shortlist, 0.3, cluster_share=0.5, edge_share=2.0)
    if stage == 1:
        graph = LabelGraph.from_clusters(random.integers(n_clusters, size=n_labels).astype(np.int32), n_clusters)
    else:
        ends = [np.sort(random.permutation(n_labels)[: 5 + c]) for c in range(n_clusters)]
        ends[0] = np.arange(n_labels)  # every label has an edge
        begin = np.concatenate([[0], np.cumsum([len(e) for e in ends])]).astype(np.int64)
        logits = random.standard_normal(begin[-1]).astype(np.float32)
        graph = Edges(begin, np.concatenate(ends).astype(np.int32), logits, options.beta, n_labels)
    clusters, labels = (
        (random.standard_normal((m, d)).astype(np.float32), random.standard_normal(m).astype(np.float32))
        for m in (n_clusters, n_labels)
    )
    Y = sparse.csr_matrix((random.random((n, n_labels)) < 0.08).astype(np.float32))
    copies = [tuple(a.copy() for a in pair) for pair in (clusters, labels)]
    twin = TorchGraphHead(copies[0], graph, copies[1], options, device)
    return GraphHead(clusters, graph, labels, options), twin, random.standard_normal((n, d)).astype(np.float32), Y


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_the_same_loss_and_gradients(stage, seed, device):
    mine, twin, vectors, Y = heads(stage, seed, device)
    found = mine.gradients(vectors, Y, 1, 1)
    loss, d_vectors, gradients, lists = twin.gradients(vectors, Y, 1)
    assert found.loss == pytest.approx(loss, rel=1e-5)
    assert found.vectors == pytest.approx(d_vectors, rel=1e-3, abs=1e-6)
    assert found.cluster_logits.T @ vectors == pytest.approx(
        gradients["cluster_weights.values"].cpu().numpy(), rel=1e-3, abs=1e-6
    )
    if stage == 2:
        edges = logit_gradients(mine, found)
        assert edges == pytest.approx(gradients["edges.values"].cpu().numpy(), rel=1e-3, abs=1e-6)
    rows, begin, places = found.pairs
    listed = {
        (int(p) // found.products.shape[1], int(r)) for i, r in enumerate(rows) for p in places[begin[i] : begin[i + 1]]
    }
    assert listed == {(i, int(x)) for i, row in enumerate(lists.cpu().numpy()) for x in row if x >= 0}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("stage", [1, 2])
def test_the_same_steps_and_the_same_answers(stage, device):
    mine, twin, vectors, Y = heads(stage, device=device)
    for number in range(1, 30):
        adam = Adam(0.01, number, weight_decay=0.1)
        one, two = mine.step(vectors, Y, adam, 2), twin.step(vectors, Y, adam, 2)
        assert one[0] == pytest.approx(two[0], rel=1e-4)
        assert one[1] == pytest.approx(two[1], rel=1e-2, abs=1e-5)
    for name, array in mine.arrays().items():
        assert twin.arrays()[name] == pytest.approx(array, abs=2e-3), name
    ids, scores = mine.search(vectors, 5, 1)
    again = twin.search(vectors, 5, 1)
    assert np.mean(ids == again[0]) > 0.95
    assert scores == pytest.approx(again[1], abs=0.02)


def test_goes_on_from_what_it_remembers():
    _, whole, vectors, Y = heads(2)
    _, first, _, _ = heads(2)
    for number in range(1, 8):
        whole.step(vectors, Y, Adam(0.01, number), 1)
        if number <= 3:
            first.step(vectors, Y, Adam(0.01, number), 1)
    _, second, _, _ = heads(2, seed=0)
    second.set_arrays(first.arrays())
    second.set_moments(first.moments())
    for number in range(4, 8):
        second.step(vectors, Y, Adam(0.01, number), 1)
    for name, array in whole.arrays().items():
        assert second.arrays()[name] == pytest.approx(array, abs=1e-5), name
