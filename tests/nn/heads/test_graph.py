"""The graph head against a slow twin: the same loss, and gradients as finite differences say."""

from __future__ import annotations

import numpy as np
import pytest
from neural import logit_gradients
from scipy import sparse

from ramify import native
from ramify.index.label_graph import LabelGraph
from ramify.nn.graph import Edges, GraphHead, GraphOptions, reached
from ramify.nn.tables import Adam

pytestmark = pytest.mark.native


def problem(stage, seed=0, n=7, d=6, n_clusters=5, n_labels=23, shortlist=9, beam=2):
    random = np.random.default_rng(seed)
    vectors = random.standard_normal((n, d)).astype(np.float32)
    clusters = random.standard_normal((n_clusters, d)).astype(np.float32), random.standard_normal(n_clusters)
    labels = random.standard_normal((n_labels, d)).astype(np.float32), random.standard_normal(n_labels)
    Y = sparse.csr_matrix((random.random((n, n_labels)) < 0.12).astype(np.float32))
    options = GraphOptions(alpha=3.0, beta=4.0, beam_size=beam, shortlist=shortlist, shortlist_weight=0.3)
    if stage == 1:
        graph = LabelGraph.from_clusters(random.integers(n_clusters, size=n_labels).astype(np.int32), n_clusters)
    else:
        there = random.random((n_clusters, n_labels)) < 0.4
        there[random.integers(n_clusters), ~there.any(axis=0)] = True
        edges = sparse.csr_matrix(there)
        logits = random.standard_normal(edges.nnz).astype(np.float32)
        graph = Edges(edges.indptr.astype(np.int64), edges.indices.astype(np.int32), logits, options.beta, n_labels)
    head = GraphHead(
        (clusters[0], clusters[1].astype(np.float32)), graph, (labels[0], labels[1].astype(np.float32)), options
    )
    return head, vectors, Y


def slow_loss(head, vectors, Y, W_c, b_c, a, W_l, b_l):
    """The loss of a batch in plain loops and double precision, with the choices (beam, parents) of the head."""
    options, graph = head.options, head.graph
    logits = vectors @ W_c.T + b_c
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
    n, width = len(vectors), options.shortlist
    widest = max(1, int(np.diff(Y.indptr).max()))
    loss, lists = 0.0, []
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
        lists.append({label: best[label] for label in sorted(ranked)})
        for label in ranked:
            p = np.exp(best[label]) / (1 + np.exp(-(vectors[i] @ W_l[label] + b_l[label])))
            loss -= (np.log(p) if label in truth else np.log(max(1e-6, 1 - p))) / (n * width)
        for label in truth & set(best):
            loss -= options.shortlist_weight * best[label] / (n * widest)
    return loss, lists


def parts(head):
    a = None if head.edges is None else head.edges.logits.values.astype(np.float64)
    return [
        head.cluster_weights.values.astype(np.float64),
        head.cluster_offset.values.astype(np.float64),
        a,
        head.labels.weights.astype(np.float64),
        head.labels.offset.astype(np.float64),
    ]


