"""One ranker over several models: what it learns, labels without a sample, members, reports, damaged directories."""

from __future__ import annotations

import json

import numpy as np
import pytest
from neural import texts_and_labels

import ramify
from ramify.io.inputs import check_inputs
from ramify.models import xrlinear
from ramify.models.hybrid.pairs import ABSENT, OWN, feature_names, make_pairs, raise_some
from ramify.models.hybrid.stacking import OutOfFold, fold_rows, hide_labels
from ramify.rank.evidence import Evidence
from ramify.rank.frequency import LEAST


def names_of(labels):
    """Names of the labels of pydoc: their last part, as words."""
    return {label: label.split(":")[-1].replace("_", " ").replace(".", " ") for row in labels for label in row}


@pytest.fixture(scope="module")
def data(pydoc):
    train, test = ((part.inputs[::4], part.labels()[::4]) for part in (pydoc.split("train"), pydoc.split("test")))
    return train, test


@pytest.fixture(scope="module")
def fitted(data):
    (texts, labels), _ = data
    return ramify.Hybrid(n_trees=40, learning_rate=0.15, n_folds=3, verbose=0).fit(
        texts, labels, label_catalogue=names_of(labels)
    )


def test_is_better_than_its_members_on_real_data(data, fitted, tmp_path):
    _, (queries, truth) = data
    found = {
        model.kind: ramify.evaluate(model.predict_topk(queries, 10), truth) for model in (fitted, *fitted.members_)
    }
    assert list(found) == ["hybrid", "xr-linear", "knn", "label-matcher"]
    for metric in ("P@1", "nDCG@5", "R@10"):
        assert found["hybrid"][metric] > max(own[metric] for kind, own in found.items() if kind != "hybrid")
    fitted.save(tmp_path / "m")
    opened = ramify.load(tmp_path / "m")
    expected = fitted.predict_topk(queries[:200], 20)
    assert np.array_equal(opened.predict_topk(queries[:200], 20).ids, expected.ids)
    assert opened.report() == fitted.report()


def test_scores_are_calibrated_probabilities(data, fitted):
    _, (queries, truth) = data
    ranking = fitted.predict_topk(queries, 5)
    hits = np.array(
        [[label in set(row) for label, _ in best] for best, row in zip(ranking.labels(), truth, strict=True)]
    )
    assert abs(hits.mean() - ranking.scores.mean()) < 0.1  # members of a part of few rows know less than the final ones
    precision = [hits[(ranking.scores > low) & (ranking.scores <= low + 0.3)].mean() for low in (0.0, 0.3, 0.6)]
    assert precision == sorted(precision)
    assert precision[0] < 0.4 < 0.6 < precision[2]


def test_report_says_what_each_member_brought(fitted):
    ((title, (header, *rows)),) = fitted.report().items()
    assert title == "What each member brought"
    assert [row[0] for row in rows] == ["xr-linear", "knn", "label-matcher"]
    assert len(header) == 5
    assert all(0 <= float(cell) <= 100 for row in rows for cell in row[1:])
    assert float(rows[0][3]) > float(rows[0][4])


def test_explanations_name_the_evidence(data, fitted):
    (texts, labels), _ = data
    row = next(i for i, row in enumerate(labels) if any(label.endswith("axis") for label in row))
    label = next(label for label in labels[row] if label.endswith("axis"))
    explanation = fitted.explain(texts[row], label)
    assert explanation.parts["knn: nearest samples with the label"] >= 1
    assert explanation.parts["xr-linear: rank"] >= 1
    assert "label-matcher: occurrences of the name" in explanation.parts
    assert explanation.terms


