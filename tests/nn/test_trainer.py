from __future__ import annotations

import numpy as np
import pytest
from neural import Killed, problem
from scipy import sparse

from ramify import ModelFormatError
from ramify.base.splits import hold_out
from ramify.nn.encoder import Bag, BagEncoder
from ramify.nn.learner import EncoderWithHead
from ramify.nn.trainer import TrainingConfig, train


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


class Counter:
    """A learner whose only weight counts its steps; judgements are given."""

    def __init__(self, scores=None):
        self.scores = None if scores is None else iter(scores)
        self.weight = np.zeros(1, np.float32)
        self.seen = []
        self.judged_with = []

    def step(self, rows, number, factor):
        self.seen.append((tuple(rows), number, factor))
        self.weight += 1
        return 1.0

    passes = 8

    def begin_pass(self, number):
        self.begun = [*getattr(self, "begun", []), number]

    def judge(self):
        self.judged_with.append(float(self.weight[0]))
        return None if self.scores is None else (next(self.scores), 50.0)

    def arrays(self):
        return {"weight": self.weight}

    def set_arrays(self, arrays):
        self.weight[...] = arrays["weight"]

    def memory(self):
        return {}, {}

    def set_memory(self, arrays, values):
        pass

    def is_averaged(self, name):
        return True

    def data_digest(self):
        return ""


def run(learner, n=10, **options):
    config = TrainingConfig(**{"batch_size": 4, "min_steps": 1, **options})
    return train(np.arange(n), learner, config, title="", seed=0, verbose=0, settings={})


def test_the_best_pass_counts_and_training_ends_in_time():
    learner = Counter([1, 3, 2, 2.5, 9])
    history = run(learner, epochs=5, patience=2)
    assert learner.weight[0] == 6  # after the second pass of three steps
    assert [score for _, score in history] == [1, 3, 2, 2.5]


def test_without_a_judge_the_last_pass_counts():
    learner = Counter()
    run(learner, epochs=3)
    assert learner.weight[0] == 9


def test_every_pass_sees_every_row_once_and_rates_rise_and_fall():
    learner = Counter(range(4))
    run(learner, epochs=4)
    assert len(learner.seen) == 4 * 3
    for start in range(0, 12, 3):
        assert sorted(row for rows, _, _ in learner.seen[start : start + 3] for row in rows) == list(range(10))
    assert [number for _, number, _ in learner.seen] == list(range(1, 13))
    factors = [factor for _, _, factor in learner.seen]
    assert max(factors) == 1.0
    assert factors[-1] < 0.2


def test_small_data_gets_its_steps():
    learner = Counter()
    run(learner, n=3, epochs=2, batch_size=64, min_steps=50)
    assert [number for _, number, _ in learner.seen] == list(range(1, 51))


@pytest.mark.parametrize("examples", [8, 25, 48])
def test_training_can_be_counted_in_points(examples):
    learner = Counter()
    run(learner, examples=examples)
    rows = [row for rows, _, _ in learner.seen for row in rows]
    assert examples <= len(rows) < examples + 5
    counts = np.bincount(rows, minlength=10)
    assert counts.max() - counts.min() <= 1  # passes follow each other
    assert len(learner.judged_with) == max(4, -(-examples // 10))


def test_weights_of_the_last_steps_are_averaged():
    learner = Counter(range(4))
    run(learner, epochs=4, average=0.5)  # the last six of twelve steps
    assert learner.judged_with == [3, 6, np.mean([7, 8, 9]), np.mean([7, 8, 9, 10, 11, 12])]
    assert learner.weight[0] == np.mean([7, 8, 9, 10, 11, 12])


@pytest.mark.parametrize("average", [0.0, 0.6])
def test_a_training_that_was_killed_ends_with_the_same_bits(tmp_path, average):
    """A real encoder with a real head; killed in the middle of a pass, twice."""
    config = TrainingConfig(epochs=6, batch_size=16, min_steps=1, average=average, patience=6)

    def learner():
        head, points, Y = problem()
        encoder = Bag.start(points.features, Y, BagEncoder(width=8), seed=0, threads=1)
        return EncoderWithHead(encoder, head, points, Y, np.arange(90, 100), config, seed=3, threads=1)

    def go(subject, checkpoint):
        return train(np.arange(90), subject, config, title="t", seed=1, verbose=0, settings={}, checkpoint=checkpoint)

    whole = learner()
    history = go(whole, None)
    for kill_at in (9, 23):
        broken = learner()
        step = broken.step

        def dies(rows, number, factor, kill_at=kill_at, step=step):
            if number == kill_at:
                raise Killed
            return step(rows, number, factor)

        broken.step = dies
        with pytest.raises(Killed):
            go(broken, tmp_path / "c")
    resumed = learner()
    assert go(resumed, tmp_path / "c") == history
    for name, array in whole.arrays().items():
        assert np.array_equal(array, resumed.arrays()[name]), name
    finished = learner()  # a checkpoint of a training that is over
    assert go(finished, tmp_path / "c") == history
    assert np.array_equal(finished.arrays()["head.labels.weights"], whole.arrays()["head.labels.weights"])
    other = learner()
    other.points.features.sparse.data[7] += 1
    with pytest.raises(ModelFormatError, match="other data"):
        go(other, tmp_path / "c")
    with pytest.raises(ModelFormatError, match="another training"):
        train(np.arange(80), learner(), config, title="t", seed=1, verbose=0, settings={}, checkpoint=tmp_path / "c")


def test_a_gradient_out_of_all_proportion_is_cut():
    head, points, Y = problem()
    encoder = Bag.start(points.features, Y, BagEncoder(width=8), seed=0, threads=1)
    subject = EncoderWithHead(encoder, head, points, Y, np.arange(5), TrainingConfig(clip=3.0), seed=0, threads=1)
    usual = np.ones((2, 2), np.float32)
    assert np.array_equal(subject._clipped(usual), usual)
    assert np.linalg.norm(subject._clipped(100 * usual)) == pytest.approx(3 * 2, rel=1e-3)
    assert np.array_equal(subject._clipped(0 * usual), 0 * usual)
