"""Ranking of candidates by the blended score, against the reference implementation in `rank.blend`."""

from __future__ import annotations

import numpy as np
import pytest

from ramify import native
from ramify.nn.heads.shortlist import candidate_logits
from ramify.rank.blend import blended_scores, scores_among

pytestmark = pytest.mark.native


def classifiers_and_embeddings(random):
    """Weights (200, 19) and biases (200,) of labels, embeddings (45, 19) of samples."""
    arrays = (random.standard_normal(shape).astype(np.float32) for shape in ((200, 19), 200, (45, 19)))
    return tuple(arrays)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("beta", [0.0, 0.35, 1.0])
def test_matches_the_reference_implementation(beta, threads):
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
            (weights, bias), beta, candidates, first_scores, embeddings, k, threads
        )
        logits = candidate_logits((weights, bias), candidates, embeddings, 1)
        masked = np.where(candidates >= 0, first_scores, np.float32(0))
        blended = blended_scores(candidates, logits, masked, beta)
        expected_ids, expected_scores = native.matrix.list_topk(candidates, blended, k, 1)
        assert np.mean(ids == expected_ids) > 0.995  # ties up to rounding may be in another order
        assert scores == pytest.approx(expected_scores, rel=1e-5)
        single = candidates[9:10], first_scores[9:10], embeddings[9:10]
        one = native.neural.rank_blended((weights, bias), beta, *single, k, 1)
        assert np.array_equal(one[0][0], ids[9])
        assert np.array_equal(one[1][0], scores[9])
    with pytest.raises(ValueError, match=r"\(45, 30\).*\(45, 29\)"):
        native.neural.rank_blended((weights, bias), beta, candidates, first_scores[:, 1:], embeddings, 3, 1)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("beta", [0.0, 0.35, 1.0])
def test_candidates_beside_a_shortlist(beta, threads):
    """They have the scores that they have among all candidates, relative to the maxima of the shortlist."""
    random = np.random.default_rng(5)
    weights, bias, embeddings = classifiers_and_embeddings(random)
    ids = np.argsort(random.random((45, 200)), axis=1)[:, :40].astype(np.int32)
    similarities = random.random((45, 40)).astype(np.float32)
    ids[3, 7:30] = -1
    ids[4, :30] = -1  # an empty shortlist
    ids[5, 30:] = -1
    similarities[6] = 0
    weights[ids[8]], bias[ids[8]] = 0, -200  # probabilities underflow
    ids[9, 30:35], similarities[9, 30:35] = ids[9, :5], similarities[9, :5]  # labels of the shortlist
    shortlist, others = (ids[:, :30], similarities[:, :30]), (ids[:, 30:], similarities[:, 30:])
    among = scores_among((weights, bias), beta, ids, np.where(ids >= 0, similarities, 0), embeddings, 30, 1)
    expected_best = among[:, :30].max(axis=1)
    for k in (1, 4, 12):
        found, scores, best = native.neural.rank_beside(
            (weights, bias), beta, shortlist, others, embeddings, k, threads
        )
        expected_ids, expected = native.matrix.list_topk(
            np.ascontiguousarray(ids[:, 30:]), np.ascontiguousarray(among[:, 30:]), k, 1
        )
        rows = np.arange(45) != 4  # an empty shortlist has no maxima
        assert np.mean(found[rows] == expected_ids[rows]) > 0.99  # ties up to rounding may be in another order
        assert scores[rows] == pytest.approx(expected[rows], rel=1e-5)
        assert best == pytest.approx(expected_best, rel=1e-5)
        assert best[4] == -np.inf
        assert np.isfinite(scores[4, 0])
    own = native.neural.rank_blended((weights, bias), beta, *shortlist, embeddings, 30, 1)
    own_scores = dict(zip(own[0][9].tolist(), own[1][9].tolist(), strict=True))
    beside = dict(zip(found[9].tolist(), scores[9].tolist(), strict=True))
    shared = ids[9, :5].tolist()
    assert [beside[label] for label in shared] == [own_scores[label] for label in shared]
    empty = np.empty((45, 0), np.int32), np.empty((45, 0), np.float32)
    found, scores, best = native.neural.rank_beside((weights, bias), beta, shortlist, empty, embeddings, 2, threads)
    assert np.all(found == -1)
    assert best == pytest.approx(expected_best, rel=1e-5)
    cut = others[0][1:], others[1][1:]
    with pytest.raises(ValueError, match=r"\(45, 30\).*\(44, 10\)"):
        native.neural.rank_beside((weights, bias), beta, shortlist, cut, embeddings, 3, 1)
