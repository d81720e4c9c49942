"""Columns and frames of NumPy, pandas, polars and Arrow as X and y."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import ramify
from ramify.io.inputs import check_inputs
from ramify.io.labels import LabelVocabulary, align_labels, encode_labels

TEXTS = ["red fox", "grey whale", "red hen"]
LABELS = [["fox", "red"], ["whale"], ["hen", "red"]]
IDS = [[3, 1], [], [7]]


def pandas_column(values):
    return pytest.importorskip("pandas").Series(values, index=range(10, 10 + len(values)))


def pandas_strings(values):
    if not isinstance(values[0], str):
        pytest.skip("for texts only")
    return pytest.importorskip("pandas").Series(values, dtype="string")


def polars_column(values):
    return pytest.importorskip("polars").Series(values)


def arrow_array(values):
    return pytest.importorskip("pyarrow").array(values)


def arrow_chunks(values):
    return pytest.importorskip("pyarrow").chunked_array([values[:1], values[1:]])


def arrow_scalars(values):
    return list(arrow_array(values))


def numpy_objects(values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


COLUMNS = [
    pandas_column,
    pandas_strings,
    polars_column,
    arrow_array,
    arrow_chunks,
    arrow_scalars,
    numpy_objects,
]


@pytest.mark.parametrize("column", [*COLUMNS, np.array])
def test_columns_of_texts(column):
    inputs = check_inputs(column(TEXTS))
    assert (inputs.kind, inputs.data) == ("text", TEXTS)
    assert {type(text) for text in inputs.data} == {str}


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("labels", [LABELS, IDS])
def test_columns_of_lists(column, labels, tmp_path):
    Y, vocabulary = encode_labels(column(labels))
    expected, names = encode_labels(labels)
    assert list(vocabulary) == list(names)
    assert {type(label) for label in vocabulary} <= {str, int}
    assert (expected != Y).nnz == 0
    model = ramify.Popular().fit(TEXTS, column(labels))
    model.save(tmp_path / "m")  # integer labels of Arrow could not be saved
    assert list(ramify.load(tmp_path / "m").labels_) == list(names)
    assert align_labels(column(labels), names)[0].nnz == expected.nnz


def make_frame(kind, columns):
    if kind == "pandas":
        return pytest.importorskip("pandas").DataFrame(columns)
    if kind == "polars":
        return pytest.importorskip("polars").DataFrame(columns)
    return pytest.importorskip("pyarrow").table(columns)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_frames(kind):
    frame = make_frame(kind, {"title": ["a", "b", "c"], "body": TEXTS})
    inputs = check_inputs(frame)
    assert len(inputs) == 3  # not its two columns
    assert inputs.kind == "fields"
    assert inputs.data[1] == {"title": "b", "body": "grey whale"}
    numbers = check_inputs(make_frame(kind, {"a": [1, 2, 3], "b": [0.5, 0.0, 1.5], "c": [True, False, True]}))
    assert numbers.kind == "dense"
    assert numbers.data.tolist() == [[1.0, 0.5, 1.0], [2.0, 0.0, 0.0], [3.0, 1.5, 1.0]]
    with pytest.raises(ramify.DataError, match=r"column 'year' does not hold texts \(int\)"):
        check_inputs(make_frame(kind, {"title": TEXTS, "year": [1, 2, 3]}))
    with pytest.raises(ramify.DataError, match="row 1 of column 'title' of X is missing"):
        check_inputs(make_frame(kind, {"title": ["a", None, "c"]}))
    with pytest.raises(ramify.DataError, match="NaN"):
        check_inputs(make_frame(kind, {"a": [1.0, None, 3.0]}))
    model = ramify.XRLinear().fit(frame, LABELS)
    assert model.predict_topk(make_frame(kind, {"title": [""], "body": ["a whale"]}), 1).labels()[0][0][0] == "whale"


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_frame_of_indicators(kind):
    """The columns of a frame of 0 and 1 are the labels."""
    frame = make_frame(kind, {"red": [1, 0, 1], "fox": [1, 0, 0], "whale": [0, 1, 0]})
    Y, vocabulary = encode_labels(frame)
    assert list(vocabulary) == ["red", "fox", "whale"]
    assert Y.toarray().tolist() == [[1, 1, 0], [0, 0, 1], [1, 0, 0]]
    aligned, n_known = align_labels(frame, LabelVocabulary(["whale", "red"]))
    assert n_known == 2
    assert aligned.toarray().tolist() == [[0, 1, 1], [1, 0, 0], [0, 1, 0]]
    with pytest.raises(ramify.DataError, match="a column of label lists"):
        encode_labels(make_frame(kind, {"labels": ["a", "b", "c"]}))


def test_missing_values_in_columns():
    pd = pytest.importorskip("pandas")
    for missing in (None, np.nan, pd.NA):
        with pytest.raises(ramify.DataError, match="row 1 of X is missing"):
            check_inputs(pd.Series(["a", missing, "b"]))
        with pytest.raises(ramify.DataError, match="the labels of row 1 are missing"):
            encode_labels(pd.Series([["a"], missing, ["b"]], dtype=object))


def test_sparse_frame_and_index():
    pd = pytest.importorskip("pandas")
    matrix = sparse.random(5, 4, 0.5, "csr", random_state=0)
    frame = pd.DataFrame.sparse.from_spmatrix(matrix)
    inputs = check_inputs(frame)
    assert inputs.kind == "sparse"
    assert np.allclose(inputs.data.toarray(), matrix.toarray())
    assert check_inputs(pd.Index(TEXTS)).data == TEXTS


def test_objects_with_an_array():
    class Wrapped:
        def __init__(self, values):
            self.values = values

        def __array__(self, dtype=None, copy=None):
            return np.asarray(self.values, dtype)

    assert check_inputs(Wrapped([[1.0, 2.0]])).data.tolist() == [[1.0, 2.0]]
    assert check_inputs(Wrapped(TEXTS)).data == TEXTS
    assert encode_labels(Wrapped([[1, 0], [1, 1]]))[0].nnz == 3
    assert check_inputs(np.array([[1, 2]], object)).data.tolist() == [[1.0, 2.0]]
    assert check_inputs(np.array([["a"], ["b"]])).data == ["a", "b"]
    with pytest.raises(ramify.DataError, match=r"2 columns that are not numbers.*pass a data frame"):
        check_inputs(np.array([["a", "b"]]))


def test_dicts_of_columns_are_refused_in_the_right_words():
    with pytest.raises(ramify.DataError, match=r"X is a dict; pass a list with one dict per sample: \[\{'text': …\}"):
        check_inputs({"text": TEXTS})


def test_optional_packages_are_not_imported():
    code = (
        "import sys, ramify; ramify.XRLinear().fit(['red fox', 'hen'], [['a'], ['b']]).predict_topk(['fox']).labels();"
        "assert not {'pandas', 'polars', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