def test_labels_without_a_training_sample(data):
    (texts, labels), (queries, truth) = data
    hidden = {label for row in labels for label in row if hash_of(label) % 4 == 0}
    seen = [[label for label in row if label not in hidden] for row in labels]
    names = names_of([*labels, *truth])
    model = ramify.Hybrid(n_trees=30, n_folds=2, labels="catalogue", verbose=0).fit(texts, seen, label_catalogue=names)
    assert [member.kind for member in model.members_] == ["xr-linear", "knn", "label-matcher", "zest-xml", "zest-xml"]
    assert hidden <= set(model.labels_)
    rows = [i for i, row in enumerate(truth) if hidden & set(row)]
    ranking = model.predict_topk([queries[i] for i in rows], 10).labels()
    found = [bool(hidden & set(truth[i]) & {label for label, _ in best}) for i, best in zip(rows, ranking, strict=True)]
    assert np.mean(found) > 0.08  # models that learn from samples alone find none of them
    members = [member.clone() for member in model.members_[1:]]
    sums = []
    other = ramify.Hybrid(members, n_trees=30, n_folds=1, labels="catalogue", verbose=0)
    other.fit(texts[::3], seen[::3], label_catalogue=names)
    unseen = other.label_counts_.counts == 0
    first = []
    for weight in (1.0, 5.0):
        ranking = other.set_params(unseen_weight=weight).predict_topk(queries[:100], 20)
        sums.append(ranking.scores[unseen[ranking.ids]].sum())
        first.append(ranking.ids[:, 0])
    assert sums[1] > 1.3 * sums[0]
    assert np.array_equal(*first)  # the best label stays


def test_members_search_the_allowed_labels_where_none_of_them_is_a_candidate():
    texts, labels = ["solar cells", "grey hens", "red foxes"] * 6, [["cell"], ["hen"], ["fox"]] * 6
    unseen = {"a": "passenger ship on an ocean", "b": "industrial whale fishing", "c": "government energy policy"}
    names = {"cell": "solar cell", "hen": "hen", "fox": "fox", **unseen}
    model = ramify.Hybrid(n_trees=5, n_candidates=1, labels="catalogue", verbose=0)
    model.fit(texts, labels, label_catalogue=names)
    ranking = model.predict_topk([f"solar cells and {word}" for word in ("ocean", "whale", "energy")], 1, allow=unseen)
    assert [row[0][0] for row in ranking.labels()] == ["a", "b", "c"]


def test_the_best_labels_do_not_depend_on_how_many_are_asked_for(data, fitted):
    texts = data[1][0]
    few = fitted.predict_topk(texts, 20)
    for k in (100, 300):
        many = fitted.predict_topk(texts, k)
        assert np.array_equal(many.ids[:, :20], few.ids)
        assert np.array_equal(many.scores[:, :20], few.scores)
    assert (many.ids >= 0).all()
    assert np.all(np.diff(many.scores, axis=1) < 0)


def test_scores_of_allowed_labels_do_not_depend_on_each_other(data, fitted):
    texts = data[1][0]
    random = np.random.default_rng(0)
    some = [fitted.labels_[int(i)] for i in random.choice(fitted.n_labels, 10, replace=False)]
    together = fitted.predict_topk(texts[:20], 10, allow=some)
    by_label = [dict(row) for row in together.labels()]
    for label in some:
        alone = fitted.predict_topk(texts[:20], 1, allow=[label]).scores[:, 0]
        assert alone == pytest.approx([row[label] for row in by_label], rel=1e-5)
    everything = fitted.predict_topk(texts[:20], 100).labels()
    plain = [{label: score for label, score in row if score >= LEAST} for row in everything]
    both = zip(by_label, plain, strict=True)
    own = [(row[label], other[label]) for row, other in both for label in row.keys() & other.keys()]
    assert 0 < len(own) < 200
    assert [a for a, _ in own] == pytest.approx([b for _, b in own], rel=1e-5)


