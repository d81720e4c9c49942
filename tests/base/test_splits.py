"""Validation sets: every label keeps a training sample."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ramify.base.splits import hold_out


def labels(n=400, n_labels=90, seed=0):
    return sparse.csr_matrix((np.random.default_rng(seed).random((n, n_labels)) < 0.02).astype(np.float32))


def test_every_label_keeps_a_training_sample():
    Y = labels()
    rows, validation_rows = hold_out(Y, 1000, seed=1)
    assert sorted([*rows, *validation_rows]) == list(range(400))
    assert 0 < len(validation_rows) <= 40
    before = np.bincount(Y.indices, minlength=90) > 0
    after = np.bincount(Y[rows].indices, minlength=90) > 0
    assert np.array_equal(before, after)
    assert np.all(np.diff(Y.indptr)[validation_rows] > 0)
    assert len(hold_out(Y[:5], 1000, seed=1)[1]) == 0


def test_size_is_an_upper_bound_and_rows_are_sorted():
    Y = labels()
    rows, validation_rows = hold_out(Y, 7, seed=1)
    assert len(validation_rows) == 7
    assert np.all(np.diff(validation_rows) > 0)
    assert np.all(np.diff(rows) > 0)
    rows, validation_rows = hold_out(Y, 0, seed=1)
    assert len(validation_rows) == 0
    assert np.array_equal(rows, np.arange(400))


def test_the_seed_determines_the_split():
    Y = labels()
    first, again, other = (hold_out(Y, 20, seed)[1] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
