"""One-vs-rest classifiers against liblinear of scikit-learn, by the value of the objective."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import reference
from scipy import sparse
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from variants import digests

from ramify import DataError, native
from ramify.base.mixed import Mixed
from ramify.base.sparse import as_csr
from ramify.rank.linear import LinearConfig, check_relevance, fit_ovr

pytestmark = pytest.mark.native


def problem(n=120, d=40, n_labels=21, seed=0, density=0.3):
    random = np.random.default_rng(seed)
    X = sparse.random(n, d, density, "csr", np.float32, random, data_rvs=lambda k: random.random(k) + 0.1)
    true = random.standard_normal((d, n_labels))
    Y = sparse.csr_matrix((X @ true + 0.3 * random.standard_normal((n, n_labels)) > 0.9).astype(np.float32))
    return X, Y


def margins(X, W, bias=1.0):
    """Margins (n, L) of all labels."""
    mixed = Mixed.of(X)
    features = np.hstack([mixed.sparse.toarray(), mixed.dense])
    W = W.toarray()
    return features @ W[:, :-1].T + bias * W[:, -1]


def signs(Y, label):
    return np.where(Y[:, [label]].toarray().ravel() > 0, 1.0, -1.0)


LOSSES = ["squared_hinge", "hinge", "logistic", "dead_zone_logistic"]
EXACT = {"threshold": 0.0, "tolerance": 1e-3, "max_epochs": 5000}


def liblinear(X, y, loss, C, weights=None):
    """Weights of the same objective by scikit-learn, with the bias as a regularized feature of ones."""
    wide = np.hstack([X.toarray(), np.ones((X.shape[0], 1))])
    if loss == "logistic":
        model = LogisticRegression(C=C, fit_intercept=False, tol=1e-8, max_iter=10000)
    else:
        model = LinearSVC(C=C, loss=loss, fit_intercept=False, tol=1e-7, max_iter=200000, dual=True)
    return model.fit(wide, y, sample_weight=weights).coef_.ravel()


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge", "logistic"])
@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
def test_reaches_the_optimum_of_liblinear(loss, C):
    X, Y = problem(seed=1)
    W = fit_ovr(X, Y, config=LinearConfig(loss=loss, C=C, **EXACT)).toarray()
    for label in (0, 7, 20):
        y = signs(Y, label)
        best = reference.ovr_objective(X.toarray(), y, liblinear(X, y, loss, C), loss=loss, cost=C)
        ours = reference.ovr_objective(X.toarray(), y, W[label].astype(float), loss=loss, cost=C)
        assert ours == pytest.approx(best, rel=5e-3)


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
def test_reaches_the_optimum_of_the_dead_zone_loss(C):
    """The loss has a kink and no other library: a general minimizer of the primal objective finds nothing better."""
    X, Y = problem(seed=1)
    wide = X.toarray()
    for zone in (1.0, 5.0):
        config = LinearConfig(loss="dead_zone_logistic", dead_zone=zone, C=C, **EXACT)
        W = fit_ovr(X, Y, config=config).toarray().astype(float)
        for label in (0, 7, 20):
            y = signs(Y, label)

            def objective(w, y=y, zone=zone):
                return reference.ovr_objective(wide, y, w, loss="dead_zone_logistic", cost=C, dead_zone=zone)

            ours = objective(W[label])
            starts = W[label], np.zeros(W.shape[1]), liblinear(X, y, "logistic", C)
            best = min(minimize(objective, w, method="L-BFGS-B", options={"maxfun": 60000}).fun for w in starts)
            assert ours <= best * (1 + 5e-3)


def test_easy_negatives_have_no_influence():
    """Negatives beyond the dead zone leave the solution as it is; with the logistic loss they change it."""
    X, Y = problem(seed=3, n_labels=1)
    w = fit_ovr(X, Y, config=LinearConfig(loss="dead_zone_logistic", **EXACT)).toarray()[0]
    easy = sparse.csr_matrix(np.tile(-(8 + w[-1]) * w[:-1] / (w[:-1] @ w[:-1]), (400, 1)), dtype=np.float32)
    more, labels = sparse.vstack([X, easy], format="csr"), sparse.vstack([Y, sparse.csr_matrix((400, 1))], format="csr")
    for loss, changes in (("dead_zone_logistic", False), ("logistic", True)):
        config = LinearConfig(loss=loss, **EXACT)
        W = fit_ovr(X, Y, config=config).toarray()
        with_easy = fit_ovr(as_csr(more), as_csr(labels), config=config).toarray()
        assert (np.abs(W - with_easy).max() > 0.02) == changes


@pytest.mark.parametrize("loss", ["hinge", "dead_zone_logistic"])
def test_fewer_full_epochs_are_less_exact(loss):
    X, Y = problem(n=600, seed=1)

    def objective(**params):
        W = fit_ovr(X, Y, config=LinearConfig(loss=loss, C=10.0, **EXACT, **params)).toarray()
        return reference.ovr_objective(X.toarray(), signs(Y, 0), W[0].astype(float), loss=loss, cost=10.0)

    assert objective(max_full_epochs=5000) == objective()
    assert objective(max_full_epochs=1) > objective() * 1.005


def test_labels_that_are_hard_to_tell_apart_get_more_full_epochs():
    """Four full epochs alone are 20 % above the loss of as many as are needed."""
    random = np.random.default_rng(0)
    X = sparse.random(1000, 300, 0.1, "csr", np.float32, random)
    Y = as_csr(sparse.csr_matrix((random.random((1000, 16)) < 0.05).astype(np.float32)))

    def objective(max_full_epochs):
        config = LinearConfig(
            loss="dead_zone_logistic", C=7.0, threshold=0.0, tolerance=1.0, max_full_epochs=max_full_epochs
        )
        W = fit_ovr(X, Y, config=config).toarray().astype(float)
        losses = [
            reference.ovr_objective(X.toarray(), signs(Y, i), W[i], loss=config.loss, cost=config.C)
            for i in range(W.shape[0])
        ]
        return np.mean(losses)

    assert objective(4) < 1.08 * objective(None)


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge", "logistic", "dead_zone_logistic"])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_sample_of_the_negatives_of_large_clusters(loss, threads):
    """A weighted sample has nearly the optimum of all negatives; half of them without the weight has not."""
    n, rng = native.linear.MIN_SAMPLED_ROWS, np.random.default_rng(0)
    X = sparse.random(n, 40, 0.2, "csr", np.float32, rng)
    Y = as_csr(
        sparse.csr_matrix((X @ rng.normal(size=(40, 20)) - 2.5 + rng.gumbel(size=(n, 20)) > 2).astype(np.float32))
    )

    def fit(X, Y, **params):
        config = LinearConfig(loss=loss, C=1.0, threshold=0.0, tolerance=0.1, **params)
        return fit_ovr(X, Y, config=config, threads=threads).toarray().astype(float)

    def objective(label, W):
        return reference.ovr_objective(X.toarray(), signs(Y, label), W[label], loss=loss, cost=1.0)

    every, some = fit(X, Y), fit(X, Y, negative_fraction=0.3)
    without = np.flatnonzero(np.diff(Y.indptr) == 0)  # negatives of all lane groups
    kept = np.delete(np.arange(n), without[::2])
    unweighted = fit(X[kept], Y[kept])
    for label in (0, 9, 18):
        best = objective(label, every)
        assert objective(label, some) < best * (1.1 if loss == "hinge" else 1.02)
        assert loss == "hinge" or objective(label, some) < objective(label, unweighted)  # few negatives matter to it
    assert np.array_equal(some, fit(X, Y, negative_fraction=0.3))
    assert np.array_equal(fit(X[1:], Y[1:], negative_fraction=0.3), fit(X[1:], Y[1:]))  # a row fewer: all of them


def test_weights_of_negatives():
    """A negative of weight 3 counts like three copies of it."""
    X, Y = problem(n=60, seed=4, n_labels=3)
    config = LinearConfig(loss="dead_zone_logistic", **EXACT)
    M = sparse.csr_matrix(np.ones((60, 1), np.float32))
    M.data[::4] = 3
    weighted = fit_ovr(X, Y, M, config=config).toarray()
    copies = np.flatnonzero(M.toarray().ravel() == 3)
    copies = np.concatenate([copies, copies])
    all_X, all_Y = sparse.vstack([X, X[copies]], format="csr"), sparse.vstack([Y, 0 * Y[copies]], format="csr")
    for label in range(3):
        keep = np.concatenate([np.ones(60, bool), Y[copies, label].toarray().ravel() == 0])
        copied = fit_ovr(as_csr(all_X[keep]), as_csr(all_Y[keep][:, [label]]), config=config).toarray()
        assert weighted[label] == pytest.approx(copied[0], abs=0.02)


@pytest.mark.parametrize("loss", ["squared_hinge", "dead_zone_logistic"])
@pytest.mark.parametrize("dense_columns", [0, 5])
def test_positive_features_equal_training_without_the_other_columns(loss, dense_columns):
    X, Y = problem(n=90, d=200, seed=6, n_labels=4, density=0.03)
    random = np.random.default_rng(0)
    clusters = np.array([0, 2, 4])
    M = as_csr(sparse.csr_matrix((random.random((90, 2)) < 0.7).astype(np.float32)))
    dense = random.standard_normal((90, dense_columns)).astype(np.float32)
    config = LinearConfig(loss=loss, positive_features=True, **EXACT)
    W = fit_ovr(Mixed(X, dense), Y, M, clusters=clusters, config=config).toarray()
    for c in range(2):
        labels = slice(clusters[c], clusters[c + 1])
        used = np.diff(X[np.diff(Y[:, labels].indptr) > 0].tocsc().indptr) > 0
        assert 0 < used.sum() < X.shape[1]
        only = X.copy()
        only.data[~used[only.indices]] = 0
        only.eliminate_zeros()
        expected = fit_ovr(Mixed(only, dense), as_csr(Y[:, labels]), as_csr(M[:, [c]]), config=config).toarray()
        assert W[labels] == pytest.approx(expected, abs=0.02)
        assert not W[labels, : X.shape[1]][:, ~used].any()


@pytest.mark.parametrize("loss", LOSSES)
def test_default_tolerance_is_close_to_the_optimum(loss):
    X, Y = problem(n=400, seed=2)
    approximate = fit_ovr(X, Y, config=LinearConfig(loss=loss, threshold=0.0)).toarray()
    exact = fit_ovr(X, Y, config=LinearConfig(loss=loss, **EXACT)).toarray()
    for label in (0, 10):
        y = signs(Y, label)
        a, b = (
            reference.ovr_objective(X.toarray(), y, W[label].astype(float), loss=loss) for W in (approximate, exact)
        )
        assert a == pytest.approx(b, rel=0.03)


def test_class_weights_and_relevance():
    X, Y = problem(seed=3)
    random = np.random.default_rng(0)
    R = Y.copy()
    R.data = random.random(Y.nnz).astype(np.float32) + 0.2
    config = LinearConfig(C=2.0, positive_weight=3.0, negative_weight=0.5, **EXACT)
    W = fit_ovr(X, Y, config=config, relevance=R).toarray()
    for label in (1, 13):
        y = signs(Y, label)
        cost = np.where(y > 0, 2.0 * 3.0 * R[:, [label]].toarray().ravel(), 2.0 * 0.5)
        best = liblinear(X, y, "squared_hinge", 1.0, cost)
        a, b = (reference.ovr_objective(X.toarray(), y, w.astype(float), cost=cost) for w in (W[label], best))
        assert a == pytest.approx(b, rel=2e-3)


def test_tail_weighting():
    X, Y = problem(seed=4)
    n_samples = np.diff(Y.tocsc().indptr)
    config = LinearConfig(C=0.5, positive_weight=2.0, tail_weight=3.0, tail_count=20.0, **EXACT)
    costs = config.positive_costs(n_samples)
    assert config.positive_costs(np.array([0, 20, 10**9])) == pytest.approx([3.0, 2.0, 1.0])
    W = fit_ovr(X, Y, config=config).toarray()
    for label in (int(np.where(n_samples > 0, n_samples, 10**9).argmin()), int(n_samples.argmax())):
        y = signs(Y, label)
        cost = np.where(y > 0, costs[label], 0.5)
        best = liblinear(X, y, "squared_hinge", 1.0, cost)
        a, b = (reference.ovr_objective(X.toarray(), y, w.astype(float), cost=cost) for w in (W[label], best))
        assert a == pytest.approx(b, rel=2e-3)


def test_sparse_dense_and_mixed_features_agree():
    X, Y = problem(seed=4)
    dense = X.toarray()
    config = LinearConfig(**EXACT)
    by_sparse = fit_ovr(X, Y, config=config)
    kinds = [
        dense,
        Mixed(X[:, :15].tocsr(), np.ascontiguousarray(dense[:, 15:])),
        Mixed(X, np.empty((120, 0), np.float32)),
    ]
    for features in kinds:
        W = fit_ovr(features, Y, config=config)
        assert W.shape == by_sparse.shape
        assert np.allclose(W.toarray(), by_sparse.toarray(), atol=5e-3)
        assert np.allclose(margins(features, W), margins(X, by_sparse), atol=5e-3)


def test_training_set_is_the_rows_of_the_cluster_and_all_positives():
    X, Y = problem(n=200, n_labels=30, seed=5)
    random = np.random.default_rng(1)
    clusters = np.array([0, 3, 3, 20, 30])
    M = sparse.csr_matrix((random.random((200, 4)) < 0.4).astype(np.float32))
    config = LinearConfig(**EXACT)
    W = fit_ovr(X, Y, M, clusters=clusters, config=config).toarray()
    for label in (0, 2, 3, 11, 29):
        cluster = int(np.searchsorted(clusters, label, side="right")) - 1
        rows = np.flatnonzero((M[:, [cluster]].toarray().ravel() > 0) | (signs(Y, label) > 0))
        alone = fit_ovr(X[rows], Y[rows][:, [label]], config=config).toarray()[0]
        assert np.allclose(W[label], alone, atol=5e-3)
        features = np.setdiff1d(np.arange(40), X[rows].indices)
        assert not W[label][features].any()


@pytest.mark.parametrize("loss", LOSSES[:3])
def test_small_clusters_among_many_samples(loss):
    """The solver copies the rows of a small cluster, and treats features of a single row separately."""
    random = np.random.default_rng(2)
    X = sparse.random(1500, 400, 0.02, "csr", np.float32, random)
    Y = sparse.csr_matrix((random.random((1500, 20)) < 0.004).astype(np.float32))
    M = sparse.csr_matrix((random.random((1500, 2)) < 0.03).astype(np.float32))
    config = LinearConfig(loss=loss, C=2.0, **EXACT)
    W = fit_ovr(X, Y, M, clusters=np.array([0, 9, 20]), config=config)
    n_single = 0
    for label in (0, 5, 8, 9, 19):
        y = signs(Y, label)
        rows = np.flatnonzero((M[:, [int(label >= 9)]].toarray().ravel() > 0) | (y > 0))
        n_single += int((np.bincount(X[rows].indices, minlength=400) == 1).sum())
        best = liblinear(X[rows], y[rows], loss, 2.0)
        part = X[rows].toarray()
        a, b = (
            reference.ovr_objective(part, y[rows], w.astype(float), loss=loss, cost=2.0)
            for w in (W[label].toarray().ravel(), best)
        )
        assert a == pytest.approx(b, rel=5e-3)
        assert np.all(np.diff(W[label].indices) > 0)
    assert n_single > 100


def test_a_label_in_several_clusters_is_trained_in_each():
    X, Y = problem(n=150, n_labels=4, seed=6)
    twice = sparse.csr_matrix(sparse.hstack([Y, Y[:, [0]]]))
    M = sparse.csr_matrix(np.stack([np.arange(150) % 2 == 0, np.arange(150) % 3 == 0], axis=1).astype(np.float32))
    W = fit_ovr(X, twice, M, clusters=np.array([0, 4, 5]), config=LinearConfig(**EXACT)).toarray()
    assert not np.allclose(W[0], W[4], atol=0.05)


@pytest.mark.parametrize("loss", LOSSES)
def test_same_bits_for_any_number_of_threads(loss):
    X, Y = problem(n=300, n_labels=90, seed=7)
    clusters = np.array([0, 40, 41, 90])
    M = sparse.csr_matrix((np.random.default_rng(0).random((300, 3)) < 0.5).astype(np.float32))
    one = fit_ovr(X, Y, M, clusters=clusters, config=LinearConfig(loss=loss), threads=1, seed=3)
    for threads in (2, 5):
        many = fit_ovr(X, Y, M, clusters=clusters, config=LinearConfig(loss=loss), threads=threads, seed=3)
        assert np.array_equal(one.indptr, many.indptr)
        assert np.array_equal(one.indices, many.indices)
        assert np.array_equal(one.data, many.data)


def test_64_bit_indices_give_the_same():
    X, Y = problem(seed=8)
    M = sparse.csr_matrix((np.random.default_rng(0).random((120, 1)) < 0.5).astype(np.float32))
    wide = X.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    for negatives in (None, M):
        assert (fit_ovr(X, Y, negatives) != fit_ovr(wide, Y, negatives)).nnz == 0


def test_every_instruction_set_gives_the_same_bits():
    code = """