def test_odds_are_raised_up_to_the_best_of_a_row():
    rows = np.array([0, 0, 0, 0, 2, 2])
    scores = np.array([0.5, 0.4, 0.45, 0.1, 0.2, 0.3], np.float32)
    chosen = np.array([False, True, True, True, False, True])
    raised = raise_some(scores, rows, chosen, 4.0)
    assert raised[[0, 4]].tolist() == scores[[0, 4]].tolist()
    assert raised[3] == pytest.approx(0.4 / 1.3)
    assert raised[0] > raised[2] > raised[1] > 0.499  # just below the best, in their order
    assert raised[5] == pytest.approx(1.2 / 1.9)  # the best one may rise
    assert raise_some(scores, rows, chosen, 0.5)[1] == pytest.approx(0.2 / 0.8)
    assert raise_some(scores, rows, chosen, 1.0) is scores


def test_rare_labels_are_hidden():
    Y = ramify.io.labels.encode_labels([["often"]] * 50 + [["a"], ["b"], ["c"], ["d"]])[0]
    hidden = hide_labels(Y, 1.0, seed=0)
    assert np.bincount(hidden.indices, minlength=5).tolist() == np.where(np.bincount(Y.indices) > 3, 50, 0).tolist()


def hash_of(label):
    return sum(label.encode())


def test_members():
    model = ramify.Hybrid([ramify.KNN(), ramify.KNN(power=5), ramify.Popular()], n_trees=3)
    texts, labels = ["red fox", "grey hen", "red hen"] * 8, [["fox"], ["hen"], ["hen", "red"]] * 8
    model.fit(texts, labels)
    assert [row[0] for row in model.report()["What each member brought"][1:]] == ["knn", "knn 2", "popular"]
    assert model.predict_topk(["a fox"], 1).labels()[0][0][0] == "fox"
    by_key = ramify.Hybrid.from_dict({"members": ["knn", {"kind": "knn", "params": {"power": 5.0}}]})
    assert [member.to_dict()["power"] for member in by_key.members] == [2.0, 5.0]
    with pytest.raises(ValueError, match="a model of a Hybrid is given by its key"):
        ramify.Hybrid.from_dict({"members": [3]})


def test_an_encoder_adds_neighbors_by_embeddings(tiny, tmp_path):
    pytest.importorskip("faiss")
    encoder = ramify.TransformerEncoder(tiny, frozen=True, cache_dir=str(tmp_path / "cache"))
    texts, labels = texts_and_labels(60)
    model = ramify.Hybrid(encoder=encoder, n_trees=3, verbose=0).fit(texts, labels)
    assert [row[0] for row in model.report()["What each member brought"][1:]] == ["xr-linear", "knn", "knn 2"]
    assert model.members_[2].encoder.model == tiny
    model.save(tmp_path / "m")
    ranking = model.predict_topk(texts[:5], 3)
    assert np.array_equal(ramify.load(tmp_path / "m").predict_topk(texts[:5], 3).ids, ranking.ids)
    parts = model.explain(texts[0], labels[0][0]).parts
    assert "knn 2: nearest samples with the label" in parts


def test_a_row_alone_needs_no_ranker():
    model = ramify.Hybrid().fit(["red fox"], [["fox"]])
    assert model.trees_ is None
    assert model.report() == {}
    assert 0.5 < model.predict_topk(["red fox"], 1).scores[0, 0] < 1


def test_pairs_of_two_models():
    one = Evidence.of_ranking(
        np.array([[2, 0], [1, -1]], np.int32), {"score": np.array([[0.8, 0.4], [0.5, 0]], np.float32)}
    )
    two = Evidence(
        np.array([1, 1]), np.array([3, 1], np.int32), {"score": np.array([0.9, 0.3], np.float32)},
        {"words": np.array([7, 9], np.float32)},
    )  # fmt: skip
    pairs = make_pairs([one, two], 2, 4, np.array([0, 1, 2, 3]))
    assert list(zip(pairs.rows.tolist(), pairs.ids.tolist(), strict=True)) == [(0, 0), (0, 2), (1, 1), (1, 3)]
    names = feature_names([("score",), ("score",)], [(), ("words",)], ["a", "b"])
    assert names[: len(OWN)] == list(OWN)
    columns = dict(zip(names, pairs.columns.tolist(), strict=True))
    assert columns["found"] == [1, 1, 2, 1]
    assert columns["a score"] == pytest.approx([0.4, 0.8, 0.5, ABSENT])
    assert columns["a rank"] == [1, 0, 0, ABSENT]
    assert columns["a relative"] == pytest.approx([0.5, 1, 1, ABSENT])
    assert columns["b best"] == pytest.approx([ABSENT, ABSENT, 0.9, 0.9])
    assert columns["b words of the sample"] == [7, 7, 9, 9]
    assert columns["agreement"] == pytest.approx([0.25, 0.5, (1 + 1 / 3) / 2, 0.5])


