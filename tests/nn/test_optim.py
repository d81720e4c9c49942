"""Row-sparse Adam against a dense reference implementation; state of trainable parts."""

from __future__ import annotations

import numpy as np
import pytest

from ramify import native
from ramify.nn.optim import Adam, DenseParameter, RowTable, Trainable, add_prefix, select_prefix

pytestmark = pytest.mark.native


def random_candidates(random, n, k, n_rows):
    candidates = np.stack([random.permutation(n_rows)[:k] for _ in range(n)]).astype(np.int32)
    candidates[random.random(candidates.shape) < 0.3] = -1
    return candidates


@pytest.mark.parametrize("threads", [1, 4])
def test_steps_match_the_reference_implementation(threads):
    random = np.random.default_rng(1)
    n_rows, d = 25, 5
    table = RowTable(random.standard_normal((n_rows, d)).astype(np.float32), np.zeros(n_rows, np.float32))
    expected = np.hstack([table.weights, table.bias[:, None]]).astype(np.float64)
    m, v = np.zeros_like(expected), np.zeros_like(expected)
    for step in range(1, 30):
        embeddings = random.standard_normal((6, d)).astype(np.float32)
        candidates = random_candidates(random, 6, 3, n_rows)
        gradients = np.where(candidates >= 0, random.standard_normal(candidates.shape), 0).astype(np.float32)
        adam = Adam(0.01, step, weight_decay=0.1)
        table.step(native.neural.group_pairs(candidates, n_rows), gradients, embeddings, adam, threads)
        sums = np.zeros_like(expected)
        for i, j in zip(*np.nonzero(candidates >= 0), strict=True):
            sums[candidates[i, j]] += gradients[i, j] * np.append(embeddings[i], 1.0)
        used = np.unique(candidates[candidates >= 0])
        m[used] = 0.9 * m[used] + 0.1 * sums[used]
        v[used] = 0.999 * v[used] + 0.001 * sums[used] ** 2
        expected[used, :d] -= 0.01 * 0.1 * expected[used, :d]
        expected[used] -= 0.01 * (m[used] / (1 - 0.9**step)) / (np.sqrt(v[used] / (1 - 0.999**step)) + 1e-8)
    assert table.weights == pytest.approx(expected[:, :d], abs=1e-4)
    assert table.bias == pytest.approx(expected[:, d], abs=1e-4)


def test_a_row_without_a_gradient_stays_unchanged():
    random = np.random.default_rng(0)
    table = RowTable(random.standard_normal((6, 20)).astype(np.float32), np.zeros(6, np.float32))
    candidates, embeddings = (
        np.array([[0, 1, 2], [1, 2, 3]], np.int32),
        random.standard_normal((2, 20)).astype(np.float32),
    )
    pairs = native.neural.group_pairs(candidates, 6)
    for step, gradients in enumerate(([[1, 1, 1], [1, 1, 1]], [[0, 0, 1], [0, -2, 1]]), 1):
        before = table.weights.copy(), table.bias.copy()
        table.step(pairs, np.array(gradients, np.float32), embeddings, Adam(0.1, step, weight_decay=0.1), 1)
    moved = (table.weights != before[0]).any(axis=1), table.bias != before[1]
    assert moved[0].tolist() == moved[1].tolist() == [False, False, True, True, False, False]


def test_moments_are_allocated_for_rows_in_use_only():
    table = RowTable(np.zeros((100_000, 4), np.float32), None)
    candidates = np.array([[3, 99_999]], np.int32)
    table.step(
        native.neural.group_pairs(candidates, 100_000),
        np.ones((1, 2), np.float32),
        np.ones((1, 4), np.float32),
        Adam(0.1, 1),
        1,
    )
    assert table._moments is not None
    assert len(table._moments[0]) <= 16
    assert np.count_nonzero(table.weights.any(axis=1)) == 2


def test_a_dense_parameter_converges():
    values = np.array([[3.0, -2.0]], np.float32)
    parameter = DenseParameter(values)
    for step in range(1, 800):
        parameter.step(2 * parameter.values, Adam(0.02, step))
    assert np.abs(parameter.values).max() < 0.05


class TwoParameters(Trainable):
    """A table and a dense parameter."""

    def __init__(self):
        random = np.random.default_rng(0)
        self.table = RowTable(random.standard_normal((9, 3)).astype(np.float32), np.zeros(9, np.float32))
        self.dense = DenseParameter(random.standard_normal(4).astype(np.float32))

    def parameters(self):
        return {"table": self.table, "dense": self.dense}

    def run(self, steps):
        for step in steps:
            random = np.random.default_rng(step)
            pairs = native.neural.group_pairs(random_candidates(random, 3, 2, 9), 9)
            gradients, embeddings = (random.standard_normal((3, k)).astype(np.float32) for k in (2, 3))
            self.table.step(pairs, gradients, embeddings, Adam(0.1, step), 1)
            self.dense.step(random.standard_normal(4), Adam(0.1, step))


def test_state_round_trip():
    """Arrays and optimizer state together continue a training with the same bits; arrays alone do not."""
    uninterrupted, first, resumed, without_state = (TwoParameters() for _ in range(4))
    assert first.optimizer_state() == {}
    resumed.set_optimizer_state({})
    uninterrupted.run(range(1, 9))
    first.run(range(1, 5))
    saved = {name: array.copy() for name, array in first.arrays().items()}
    state = {name: array.copy() for name, array in first.optimizer_state().items()}
    first.run(range(5, 9))
    for part in (resumed, without_state):
        part.set_arrays(saved)
    resumed.set_optimizer_state(state)
    for part in (resumed, without_state):
        part.run(range(5, 9))
    for name, array in uninterrupted.arrays().items():
        assert np.array_equal(first.arrays()[name], array), name
        assert np.array_equal(resumed.arrays()[name], array), name
    assert not np.array_equal(without_state.dense.values, uninterrupted.dense.values)
    resumed.reset_optimizer()
    assert resumed.optimizer_state() == {}


def test_set_arrays_copies_values_in_place():
    part = TwoParameters()
    before = part.arrays()
    part.set_arrays({name: array + 1 for name, array in before.items()})
    assert all(part.arrays()[name] is array for name, array in before.items())
    assert part.dense.values == pytest.approx(TwoParameters().dense.values + 1)


def test_prefixes():
    arrays = {"a": np.zeros(1), "b.c": np.ones(1)}
    prefixed = {**add_prefix("encoder", arrays), **add_prefix("encoder2", arrays)}
    assert list(prefixed) == ["encoder.a", "encoder.b.c", "encoder2.a", "encoder2.b.c"]
    assert select_prefix("encoder", prefixed) == arrays
    assert select_prefix("head", prefixed) == {}
