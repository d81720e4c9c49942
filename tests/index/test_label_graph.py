from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify import DataError
from ramify.index.label_graph import LabelGraph, build_clusters, build_edges, matched_clusters, start_logits
from ramify.index.report import IndexReport


def graph():
    scores = np.log(np.array([0.9, 0.2, 0.6, 0.05, 0.3], np.float32))
    return LabelGraph(np.array([0, 3, 3, 5]), np.array([0, 1, 2, 0, 3], np.int32), scores, 4)


def test_a_partition_is_a_graph():
    made = LabelGraph.from_clusters(np.array([1, 0, 1, 2], np.int32), 4)
    assert made.begin.tolist() == [0, 1, 3, 4, 4]
    assert made.labels.tolist() == [1, 0, 2, 3]
    assert made.edge_clusters().tolist() == [0, 1, 1, 2]
    assert np.all(made.scores == 0)


@pytest.mark.parametrize(
    ("how", "left"),
    [
        ({"threshold": 0.25}, [0, 1, 2, 3]),
        ({"top": 1}, [0, 1, 2, 3]),
        ({"share": 0.0}, [0, 1, 2, 3]),
        ({"share": 0.8}, [0, 1, 2, 3]),
        ({"share": 0.81}, [0, 1, 2, 0, 3]),
        ({"threshold": 0.0}, [0, 1, 2, 0, 3]),
    ],
)
def test_pruning_keeps_the_strongest_edge_of_each_label(how, left):
    pruned = graph().pruned(**how)
    assert pruned.labels.tolist() == left
    kept = dict(zip(zip(graph().edge_clusters(), graph().labels, strict=True), graph().scores, strict=True))
    for edge, score in zip(zip(pruned.edge_clusters(), pruned.labels, strict=True), pruned.scores, strict=True):
        assert kept[edge] == score


@pytest.mark.parametrize("how", [{}, {"top": 1, "share": 0.5}, {"share": 1.1}])
def test_pruning_says_how_it_is_asked_for(how):
    with pytest.raises(ValueError, match=r"give one of|between 0 and 1"):
        graph().pruned(**how)


def test_damaged_graphs_are_refused():
    g = graph()
    for begin, labels, scores in [
        (np.array([0, 4, 3, 5]), g.labels, g.scores),
        (g.begin, np.array([0, 1, 2, 0, 4], np.int32), g.scores),
        (g.begin, g.labels, g.scores[:3]),
        (g.begin, g.labels, np.full(5, 0.5, np.float32)),
        (g.begin, g.labels, np.full(5, np.nan, np.float32)),
    ]:
        with pytest.raises(DataError):
            LabelGraph(begin, labels, scores, 4)


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


def test_edges_are_where_points_are_found():
    matched = sparse.csr_matrix(np.array([[0.9, 0.1, 0], [0.2, 0, 0.8], [0, 0.5, 0.5]], np.float32))
    Y = sparse.csr_matrix(np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 0]], np.float32))
    begin, labels, weights = build_edges(matched, Y, 2, np.array([0, 0, 0, 1], np.int32))
    together = (matched.T @ Y).toarray()
    rows = np.repeat(np.arange(3), np.diff(begin))
    edges = set(zip(rows.tolist(), labels.tolist(), strict=True))
    for c in range(3):
        best = np.argsort(-together[c], kind="stable")[:2]
        assert {(c, int(label)) for label in best if together[c, label] > 0} <= edges
    assert (1, 3) in edges  # nobody ever found it: it hangs on its own cluster
    assert set(labels) == {0, 1, 2, 3}
    assert weights[edges_index(rows, labels, 0, 1)] == pytest.approx(1.1)


def edges_index(rows, labels, row, label):
    return int(np.flatnonzero((rows == row) & (labels == label))[0])


def test_matched_clusters_are_the_best_few():
    logits = np.array([[0.0, 5.0, 1.0], [2.0, 2.0, -9.0]], np.float32)
    found = matched_clusters(logits, 2, np.log(2.0))
    soft = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = np.where(soft >= np.sort(soft, axis=1)[:, [1]], np.minimum(1, 2 * soft), 0)
    assert found.toarray() == pytest.approx(expected)


def test_report():
    report = IndexReport.of(graph(), np.array([0, 0, 2, 2], np.int32), np.array([0, 3, 3, 9]))
    assert report.n_edges == 5
    assert report.strong[0.25] == pytest.approx(3 / 5)
    assert report.survived[0.25] == pytest.approx(2 / 4)  # labels 0 and 3; 1 is too weak there, 2 has left
    assert report.clusters_by_decile[[0, 3, 9]] == pytest.approx([1.0, 0.5, 1.0])
    assert report.by_rank[0] == pytest.approx((0.9 + 0.3) / 2)
    assert all(len({len(row) for row in rows}) == 1 for rows in report.tables().values())


def test_edges_start_from_their_share_in_the_strongest_one():
    logits = start_logits(np.array([0, 1, 0, 2]), np.array([4.0, 1.0, 2.0, 0.0], np.float32), 4)
    assert logits == pytest.approx([0, 0, 2 * np.log(0.5), 0])
    assert start_logits(np.array([0, 0]), np.array([100.0, 1.0], np.float32), 1)[1] == -5
