"""The k best of candidate lists, against sorting in Python."""

from __future__ import annotations

import numpy as np
import pytest

from ramify import native

pytestmark = pytest.mark.native


@pytest.mark.parametrize("threads", [1, 3])
def test_list_topk(threads):
    ids, scores = np.array([[9, 3, 5, -1]], np.int32), np.array([[0.5, 0.5, 0.9, 7.0]], np.float32)
    assert native.matrix.list_topk(ids, scores, 2, threads)[0].tolist() == [[5, 3]]  # ties by id
    best, values = native.matrix.list_topk(ids, scores, 6, threads)
    assert best.tolist() == [[5, 3, 9, -1, -1, -1]]
    assert np.all(np.isneginf(values[0, 3:]))


@pytest.mark.parametrize("threads", [1, 3])
def test_list_topk_of_lists_with_padding_ties_and_nan(threads):
    random = np.random.default_rng(4)
    ids = np.argsort(random.random((300, 90)), axis=1).astype(np.int32)
    ids[random.random(ids.shape) < 0.2] = -1
    scores = random.integers(0, 20, ids.shape).astype(np.float32)
    scores[random.random(ids.shape) < 0.1] = np.nan
    best, _ = native.matrix.list_topk(ids, scores, 30, threads)
    for row in range(300):
        items = [(np.isnan(s), -np.nan_to_num(s), i) for i, s in zip(ids[row], scores[row], strict=True) if i >= 0]
        assert best[row].tolist() == [i for _, _, i in sorted(items)[:30]]
    with pytest.raises(ValueError, match=r"ids are \(300, 90\), scores are \(1, 90\)"):
        native.matrix.list_topk(ids, scores[:1], 3, threads)
