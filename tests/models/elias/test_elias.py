"""ELIAS: both stages, search, pruning, reports, ensembles, saved models."""

from __future__ import annotations

import json

import numpy as np
import pytest
from neural import topics
from threadpoolctl import threadpool_info, threadpool_limits

import ramify
from ramify import ModelFormatError
from ramify.nn.config import TrainingConfig
from ramify.nn.encoders import word_embeddings


def small(**options):
    training = {"epochs": 12, "batch_size": 32, "learning_rate": 0.02, "encoder_learning_rate": 0.02}
    return ramify.Elias(
        encoder=ramify.BagEncoder(dim=64),
        n_clusters=8,
        beam_size=3,
        stage1=TrainingConfig(**training),
        stage2=TrainingConfig(**{**training, "learning_rate": 0.01, "encoder_learning_rate": 0.005}),
        **options,
    )


@pytest.fixture(scope="module")
def data():
    return topics()


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """Path of a trained model."""
    path = tmp_path_factory.mktemp("elias") / "m"
    small().fit(*data).save(path)
    return path


@pytest.fixture
def model(trained):
    return ramify.load(trained)


@pytest.fixture(scope="module")
def with_ranker(data):
    return small(ranker="sparse").fit(*data)


def assert_same(a, b):
    assert np.array_equal(a.ids, b.ids)
    assert np.array_equal(a.scores, b.scores)


def test_learns_and_its_search_finds_the_labels(model, data):
    texts, labels = topics(seed=7)
    found = ramify.evaluate(model.predict_topk(texts, 5), labels, unseen="drop")
    assert found["P@1"] > 75
    assert model.shortlist_recall(*data) > 95
    assert model.members_[0].graph.n_clusters == 8
    assert set(model.members_[0].graph.labels) == set(range(model.n_labels))  # every label has an edge


def test_stage_2_finds_more(data):
    stage1 = small(stages=1, shortlist_size=40).fit(*data)
    stage2 = small(stages=2, shortlist_size=40).fit(*data)
    assert stage2.shortlist_recall(*data) > stage1.shortlist_recall(*data)
    assert np.all(stage1.members_[0].graph.scores == 0)
    assert len(stage2.members_[0].history) > len(stage1.members_[0].history)


# ---- search parameters after fit ----


def test_beam_size_after_fit_changes_the_search(model, data):
    texts = data[0][:100]
    before = model.predict_topk(texts, model.n_labels)
    n_found = {}
    for beam_size in (1, 8):
        found = model.set_params(beam_size=beam_size).predict_topk(texts, model.n_labels)
        n_found[beam_size] = (found.ids >= 0).sum(axis=1)
    assert np.all(n_found[1] <= (before.ids >= 0).sum(axis=1))
    assert n_found[1].sum() < (before.ids >= 0).sum() < n_found[8].sum()
    # One cluster is explored: the labels found are those of its edges.
    graph = model.members_[0].graph
    assert n_found[1].max() <= np.diff(graph.indptr).max()
    assert n_found[8].min() == model.n_labels  # every cluster is explored
    recall = [model.set_params(beam_size=beam_size).shortlist_recall(*data) for beam_size in (1, 8)]
    assert recall[0] < recall[1] == 100
    assert_same(
        model.set_params(beam_size=1000).predict_topk(texts, 5), model.set_params(beam_size=8).predict_topk(texts, 5)
    )
    assert_same(model.set_params(beam_size=3).predict_topk(texts, model.n_labels), before)


def test_shortlist_size_after_fit_changes_the_search(model, data):
    texts = data[0][:100]
    before, recall = model.predict_topk(texts, 5), model.shortlist_recall(*data)
    short = model.set_params(shortlist_size=5)
    assert short.shortlist_recall(*data) < recall
    # With a shortlist of k labels, those with the best paths are returned, whatever their classifiers say.
    assert not np.array_equal(short.predict_topk(texts, 5).ids, before.ids)
    assert short.predict_topk(texts, 40).ids.shape == (100, 40)  # a shortlist is at least as long as the ranking
    assert_same(model.set_params(shortlist_size=2000).predict_topk(texts, 5), before)


def test_search_parameters_are_saved(model, data, tmp_path):
    model.set_params(beam_size=1, shortlist_size=20)
    model.save(tmp_path / "m")
    opened = ramify.load(tmp_path / "m")
    assert (opened.beam_size, opened.shortlist_size) == (1, 20)
    assert_same(opened.predict_topk(data[0][:50], 10), model.predict_topk(data[0][:50], 10))


