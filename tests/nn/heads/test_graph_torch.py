"""Graph head in torch against the native kernels: the same loss, gradients, steps and rankings."""

from __future__ import annotations

import numpy as np
import pytest
from neural import logit_gradients
from scipy import sparse

from ramify.base.sparse import indptr_from_counts
from ramify.index.label_graph import LabelGraph
from ramify.nn.heads.graph import GraphHead, GraphOptions, TrainedEdges
from ramify.nn.optim import Adam

torch = pytest.importorskip("torch")

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def heads(stage, seed=0, device="cpu", n=14, n_labels=40, n_clusters=6, d=7, shortlist_size=15):
    """A native head, a torch head with the same weights, embeddings and labels."""
    from ramify.nn.heads.graph_torch import TorchGraphHead

    random = np.random.default_rng(seed)
    # Scores that are cut at 1 tie, and torch may choose other labels among them.
    options = GraphOptions(
        1.2, 1.2, 2, shortlist_size, 0.3, cluster_learning_rate_ratio=0.5, edge_learning_rate_ratio=2.0
    )
    if stage == 1:
        graph = LabelGraph.from_clusters(random.integers(n_clusters, size=n_labels).astype(np.int32), n_clusters)
    else:
        ends = [np.sort(random.permutation(n_labels)[: 5 + c]) for c in range(n_clusters)]
        ends[0] = np.arange(n_labels)  # every label has an edge
        indptr = indptr_from_counts([len(e) for e in ends])
        logits = random.standard_normal(indptr[-1]).astype(np.float32)
        graph = TrainedEdges(indptr, np.concatenate(ends).astype(np.int32), logits, options.beta, n_labels)
    clusters, labels = (
        (random.standard_normal((m, d)).astype(np.float32), random.standard_normal(m).astype(np.float32))
        for m in (n_clusters, n_labels)
    )
    Y = sparse.csr_matrix((random.random((n, n_labels)) < 0.08).astype(np.float32))
    copies = [tuple(a.copy() for a in pair) for pair in (clusters, labels)]
    torch_head = TorchGraphHead(copies[0], graph, copies[1], options, device)
    phi = random.standard_normal((n, d)).astype(np.float32)
    return GraphHead(clusters, graph, labels, options), torch_head, phi, Y


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_loss_and_gradients_match(stage, seed, device):
    native_head, torch_head, phi, Y = heads(stage, seed, device)
    batch = native_head.gradients(phi, Y, 1, 1)
    loss, d_phi, gradients, shortlists = torch_head.gradients(phi, Y, 1)
    assert batch.loss == pytest.approx(loss, rel=1e-5)
    assert batch.phi == pytest.approx(d_phi, rel=1e-3, abs=1e-6)
    assert batch.cluster_logits.T @ phi == pytest.approx(
        gradients["cluster_weights.values"].cpu().numpy(), rel=1e-3, abs=1e-6
    )
    if stage == 2:
        edges = logit_gradients(native_head, batch)
        assert edges == pytest.approx(gradients["edges.values"].cpu().numpy(), rel=1e-3, abs=1e-6)
    rows, indptr, positions = batch.pairs
    width = batch.logits.shape[1]
    listed = {(int(p) // width, int(r)) for i, r in enumerate(rows) for p in positions[indptr[i] : indptr[i + 1]]}
    assert listed == {(i, int(x)) for i, row in enumerate(shortlists.cpu().numpy()) for x in row if x >= 0}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("stage", [1, 2])
def test_steps_and_rankings_match(stage, device):
    native_head, torch_head, phi, Y = heads(stage, device=device)
    for step in range(1, 30):
        adam = Adam(0.01, step, weight_decay=0.1)
        by_native, by_torch = (head.step(phi, Y, adam, 2) for head in (native_head, torch_head))
        assert by_native[0] == pytest.approx(by_torch[0], rel=1e-4)
        assert by_native[1] == pytest.approx(by_torch[1], rel=1e-2, abs=1e-5)
    for name, array in native_head.arrays().items():
        assert torch_head.arrays()[name] == pytest.approx(array, abs=2e-3), name
    ids, scores = native_head.search(phi, 5, 1)
    torch_ids, torch_scores = torch_head.search(phi, 5, 1)
    assert np.mean(ids == torch_ids) > 0.95
    assert scores == pytest.approx(torch_scores, abs=0.02)


def test_state_round_trip():
    _, uninterrupted, phi, Y = heads(2)
    _, first, _, _ = heads(2)
    for step in range(1, 8):
        uninterrupted.step(phi, Y, Adam(0.01, step), 1)
        if step <= 3:
            first.step(phi, Y, Adam(0.01, step), 1)
    _, resumed, _, _ = heads(2, seed=0)
    resumed.set_arrays(first.arrays())
    resumed.set_optimizer_state(first.optimizer_state())
    for step in range(4, 8):
        resumed.step(phi, Y, Adam(0.01, step), 1)
    for name, array in uninterrupted.arrays().items():
        assert resumed.arrays()[name] == pytest.approx(array, abs=1e-5), name
