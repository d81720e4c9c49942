"""Training on shortlists: what is on a list, what becomes of scores, and cycles that resume."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify import native
from ramify.index.ann import AnnConfig
from ramify.nn.list_head import cross_entropy, with_weights
from ramify.nn.places import LabelPlaces, list_products
from ramify.nn.shortlists import chances, competing, fused, row_share

pytestmark = pytest.mark.native


def test_every_positive_is_on_the_list_and_none_is_a_negative():
    random = np.random.default_rng(0)
    Y = sparse.csr_matrix((random.random((30, 50)) < 0.3).astype(np.float32))
    lists = np.argsort(random.random((30, 50)), axis=1)[:, :12].astype(np.int32)
    lists[:, 9:] = -1
    lists[3] = -1
    lists[5, 1] = lists[5, 0]  # twice
    targets = with_weights(competing(np.sort(lists, axis=1), Y), Y)
    for i in range(30):
        row = targets[i]
        near, own = set(lists[i][lists[i] >= 0].tolist()), set(Y[i].indices.tolist())
        assert set(row.indices.tolist()) == near | own
        assert {j for j, w in zip(row.indices.tolist(), row.data, strict=True) if w > 0} == own
        assert {j for j, w in zip(row.indices.tolist(), row.data, strict=True) if w == 0} == near - own


def test_cross_entropy_is_that_of_the_formula():
    random = np.random.default_rng(1)
    scores = random.standard_normal((6, 9)).astype(np.float32) * 3
    right, there = (random.random((6, 9)) < 0.3).astype(np.float32), random.random((6, 9)) < 0.8

    def loss_at(z):
        chance = 1 / (1 + np.exp(-z.astype(float)))
        return -np.where(right > 0, np.log(chance), np.log(1 - chance))[there].sum() / 6

    loss, gradients = cross_entropy(scores, right, there)
    assert loss == pytest.approx(loss_at(scores), rel=1e-5)
    for at in ((0, 0), (2, 5), (5, 8), (4, 1)):
        moved = scores.astype(float)
        moved[at] += 1e-5
        back = scores.astype(float)
        back[at] -= 1e-5
        assert gradients[at] == pytest.approx((loss_at(moved) - loss_at(back)) / 2e-5, abs=1e-5)
    _, learned = cross_entropy(scores, right, there, min_error=0.2)
    sure = (right == 0) & (scores < np.log(0.2 / 0.8))
    assert sure[there].any()
    assert np.array_equal(learned, np.where(sure, 0, gradients))
    extreme = np.array([[200.0, -200.0, 1e30, -1e30]], np.float32)
    loss, gradients = cross_entropy(extreme, np.array([[0, 1, 1, 0]], np.float32), np.ones((1, 4), bool))
    assert loss == pytest.approx(400)
    assert np.all(np.isfinite(gradients))


def test_scores_are_shares_of_the_best_of_a_row():
    ids = np.array([[4, 2, 7], [1, -1, -1], [-1, -1, -1], [5, 6, -1]], np.int32)
    logits = np.array([[0.0, 2.0, -800.0], [-3.0, 0, 0], [0, 0, 0], [-200, -200, 0]], np.float32)
    near = np.array([[0.9, 0.5, 0.1], [0.2, -np.inf, -np.inf], [-np.inf] * 3, [0.1, 0.2, -np.inf]], np.float32)
    own, shares = chances(ids, logits), row_share(chances(ids, near))
    best = 1 / (1 + np.exp(-2))
    assert own[0] == pytest.approx([0.5, best, 0], abs=1e-6)
    assert row_share(own)[0] == pytest.approx([0.5 / best, 1, 0], abs=1e-6)
    assert row_share(own)[1].tolist() == [1, 0, 0]
    assert not row_share(own)[2].any()
    assert fused(ids, logits, shares, 1.0)[0] == pytest.approx(
        own[0]
    )  # a probability where the classifier alone counts
    assert fused(ids, logits, shares, 0.0)[0] == pytest.approx(best * shares[0])
    both = fused(ids, logits, shares, 0.25)
    assert both[0] == pytest.approx(best * (0.25 * row_share(own)[0] + 0.75 * shares[0]))
    assert np.all(np.isneginf(both[ids < 0]))
    assert both[3, 1] > both[3, 0] > 0  # also where no classifier says yes


@pytest.mark.parametrize("threads", [1, 3])
def test_the_best_of_lists(threads):
    ids, scores = np.array([[9, 3, 5, -1]], np.int32), np.array([[0.5, 0.5, 0.9, 7.0]], np.float32)
    assert native.matrix.list_topk(ids, scores, 2, threads)[0].tolist() == [[5, 3]]
    found, values = native.matrix.list_topk(ids, scores, 6, threads)
    assert found.tolist() == [[5, 3, 9, -1, -1, -1]]
    assert np.all(np.isneginf(values[0, 3:]))
    random = np.random.default_rng(4)
    ids = np.argsort(random.random((300, 90)), axis=1).astype(np.int32)
    ids[random.random(ids.shape) < 0.2] = -1
    scores = random.integers(0, 20, ids.shape).astype(np.float32)
    scores[random.random(ids.shape) < 0.1] = np.nan
    found, values = native.matrix.list_topk(ids, scores, 30, threads)
    for row in range(300):
        items = [(np.isnan(s), -np.nan_to_num(s), i) for i, s in zip(ids[row], scores[row], strict=True) if i >= 0]
        assert found[row].tolist() == [i for _, _, i in sorted(items)[:30]]
    with pytest.raises(ValueError, match="scores are"):
        native.matrix.list_topk(ids, scores[:1], 3, threads)


@pytest.mark.parametrize("threads", [1, 3])
def test_products_of_lists(threads):
    random = np.random.default_rng(2)
    weights, offset = random.standard_normal((20, 7)).astype(np.float32), random.standard_normal(20).astype(np.float32)
    vectors = random.standard_normal((5, 7)).astype(np.float32)
    ids = random.integers(-1, 20, (5, 6)).astype(np.int32)
    logits = list_products(weights, offset, ids, vectors, threads)
    expected = np.einsum("nkd,nd->nk", weights[ids], vectors) + offset[ids]
    assert logits[ids >= 0] == pytest.approx(expected[ids >= 0], rel=1e-4, abs=1e-5)


def test_frequent_labels_are_near_everything():
    random = np.random.default_rng(3)
    places = random.standard_normal((200, 8)).astype(np.float32)
    names, counts = np.arange(200, dtype=np.int32) * 3, random.permutation(200)
    vectors = random.standard_normal((40, 8)).astype(np.float32)
    made = LabelPlaces.build(places, names, counts, AnnConfig(), k=60, queries=vectors, seed=0, threads=1)
    assert len(made) == 200
    assert made.frequent.tolist() == names[np.argsort(-counts)[:15]].tolist()
    few = made.search(vectors, 20, 1)[0]
    assert few[0, :5].tolist() == made.frequent[:5].tolist()
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (vectors, places)]
    cosines = unit[0] @ unit[1].T
    for threads in (1, 3):
        ids, near = made.search(vectors, 60, threads)
        assert near == pytest.approx(np.take_along_axis(cosines, ids // 3, 1), abs=1e-5)
    for i in range(40):
        assert len(set(ids[i].tolist())) == 60
        assert set(made.frequent.tolist()) <= set(ids[i].tolist())
        others = [j for j in np.argsort(-cosines[i]) * 3 if j not in made.frequent][:45]
        assert set(ids[i].tolist()) == set(others) | set(made.frequent.tolist())
    again = LabelPlaces.from_arrays(*made.to_arrays()).search(vectors, 60, 1)
    assert np.array_equal(again[0], ids)
    assert np.array_equal(again[1], near)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("beta", [0.0, 0.35, 1.0])
def test_lists_are_ranked_as_the_slow_twin_does(beta, threads):
    random = np.random.default_rng(4)
    weights, offset = (
        random.standard_normal((200, 19)).astype(np.float32),
        random.standard_normal(200).astype(np.float32),
    )
    vectors = random.standard_normal((45, 19)).astype(np.float32)
    lists = np.argsort(random.random((45, 200)), axis=1)[:, :30].astype(np.int32)
    evidence = random.random((45, 30)).astype(np.float32)
    lists[3, 7:] = -1
    lists[4] = -1
    evidence[5] = 0
    evidence[6, :9] = 0.5
    vectors[7] = 0
    weights[lists[8]], offset[lists[8]] = 0, -200  # no chance at all: the evidence alone orders them
    for k in (1, 8, 40):
        ids, scores = native.neural.rank_blended((weights, offset), beta, lists, evidence, vectors, k, threads)
        logits = list_products(weights, offset, lists, vectors, 1)
        shares = row_share(np.where(lists >= 0, evidence, np.float32(0)))
        expected, wanted = native.matrix.list_topk(lists, fused(lists, logits, shares, beta), k, 1)
        assert np.mean(ids == expected) > 0.995  # what is equal but for rounding may change places
        assert scores == pytest.approx(wanted, rel=1e-5)
        one = native.neural.rank_blended((weights, offset), beta, lists[9:10], evidence[9:10], vectors[9:10], k, 1)
        assert np.array_equal(one[0][0], ids[9])
        assert np.array_equal(one[1][0], scores[9])
    with pytest.raises(ValueError, match="similarities"):
        native.neural.rank_blended((weights, offset), beta, lists, evidence[:, 1:], vectors, 3, 1)