import hashlib
from test_linear import problem
from ramify.rank.linear import LinearConfig, fit_ovr
from ramify import native
X, Y = problem(n=300, n_labels=37, seed=9)
out = [native.matrix.isa().encode()]
for loss in ("squared_hinge", "hinge", "logistic", "dead_zone_logistic"):
    W = fit_ovr(X, Y, config=LinearConfig(loss=loss), threads=2)
    out += [W.data.tobytes(), W.indices.tobytes()]
print(native.matrix.isa(), hashlib.sha256(b"".join(out[1:])).hexdigest())
"""
    found = digests(code, Path(__file__).parent)
    assert len(set(found.values())) == 1, found


def test_threshold_and_max_nonzeros_per_label():
    X, Y = problem(seed=11)
    unpruned = fit_ovr(X, Y, config=LinearConfig(threshold=0.0)).toarray()
    cut = fit_ovr(X, Y, config=LinearConfig(threshold=0.3)).toarray()
    expected = np.where(np.abs(unpruned) >= np.float32(0.3), unpruned, 0)
    expected[:, -1] = unpruned[:, -1]  # the bias is kept
    assert np.array_equal(cut, expected)
    few = fit_ovr(X, Y, config=LinearConfig(threshold=0.0, max_nonzeros_per_label=4))
    for label in range(Y.shape[1]):
        row = few[label]
        assert row.nnz <= 5
        assert row.has_sorted_indices
        kept = row.indices[row.indices < 40]
        assert set(kept) == set(np.argsort(-np.abs(unpruned[label, :-1]))[:4])
        assert row[0, 40] == unpruned[label, 40]


@pytest.mark.parametrize("tail_threshold", [0.5, 0.0])
def test_thresholds_depend_on_the_number_of_samples(tail_threshold):
    X, Y = problem()
    n_sparse, n_samples = X.shape[1], np.asarray(Y.sum(axis=0)).ravel()
    unpruned = fit_ovr(X, Y, config=LinearConfig(threshold=0.0)).toarray()
    pruned = fit_ovr(X, Y, config=LinearConfig(threshold=0.2, tail_threshold=tail_threshold)).toarray()
    thresholds = 0.2 + (tail_threshold - 0.2) / (1 + n_samples / 20)
    expected = np.where(np.abs(unpruned) < thresholds[:, None], 0, unpruned)
    expected[:, n_sparse:] = unpruned[:, n_sparse:]
    assert np.allclose(pruned, expected)
    assert 0 < np.count_nonzero(pruned) < np.count_nonzero(unpruned)


def test_without_bias():
    X, Y = problem(seed=12)
    W = fit_ovr(X, Y, config=LinearConfig(bias=0.0, **EXACT)).toarray()
    assert not W[:, -1].any()
    y = signs(Y, 3)
    best = LinearSVC(fit_intercept=False, tol=1e-7, max_iter=100000).fit(X, y).coef_.ravel()
    a, b = (
        reference.ovr_objective(X.toarray(), y, np.append(w, 0.0).astype(float), bias=0.0) for w in (W[3, :-1], best)
    )
    assert a == pytest.approx(b, rel=2e-3)


def test_degenerate_input():
    config = LinearConfig(threshold=0.0)
    nothing = fit_ovr(sparse.csr_matrix((5, 3), dtype=np.float32), sparse.csr_matrix(np.eye(5, 2, dtype=np.float32)))
    assert np.isfinite(nothing.data).all()
    X, _ = problem()
    none = sparse.csr_matrix((120, 3), dtype=np.float32)
    assert np.all(margins(X, fit_ovr(X, none, config=config)) < 0)  # labels without positives
    every = sparse.csr_matrix(np.ones((120, 2), np.float32))
    assert np.all(margins(X, fit_ovr(X, every, config=config)) > 0)
    for scale in (1e-6, 1e6):
        for loss in ("squared_hinge", "hinge", "logistic", "dead_zone_logistic"):
            W = fit_ovr(
                X * np.float32(scale), problem()[1], config=LinearConfig(loss=loss, threshold=0.0, max_epochs=20)
            )
            assert np.isfinite(W.data).all()
    empty = fit_ovr(X[:0], sparse.csr_matrix((0, 4), dtype=np.float32))
    assert empty.shape == (4, 41)
    assert fit_ovr(X, sparse.csr_matrix((120, 0), dtype=np.float32)).shape == (0, 41)
    no_rows = sparse.csr_matrix((120, 2), dtype=np.float32)
    assert fit_ovr(X, none, no_rows, clusters=np.array([0, 2, 3])).shape == (3, 41)


def test_stored_zeros_are_ignored():
    X, Y = problem(seed=13)
    M = sparse.csr_matrix((np.random.default_rng(0).random((120, 1)) < 0.5).astype(np.float32))
    kept = [sparse.csr_matrix(m.multiply(np.arange(120)[:, None] > 5), dtype=np.float32) for m in (Y, M)]
    with_zeros = [m.copy() for m in (Y, M)]
    for m in kept:
        m.eliminate_zeros()
    for m in with_zeros:
        m.data[: m.indptr[6]] = 0  # still stored
    assert with_zeros[0].nnz > kept[0].nnz
    assert (fit_ovr(X, *kept) != fit_ovr(X, *with_zeros)).nnz == 0


def test_inconsistent_arguments_are_refused():
    X, Y = problem()
    for options, message in [
        ({"M": sparse.csr_matrix((120, 2))}, "clusters"),
        ({"M": sparse.csr_matrix(-np.ones((120, 1)))}, "negative weights"),
        ({"clusters": np.array([0, 5])}, "ascend"),
        ({"clusters": np.array([0, 9, 4, 21])}, "ascend"),
        ({"relevance": Y[:, ::-1]}, "exactly where"),
        ({"relevance": -Y}, "negative"),
    ]:
        with pytest.raises(DataError, match=message):
            fit_ovr(X, Y, **options)
    with pytest.raises(DataError, match="X has 119"):
        fit_ovr(X[1:], Y)


def test_check_relevance():
    _, Y = problem()
    assert check_relevance(None, Y) is None
    assert check_relevance(Y.tocsc() * 2, Y).data.tolist() == [2] * Y.nnz
    for invalid in (-Y, Y[1:], Y[:, ::-1]):
        with pytest.raises(DataError, match="relevance must"):
            check_relevance(invalid, Y)


def test_progress_counts_labels_and_its_errors_propagate():
    X, Y = problem(n_labels=90)
    seen = []
    fit_ovr(X, Y, threads=1, progress=seen.append)
    assert seen[-1] == 90
    assert seen == sorted(seen)

    def fail(done):
        raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        fit_ovr(X, Y, threads=2, progress=fail)
