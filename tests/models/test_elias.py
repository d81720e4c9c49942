from __future__ import annotations

import json

import numpy as np
import pytest
from neural import topics

import ramify
from ramify import ModelFormatError
from ramify.models.elias import Elias
from ramify.nn.trainer import TrainingConfig


def small(**options):
    training = {"epochs": 12, "batch_size": 32, "rate": 0.02, "encoder_rate": 0.02}
    return Elias(
        encoder=ramify.BagEncoder(width=64),
        n_clusters=8,
        beam_size=3,
        first=TrainingConfig(**training),
        second=TrainingConfig(**{**training, "rate": 0.01, "encoder_rate": 0.005}),
        **options,
    )


@pytest.fixture(scope="module")
def data():
    return topics()


@pytest.fixture(scope="module")
def model(data):
    return small().fit(*data)


def test_learns_and_its_search_finds_the_labels(model, data):
    texts, labels = topics(seed=7)
    found = ramify.evaluate(model.predict_topk(texts, 5), labels, unseen="drop")
    assert found["P@1"] > 75
    assert model.shortlist_recall(*data) > 95
    assert model.members_[0].graph.n_clusters == 8
    assert set(model.members_[0].graph.labels) == set(range(model.n_labels))  # every label keeps an edge


def test_the_second_stage_finds_more(data):
    first = small(stages=1, shortlist=40).fit(*data)
    second = small(stages=2, shortlist=40).fit(*data)
    assert second.shortlist_recall(*data) > first.shortlist_recall(*data)
    assert np.all(first.members_[0].graph.scores == 0)
    assert len(second.members_[0].history) > len(first.members_[0].history)


def test_pruning(data, tmp_path):
    model = small().fit(*data)
    before = ramify.evaluate(model.predict_topk(data[0], 5), data[1])["P@1"]
    n_edges = len(model.members_[0].graph.labels)
    model.prune(top=40)
    assert len(model.members_[0].graph.labels) < n_edges
    assert ramify.evaluate(model.predict_topk(data[0], 5), data[1])["P@1"] > before - 2
    model.save(tmp_path / "m")
    assert len(ramify.load(tmp_path / "m").members_[0].graph.labels) == len(model.members_[0].graph.labels)


def test_report(model, data, tmp_path):
    tables = model.report()
    assert any("edges" in title for title in tables)
    assert len(tables["training"]) == len(model.members_[0].history) + 1
    n_edges = len(model.members_[0].graph.labels)
    report = model.index_report(*data)
    assert len(model.members_[0].graph.labels) == n_edges  # looking changes nothing
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


def test_ensemble(data):
    both = small(n_models=2).fit(*data)
    assert len(both.members_) == 2
    assert ramify.evaluate(both.predict_topk(data[0], 3), data[1])["P@1"] > 75


def test_the_ranker_ranks_what_was_found(data):
    texts, labels = topics(seed=9)
    model = small(ranker="sparse").fit(*data)
    plain = small().fit(*data)
    a, b = (ramify.evaluate(m.predict_topk(texts, 5), labels, unseen="drop") for m in (model, plain))
    assert a["nDCG@5"] >= b["nDCG@5"] - 1
    wide = model.predict_topk(texts[:20], model.n_labels)
    assert np.all(wide.scores[:, :-1] >= wide.scores[:, 1:])


def test_refuses_what_does_not_fit(data):
    with pytest.raises(ValueError, match="stages"):
        Elias(stages=3)
    with pytest.raises(TypeError, match="does not take"):
        small().fit(*data, tree=None)
    with pytest.raises(ramify.DataError, match="rows"):
        small(stages=1).fit(*data).shortlist_recall(data[0][:3], data[1][:2])


@pytest.mark.parametrize("damage", ["members", "history", "begin", "labels"])
def test_damaged_models_are_refused(model, tmp_path, damage):
    model.save(tmp_path / "m")
    manifest = json.loads((tmp_path / "m" / "manifest.json").read_text())
    state = manifest["state"]["model"]
    if damage == "members":
        state["members"] = []
    elif damage == "history":
        state["members"][0]["history"] = None
    else:
        file = tmp_path / "m" / f"model0_edge_{damage}.npy"
        array = np.load(file)
        array[1] = 10**6
        np.save(file, array)
    (tmp_path / "m" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelFormatError):
        ramify.load(tmp_path / "m")


def test_checkpoints_go_and_everything_else_stays(data, tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    (tmp_path / "my-stage").mkdir()
    (tmp_path / "my-stage" / "also.txt").write_text("keep")
    kept = small(checkpoints=str(tmp_path)).fit(*data)
    assert {path.name for path in tmp_path.iterdir()} == {"mine.txt", "my-stage"}
    assert (tmp_path / "my-stage" / "also.txt").read_text() == "keep"
    assert np.array_equal(kept.predict_topk(data[0][:9], 3).ids, small().fit(*data).predict_topk(data[0][:9], 3).ids)