def label_gradients(head, found, vectors):
    """Gradients of the label classifiers, pair by pair."""
    rows, begin, places = found.pairs
    d_weights, d_offset = np.zeros(head.labels.weights.shape), np.zeros(len(head.labels.weights))
    for i, label in enumerate(rows):
        for place in places[begin[i] : begin[i + 1]]:
            g = found.products.ravel()[place]
            d_weights[label] += g * vectors[place // found.products.shape[1]]
            d_offset[label] += g
    return d_weights, d_offset


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_loss_and_gradients(stage, seed):
    head, vectors, Y = problem(stage, seed)
    found = head.gradients(vectors, Y, 1, 1)
    x = vectors.astype(np.float64)
    expected, lists = slow_loss(head, x, Y, *parts(head))
    assert found.loss == pytest.approx(expected, rel=1e-5)
    rows, begin, places = found.pairs
    width = head.options.shortlist
    for i in range(len(vectors)):
        mine = [int(r) for k, r in enumerate(rows) if np.any(places[begin[k] : begin[k + 1]] // width == i)]
        assert mine == list(lists[i])

    d_weights, d_offset = label_gradients(head, found, vectors)
    edges = logit_gradients(head, found)
    given = [
        (0, found.cluster_logits.T @ vectors),
        (1, found.cluster_logits.sum(axis=0)),
        (2, edges),
        (3, d_weights),
        (4, d_offset),
    ]
    random, h = np.random.default_rng(seed), 1e-6
    for which, gradient in [*given, (None, found.vectors)]:
        if gradient is None:
            continue
        for _ in range(12):
            at = tuple(random.integers(s) for s in gradient.shape)

            def moved(by, which=which, at=at):
                values, points = parts(head), x.copy()
                (points if which is None else values[which])[at] += by
                return slow_loss(head, points, Y, *values)[0]

            slope = (moved(h) - moved(-h)) / (2 * h)
            assert gradient[at] == pytest.approx(slope, rel=2e-3, abs=2e-6), (which, at)


def test_every_label_of_a_point_is_reached_in_training():
    for seed in range(5):
        head, vectors, Y = problem(2, seed, beam=1)
        logits = (vectors @ head.cluster_weights.values.T).astype(np.float32)
        truth = Y.indptr.astype(np.int64), Y.indices.astype(np.int32), head.parents(1)[Y.indices]
        found = native.neural.explore_graph(head.graph.arrays, 23, np.minimum(logits, 0), logits, 1, 4, truth, 2)
        assert np.all(found[5] >= 0)
        assert np.all(np.isfinite(found[4]))


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_do_not_matter(threads):
    head, vectors, Y = problem(2, 3, n=300, n_labels=400, shortlist=50)
    one = head.gradients(vectors, Y, 1, 1)
    edges = one.edge_scores.copy()
    many = head.gradients(vectors, Y, 1, threads)
    assert one.loss == many.loss
    assert np.array_equal(one.vectors, many.vectors)
    assert np.array_equal(edges, many.edge_scores)
    twins = [problem(2, 3, n=300, n_labels=400, shortlist=50)[0] for _ in range(2)]
    for twin, number in zip(twins, (1, threads), strict=True):
        for step in range(1, 4):
            twin.step(vectors, Y, Adam(0.01, step), number)
    for name, array in twins[0].arrays().items():
        assert np.array_equal(array, twins[1].arrays()[name]), name


def test_a_step_of_the_edges():
    """Adam again, dense and in double precision; clusters that no path uses rest, moments included."""
    head, vectors, Y = problem(2, 4, n_clusters=9, beam=1)
    a, first, second = head.edges.logits.values.astype(np.float64), np.zeros(23 * 9), np.zeros(23 * 9)
    first, second = first[: len(a)], second[: len(a)]
    clusters = head.graph.edge_clusters()
    rested = 0
    for number in range(1, 6):
        part = slice(number, number + 2)
        found = head.gradients(vectors[part], Y[part], number, 1)
        g = logit_gradients(head, found)
        moved = np.isin(clusters, clusters[g != 0])
        rested += int((~moved).sum())
        first = np.where(moved, 0.9 * first + 0.1 * g, first)
        second = np.where(moved, 0.999 * second + 0.001 * g**2, second)
        step = (first / (1 - 0.9**number)) / (np.sqrt(second / (1 - 0.999**number)) + 1e-8)
        a = np.where(moved, a - 0.01 * step, a)
        head.edges.step(Adam(0.01, number), 2)
        assert head.edges.logits.values == pytest.approx(a, abs=1e-4)
        before = head.edges.raw.copy()
        head.edges.refresh()
        assert np.array_equal(before, head.edges.raw)  # the same bits as from scratch
        for c in range(9):
            row = slice(head.graph.indptr[c], head.graph.indptr[c + 1])
            expected = a[row] - np.log(np.exp(a[row]).sum()) + np.log(4.0)
            assert head.edges.raw[row] == pytest.approx(expected, abs=1e-3)
    assert rested > 0


def test_a_search_is_a_step_without_its_truth():
    head, vectors, _ = problem(2, 1)
    clusters = head.cluster_weights.values, head.cluster_offset.values
    labels = head.labels.weights, head.labels.offset
    ids, scores = native.neural.search_graph(head.graph.arrays, clusters, labels, head.log_alpha, 2, 9, vectors, 4, 1)
    x = vectors.astype(np.float64)
    _, lists = slow_loss(head, x, sparse.csr_matrix((len(x), 23), dtype=np.float32), *parts(head))
    for i, paths in enumerate(lists):
        row = list(paths)
        logits = x[i] @ labels[0][row].T.astype(np.float64) + labels[1][row]
        expected = dict(zip(row, np.array([paths[label] for label in row]) - np.log1p(np.exp(-logits)), strict=True))
        best = sorted(expected, key=lambda label: -expected[label])[:4]
        assert ids[i][: len(best)].tolist() == best
        assert scores[i][: len(best)] == pytest.approx([expected[label] for label in best], abs=1e-4)
        assert np.all(ids[i][len(best) :] == -1)
    one = native.neural.search_graph(head.graph.arrays, clusters, labels, head.log_alpha, 2, 9, vectors[2:3], 4, 1)
    assert np.array_equal(one[0][0], ids[2])
    assert np.array_equal(one[1][0], scores[2])


def test_which_labels_are_on_a_list():
    Y = sparse.csr_matrix(np.array([[0, 1, 0, 1], [1, 0, 0, 0]], np.float32))
    assert reached(np.array([[1, 2], [3, -1]], np.int32), Y).tolist() == [True, False, False]
