from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import ramify
from ramify.io.labels import LabelVocabulary, align_labels, encode_labels
from ramify.io.store import Store, StoreWriter


def test_ids_do_not_depend_on_the_order_of_the_data():
    a, names = encode_labels([["fox", "hen"], ["ant"]])
    b, other = encode_labels([["ant"], ["hen", "fox", "fox"]])
    assert list(names) == list(other) == ["ant", "fox", "hen"]
    assert a.toarray().tolist() == b.toarray()[::-1].tolist()
    assert list(encode_labels([[10, 9], [-3]])[1]) == [-3, 9, 10]


def test_hashable_labels():
    rows = [[("a", 1), "x"], [7, ("a", 1)], [frozenset([1])]]
    matrix, names = encode_labels(rows)
    assert list(names) == [("a", 1), "x", 7, frozenset([1])]  # in the order of first occurrence
    assert matrix.sum() == 5


@pytest.mark.parametrize("names", [
    range(5), ["a", "ß", "中", "", "\ud800"], [3, -1, 2**70], [("a", 1), ("b", (2, None))], [1, "1", 1.5], [],
])  # fmt: skip
def test_save_and_load(tmp_path, names):
    vocabulary = LabelVocabulary(names)
    with StoreWriter(tmp_path / "m") as writer:
        writer.manifest("x", {}, {"labels": vocabulary.save(writer)})
    store = Store(tmp_path / "m")
    opened = LabelVocabulary.load(store, store.state["labels"], may_be_empty=True)
    assert list(opened) == list(names)
    assert [type(a) for a in opened] == [type(a) for a in names]
    assert opened == vocabulary
    assert opened.ids == vocabulary.ids
    if len(names):
        assert opened[-1] == names[-1]
        assert opened[1:3] == list(names[1:3])
    with pytest.raises(IndexError):
        opened[len(names)]


def test_labels_that_cannot_be_saved(tmp_path):
    model = ramify.Popular().fit(["a"], [[frozenset([1])]])
    with pytest.raises(ramify.DataError, match="cannot be saved"):
        model.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_unknown_labels_get_additional_columns():
    truth, n_known = align_labels([["fox", "new"], ["newer", "new"]], LabelVocabulary(["ant", "fox"]))
    assert n_known == 2
    assert truth.toarray().tolist() == [[0, 1, 1, 0], [0, 0, 1, 1]]


def test_indicators():
    matrix, names = encode_labels(np.array([[0, 1], [1, 1]]))
    assert matrix.nnz == 3
    assert names.is_range()
    explicit_zero = sparse.csr_matrix((np.array([1.0, 0.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    assert encode_labels(explicit_zero)[0].nnz == 1  # a stored zero is not a label


@pytest.mark.parametrize(("y", "message"), [
    ("labels", "list of label lists"), (5, "list of label lists"), (["fox", "hen"], r"\['fox'\]"), ([1, 2], r"\[1\]"),
    ([["a"], None], "row 1"), ([[None]], "None"), ([[float("nan")]], "nan"), ([[["a"]]], "hashable"),
    (np.array([[0.0, -1.0]]), "negative"), (np.array([[np.nan, 1.0]]), "NaN"),
])  # fmt: skip
def test_invalid_labels_are_refused(y, message):
    with pytest.raises(ramify.DataError, match=message):
        encode_labels(y)


def test_duplicate_labels_are_refused():
    with pytest.raises(ramify.DataError, match="twice"):
        LabelVocabulary(["a", "a"])


def test_vocabularies_of_ids_are_compared_without_visiting_them():
    assert LabelVocabulary(range(2**31 - 2)) == LabelVocabulary(range(2**31 - 2))
    assert LabelVocabulary(range(3)) == LabelVocabulary([0, 1, 2])
    assert LabelVocabulary(range(3)) != LabelVocabulary([0, 1, 3])
    assert LabelVocabulary(range(3)) != LabelVocabulary(range(4))


@pytest.mark.parametrize("names", [[f"Wal {i} \udce4" for i in range(10_000)], [("a", i) for i in range(5_000)]])
def test_labels_in_order_are_those_by_id(tmp_path, names):
    with StoreWriter(tmp_path / "m") as writer:
        writer.manifest("popular", {}, {"labels": LabelVocabulary(names).save(writer)})
    store = Store(tmp_path / "m")
    opened = LabelVocabulary.load(store, store.state["labels"])
    assert list(opened) == [opened[i] for i in range(len(opened))] == names
