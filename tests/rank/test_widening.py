"""Rankings that are widened row by row, against one ranking of all labels."""

from __future__ import annotations

import numpy as np
import pytest

import ramify
from ramify.rank import widening
from ramify.rank.widening import kept_labels


def searched(scores, widths, threshold):
    def search(rows, k):
        widths.append((len(rows), k))
        ids = np.argsort(-scores[rows], axis=1, kind="stable")[:, :k].astype(np.int32)
        found = np.take_along_axis(scores[rows], ids, 1)
        return ids, found, found >= threshold

    return search


@pytest.mark.parametrize("block", [1 << 23, 50])
def test_equals_a_ranking_of_all_labels(monkeypatch, block):
    monkeypatch.setattr(widening, "_BLOCK", block)
    scores = np.random.default_rng(0).random((40, 90)).astype(np.float32)
    scores[3] += 1  # one row with every label
    scores[5] = 0
    for threshold in (0.0, 0.5, 0.97, 1.5, 3.0):
        widths = []
        found = kept_labels(searched(scores, widths, threshold), 40, 90, 5)
        assert np.array_equal(found.toarray(), np.where(scores >= threshold, scores, 0))
        assert found.has_sorted_indices
    assert kept_labels(searched(scores[:0], [], 0.5), 0, 90, 5).shape == (0, 90)


def test_only_rows_that_need_it_are_widened():
    scores, widths = np.zeros((100, 64), np.float32), []
    scores[7] = 1
    kept_labels(searched(scores, widths, 0.5), 100, 64, 4)
    assert widths == [(100, 4), (1, 16), (1, 64)]
    widths.clear()
    settled = kept_labels(searched(scores, widths, 0.5), 100, 64, 4, lambda k: k >= 16)
    assert widths == [(100, 4), (1, 16)]
    assert settled.nnz == 16


def test_a_threshold_that_every_label_reaches_is_refused_in_words(monkeypatch):
    monkeypatch.setattr(widening, "MAX_KEPT", 1000)
    model = ramify.XRLinear(threshold=0.0, verbose=0).fit(np.eye(60, dtype=np.float32), [[i] for i in range(60)])
    with pytest.raises(ValueError, match="more than 1,000 labels are chosen; raise the threshold"):
        model.predict(np.eye(60, dtype=np.float32), rule=ramify.Threshold(0.0, of="score"))
