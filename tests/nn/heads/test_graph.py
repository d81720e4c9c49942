"""Graph head against a reference implementation: the loss, and gradients by finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from neural import logit_gradients
from scipy import sparse

from ramify import native
from ramify.index.label_graph import LabelGraph
from ramify.nn.heads.graph import GraphHead, GraphOptions, TrainedEdges
from ramify.nn.optim import Adam

pytestmark = pytest.mark.native


def problem(stage, seed=0, n=7, d=6, n_clusters=5, n_labels=23, shortlist_size=9, beam_size=2):
    random = np.random.default_rng(seed)
    phi = random.standard_normal((n, d)).astype(np.float32)
    clusters = random.standard_normal((n_clusters, d)).astype(np.float32), random.standard_normal(n_clusters)
    labels = random.standard_normal((n_labels, d)).astype(np.float32), random.standard_normal(n_labels)
    Y = sparse.csr_matrix((random.random((n, n_labels)) < 0.12).astype(np.float32))
    options = GraphOptions(
        alpha=3.0, beta=4.0, beam_size=beam_size, shortlist_size=shortlist_size, shortlist_loss_weight=0.3
    )
    if stage == 1:
        graph = LabelGraph.from_clusters(random.integers(n_clusters, size=n_labels).astype(np.int32), n_clusters)
    else:
        connected = random.random((n_clusters, n_labels)) < 0.4
        connected[random.integers(n_clusters), ~connected.any(axis=0)] = True
        edges = sparse.csr_matrix(connected)
        logits = random.standard_normal(edges.nnz).astype(np.float32)
        indptr, ends = edges.indptr.astype(np.int64), edges.indices.astype(np.int32)
        graph = TrainedEdges(indptr, ends, logits, options.beta, n_labels)
    head = GraphHead(
        (clusters[0], clusters[1].astype(np.float32)), graph, (labels[0], labels[1].astype(np.float32)), options
    )
    return head, phi, Y


def reference_loss(head, phi, Y, W_c, b_c, a, W_l, b_l):
    """The loss of a batch in plain loops and double precision, and the shortlist of each sample with its path scores.

    Beam and parents are those of the head.
    """
    options, graph = head.options, head.graph
    logits = phi @ W_c.T + b_c
    log_soft = logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))
    log_soft -= logits.max(1, keepdims=True)
    clusters = np.minimum(0.0, log_soft + np.log(options.alpha))
    if a is None:
        edge_scores = np.zeros(len(graph.labels))
    else:
        edge_scores = np.empty(len(a))
        for c in range(graph.n_clusters):
            row = slice(graph.indptr[c], graph.indptr[c + 1])
            if row.stop > row.start:
                edge_scores[row] = a[row] - np.log(np.exp(a[row]).sum()) + np.log(options.beta)
        edge_scores = np.minimum(0.0, edge_scores)
    parents = head.parents(1)
    n, width = len(phi), options.shortlist_size
    max_labels = max(1, int(np.diff(Y.indptr).max()))
    loss, shortlists = 0.0, []
    for i in range(n):
        truth = set(Y.indices[Y.indptr[i] : Y.indptr[i + 1]].tolist())
        chosen = set(np.lexsort((np.arange(graph.n_clusters), -logits[i]))[: options.beam_size].tolist())
        chosen |= {int(parents[label]) for label in truth}
        best = {}
        for c in sorted(chosen):
            for e in range(graph.indptr[c], graph.indptr[c + 1]):
                score = clusters[i, c] + edge_scores[e]
                if graph.labels[e] not in best or score > best[graph.labels[e]]:
                    best[int(graph.labels[e])] = score
        ranked = sorted(best, key=lambda label: (-best[label], label))[:width]
        shortlists.append({label: best[label] for label in sorted(ranked)})
        for label in ranked:
            p = np.exp(best[label]) / (1 + np.exp(-(phi[i] @ W_l[label] + b_l[label])))
            loss -= (np.log(p) if label in truth else np.log(max(1e-6, 1 - p))) / (n * width)
        for label in truth & set(best):
            loss -= options.shortlist_loss_weight * best[label] / (n * max_labels)
    return loss, shortlists


def parameters(head):
    """Cluster classifiers, edge logits and label classifiers in double precision."""
    a = None if head.edges is None else head.edges.logits.values.astype(np.float64)
    return [
        head.cluster_weights.values.astype(np.float64),
        head.cluster_bias.values.astype(np.float64),
        a,
        head.labels.weights.astype(np.float64),
        head.labels.bias.astype(np.float64),
    ]


def label_gradients(head, batch, phi):
    """Gradients of the label classifiers, pair by pair."""
    rows, indptr, positions = batch.pairs
    d_weights, d_bias = np.zeros(head.labels.weights.shape), np.zeros(len(head.labels.weights))
    for i, label in enumerate(rows):
        for position in positions[indptr[i] : indptr[i + 1]]:
            g = batch.logits.ravel()[position]
            d_weights[label] += g * phi[position // batch.logits.shape[1]]
            d_bias[label] += g
    return d_weights, d_bias


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_loss_and_gradients(stage, seed):
    head, phi, Y = problem(stage, seed)
    batch = head.gradients(phi, Y, 1, 1)
    x = phi.astype(np.float64)
    expected, shortlists = reference_loss(head, x, Y, *parameters(head))
    assert batch.loss == pytest.approx(expected, rel=1e-5)
    rows, indptr, positions = batch.pairs
    width = head.options.shortlist_size
    for i in range(len(phi)):
        own = [int(r) for k, r in enumerate(rows) if np.any(positions[indptr[k] : indptr[k + 1]] // width == i)]
        assert own == list(shortlists[i])

    d_weights, d_bias = label_gradients(head, batch, phi)
    edges = logit_gradients(head, batch)
    by_parameter = [
        (0, batch.cluster_logits.T @ phi),
        (1, batch.cluster_logits.sum(axis=0)),
        (2, edges),
        (3, d_weights),
        (4, d_bias),
    ]
    random, h = np.random.default_rng(seed), 1e-6
    for which, gradient in [*by_parameter, (None, batch.phi)]:
        if gradient is None:
            continue
        for _ in range(12):
            at = tuple(random.integers(s) for s in gradient.shape)

            def moved(by, which=which, at=at):
                values, embeddings = parameters(head), x.copy()
                (embeddings if which is None else values[which])[at] += by
                return reference_loss(head, embeddings, Y, *values)[0]

            slope = (moved(h) - moved(-h)) / (2 * h)
            assert gradient[at] == pytest.approx(slope, rel=2e-3, abs=2e-6), (which, at)


def test_every_true_label_is_explored_in_training():
    for seed in range(5):
        head, phi, Y = problem(2, seed, beam_size=1)
        logits = (phi @ head.cluster_weights.values.T).astype(np.float32)
        truth = Y.indptr.astype(np.int64), Y.indices.astype(np.int32), head.parents(1)[Y.indices]
        scores = np.minimum(logits, 0)
        *_, truth_scores, truth_edges = native.neural.explore_graph(
            head.graph.arrays, 23, scores, logits, 1, 4, truth, 2
        )
        assert np.all(truth_edges >= 0)
        assert np.all(np.isfinite(truth_scores))


@pytest.mark.parametrize("threads", [2, 5])
def test_results_do_not_depend_on_the_number_of_threads(threads):
    head, phi, Y = problem(2, 3, n=300, n_labels=400, shortlist_size=50)
    one = head.gradients(phi, Y, 1, 1)
    edges = one.edge_scores.copy()
    many = head.gradients(phi, Y, 1, threads)
    assert one.loss == many.loss
    assert np.array_equal(one.phi, many.phi)
    assert np.array_equal(edges, many.edge_scores)
    heads = [problem(2, 3, n=300, n_labels=400, shortlist_size=50)[0] for _ in range(2)]
    for head, n_threads in zip(heads, (1, threads), strict=True):
        for step in range(1, 4):
            head.step(phi, Y, Adam(0.01, step), n_threads)
    for name, array in heads[0].arrays().items():
        assert np.array_equal(array, heads[1].arrays()[name]), name


def test_a_step_updates_the_edges_of_explored_clusters():
    """Against Adam in double precision; clusters that no path uses keep their logits and moments."""
    head, phi, Y = problem(2, 4, n_clusters=9, beam_size=1)
    a, first, second = head.edges.logits.values.astype(np.float64), np.zeros(23 * 9), np.zeros(23 * 9)
    first, second = first[: len(a)], second[: len(a)]
    clusters = head.graph.edge_clusters()
    n_unused = 0
    for step in range(1, 6):
        rows = slice(step, step + 2)
        batch = head.gradients(phi[rows], Y[rows], step, 1)
        g = logit_gradients(head, batch)
        moved = np.isin(clusters, clusters[g != 0])
        n_unused += int((~moved).sum())
        first = np.where(moved, 0.9 * first + 0.1 * g, first)
        second = np.where(moved, 0.999 * second + 0.001 * g**2, second)
        update = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        a = np.where(moved, a - 0.01 * update, a)
        head.edges.step(Adam(0.01, step), 2)
        assert head.edges.logits.values == pytest.approx(a, abs=1e-4)
        before = head.edges.unclipped.copy()
        head.edges.refresh()
        assert np.array_equal(before, head.edges.unclipped)  # the same bits as when all scores are computed again
        for c in range(9):
            row = slice(head.graph.indptr[c], head.graph.indptr[c + 1])
            expected = a[row] - np.log(np.exp(a[row]).sum()) + np.log(4.0)
            assert head.edges.unclipped[row] == pytest.approx(expected, abs=1e-3)
    assert n_unused > 0


def test_search_matches_the_reference_implementation():
    head, phi, _ = problem(2, 1)
    clusters = head.cluster_weights.values, head.cluster_bias.values
    labels = head.labels.weights, head.labels.bias
    ids, scores = native.neural.search_graph(head.graph.arrays, clusters, labels, head.log_alpha, 2, 9, phi, 4, 1)
    x = phi.astype(np.float64)
    without_labels = sparse.csr_matrix((len(x), 23), dtype=np.float32)
    _, shortlists = reference_loss(head, x, without_labels, *parameters(head))
    for i, paths in enumerate(shortlists):
        row = list(paths)
        logits = x[i] @ labels[0][row].T.astype(np.float64) + labels[1][row]
        expected = dict(zip(row, np.array([paths[label] for label in row]) - np.log1p(np.exp(-logits)), strict=True))
        best = sorted(expected, key=lambda label: -expected[label])[:4]
        assert ids[i][: len(best)].tolist() == best
        assert scores[i][: len(best)] == pytest.approx([expected[label] for label in best], abs=1e-4)
        assert np.all(ids[i][len(best) :] == -1)
    one = native.neural.search_graph(head.graph.arrays, clusters, labels, head.log_alpha, 2, 9, phi[2:3], 4, 1)
    assert np.array_equal(one[0][0], ids[2])
    assert np.array_equal(one[1][0], scores[2])
    found = head.search(phi, 4, 2)
    assert np.array_equal(found[0], ids)
    assert np.array_equal(found[1], scores)


@pytest.mark.parametrize("stage", [1, 2])
def test_state_round_trip(stage):
    """A head that takes over arrays and optimizer state continues with the same bits."""
    uninterrupted, phi, Y = problem(stage, n=30)
    for step in range(1, 25):  # the parents are determined again at step 20
        uninterrupted.step(phi, Y, Adam(0.3, step, weight_decay=0.01), 1)
        if step == 18:
            arrays = {name: array.copy() for name, array in uninterrupted.arrays().items()}
            state = {name: array.copy() for name, array in uninterrupted.optimizer_state().items()}
    resumed = problem(stage, n=30)[0]
    resumed.set_arrays(arrays)
    if stage == 2:
        assert not np.array_equal(resumed.parents(19), state["parents"])  # those in use are older than the logits
    resumed.set_optimizer_state(state)
    assert np.array_equal(resumed.parents(19), state["parents"])
    for step in range(19, 25):
        resumed.step(phi, Y, Adam(0.3, step, weight_decay=0.01), 1)
    for name, array in uninterrupted.arrays().items():
        assert np.array_equal(array, resumed.arrays()[name]), name
    assert np.array_equal(uninterrupted.graph.scores, resumed.graph.scores)


def test_parents_are_the_strongest_clusters():
    indptr, labels = np.array([0, 2, 4, 5]), np.array([0, 1, 0, 1, 0], np.int32)
    edges = TrainedEdges(indptr, labels, np.array([0, 0, 1, 0, 0], np.float32), 1.0, 3)
    # Cluster 2 has one edge, of score 1; label 1 is stronger in cluster 0; label 2 has no edge.
    assert edges.parents(edges.graph.edge_clusters()).tolist() == [2, 0, -1]
    edges = TrainedEdges(indptr, labels, np.zeros(5, np.float32), 1.0, 3)
    assert edges.parents(edges.graph.edge_clusters()).tolist() == [2, 0, -1]  # the lowest of equals
