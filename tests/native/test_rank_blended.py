"""Ranking of candidates by the blended score, against the reference implementation in `rank.blend`."""

from __future__ import annotations

import numpy as np
import pytest

from ramify import native
from ramify.nn.heads.shortlist import candidate_logits
from ramify.nn.optim import RowTable
from ramify.rank.blend import blended_scores, scores_among

pytestmark = pytest.mark.native


def classifiers_and_embeddings(random):
    """Weights (200, 19) and biases (200,) of labels, embeddings (45, 19) of samples."""
    arrays = (random.standard_normal(shape).astype(np.float32) for shape in ((200, 19), 200, (45, 19)))
    return tuple(arrays)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("beta", [0.0, 0.35, 1.0])
@pytest.mark.parametrize("by_row", [True, False])
def test_matches_the_reference_implementation(by_row, beta, threads):
    random = np.random.default_rng(4)
    weights, bias, embeddings = classifiers_and_embeddings(random)
    candidates = np.argsort(random.random((45, 200)), axis=1)[:, :30].astype(np.int32)
    first_scores = random.random((45, 30)).astype(np.float32)
    candidates[3, 7:] = -1
    candidates[4] = -1
    first_scores[5] = 0
    first_scores[6, :9] = 0.5
    embeddings[7] = 0
    weights[candidates[8]], bias[candidates[8]] = 0, -200  # probabilities underflow: the first scores alone order them
    for k in (1, 8, 40):
        ids, scores = native.neural.rank_blended(
            (weights, bias), beta, by_row, candidates, first_scores, embeddings, k, threads
        )
        logits = candidate_logits(RowTable(weights, bias), candidates, embeddings, 1)
        masked = np.where(candidates >= 0, first_scores, np.float32(0))
        blended = blended_scores(candidates, logits, masked, beta, by_row)
        expected_ids, expected_scores = native.matrix.list_topk(candidates, blended, k, 1)
        assert np.mean(ids == expected_ids) > 0.995  # ties up to rounding may be in another order
        assert scores == pytest.approx(expected_scores, rel=1e-5)
        single = candidates[9:10], first_scores[9:10], embeddings[9:10]
        one = native.neural.rank_blended((weights, bias), beta, by_row, *single, k, 1)
        assert np.array_equal(one[0][0], ids[9])
        assert np.array_equal(one[1][0], scores[9])
    with pytest.raises(ValueError, match=r"\(45, 30\).*\(45, 29\)"):
        native.neural.rank_blended((weights, bias), beta, by_row, candidates, first_scores[:, 1:], embeddings, 3, 1)


@pytest.mark.parametrize("beta", [0.0, 0.35, 1.0])
@pytest.mark.parametrize("by_row", [True, False])
def test_scores_of_labels_beside_a_shortlist(by_row, beta):
    """Those of the shortlist have the scores that they have alone; others are on its scale."""
    random = np.random.default_rng(5)
    classifiers = classifiers_and_embeddings(random)
    (weights, bias), embeddings = classifiers[:2], classifiers[2]
    ids = np.argsort(random.random((45, 200)), axis=1)[:, :40].astype(np.int32)
    similarities = random.random((45, 40)).astype(np.float32)
    ids[3, 7:30] = -1
    similarities[6] = 0
    similarities[ids < 0] = 0
    among = scores_among((weights, bias), beta, by_row, ids, similarities, embeddings, 30, 1)
    own = native.neural.rank_blended(
        (weights, bias), beta, by_row, ids[:, :30], similarities[:, :30], embeddings, 30, 1
    )
    ordered = native.matrix.list_topk(np.ascontiguousarray(ids[:, :30]), np.ascontiguousarray(among[:, :30]), 30, 1)
    assert own[1] == pytest.approx(ordered[1], rel=1e-5)
    assert np.all(np.isneginf(among[ids < 0]))
    alone = scores_among((weights, bias), beta, by_row, ids[:, 30:], similarities[:, 30:], embeddings, 10, 1)
    assert np.array_equal(alone, among[:, 30:]) == (not by_row or beta == 1.0)
