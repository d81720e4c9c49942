from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import ramify


def test_from_csr():
    scores = sparse.csr_matrix(np.array([[0.1, 0.9, 0.9], [0, 0, 0.5]]))
    ranking = ramify.Ranking.from_csr(scores, 2, names=["a", "b", "c"])
    assert ranking.ids.tolist() == [[1, 2], [2, -1]]  # ties by label id, -1 for padding
    assert ranking.scores[1, 1] == -np.inf
    assert [[name for name, _ in row] for row in ranking.labels()] == [["b", "c"], ["c"]]
    back = ranking.to_csr()
    assert back.has_sorted_indices
    assert back.toarray()[0].tolist() == pytest.approx([0, 0.9, 0.9])
    assert ranking.top(1).ids.tolist() == [[1], [2]]
    assert ranking[[1]].ids.tolist() == [[2, -1]]
    assert ranking[0].ids.tolist() == [[1, 2]]
    assert (len(ranking), ranking.k) == (2, 2)
    assert ramify.Ranking.from_csr(scores, 1).labels()[0] == [(1, pytest.approx(0.9))]
    assert ramify.Ranking.from_csr(scores).ids.tolist() == [[1, 2, 0], [2, -1, -1]]  # all entries


def test_concat():
    a = ramify.Ranking(np.array([[1, 0]]), np.array([[2.0, 1.0]]), 3, names=["x", "y", "z"])
    joined = ramify.Ranking.concat([a, a])
    assert joined.ids.tolist() == [[1, 0], [1, 0]]
    assert joined.labels()[1][0] == ("y", 2.0)
    with pytest.raises(ramify.DataError, match="same k"):
        ramify.Ranking.concat([a, a.top(1)])


def test_to_csr_stores_zero_scores():
    ranking = ramify.Ranking(np.array([[1, 0]]), np.array([[0.0, -1.0]]), 2)
    assert ranking.to_csr().nnz == 2


@pytest.mark.parametrize(("ids", "message"), [
    (np.zeros(3, int), "shape"), (np.zeros((1, 2)), "integers"), (np.array([[0, 7]]), "between -1 and 2"),
    (np.array([[-2, 0]]), "between -1 and 2"),
])  # fmt: skip
def test_invalid_ids_are_refused(ids, message):
    with pytest.raises(ramify.DataError, match=message):
        ramify.Ranking(ids, np.zeros((1, 2)), 3)


def test_no_rows_and_k_of_zero():
    assert ramify.Ranking(np.zeros((0, 3), int), np.zeros((0, 3)), 5).to_csr().shape == (0, 5)
    with pytest.raises(ValueError, match="k must be a positive integer"):
        ramify.Ranking.from_csr(sparse.csr_matrix((2, 2)), 0)


def test_number_of_names_is_checked():
    with pytest.raises(ramify.DataError, match="2 names for 10 labels"):
        ramify.Ranking(np.array([[5]]), np.array([[1.0]]), 10, names=["a", "b"])
