"""What every model refuses, and how: bad input, models that are not fitted, foreign and damaged files."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse
from test_contract import LABELS, MODELS, TEXTS, indicator, same, tfidf

import ramify
from ramify.io.store import FORMAT_VERSION


@pytest.fixture(params=list(MODELS))
def make(request):
    return MODELS[request.param][0]


def test_unknown_arguments_of_fit(make):
    model = make()
    with pytest.raises(TypeError, match="unexpected keyword argument 'weights'"):
        model.fit(TEXTS, LABELS, weights=np.ones(len(TEXTS)))
    with pytest.raises(TypeError):
        model.fit(TEXTS, LABELS, indicator())
    with pytest.raises(ramify.NotFittedError):
        model.predict_topk(TEXTS)


def test_models_that_are_not_fitted(make, tmp_path):
    model = make()
    for call in (
        lambda: model.predict_topk(["a"]),
        lambda: model.predict(["a"]),
        lambda: model.predict_proba(["a"]),
        lambda: model.calibrate(["a"], [["x"]]),
        lambda: model.save(tmp_path / "m"),
        lambda: model.n_labels,
        lambda: model.report(),
    ):
        with pytest.raises(ramify.NotFittedError, match=f"this {type(model).__name__} is not fitted; call fit first"):
            call()
    with pytest.raises(ramify.DataError):
        model.fit(["a"], [["x"], ["y"]])
    with pytest.raises(ramify.NotFittedError):  # a fit that failed leaves no partly trained model
        model.predict_topk(["a"])


@pytest.mark.parametrize(("X", "y", "message"), [
    ([], [], "no rows"),
    (["a"], [[]], "no row has a label"),
    (["a", "b"], [["x"]], "X has 2 rows, but y has 1"),
    ("a", [["x"]], "pass a list"),
    (["a"], "x", "list of label lists"),
    (["a"], ["x"], r"\['x'\]"),
    (["a", 5], [["x"], ["y"]], "row 1"),
    (np.array([[1.0, np.nan]]), [["x"]], "NaN"),
    (np.array([1.0, 2.0]), [["x"], ["y"]], "two-dimensional"),
    (["a"], [[None]], "None"),
    (["a"], np.array([[-1.0]]), "negative"),
])  # fmt: skip
def test_bad_training_data(make, X, y, message):
    with pytest.raises(ramify.DataError, match=message):
        make().fit(X, y)


@pytest.mark.parametrize(("X", "message"), [
    (np.eye(3), "trained on texts, but X holds dense features"),
    ([{"a": "b"}], "trained on texts, but X holds dicts of text fields"),
    ("text", "pass a list"),
    ([None], "row 0"),
])  # fmt: skip
def test_bad_queries(make, X, message):
    model = make().fit(TEXTS, LABELS)
    with pytest.raises(ramify.DataError, match=message):
        model.predict_topk(X)


def test_wrong_number_of_features(make):
    model = make().fit(tfidf(), LABELS)
    with pytest.raises(ramify.DataError, match=r"X has 3 features, but .* is expecting 11 features as input"):
        model.predict_topk(np.ones((1, 3)))
    dense = tfidf().toarray()
    assert same(model.predict_topk(dense, 2), model.predict_topk(tfidf(), 2))


def test_edge_cases(make, tmp_path):
    model = make().fit(TEXTS, LABELS)
    assert model.predict_topk(TEXTS, k=1000).k == 5  # no more than there are labels
    assert model.predict_topk([], k=2).ids.shape == (0, 2)
    assert len(model.predict_topk(["", "\x00 \ud800", "never seen"], k=2)) == 3
    for wrong in (0, -1, 1.5, True, "3"):
        with pytest.raises(ValueError, match="k must be"):
            model.predict_topk(TEXTS, k=wrong)
    single = make().fit(["one row"], [["only"]])
    assert single.predict_topk(["one row"]).labels()[0][0][0] == "only"
    single.save(tmp_path / "m")
    assert ramify.load(tmp_path / "m").predict_topk(["one row"]).ids.tolist() == [[0]]
    some_empty = make().fit([*TEXTS, "nothing", ""], [*LABELS, [], ["fox"]])
    assert some_empty.label_counts_.n_samples == len(TEXTS) + 2


def test_labels_without_a_sample(make):
    matrix = sparse.csr_matrix(np.array([[1, 0, 0], [0, 0, 1], [1, 0, 1]]))
    model = make().fit(["red fox", "grey hen", "red hen"], matrix)
    assert model.n_labels == 3
    assert model.predict_topk(["red fox"], k=3).n_labels == 3


def test_a_saved_model_opens_in_a_new_process(make, tmp_path):
    model = make().fit(TEXTS, LABELS)
    model.save(tmp_path / "m")
    code = f"import ramify; print(ramify.load({str(tmp_path / 'm')!r}).predict_topk({TEXTS[:6]!r}, k=3).ids.tolist())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert out.stdout.strip() == str(model.predict_topk(TEXTS[:6], k=3).ids.tolist())


def test_model_directories_contain_no_code(make, tmp_path):
    make().fit(TEXTS, LABELS).save(tmp_path / "m")
    for file in (tmp_path / "m").iterdir():
        assert file.suffix in (".npy", ".json")
        content = file.read_bytes()
        assert not content.startswith(pickle.dumps(0)[:2])
        assert b"cbuiltins" not in content


def test_a_second_fit_that_fails_leaves_no_fitted_model(make, monkeypatch):
    model = make().fit(TEXTS, LABELS)

    def fail(*args):
        raise MemoryError

    monkeypatch.setattr(model, "_fit", fail)
    with pytest.raises(MemoryError):
        model.fit(TEXTS[:4], LABELS[:4])
    with pytest.raises(ramify.NotFittedError):
        model.predict_topk(TEXTS)


def test_dense_labels_that_are_no_indicator(make):
    with pytest.raises(ramify.DataError, match="values other than 0 and 1"):
        make().fit(["a", "b", "c"], np.array([[3], [5], [7]]))


def change_manifest(path, **values):
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, **values}))


def test_format_version_1_is_refused(make, tmp_path):
    """The message says what to do."""
    model = make().fit(TEXTS, LABELS)
    model.save(tmp_path / "m")
    change_manifest(tmp_path / "m", format_version=1)
    reason = "format version 1: it was written by an earlier development version of Ramify; train it again"
    for opener in (ramify.load, type(model).load):
        with pytest.raises(ramify.ModelFormatError, match=reason):
            opener(tmp_path / "m")
    model.save(tmp_path / "m")  # and it may be overwritten
    assert same(ramify.load(tmp_path / "m").predict_topk(TEXTS, k=3), model.predict_topk(TEXTS, k=3))


def test_foreign_manifests_are_refused(make, tmp_path):
    model = make().fit(TEXTS, LABELS)
    model.save(tmp_path / "m")
    params = model.to_dict()
    for values, message in (
        ({"format_version": FORMAT_VERSION + 1}, "upgrade Ramify"),
        ({"kind": "oracle"}, "unknown kind 'oracle'"),
        ({"params": {**params, "max_len": 3}}, "invalid parameters for this version: .* has no parameter 'max_len'"),
        ({"params": {**params, "seed": "x"}}, "invalid parameters for this version: .*seed must be int"),
    ):
        model.save(tmp_path / "m")
        change_manifest(tmp_path / "m", **values)
        with pytest.raises(ramify.ModelFormatError, match=message):
            ramify.load(tmp_path / "m")
    model.save(tmp_path / "m")
    other = ramify.OneVsAll if isinstance(model, ramify.Popular) else ramify.Popular
    with pytest.raises(ramify.ModelFormatError, match=f"holds a '{model.kind}' model, not a '{other.kind}' one"):
        other.load(tmp_path / "m")
