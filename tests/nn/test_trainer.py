from __future__ import annotations

import numpy as np
from scipy import sparse

from ramify.nn.trainer import TrainingConfig, hold_out, train


def test_held_out_rows_leave_every_label_a_point():
    random = np.random.default_rng(0)
    Y = sparse.csr_matrix((random.random((400, 90)) < 0.02).astype(np.float32))
    rows, judged = hold_out(Y, 1000, seed=1)
    assert sorted([*rows, *judged]) == list(range(400))
    assert 0 < len(judged) <= 40
    there = np.bincount(Y.indices, minlength=90) > 0
    left = np.bincount(Y[rows].indices, minlength=90) > 0
    assert np.array_equal(there, left)
    assert np.all(np.diff(Y.indptr)[judged] > 0)
    assert len(hold_out(Y[:5], 1000, seed=1)[1]) == 0


def run(scores, **options):
    seen, calls = [], iter(scores)
    state = {"pass": 0}

    def judge():
        state["pass"] += 1
        return next(calls)

    def step(rows, number, factor):
        seen.append((tuple(rows), number, factor))
        return 1.0

    config = TrainingConfig(batch_size=4, min_steps=1, **options)
    best, history = train(np.arange(10), step, judge, lambda: state["pass"], config, title="", seed=0, verbose=0)
    return best, history, seen


def test_the_best_pass_counts_and_training_ends_in_time():
    best, history, _ = run([1, 3, 2, 2.5, 9], epochs=5, patience=2)
    assert best == 2
    assert [score for _, score in history] == [1, 3, 2, 2.5]


def test_every_pass_sees_every_row_once_and_rates_rise_and_fall():
    _, _, seen = run(range(4), epochs=4)
    assert len(seen) == 4 * 3
    for start in range(0, 12, 3):
        assert sorted(row for rows, _, _ in seen[start : start + 3] for row in rows) == list(range(10))
    assert [number for _, number, _ in seen] == list(range(1, 13))
    factors = [factor for _, _, factor in seen]
    assert max(factors) == 1.0
    assert factors[-1] < 0.2


def test_small_data_gets_its_steps():
    config = TrainingConfig(epochs=2, batch_size=64, min_steps=50)
    numbers = []
    train(
        np.arange(3), lambda _r, n, _f: numbers.append(n) or 0.0, None, lambda: 0, config, title="", seed=0, verbose=0
    )
    assert numbers == list(range(1, 51))
