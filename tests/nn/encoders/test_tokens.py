"""Token sequences: ragged arrays, windows and batches of similar length."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ramify import DataError
from ramify.io.inputs import check_inputs
from ramify.nn.encoders.tokens import (
    MAX_PADDING_RATIO,
    MIN_MICRO_BATCH,
    Tokens,
    batches_by_length,
    micro_batches,
    texts_of,
)


def test_padding_and_selection():
    tokens = Tokens.from_lists([[5, 6], [], [7]])
    assert len(tokens) == 3
    assert tokens.lengths.tolist() == [2, 0, 1]
    ids, mask = tokens.padded()
    assert ids.tolist() == [[5, 6], [0, 0], [7, 0]]
    assert mask.tolist() == [[1, 1], [0, 0], [1, 0]]
    part = tokens.take(np.array([2, 0]))
    assert part.indptr.tolist() == [0, 1, 3]
    assert part.ids.tolist() == [7, 5, 6]


def test_concatenation_and_digest():
    tokens = Tokens.from_lists([[5, 6], [], [7]])
    joined = Tokens.concat([Tokens.from_lists([[5, 6]]), Tokens.from_lists([[], [7]])])
    assert joined.digest() == tokens.digest()
    assert Tokens.from_lists([[5], [6], [7]]).digest() != tokens.digest()
    assert Tokens.from_lists([[5, 6], [], [8]]).digest() != tokens.digest()
    assert len(Tokens.concat([])) == 0
    assert Tokens.from_lists([]).padded()[0].shape == (0, 1)


def test_windows_repeat_the_first_and_the_last_token():
    tokens = Tokens.from_lists([[1, 2], [1, *range(10, 17), 2], [1, 10, 2]])
    windows, owners = tokens.windows(5)
    assert owners.tolist() == [0, 1, 1, 1, 2]
    texts = [windows.ids[a:b].tolist() for a, b in itertools.pairwise(windows.indptr)]
    assert texts == [[1, 2], [1, 10, 11, 12, 2], [1, 13, 14, 15, 2], [1, 16, 2], [1, 10, 2]]
    same, owners = tokens.windows(9)
    assert same is tokens
    assert owners.tolist() == [0, 1, 2]


@pytest.mark.parametrize("seed", range(3))
def test_batches_contain_each_row_once_and_respect_their_limits(seed):
    lengths = np.random.default_rng(seed).integers(1, 60, 100)
    batches = list(batches_by_length(lengths, 200))
    assert sorted(np.concatenate(batches).tolist()) == list(range(100))
    assert all(len(rows) * lengths[rows].max() <= 200 for rows in batches)
    assert all(lengths[a].min() >= lengths[b].max() for a, b in itertools.pairwise(batches))
    batches = list(micro_batches(lengths, 16, 200))
    assert sorted(np.concatenate(batches).tolist()) == list(range(100))
    for rows in batches:
        assert len(rows) <= 16
        # The last text may exceed a limit: a micro-batch is cut behind it.
        others = lengths[rows][:-1]
        assert len(rows) * others.max(initial=0) <= 200
        if len(others) >= MIN_MICRO_BATCH:
            assert len(others) * others.max() <= MAX_PADDING_RATIO * others.sum()


def test_texts_of_inputs():
    assert texts_of(check_inputs(["a", "b"])) == ["a", "b"]
    assert texts_of(check_inputs([{"title": "a", "body": "b c"}])) == ["a b c"]
    with pytest.raises(DataError, match="reads texts"):
        texts_of(check_inputs(np.eye(2)))