def test_beam_size_after_fit_changes_the_search_of_the_ranker(with_ranker, data):
    texts = data[0][:50]
    before = with_ranker.predict_topk(texts, with_ranker.n_labels)
    narrow = with_ranker.set_params(beam_size=1).predict_topk(texts, with_ranker.n_labels)
    assert (narrow.ids >= 0).sum() < (before.ids >= 0).sum()
    assert_same(with_ranker.set_params(beam_size=3).predict_topk(texts, with_ranker.n_labels), before)


# ---- the learned index ----


def test_pruning(model, data, tmp_path):
    before = ramify.evaluate(model.predict_topk(data[0], 5), data[1])["P@1"]
    n_edges = len(model.members_[0].graph.labels)
    assert model.prune(top=40) is model
    assert len(model.members_[0].graph.labels) < n_edges
    assert ramify.evaluate(model.predict_topk(data[0], 5), data[1])["P@1"] > before - 2
    model.save(tmp_path / "m")
    assert len(ramify.load(tmp_path / "m").members_[0].graph.labels) == len(model.members_[0].graph.labels)


@pytest.mark.parametrize("fraction", [0.5, 0.3])
def test_pruning_to_a_fraction_of_the_edges(model, data, fraction):
    before = ramify.evaluate(model.predict_topk(data[0], 5), data[1])["P@1"]
    graph = model.members_[0].graph
    expected = graph.pruned(fraction=fraction)
    model.prune(fraction=fraction)
    pruned = model.members_[0].graph
    assert np.array_equal(pruned.labels, expected.labels)
    assert np.array_equal(pruned.scores, expected.scores)
    assert len(pruned.labels) == max(model.n_labels, int(np.ceil(fraction * len(graph.labels))))
    assert set(pruned.labels) == set(range(model.n_labels))  # every label keeps its strongest edge
    assert ramify.evaluate(model.predict_topk(data[0], 5), data[1])["P@1"] > before - 2


def test_pruning_refuses_wrong_arguments(model):
    before = model.members_[0].graph
    for wrong in ({}, {"fraction": 0.5, "top": 3}, {"fraction": 1.5}, {"fraction": -0.1}):
        with pytest.raises(ValueError, match=r"exactly one|between 0 and 1"):
            model.prune(**wrong)
    assert model.members_[0].graph is before
    with pytest.raises(ramify.NotFittedError):
        ramify.Elias().prune(fraction=0.5)


def test_report(model, data, tmp_path):
    tables = model.report()
    assert any("edges" in title for title in tables)
    assert tables["training"][0] == ["epoch", "loss", "validation nDCG@5"]
    assert len(tables["training"]) == len(model.members_[0].history) + 1
    report = model.index_report(*data)
    assert report.search.recall[100] == pytest.approx(sum(report.search.recall_by_decile))
    assert report.search.shortlist_recall >= report.search.recall[100] - 1e-9
    kept = [row.kept_fraction for row in report.search.pruning]
    assert kept[0] == 1
    assert min(kept) < 0.5
    assert {"recall", "pruning"} <= set(model.report(*data))
    matplotlib = pytest.importorskip("matplotlib")
    from ramify.plots import plot_index

    assert len(plot_index(model.index_report(), tmp_path / "a")) == 3
    paths = plot_index(report, tmp_path / "b")
    assert len(paths) == 6
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert matplotlib.image.imread(path).std() > 0.05  # something is drawn


def test_the_report_leaves_the_model_untouched(model, data, monkeypatch):
    texts, labels = data[0][:200], data[1][:200]
    before, members, params = model.predict_topk(texts, 10), model.members_, model.to_dict()
    graphs = [member.graph for member in members]
    values = [[array.copy() for array in graph.arrays] for graph in graphs]

    def assert_untouched():
        assert model.members_ is members
        assert all(member.graph is graph for member, graph in zip(model.members_, graphs, strict=True))
        for graph, arrays in zip(graphs, values, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(graph.arrays, arrays, strict=True))
        assert model.to_dict() == params
        assert_same(model.predict_topk(texts, 10), before)

    report = model.index_report(texts, labels)
    assert_untouched()
    assert report.search.pruning[0].metrics["P@1"] == ramify.evaluate(before, labels, unseen="drop")["P@1"]

    from ramify.models.elias import report as module

    calls = []

    def fails_on_a_pruned_graph(*args, **kwargs):
        calls.append(args)
        if len(calls) == 3:
            raise MemoryError
        return ramify.evaluate(*args, **kwargs)

    monkeypatch.setattr(module, "evaluate", fails_on_a_pruned_graph)
    with pytest.raises(MemoryError):
        model.index_report(texts, labels)
    assert_untouched()