def test_members_give_the_evidence_that_their_classes_name(fitted, data):
    inputs = check_inputs(data[1][0][:3])
    for model in fitted.members_:
        found = model._evidence(inputs, 10)
        assert tuple(found.columns) == model.evidence_columns
        assert tuple(found.of_rows) == model.evidence_of_rows
        assert np.all(np.diff(found.rows) >= 0)


def test_folds():
    Y = ramify.io.labels.encode_labels([["a"], ["b"], []] * 30)[0]
    for n_folds, n_held in ((3, 60), (1, 20), (None, 60)):
        folds = fold_rows(Y, n_folds, 20 if n_folds == 1 else 60, seed=0)
        held = np.concatenate([part for _, part in folds])
        assert len(held) == len(set(held.tolist())) == n_held
        for rows, part in folds:
            assert not set(rows) & set(part)
            assert np.all(np.diff(Y.indptr)[part] > 0)
    assert len(fold_rows(Y, None, 9, seed=0)) == 1
    hidden = hide_labels(Y, 0.5, seed=1)
    assert hidden.shape == Y.shape
    assert OutOfFold(["a"]).summary() == []


def test_damaged_directories_are_refused(tmp_path):
    model = ramify.Hybrid(n_trees=3, n_folds=2, verbose=0).fit(
        ["red fox", "grey hen", "red hen"] * 9, [["a"], ["b"], ["b"]] * 9
    )

    def change(state, key):
        state["model"][key] = {"members": [], "features": ["x"], "summary": [1], "trees": {"n_trees": -1}}[key]

    for key in ("members", "features", "summary", "trees"):
        model.save(tmp_path / "m")
        manifest = json.loads((tmp_path / "m" / "manifest.json").read_text())
        change(manifest["state"], key)
        (tmp_path / "m" / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(ramify.ModelFormatError):
            ramify.load(tmp_path / "m")


def test_an_interrupted_training_resumes_from_the_checkpoints_of_the_members(data, tmp_path, monkeypatch):
    (texts, labels), (queries, _) = data
    model = ramify.Hybrid([ramify.XRLinear(), ramify.KNN()], n_trees=3, n_folds=1, max_rows=200, verbose=0)
    calls, train = [], xrlinear.fit_ovr

    def counted(*args, **options):
        calls.append(None)
        return train(*args, **options)

    monkeypatch.setattr(xrlinear, "fit_ovr", counted)
    expected = model.fit(texts[:400], labels[:400]).predict_topk(queries[:20], 5)
    last = len(calls)

    def interrupted(*args, **options):
        counted(*args, **options)
        if len(calls) == 2 * last:  # the last level of the second training, on all rows
            raise KeyboardInterrupt
        return train(*args, **options)

    monkeypatch.setattr(xrlinear, "fit_ovr", interrupted)
    resumable = model.clone().set_params(
        members=[ramify.XRLinear(checkpoint_dir=str(tmp_path / "checkpoints")), ramify.KNN()]
    )
    with pytest.raises(KeyboardInterrupt):
        resumable.fit(texts[:400], labels[:400])
    assert list((tmp_path / "checkpoints" / "all-xr-linear").iterdir())
    monkeypatch.setattr(xrlinear, "fit_ovr", train)
    found = resumable.fit(texts[:400], labels[:400])
    assert found.members_[0].checkpoint_dir == str(tmp_path / "checkpoints")
    assert np.array_equal(found.predict_topk(queries[:20], 5).scores, expected.scores)
