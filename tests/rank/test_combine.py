"""Combination of rankings by scores, ranks and turns."""

from __future__ import annotations

import numpy as np
import pytest

from ramify.base.errors import DataError
from ramify.base.ranking import Ranking
from ramify.rank.combine import combine_rankings


def two_rankings():
    a = Ranking(np.array([[0, 1, 2], [3, -1, -1]]), np.array([[0.9, 0.5, 0.0], [0.7, -np.inf, -np.inf]]), 5)
    b = Ranking(np.array([[2, 0, 4], [1, 3, 0]]), np.array([[0.8, 0.3, 0.1], [0.6, 0.4, 0.2]]), 5)
    return a, b


def test_missing_labels_score_zero_in_the_mean():
    combined = combine_rankings(two_rankings(), 4)
    assert combined.ids.tolist() == [[0, 2, 1, 4], [3, 1, 0, -1]]
    assert combined.scores[0] == pytest.approx([0.6, 0.4, 0.25, 0.05])
    assert combined.scores[1, :3] == pytest.approx([0.55, 0.3, 0.1])


@pytest.mark.parametrize("combination", ["mean", "sigmoid", "softmax"])
def test_labels_with_equal_scores_keep_their_order(combination):
    """Many scores may saturate at 1; the rank then says more than the score."""
    scores = np.array([[1.0, 1.0, 1.0, 0.0]])
    rankings = [Ranking(np.array([ids]), scores, 9) for ids in ([7, 3, 5, 0], [7, 5, 3, 1], [5, 7, 3, 2])]
    assert combine_rankings(rankings, 3, combination).ids[0].tolist() == [7, 5, 3]


@pytest.mark.parametrize("combination", ["rank", "softmax", "mean", "sigmoid", "round-robin"])
def test_more_labels_do_not_change_the_first_scores(combination):
    random = np.random.default_rng(0)
    wide = []
    for _ in range(2):  # the first 200 are the same labels in both
        ids = np.stack([np.append(random.permutation(200), 200 + random.permutation(200)) for _ in range(5)])
        wide.append(Ranking(ids, -np.sort(-random.random((5, 400)), axis=1), 400))
    found, more = (combine_rankings([r.top(width) for r in wide], 100, combination) for width in (200, 400))
    assert np.array_equal(found.ids, more.ids)
    assert found.scores == pytest.approx(more.scores)


def test_ranks_and_weights():
    combined = combine_rankings(two_rankings(), 3, "rank", [3, 1])
    assert combined.ids[0].tolist() == [0, 1, 2]
    assert combined.scores[0] == pytest.approx([0.75 * 1 + 0.25 * 2 / 3, 0.75 * 2 / 3, 0.75 / 3 + 0.25])
    alone = combine_rankings(two_rankings(), 3, "mean", [0, 1])
    assert alone.ids[0].tolist()[:2] == [2, 0]


def test_sigmoid_and_softmax():
    a, b = two_rankings()
    scores = 1 / (1 + np.exp(-np.array([0.9, 0.3])))
    assert combine_rankings([a, b], 1, "sigmoid").scores[0, 0] == pytest.approx(scores.mean())
    softmax = [np.exp(r.scores[0]) / np.exp(r.scores[0]).sum() for r in (a, b)]
    assert combine_rankings([a, b], 1, "softmax").scores[0, 0] == pytest.approx((softmax[0][0] + softmax[1][1]) / 2)
    assert combine_rankings([a, b], 1, "softmax").ids[1, 0] == 3


def test_round_robin():
    assert combine_rankings(two_rankings(), 4, "round-robin").ids[0].tolist() == [0, 2, 1, 4]
    assert combine_rankings(two_rankings(), 4, "round-robin", [1, 2]).ids[0].tolist() == [2, 0, 1, 4]


def test_invalid_arguments_are_refused():
    a, b = two_rankings()
    with pytest.raises(ValueError, match="round-robin"):
        combine_rankings([a, b], 1, "median")
    with pytest.raises(ValueError, match="2 weights"):
        combine_rankings([a, b], 1, "mean", [1])
    with pytest.raises(DataError, match="same rows"):
        combine_rankings([a, b[:1]], 1)
    with pytest.raises(DataError, match="same rows"):
        combine_rankings([], 1)
