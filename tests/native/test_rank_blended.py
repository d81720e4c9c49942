"""Ranking of candidates by the blended score, against the reference implementation in `rank.blend`."""

from __future__ import annotations

import numpy as np
import pytest

from ramify import native
from ramify.nn.heads.shortlist import candidate_logits
from ramify.rank.blend import blended_scores

pytestmark = pytest.mark.native


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("beta", [0.0, 0.35, 1.0])
def test_matches_the_reference_implementation(beta, threads):
    random = np.random.default_rng(4)
    weights, bias = (
        random.standard_normal((200, 19)).astype(np.float32),
        random.standard_normal(200).astype(np.float32),
    )
    embeddings = random.standard_normal((45, 19)).astype(np.float32)
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
