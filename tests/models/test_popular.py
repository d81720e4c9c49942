"""The most frequent labels, and the threshold of `predict`."""

from __future__ import annotations

import numpy as np
import pytest

import ramify


def test_ranks_the_most_frequent_labels_with_their_priors():
    model = ramify.Popular().fit(["a", "b", "c", "d"], [["x", "z"], ["z"], ["y", "z"], ["x"]])
    assert model.predict_topk(["any", "thing"], k=3).labels() == [[("z", 0.75), ("x", 0.5), ("y", 0.25)]] * 2
    assert model.predict(["any"]).toarray().tolist() == [[1, 0, 1]]  # x and z reach 0.5
    assert ramify.Popular(threshold=0.6).fit(["a", "b"], [["x"], ["x", "y"]]).predict(["q"]).sum() == 1


def test_labels_of_equal_frequency_are_ordered_by_id():
    model = ramify.Popular().fit(["a"] * 3, np.array([[1, 1, 0], [0, 0, 1], [0, 0, 0]]))
    assert model.predict_topk(["a"], k=3).ids.tolist() == [[0, 1, 2]]


def test_damaged_priors_are_refused(tmp_path):
    ramify.Popular().fit(["a"], [["x"]]).save(tmp_path / "m")
    np.save(tmp_path / "m" / "priors.npy", np.array([np.nan], np.float32))
    with pytest.raises(ramify.ModelFormatError, match="not finite"):
        ramify.load(tmp_path / "m")


def test_predict_finds_all_labels_over_the_threshold():
    labels = list(range(250))
    model = ramify.Popular().fit(["a", "b"], [labels, labels])
    assert model.predict(["q"]).sum() == 250
