"""Label graphs: construction, pruning, edges of MᵀY, initial logits and the report."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify import DataError
from ramify.index.graph_report import GraphReport, PruningResult, SearchReport
from ramify.index.label_graph import LabelGraph, build_clusters, build_edges, init_edge_logits, matched_clusters


def graph():
    scores = np.log(np.array([0.9, 0.2, 0.6, 0.05, 0.3], np.float32))
    return LabelGraph(np.array([0, 3, 3, 5]), np.array([0, 1, 2, 0, 3], np.int32), scores, 4)


def test_graph_of_a_partition():
    partition = LabelGraph.from_clusters(np.array([1, 0, 1, 2], np.int32), 4)
    assert partition.indptr.tolist() == [0, 1, 3, 4, 4]
    assert partition.labels.tolist() == [1, 0, 2, 3]
    assert partition.edge_clusters().tolist() == [0, 1, 1, 2]
    assert np.all(partition.scores == 0)


@pytest.mark.parametrize(
    ("criterion", "labels"),
    [
        ({"threshold": 0.25}, [0, 1, 2, 3]),
        ({"top": 1}, [0, 1, 2, 3]),
        ({"fraction": 0.0}, [0, 1, 2, 3]),
        ({"fraction": 0.8}, [0, 1, 2, 3]),
        ({"fraction": 0.81}, [0, 1, 2, 0, 3]),
        ({"threshold": 0.0}, [0, 1, 2, 0, 3]),
    ],
)
def test_pruning_keeps_the_strongest_edge_of_each_label(criterion, labels):
    pruned = graph().pruned(**criterion)
    assert pruned.labels.tolist() == labels
    scores = dict(zip(zip(graph().edge_clusters(), graph().labels, strict=True), graph().scores, strict=True))
    for edge, score in zip(zip(pruned.edge_clusters(), pruned.labels, strict=True), pruned.scores, strict=True):
        assert scores[edge] == score


@pytest.mark.parametrize("criterion", [{}, {"top": 1, "fraction": 0.5}, {"fraction": 1.1}])
def test_pruning_needs_one_valid_criterion(criterion):
    with pytest.raises(ValueError, match=r"exactly one of|between 0 and 1"):
        graph().pruned(**criterion)


def test_inconsistent_graphs_are_refused():
    g = graph()
    for indptr, labels, scores in [
        (np.array([0, 4, 3, 5]), g.labels, g.scores),
        (g.indptr, np.array([0, 1, 2, 0, 4], np.int32), g.scores),
        (g.indptr, g.labels, g.scores[:3]),
        (g.indptr, g.labels, np.full(5, 0.5, np.float32)),
        (g.indptr, g.labels, np.full(5, np.nan, np.float32)),
    ]:
        with pytest.raises(DataError):
            LabelGraph(indptr, labels, scores, 4)


def test_clusters_are_balanced_and_follow_the_topics():
    random = np.random.default_rng(0)
    topic = np.repeat(np.arange(4), 16)
    Z = sparse.random(64, 40, density=0.05, random_state=1, format="csr", dtype=np.float32) * 0.1
    Z = sparse.csr_matrix(Z + sparse.csr_matrix((np.ones(64, np.float32), (np.arange(64), topic)), shape=(64, 40)))
    Z = Z[random.permutation(64)]
    found = build_clusters(Z.astype(np.float32), 4, seed=0)
    assert np.bincount(found).tolist() == [16] * 4
    strongest = np.asarray(Z[:, :4].argmax(axis=1)).ravel()
    for c in range(4):
        assert np.bincount(strongest[found == c], minlength=4).max() >= 12
    assert build_clusters(Z[:1].astype(np.float32), 8, seed=0).tolist() == [0]


def test_edges_are_the_largest_entries_of_each_row():
    matched = sparse.csr_matrix(np.array([[0.9, 0.1, 0], [0.2, 0, 0.8], [0, 0.5, 0.5]], np.float32))
    Y = sparse.csr_matrix(np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 0]], np.float32))
    indptr, labels, weights = build_edges(matched, Y, 2, np.array([0, 0, 0, 1], np.int32))
    cooccurrence = (matched.T @ Y).toarray()
    rows = np.repeat(np.arange(3), np.diff(indptr))
    edges = set(zip(rows.tolist(), labels.tolist(), strict=True))
    for c in range(3):
        best = np.argsort(-cooccurrence[c], kind="stable")[:2]
        assert {(c, int(label)) for label in best if cooccurrence[c, label] > 0} <= edges
    assert (1, 3) in edges  # without samples: connected to its own cluster
    assert set(labels) == {0, 1, 2, 3}
    assert weights[edge_index(rows, labels, 0, 1)] == pytest.approx(1.1)


def edge_index(rows, labels, row, label):
    return int(np.flatnonzero((rows == row) & (labels == label))[0])


def test_matched_clusters_are_the_best_of_each_row():
    logits = np.array([[0.0, 5.0, 1.0], [2.0, 2.0, -9.0]], np.float32)
    found = matched_clusters(logits, 2, np.log(2.0))
    soft = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = np.where(soft >= np.sort(soft, axis=1)[:, [1]], np.minimum(1, 2 * soft), 0)
    assert found.toarray() == pytest.approx(expected)


def test_report():
    report = GraphReport.of(graph(), np.array([0, 0, 2, 2], np.int32), np.array([0, 3, 3, 9]))
    assert report.n_edges == 5
    assert report.edges_above[0.25] == pytest.approx(3 / 5)
    assert report.labels_above[0.25] == pytest.approx(2 / 4)  # labels 0 and 3; the edge of 1 is weaker, 2 has none
    assert report.clusters_by_decile[[0, 3, 9]] == pytest.approx([1.0, 0.5, 1.0])
    assert report.score_by_rank[0] == pytest.approx((0.9 + 0.3) / 2)
    assert all(len({len(row) for row in rows}) == 1 for rows in report.tables().values())


def test_search_report():
    pruning = [PruningResult("all", 1.0, {"P@1": 80.0}), PruningResult("score ≥ 0.5", 0.25, {"P@1": 70.0})]
    tables = SearchReport({1: 40.0, 10: 90.0}, 95.0, [60.0, 30.0], pruning).tables()
    assert tables["recall"][-1] == ["shortlist recall", "95.00"]
    assert tables["R@10 by label frequency"][1:] == [["1", "60.00"], ["2", "30.00"]]
    assert tables["pruning"] == [
        ["criterion", "edges kept", "P@1"],
        ["all", "100.0%", "80.00"],
        ["score ≥ 0.5", "25.0%", "70.00"],
    ]


def test_initial_edge_logits_are_relative_to_the_strongest_edge():
    logits = init_edge_logits(np.array([0, 1, 0, 2]), np.array([4.0, 1.0, 2.0, 0.0], np.float32), 4)
    assert logits == pytest.approx([0, 0, 2 * np.log(0.5), 0])
    assert init_edge_logits(np.array([0, 0]), np.array([100.0, 1.0], np.float32), 1)[1] == -5
