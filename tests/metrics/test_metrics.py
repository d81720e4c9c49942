"""Metrics against hand-computed values, the reference implementation and scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import ramify
from ramify import native
from ramify.metrics import FAMILIES, LabelCounts, inverse_propensity
from ramify.metrics.ranking import frequency_deciles

pytestmark = pytest.mark.native


def ranking_of(rows, n_labels, k=None):
    k = k or max(len(r) for r in rows)
    ids = np.array([list(r) + [-1] * (k - len(r)) for r in rows], np.int32)
    scores = np.where(ids >= 0, 1.0 - 0.1 * np.arange(k), -np.inf).astype(np.float32)
    return ramify.Ranking(ids, scores, n_labels)


def test_metrics_by_hand():
    ranking = ranking_of([[0, 1, 2], [3, 0, 1]], 5)
    truth = [[0, 2], [1]]
    result = ramify.evaluate(ranking, truth, ks=[1, 2, 3])
    assert result["P@1"] == 50.0
    assert result["P@2"] == 100 * (1 + 0) / 4
    assert result["P@3"] == pytest.approx(100 * (2 + 1) / 6)
    assert result["R@1"] == 100 * (0.5 + 0) / 2
    assert result["R@3"] == 100.0
    first = (1 + 1 / 2) / (1 + 1 / math.log2(3))
    second = (1 / 2) / 1
    assert result["nDCG@3"] == pytest.approx(100 * (first + second) / 2)
    assert result["coverage@1"] == pytest.approx(100 / 3)
    assert result["coverage@3"] == 100.0


def test_propensity_by_hand():
    counts = LabelCounts(100, np.array([50, 1, 0]))
    c = (math.log(100) - 1) * 2.5**0.55
    expected = [1 + c * (n + 1.5) ** -0.55 for n in (50, 1, 0)]
    assert inverse_propensity(counts).tolist() == pytest.approx(expected)
    a, b = FAMILIES["amazon"]
    assert inverse_propensity(counts, "amazon")[1] == pytest.approx(
        1 + (math.log(100) - 1) * (b + 1) ** a * (1 + b) ** -a
    )
    with pytest.raises(ValueError, match="wikipedia"):
        inverse_propensity(counts, "wiki")
    # a hit on the frequent label; the optimal ranking has the rare one first
    result = ramify.evaluate(ranking_of([[0]], 3), [[0, 1]], counts, ks=[1])
    assert result["PSP@1"] == pytest.approx(100 * expected[0] / expected[1])
    assert ramify.evaluate(ranking_of([[1]], 3), [[0, 1]], counts, ks=[1])["PSP@1"] == pytest.approx(100.0)
    tiny = inverse_propensity(LabelCounts(1, np.array([1, 0])))
    assert tiny.tolist() == [1.0, 1.0]


def test_rows_without_labels_and_short_rows():
    ranking = ranking_of([[0, 1], [2], []], 3)
    result = ramify.evaluate(ranking, [[0], [], [1]], ks=[1, 2])
    assert (result.n_rows, result.n_rows_without_labels) == (2, 1)
    assert result["P@1"] == 50.0
    assert result["P@2"] == 25.0  # padding counts as a miss
    assert result["R@2"] == 50.0
    assert ramify.evaluate(ranking, [[0], [], []], ks=[1])["P@1"] == 100.0
    nothing = ramify.evaluate(ranking, sparse.csr_matrix((3, 3)), ks=[1])
    assert set(nothing.to_dict().values()) == {0.0}


def test_a_repeated_label_is_one_hit():
    ids = np.array([[1, 1, 0]], np.int32)
    result = ramify.evaluate(ramify.Ranking(ids, np.ones((1, 3)), 2), [[1]], ks=[3])
    assert result["P@3"] == pytest.approx(100 / 3)
    assert result["R@3"] == 100.0


@st.composite
def cases(draw):
    n, n_labels, k = draw(st.integers(1, 30)), draw(st.integers(1, 90)), draw(st.integers(1, 25))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    ids = rng.integers(-1, n_labels, (n, k)).astype(np.int32)
    if draw(st.booleans()):  # rankings without repeated labels
        ids = np.stack([np.resize(rng.permutation(max(n_labels, k))[:k], k) for _ in range(n)]).astype(np.int32)
        ids[ids >= n_labels] = -1
    truth = sparse.csr_matrix(
        rng.random((n, n_labels)) < draw(st.sampled_from([0.0, 0.05, 0.3, 0.9])), dtype=np.float32
    )
    return ids, truth, rng.random(n_labels) * 5 + 0.1


@settings(max_examples=150, deadline=None)
@given(cases(), st.sampled_from([np.int32, np.int64]), st.sampled_from([1, 2, 4]))
def test_equals_the_reference(case, index_type, threads):
    ids, truth, weights = case
    truth.indptr, truth.indices = truth.indptr.astype(index_type), truth.indices.astype(index_type)
    assert np.array_equal(native.matrix.ranking_hits(ids, truth, threads), reference.hits(ids, truth))
    ks = [1, 2, 5, 40]
    from ramify.metrics.ranking import ranking_metrics

    ranking = ramify.Ranking(ids, np.zeros(ids.shape), truth.shape[1])
    groups = (np.arange(truth.shape[1]) % 3).astype(np.uint8)
    found = ranking_metrics(ranking, truth, ks, weights, groups, 3, threads)
    expected = reference.metrics(ids, truth, ks, weights)
    for name, values in expected.items():
        assert found.values[name].tolist() == pytest.approx([values[k] for k in ks], abs=1e-9), name
        if name != "coverage":
            assert found.by_group[name].sum(axis=0).tolist() == pytest.approx(found.values[name].tolist(), abs=1e-9)


def test_results_do_not_depend_on_threads():
    rng = np.random.default_rng(0)
    ids = rng.integers(-1, 500, (20_000, 20)).astype(np.int32)
    truth = sparse.random(20_000, 500, 0.01, format="csr", random_state=0)
    results = [
        ramify.evaluate(ramify.Ranking(ids, np.zeros(ids.shape), 500), truth, truth, threads=t).to_dict()
        for t in (1, 2, 7)
    ]
    assert results[0] == results[1] == results[2]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12), st.sampled_from([np.int32, np.int64]))
def test_topk_equals_the_reference(seed, k, index_type):
    rng = np.random.default_rng(seed)
    scores = sparse.random(20, 30, 0.3, format="csr", random_state=seed % 1000, dtype=np.float32)
    scores.data = rng.integers(-3, 3, scores.nnz).astype(np.float32)  # many ties
    scores.indptr, scores.indices = scores.indptr.astype(index_type), scores.indices.astype(index_type)
    ids, best = native.matrix.csr_topk(scores, k, 2)
    expected = reference.topk(scores, k)
    assert np.array_equal(ids, expected[0])
    assert np.array_equal(best, expected[1])


def test_scores_as_a_matrix(pydoc):
    rng = np.random.default_rng(0)
    scores = sparse.random(50, 40, 0.4, format="csr", random_state=0)
    truth = sparse.csr_matrix(rng.random((50, 40)) < 0.1)
    by_matrix = ramify.evaluate(scores, truth, ks=[1, 5]).to_dict()
    by_ranking = ramify.evaluate(ramify.Ranking.from_csr(scores, 40), truth, ks=[1, 5]).to_dict()
    assert by_matrix == by_ranking


def test_f1_by_hand():
    ids = np.array([[0, 1], [0, 2]], np.int32)
    scores = np.array([[0.9, 0.6], [0.7, 0.2]], np.float32)
    result = ramify.evaluate(ramify.Ranking(ids, scores, 4), [[0], [2]], threshold=0.5, ks=[1])
    assert result["micro-F1"] == pytest.approx(100 * 2 * 1 / (3 + 2))
    assert result["macro-F1"] == pytest.approx(100 * np.mean([2 * 1 / (2 + 1), 0, 0]))  # without label 3
    assert ramify.evaluate(ramify.Ranking(ids, scores, 4), [[0], [2]], threshold=0.1, ks=[1])[
        "micro-F1"
    ] == pytest.approx(100 * 4 / 6)


def test_f1_equals_scikit_learn():
    from sklearn.metrics import f1_score

    rng = np.random.default_rng(0)
    dense = rng.random((60, 15)) * (rng.random((60, 15)) < 0.5)
    truth = rng.random((60, 15)) < 0.3
    found = ramify.evaluate(sparse.csr_matrix(dense), truth.astype(int), threshold=0.4, ks=[1])
    predicted = (dense >= 0.4) & (dense > 0)
    assert found["micro-F1"] == pytest.approx(100 * f1_score(truth, predicted, average="micro"), abs=1e-4)
    assert found["macro-F1"] == pytest.approx(100 * f1_score(truth, predicted, average="macro"), abs=1e-4)


def test_ndcg_equals_scikit_learn():
    from sklearn.metrics import ndcg_score

    rng = np.random.default_rng(1)
    truth = (rng.random((40, 20)) < 0.2).astype(int)
    truth[:, 0] = 1
    scores = rng.random((40, 20))
    found = ramify.evaluate(sparse.csr_matrix(scores), truth, ks=[5])
    assert found["nDCG@5"] == pytest.approx(100 * ndcg_score(truth, scores, k=5), abs=1e-4)


def test_unseen_labels_count_as_misses_or_are_dropped():
    model = ramify.Popular().fit(["a", "b"], [["x"], ["x", "y"]])
    ranking = model.predict_topk(["q"], k=2)
    counted = ramify.evaluate(ranking, [["x", "new"]], ks=[1, 2])
    assert counted["R@2"] == 50.0
    assert counted.unseen_fraction == 0.5
    assert ramify.evaluate(ranking, [["x", "new"]], ks=[2], unseen="drop")["R@2"] == 100.0
    with pytest.raises(ramify.DataError, match="1 is not '1'"):
        ramify.evaluate(ranking, [["p", "q"]])
    with pytest.raises(ValueError, match="unseen"):
        ramify.evaluate(ranking, [["x"]], unseen="maybe")


def test_filtered_pairs_are_removed():
    ranking = ranking_of([[0, 1, 2], [2, 1, 0]], 3)
    truth = [[1], [0]]
    plain = ramify.evaluate(ranking, truth, ks=[1])
    filtered = ramify.evaluate(ranking, truth, ks=[1], filter_pairs=[[0, 0], [1, 2], [1, 1]])
    assert (plain["P@1"], filtered["P@1"]) == (0.0, 100.0)
    as_matrix = sparse.csr_matrix(np.array([[1, 0, 0], [0, 1, 1]]))
    assert ramify.evaluate(ranking, truth, ks=[1], filter_pairs=as_matrix)["P@1"] == 100.0
    with pytest.raises(ramify.DataError, match="outside"):
        ramify.evaluate(ranking, truth, filter_pairs=[[5, 0]])
    with pytest.raises(ramify.DataError, match=r"\(m, 2\)"):
        ramify.evaluate(ranking, truth, filter_pairs=[1, 2])


def test_deciles_sum_to_the_total(pydoc):
    train, test = pydoc.split("train"), pydoc.split("test")
    model = ramify.Popular().fit(train.inputs, train.labels())
    result = ramify.evaluate(model.predict_topk(test.inputs, 100), test.labels(), train.labels())
    deciles = result.deciles()
    for name in ("P@1", "P@5", "nDCG@5", "PSP@5", "PSnDCG@3", "R@100"):
        assert sum(deciles[name]) == pytest.approx(result[name]), name
        assert len(deciles[name]) == 10
    assert deciles["P@1"][0] == pytest.approx(result["P@1"])  # the most frequent labels are in the first decile
    assert frequency_deciles(np.array([5, 1, 9, 1, 1, 1, 1, 1, 1, 1])).tolist() == [1, 2, 0, 3, 4, 5, 6, 7, 8, 9]
    with pytest.raises(ramify.DataError, match="training labels"):
        ramify.evaluate(model.predict_topk(test.inputs, 5), test.labels()).deciles()


def test_table_is_aligned():
    text = str(ramify.evaluate(ranking_of([[0, 1, 2]], 5), [[0]], [[0], [0, 1]]))
    lines = text.splitlines()
    assert lines[0].split() == ["@1", "@3"]
    assert [line.split()[0] for line in lines[1:7]] == ["P", "nDCG", "PSP", "PSnDCG", "R", "coverage"]
    assert len({len(line) for line in lines[:7]}) == 1


def test_invalid_input_is_refused():
    ranking = ranking_of([[0]], 2)
    with pytest.raises(ramify.DataError, match="1 rows, but y_true has 2"):
        ramify.evaluate(ranking, [[0], [1]])
    with pytest.raises(ramify.DataError, match="columns"):
        ramify.evaluate(ranking, sparse.csr_matrix((1, 5)))
    with pytest.raises(ramify.DataError, match="n × L matrix"):
        ramify.evaluate([[0]], [[0]])
    for wrong in ([0], [1.5], [True]):
        with pytest.raises(ValueError, match="ks must be"):
            ramify.evaluate(ranking, [[0]], ks=wrong)
    with pytest.raises(ramify.DataError, match="shape"):
        ramify.evaluate(ranking, [[0]], filter_pairs=sparse.csr_matrix((3, 2)))
    assert ramify.evaluate(ranking, [[0]], filter_pairs=[], ks=[1])["P@1"] == 100.0
    with pytest.raises(ramify.DataError, match="between -1 and 1"):
        ranking_of([[2]], 2)
    with pytest.raises(ramify.DataError, match="shape"):
        ramify.Ranking(np.zeros((2, 2), int), np.zeros((2, 3)), 4)


def test_note_on_truncated_f1():
    model = ramify.Popular(threshold=0.1).fit(["a"], [list(range(20))])
    narrow = ramify.evaluate(model.predict_topk(["q"], 5), [list(range(20))])
    assert any("larger k" in note for note in narrow.notes())
    wide = ramify.evaluate(model.predict_topk(["q"], 20), [list(range(20))], ks=1)
    assert wide["micro-F1"] == 100.0
    assert not any("larger k" in note for note in wide.notes())
    with pytest.raises(ValueError, match="propensity constants"):
        inverse_propensity(LabelCounts(5, np.ones(2)), (float("nan"), 1.0))


def test_dense_scores():
    scores = np.array([[0.1, 0.9], [0.8, 0.0]])
    assert ramify.evaluate(scores, [[1], [0]], ks=[1])["P@1"] == 100.0
