"""Models and features inside scikit-learn: checks of estimators, pipelines, searches, frames."""

from __future__ import annotations

import pickle
import warnings

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.base import clone, is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    KFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted
from test_contract import LABELS, MODELS, TEXTS

import ramify

SINGLE = "y is one label per row, as an array; a multi-label model takes lists of labels or an indicator"
SPARSE = "n × L would not fit into memory where labels are many: predict and decision_function return CSR matrices"
EXPECTED = {
    "check_classifier_data_not_an_array": SINGLE,
    "check_classifier_not_supporting_multiclass": SINGLE,
    "check_classifiers_classes": SINGLE,
    "check_classifiers_one_label": SINGLE,
    "check_classifiers_regression_target": SINGLE,
    "check_classifiers_train": SINGLE,
    "check_estimators_dtypes": SINGLE,
    "check_fit2d_1feature": SINGLE,
    "check_classifiers_one_label_sample_weights": SINGLE,
    "check_sample_weights_not_an_array": SINGLE,
    "check_sample_weights_not_overwritten": SINGLE,
    "check_sample_weights_pandas_series": SINGLE,
    "check_sample_weights_shape": SINGLE,
    "check_classifier_multioutput": SPARSE,
    "check_classifiers_multilabel_output_format_decision_function": SPARSE,
    "check_classifiers_multilabel_output_format_predict": SPARSE,
    "check_classifiers_multilabel_output_format_predict_proba": SPARSE,
    "check_classifiers_multilabel_representation_invariance": SPARSE,
    "check_do_not_raise_errors_in_init_or_set_params": "wrong parameters are reported where they are set, not in fit",
    "check_parameters_default_constructible": "components, such as Tfidf(), are the defaults of parameters",
    "check_sample_weight_equivalence_on_dense_data": "the solver stops at a tolerance, and trees are made of samples",
    "check_sample_weight_equivalence_on_sparse_data": "the solver stops at a tolerance, and trees are made of samples",
    "check_set_params": "the models of an Ensemble are models, not arbitrary values",
}
"""Checks of scikit-learn that do not apply, with the reason."""


