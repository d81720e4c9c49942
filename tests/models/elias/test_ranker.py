"""The sparse ranker of Elias++: its scores, what validation chooses, and its files."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import reference
from scipy import sparse

import ramify
from ramify import LinearConfig
from ramify.base.mixed import Mixed
from ramify.io.store import Store, StoreWriter
from ramify.models.elias import ranker as module
from ramify.models.elias.ranker import CALIBRATED_WEIGHT, POWERS, RankerTraining, SparseRanker
from ramify.rank.calibrate import fit_tree_calibrator

N, N_LABELS, DIM = 300, 40, 6


@pytest.fixture(scope="module")
def problem():
    """Features with a column for each label, labels, and embeddings that say nothing."""
    random = np.random.default_rng(0)
    Y = sparse.csr_matrix((random.random((N, N_LABELS)) < 0.06).astype(np.float32))
    noise = sparse.random(N, 20, 0.2, "csr", np.float32, random)
    X = Mixed.of(sparse.csr_matrix(sparse.hstack([Y, noise]), dtype=np.float32))
    return X, Y, random.standard_normal((N, DIM)).astype(np.float32)


def training(problem, *, quality=0.0, width=N_LABELS, **options):
    """A training whose search proposes labels at random, or the true ones first if `quality` is large."""
    X, Y, phi = problem
    noise = np.random.default_rng(1).random((N, N_LABELS)).astype(np.float32)
    scores = noise + np.float32(quality) * Y.toarray()
    order = np.argsort(-scores, axis=1, kind="stable")[:, :width].astype(np.int32)
    log_scores = np.take_along_axis(scores - scores.max() - 1, order, axis=1)
    defaults = {"config": LinearConfig(), "embedding_weight": 0.1, "cluster_of": np.arange(N_LABELS) % 3}
    settings = {**defaults, "seed": 0, "threads": 1, **options}
    return RankerTraining(X, Y, phi, lambda rows: (order[rows], log_scores[rows]), **settings)


def candidates(run, rows):
    return run.X.take(rows), run.embeddings[rows], *run.search(rows)


def split(n_validation=100):
    rows = np.arange(N)
    return rows[n_validation:], rows[:n_validation]


def test_scores_are_those_of_the_formula(problem):
    """p^γ · q with q from the margin of [TF-IDF, embedding] of the given norms, by a dense reference implementation."""
    run = training(problem, config=LinearConfig(loss="logistic", threshold=0.0), width=7)
    ranker = replace(run.train(np.arange(N)), power=0.35)
    rows = np.arange(20)
    X, phi, ids, log_scores = candidates(run, rows)
    ids = ids.copy()
    ids[:5, -1] = -1
    by_feature = reference.unpack_features(ranker.classifiers.block_starts, ranker.classifiers.blocks, N_LABELS)
    weights = sparse.csr_matrix(by_feature[:, ranker.classifiers.positions].T)
    dense, bias = ranker.classifiers.dense, ranker.classifiers.bias
    margins = reference.candidate_margins(weights, dense, bias, X.sparse, phi, 0.1, ids)
    options = {"power": 0.35, "tree_weight": CALIBRATED_WEIGHT, "counts": ranker.counts}

    def check(ranker, tree):
        log_score = ranker.transform.log_score
        expected = reference.blended_scores(margins, log_score, ids, log_scores, tree=tree, **options)
        found, scores = ranker.rank(X, phi, ids, log_scores, 7, 1)
        assert scores.dtype == np.float32
        order = np.argsort(-expected, axis=1, kind="stable")
        assert scores == pytest.approx(np.take_along_axis(expected, order, 1), abs=1e-4)
        again = ranker.rank(X, phi, ids, log_scores, 7, 2)
        assert np.array_equal(found, again[0])
        assert np.array_equal(scores, again[1])

    check(ranker, None)
    features = ranker.pair_features(X, phi, ids, log_scores, 1)
    assert features.shape == (*ids.shape, 4)
    assert features[..., 0] == pytest.approx(features[..., 1] ** 0.35 * features[..., 2], abs=1e-5)
    assert features[..., 1] == pytest.approx(np.exp(log_scores))
    assert np.array_equal(features[..., 3], ranker.counts[np.maximum(ids, 0)])
    calibrator = fit_tree_calibrator(features[ids >= 0], np.random.default_rng(0).random((ids >= 0).sum()) < 0.5)
    check(replace(ranker, calibrator=calibrator), calibrator.arrays)


def test_classifiers_rank_what_a_poor_search_finds(problem):
    run = training(problem)
    rows, validation_rows = split()
    ranker = run.train(rows)
    X, phi, ids, log_scores = candidates(run, validation_rows)
    ranking = ramify.Ranking(*ranker.rank(X, phi, ids, log_scores, 5, 1), N_LABELS)
    found = ramify.evaluate(ranking, run.Y[validation_rows], ks=[1])["P@1"]
    assert found > 85
    assert np.array_equal(ranker.counts, np.bincount(run.Y[rows].indices, minlength=N_LABELS))


def test_validation_chooses_the_power(problem):
    """A search at random counts for nothing beside good classifiers; one that knows more than they do counts fully."""
    good = training(problem).fit(*split())
    assert good.power == 0.0
    # Half of the label columns are hidden from the classifiers.
    X, Y, phi = problem
    hidden = Y.copy()
    hidden.data = (np.random.default_rng(3).random(Y.nnz) < 0.5).astype(np.float32)
    hidden = sparse.hstack([hidden, X.sparse[:, N_LABELS:]])
    half_blind = Mixed.of(sparse.csr_matrix(hidden, dtype=np.float32))
    ranker = training((half_blind, Y, phi), quality=0.6).fit(*split())
    assert ranker.power == max(POWERS)
    assert ranker.calibrator is not None
    # What was chosen is at least as good on the rows that chose it as any other power.
    run, rows = training(problem, quality=0.3), split()
    first = rows[1][::2]
    trained, chosen = run.train(rows[0]), run.fit(*rows)
    ndcg = {
        power: run._evaluate(replace(trained, power=power), run._candidates(first), run.Y[first]) for power in POWERS
    }
    assert ndcg[chosen.power] == max(ndcg.values())


def test_no_ranker_if_validation_is_better_without(problem):
    """Nothing improves on a search that ranks the true labels first."""
    assert training(problem, quality=3.0).fit(*split()) is None


def test_all_rows_are_trained_on_once_the_choice_is_made(problem):
    run = training(problem)
    rows, validation_rows = split()
    ranker = run.fit(rows, validation_rows)
    everything = run.train(np.arange(N))
    assert np.array_equal(ranker.classifiers.blocks, everything.classifiers.blocks)
    assert np.array_equal(ranker.counts, np.bincount(run.Y.indices, minlength=N_LABELS))


def test_few_validation_rows_choose_nothing(problem):
    run = training(problem)
    rows, validation_rows = split(module.MIN_VALIDATION - 1)
    ranker = run.fit(rows, validation_rows)
    assert ranker.power == 1.0
    assert ranker.calibrator is None
    assert np.array_equal(ranker.classifiers.blocks, run.train(rows).classifiers.blocks)


def test_blocks_of_rows_change_nothing(problem, monkeypatch):
    run = training(problem)
    whole = run.train(np.arange(N))
    monkeypatch.setattr(module, "ROWS_PER_SEARCH", 64)
    blocks = run.train(np.arange(N))
    assert np.array_equal(whole.classifiers.blocks, blocks.classifiers.blocks)


def test_negatives_are_the_best_labels_and_a_sample_of_the_others(monkeypatch):
    monkeypatch.setattr(module, "BEST_NEGATIVES", 3)
    monkeypatch.setattr(module, "SAMPLED_NEGATIVES", 4)
    ids = np.tile(np.arange(20, dtype=np.int32), (50, 1))
    found = module._sample_negatives(ids, np.random.default_rng(0))
    assert found.shape == (50, 7)
    assert np.array_equal(found[:, :3], ids[:, :3])
    assert found[:, 3:].min() >= 3
    assert all(len(set(row)) == 7 for row in found.tolist())
    assert len({tuple(sorted(row)) for row in found.tolist()}) > 10  # a sample of its own for each row
    assert np.array_equal(module._sample_negatives(ids[:, :6], np.random.default_rng(0)), ids[:, :6])


# ---- files ----


@pytest.fixture
def saved(problem, tmp_path):
    run = training(problem)
    ranker = replace(run.train(np.arange(N)), power=0.35)
    features = ranker.pair_features(*candidates(run, np.arange(N)), 1).reshape(-1, 4)
    ranker = replace(ranker, calibrator=fit_tree_calibrator(features, features[:, 0] > 0.5))
    with StoreWriter(tmp_path / "m") as writer:
        writer.manifest("elias", {}, ranker.save_to(writer, "ranker_"))
    return run, ranker, tmp_path / "m"


def load(path):
    store = Store(path)
    return SparseRanker.load_from(store, store.state, "ranker_", N_LABELS, N_LABELS + 20, DIM)


def test_saves_and_loads(saved):
    run, ranker, path = saved
    given = candidates(run, np.arange(50))
    for found, expected in zip(load(path).rank(*given, 5, 1), ranker.rank(*given, 5, 1), strict=True):
        assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("key", "value"), [("embedding_weight", "x"), ("power", None), ("transform", "l9"), ("calibrator", 5)]
)
def test_a_manifest_that_does_not_describe_the_ranker_is_refused(saved, key, value):
    path = saved[2]
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["state"][key] = value
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ramify.ModelFormatError):
        load(path)


def damage(path, name, change):
    file = path / f"ranker_{name}.npy"
    np.save(file, change(np.load(file)))


@pytest.mark.parametrize("value", [10**6, -1])
def test_positions_out_of_range_are_refused(saved, value):
    damage(saved[2], "positions", lambda array: np.where(np.arange(len(array)) == 1, value, array).astype(np.int32))
    with pytest.raises(ramify.ModelFormatError):
        load(saved[2])


def test_damaged_blocks_are_refused_by_the_search(saved):
    """They are not read when the model is opened."""
    damage(saved[2], "blocks", lambda array: np.full_like(array, 255))
    run, _, path = saved
    with pytest.raises(ramify.ModelFormatError, match="damaged"):
        load(path).rank(*candidates(run, np.arange(9)), 5, 1)


def test_the_ranker_sees_features_of_its_own(pydoc, tmp_path):
    """Stems and parts beside words, also where the encoder sees words alone; a model that was saved without them uses
    those of the encoder.
    """
    train = pydoc.split("train")
    X, y, new = train.texts[:400], train.labels()[:400], train.texts[400:420]
    training = ramify.TrainingConfig(epochs=2, min_steps=10, validation_size=0)
    options = {"encoder": ramify.BagEncoder(dim=16), "stage1": training, "stages": 1, "ranker": "sparse", "verbose": 0}
    options["features"] = ramify.features.word_features()
    own, shared = (ramify.Elias(**options, **more).fit(X, y) for more in ({}, {"ranker_features": None}))
    assert own.ranker_features_.n_features > own.features_.n_features
    assert shared.ranker_features_ is None
    for model in (own, shared):
        n_features = (model.ranker_features_ or model.features_).n_features
        assert len(model.members_[0].ranker.classifiers.block_starts) == n_features + 1
        model.save(tmp_path / "m")
        opened, ranking = ramify.load(tmp_path / "m"), model.predict_topk(new, 5)
        assert np.array_equal(opened.predict_topk(new, 5).scores, ranking.scores)
    manifest = json.loads(
        (tmp_path / "m" / "manifest.json").read_text()
    )  # of `shared`, as it was without the parameter
    del manifest["params"]["ranker_features"], manifest["state"]["model"]["ranker_features"]
    (tmp_path / "m" / "manifest.json").write_text(json.dumps(manifest))
    opened = ramify.load(tmp_path / "m")
    assert np.array_equal(opened.predict_topk(new, 5).scores, shared.predict_topk(new, 5).scores)
    plain = ramify.Elias(**{**options, "ranker": None}).fit(X, y)
    assert plain.ranker_features_ is None  # nothing to rank with
    del options["features"]
    default, none = (ramify.Elias(**options, **more).fit(X, y) for more in ({}, {"ranker_features": None}))
    assert default.ranker_features_ is None  # would be those of the encoder: they are extracted once
    assert np.array_equal(default.predict_topk(new, 5).scores, none.predict_topk(new, 5).scores)
