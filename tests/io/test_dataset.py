from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import ramify
from ramify.base.sparse import same_pattern
from ramify.io.labels import LabelVocabulary, encode_labels


def small(texts, labels):
    matrix, names = encode_labels(labels)
    return ramify.Dataset(matrix, names, texts=texts)


def test_statistics():
    train = small(["red fox", "hen", "red fox", ""], [["a", "b"], ["b"], ["c"], []])
    test = small(["hen", "new text"], [["a", "x"], ["x", "y"]])
    s = train.stats()
    assert (s.samples, s.used_labels, s.samples_without_labels, s.empty_samples, s.duplicates_inside) == (4, 3, 1, 1, 1)
    assert (s.labels_per_sample_mean, s.labels_per_sample_max, s.labels_with_one_sample) == (1.0, 2, 2)
    assert s.samples_per_label_mean == pytest.approx(4 / 3)
    assert s.words_or_features_mean == 5 / 4
    t = test.stats(train)
    assert t.unseen_label_fraction == 0.75
    assert t.duplicates_with_train == 1
    assert dict(t.rows())["samples that also occur in train"] == "1"


@pytest.mark.parametrize("make", [sparse.csr_matrix, np.asarray])
def test_statistics_of_features(make):
    features = make(np.array([[0, 1, 2], [0, 1, 2], [0, 0, 0]], np.float32))
    data = ramify.Dataset(sparse.csr_matrix(np.eye(3, dtype=np.float32)), LabelVocabulary(range(3)), X=features)
    s = data.stats(data)
    assert (s.duplicates_inside, s.empty_samples, s.duplicates_with_train, s.unseen_label_fraction) == (1, 1, 3, 0.0)


def test_subset_and_split():
    data = small(["a", "b", "c"], [["x"], ["y"], ["x", "y"]])
    subset = data.subset(np.array([2, 0]))
    assert subset.texts == ["c", "a"]
    assert subset.labels() == [["x", "y"], ["x"]]
    assert data.subset(np.array([True, False, False])).texts == ["a"]
    with pytest.raises(ramify.DataError, match="unknown split 'dev'"):
        data.split("dev")


def test_inconsistent_sizes_are_refused():
    matrix, names = encode_labels([["x"], ["y"]])
    with pytest.raises(ramify.DataError, match="either texts or features"):
        ramify.Dataset(matrix, names)
    with pytest.raises(ramify.DataError, match="1 texts for 2"):
        ramify.Dataset(matrix, names, texts=["a"])
    with pytest.raises(ramify.DataError, match="rows of features"):
        ramify.Dataset(matrix, names, X=np.zeros((3, 1)))
    with pytest.raises(ramify.DataError, match="label names"):
        ramify.Dataset(matrix, LabelVocabulary(["x"]), texts=["a", "b"])
    with pytest.raises(ramify.DataError, match="relevance"):
        ramify.Dataset(matrix, names, texts=["a", "b"], relevance=sparse.csr_matrix(np.ones((2, 2), np.float32)))


@pytest.mark.parametrize("label_names", [["zebra", "ant", "unused", "hen"], [7, "x", "unused", (1, 2)]])
def test_encoded_relevance_has_the_columns_of_fit(label_names):
    """The order of the label names is not that of the ids in `fit`, and unused labels have no column there."""
    weights = sparse.csr_matrix(np.array([[0.5, 2, 0, 0], [0, 3, 0, 4], [0, 0, 0, 5]], np.float32))
    Y = weights.copy()
    Y.data[:] = 1.0
    data = ramify.Dataset(Y, LabelVocabulary(label_names), texts=["a", "b", "c"], relevance=weights)
    for part in (data, data.subset(np.array([2, 1]))):
        matrix, vocabulary = encode_labels(part.labels())
        encoded = part.encoded_relevance()
        assert same_pattern(encoded, matrix)
        for row in range(len(part)):
            for label in part.labels()[row]:
                expected = part.relevance[row, data.label_names.ids[label]]
                assert encoded[row, vocabulary.ids[label]] == expected
    assert data.relevance.data.tolist() == [0.5, 2, 3, 4, 5]  # unchanged
    assert data.subset(np.array([2, 1])).encoded_relevance().shape == (2, 2)
    assert ramify.Dataset(Y, data.label_names, texts=["a", "b", "c"]).encoded_relevance() is None


def test_pydoc_labels_are_long_tailed(pydoc):
    stats = pydoc.stats()
    assert stats.samples > 4000
    assert stats.labels > 4000
    assert stats.labels_per_sample_mean > 4
    assert stats.samples_per_label_median <= 2
    train, test = pydoc.split("train"), pydoc.split("test")
    assert len(train) + len(test) == len(pydoc)
    assert 0.15 < len(test) / len(pydoc) < 0.25
    assert test.stats(train).duplicates_with_train == 0
    kinds = {str(name).partition(":")[0] for name in pydoc.label_names}
    assert kinds == {"param", "returns", "see", "module"}


def test_pydoc_texts_are_prose(pydoc):
    by_id = dict(zip(pydoc.ids, zip(pydoc.texts, pydoc.labels(), strict=True), strict=True))
    text, labels = by_id["numpy.linalg.solve"]
    assert text.startswith("Solve a linear matrix equation")
    assert {"param:a", "param:b", "module:numpy.linalg", "see:scipy.linalg.solve"} <= set(labels)
    for text in pydoc.texts:
        assert ">>>" not in text
        assert not any(f"{title} ---" in text for title in ("Parameters", "Returns", "See Also", "Notes"))


def test_pydoc_is_reproducible(pydoc):
    """The same data in another process, with another hash seed and other modules imported before."""
    code = """
import contextlib, hashlib, sys
for name in ("torch", "ray"):
    with contextlib.suppress(ImportError):
        __import__(name)
import sklearn.experimental.enable_halving_search_cv, decimal, asyncio
import ramify
d = ramify.datasets.load("pydoc")
print(hashlib.sha256(repr((d.ids, d.texts, d.labels(), d.splits["test"].tolist())).encode()).hexdigest())
"""
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    mine = repr((pydoc.ids, pydoc.texts, pydoc.labels(), pydoc.splits["test"].tolist()))
    assert out.stdout.split() == [hashlib.sha256(mine.encode()).hexdigest()]


def test_unknown_data_set():
    with pytest.raises(ramify.DataError, match="pydoc"):
        ramify.datasets.load("mnist")