def test_the_report_evaluates_the_pruned_graphs(model, data):
    texts, labels = data[0][:200], data[1][:200]
    rows = {row.description: row for row in model.index_report(texts, labels).search.pruning}
    n_edges = len(model.members_[0].graph.labels)
    model.prune(fraction=0.3)
    assert rows["best 30%"].kept_fraction == len(model.members_[0].graph.labels) / n_edges
    found = ramify.evaluate(model.predict_topk(texts, 100), labels, ks=[1, 5, 10, 100])
    assert rows["best 30%"].metrics == pytest.approx({name: found[name] for name in ("P@1", "P@5", "R@10", "R@100")})


# ---- members and ranker ----


def test_ensemble(data):
    both = small(n_models=2).fit(*data)
    assert len(both.members_) == 2
    assert ramify.evaluate(both.predict_topk(data[0], 3), data[1])["P@1"] > 75


def test_the_ranker_ranks_what_was_found(with_ranker, model):
    assert with_ranker.members_[0].ranker is not None
    texts, labels = topics(seed=9)
    a, b = (ramify.evaluate(m.predict_topk(texts, 5), labels, unseen="drop") for m in (with_ranker, model))
    assert a["nDCG@5"] >= b["nDCG@5"] - 1
    wide = with_ranker.predict_topk(texts[:20], with_ranker.n_labels)
    assert np.all(wide.scores[:, :-1] >= wide.scores[:, 1:])


# ---- errors, files, checkpoints ----


def test_blas_has_one_thread_beside_native_code(data, monkeypatch):
    """Idle BLAS threads spin, and the bits of a product depend on their number, by default that of the cores."""
    found = []

    def record(function):
        def recorded(*args, **options):
            found.append({pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"})
            return function(*args, **options)

        return recorded

    monkeypatch.setattr(word_embeddings, "_orthonormalize", record(word_embeddings._orthonormalize))
    monkeypatch.setattr(ramify.Elias, "_build_edges", record(ramify.Elias._build_edges))
    with threadpool_limits(2, user_api="blas"):
        small().fit(*data)
        assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {2}
    assert len(found) > 2
    assert all(threads == {1} for threads in found)


def test_refuses_wrong_arguments(data):
    with pytest.raises(ValueError, match="stages"):
        ramify.Elias(stages=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'tree'"):
        small().fit(*data, tree=None)
    with pytest.raises(ramify.DataError, match="rows"):
        small(stages=1).fit(*data).shortlist_recall(data[0][:3], data[1][:2])


@pytest.mark.parametrize("damage", ["members", "history", "log_alpha", "indptr", "labels", "scores"])
def test_damaged_models_are_refused(model, tmp_path, damage):
    model.save(tmp_path / "m")
    manifest = json.loads((tmp_path / "m" / "manifest.json").read_text())
    state = manifest["state"]["model"]
    if damage == "members":
        state["members"] = []
    elif damage in ("history", "log_alpha"):
        state["members"][0][damage] = None
    else:
        file = tmp_path / "m" / f"model0_edge_{damage}.npy"
        array = np.load(file)
        array[1] = 10**6
        np.save(file, array)
    (tmp_path / "m" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelFormatError):
        ramify.load(tmp_path / "m")


def test_checkpoints_are_removed_and_other_files_stay(data, tmp_path, model):
    (tmp_path / "mine.txt").write_text("keep")
    (tmp_path / "my-stage").mkdir()
    (tmp_path / "my-stage" / "also.txt").write_text("keep")
    with_checkpoints = small(checkpoint_dir=str(tmp_path)).fit(*data)
    assert {path.name for path in tmp_path.iterdir()} == {"mine.txt", "my-stage"}
    assert (tmp_path / "my-stage" / "also.txt").read_text() == "keep"
    assert_same(with_checkpoints.predict_topk(data[0][:9], 3), model.predict_topk(data[0][:9], 3))