@pytest.mark.parametrize("key", [key for key in MODELS if key != "elias++"])
def test_checks_of_scikit_learn(key):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns about checks that are skipped
        results = check_estimator(MODELS[key][0](threads=1), on_fail=None, on_skip=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    unexpected = {name: error for name, error in failed.items() if name not in EXPECTED}
    assert not unexpected
    assert sum(r["status"] == "passed" for r in results) >= 40


def test_checks_of_the_feature_extractor():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert check_estimator(ramify.Tfidf(threads=1), on_skip=None)
    sklearn.utils.get_tags(ramify.Concat())


def binarized():
    return MultiLabelBinarizer(sparse_output=True).fit_transform(LABELS)


def pipeline():
    return Pipeline([("tfidf", ramify.Tfidf()), ("model", ramify.XRLinear(threads=1, threshold=0.4))])


def test_pipeline(tmp_path):
    pipe = pipeline()
    assert is_classifier(pipe)
    with pytest.raises(NotFittedError):
        pipe.predict(TEXTS)
    with pytest.raises(NotFittedError):
        check_is_fitted(pipe[-1])
    pipe.fit(TEXTS, LABELS)
    check_is_fitted(pipe[-1])
    assert pipe.score(TEXTS, LABELS) > 0.9
    assert pipe.classes_.tolist() == ["egg", "fox", "hen", "red", "whale"]
    assert pipe[-1].n_features_in_ == pipe[0].n_features
    assert pipe.predict(TEXTS).shape == pipe.decision_function(TEXTS).shape == (len(TEXTS), 5)
    assert "XRLinear" in repr(pipe)
    assert "XRLinear" in pipe._repr_html_()
    joblib.dump(pipe, tmp_path / "pipe.joblib")
    loaded = joblib.load(tmp_path / "pipe.joblib")
    assert (loaded.decision_function(TEXTS) != pipe.decision_function(TEXTS)).nnz == 0
    copy = clone(pipe).set_params(model__tree__max_leaf_size=7, tfidf__min_df=2)
    assert copy.get_params()["model__tree__max_leaf_size"] == 7
    assert pipe.get_params()["model__tree__max_leaf_size"] != 7


def test_grid_search_in_two_processes():
    grid = {"tfidf__sublinear_tf": [False, True], "model__tree__max_leaf_size": [2, 50]}
    search = GridSearchCV(pipeline(), grid, cv=3, n_jobs=2).fit(TEXTS, binarized())
    assert set(search.best_params_) == set(grid)
    assert search.best_score_ > 0.9
    assert search.predict(TEXTS).shape == (len(TEXTS), 5)


def test_searches_with_lists_of_labels():
    """scikit-learn refuses lists of labels only where it has to choose the folds itself."""
    with pytest.raises(ValueError, match="MultiLabelBinarizer"):
        cross_val_score(pipeline(), TEXTS, LABELS, cv=3)
    folds = KFold(3)
    search = GridSearchCV(pipeline(), {"model__beam_size": [1, 5]}, cv=folds).fit(TEXTS, LABELS)
    assert search.best_estimator_.classes_.tolist() == ["egg", "fox", "hen", "red", "whale"]
    found = cross_validate(pipeline(), TEXTS, LABELS, cv=folds)["test_score"]
    assert found.shape == (3,)
    assert found.min() > 0.9
    assert cross_val_score(pipeline(), TEXTS, binarized().toarray(), cv=3) == pytest.approx(found)


def test_halving_search():
    search = HalvingGridSearchCV(pipeline(), {"model__beam_size": [1, 5]}, cv=2, min_resources=18)
    assert search.fit(TEXTS, binarized()).best_params_["model__beam_size"] in (1, 5)
    search.set_params(cv=KFold(2))
    assert search.fit(TEXTS, LABELS).best_estimator_.classes_.tolist() == ["egg", "fox", "hen", "red", "whale"]


def test_cross_val_predict():
    Y = binarized()
    predicted = cross_val_predict(pipeline(), TEXTS, Y, cv=3)
    assert predicted.shape == Y.shape
    assert (predicted != Y).nnz < 0.1 * Y.nnz
    scores = cross_val_predict(pipeline(), TEXTS, Y.toarray(), cv=3, method="decision_function")
    assert scores.shape == Y.shape
    assert ramify.evaluate(scores, Y)["P@1"] > 90


def test_metadata_routing():
    heavy = np.where(["egg" in row for row in LABELS], 100.0, 0.01)
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = pipeline().fit(TEXTS, LABELS)
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="sample_weight"):
            pipe.fit(TEXTS, LABELS, sample_weight=heavy)
        weighted = pipeline().set_params(model=ramify.XRLinear(threads=1).set_fit_request(sample_weight=True))
        weighted = clone(weighted).fit(TEXTS, LABELS, sample_weight=heavy)
        assert weighted[-1].get_metadata_routing().fit.requests["sample_weight"] is True
        search = GridSearchCV(weighted[-1].set_score_request(sample_weight=False), {"beam_size": [1, 5]}, cv=KFold(2))
        search.fit(TEXTS, LABELS, sample_weight=heavy)
    for fitted in (weighted[-1], ramify.XRLinear().set_fit_request(sample_weight=True)):
        copied = pickle.loads(pickle.dumps(fitted))
        assert copied.get_metadata_routing().fit.requests["sample_weight"] is True
    unknown = [["whatever"]]
    assert weighted.decision_function(unknown[0]).argmax() == 0
    assert search.best_estimator_.decision_function(unknown[0]).argmax() == 0
    with pytest.raises(TypeError, match="takes no 'nonsense'"):
        ramify.XRLinear().set_fit_request(nonsense=True)


def test_frame_with_two_text_columns():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"title": [t.split()[0] for t in TEXTS], "body": TEXTS, "year": range(len(TEXTS))})
    columns = ColumnTransformer([("title", ramify.Tfidf(), "title"), ("body", ramify.Tfidf(min_df=2), "body")])
    pipe = make_pipeline(columns, ramify.XRLinear()).fit(frame, pd.Series(LABELS))
    assert pipe.score(frame, LABELS) > 0.9
    assert columns.fit(frame).get_feature_names_out()[0].startswith("title__")
    with pytest.raises(ValueError, match="sparse matrices"):
        ramify.Tfidf().set_output(transform="pandas")


def test_weights_that_are_no_numbers():
    with pytest.raises(
        ramify.DataError, match="sample_weight must be numbers, one for each of the 36 rows; got 'balanced'"
    ):
        ramify.Popular().fit(TEXTS, LABELS, sample_weight="balanced")


def test_errors_are_those_of_scikit_learn():
    for error in (ramify.XRLinear(), ramify.Tfidf()):
        with pytest.raises(NotFittedError, match="call fit first") as caught:
            error.predict(["a"]) if hasattr(error, "predict") else error.transform(["a"])
        assert isinstance(caught.value, ramify.NotFittedError)
        assert isinstance(caught.value, ramify.RamifyError)
