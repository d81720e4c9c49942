"""The training loop: batches, schedule, early stopping, checkpoints."""

from __future__ import annotations

import numpy as np
import pytest
from neural import Killed, graph_learner, kill_at, problem

from ramify import ModelFormatError
from ramify.nn.config import TrainingConfig
from ramify.nn.encoders.bag import Bag, BagEncoder
from ramify.nn.trainer import train
from ramify.nn.validation import ValidationScore


class Counter:
    """A learner, and its own encoder, whose only weight counts its steps; the validation scores are given."""

    default_epochs = 8

    def __init__(self, scores=None):
        self.encoder = self
        self.scores = None if scores is None else iter(scores)
        self.weight = np.zeros(1, np.float32)
        self.steps = []
        self.epochs = []
        self.validations = []

    def begin_epoch(self, epoch):
        self.epochs.append(epoch)

    def step(self, rows, step, factor):
        self.steps.append((tuple(rows), step, factor))
        self.weight += 1
        return 1.0

    def validate(self, epoch):
        self.validations.append((epoch, float(self.weight[0])))
        return None if self.scores is None else ValidationScore(next(self.scores), 50.0)

    def end_training(self):
        self.has_ended = True

    def arrays(self):
        return {"weight": self.weight}

    def set_arrays(self, arrays):
        self.weight[...] = arrays["weight"]

    def state(self):
        return {}, {}

    def set_state(self, arrays, values):
        pass

    def data_digest(self):
        return ""


def run(learner, n=10, **options):
    learner.config = TrainingConfig(**{"batch_size": 4, "min_steps": 1, **options})
    return train(np.arange(n), learner, title="", seed=0, verbose=0, settings={})


def test_the_best_epoch_counts_and_training_stops_early():
    learner = Counter([1, 3, 2, 2.5, 9])
    history = run(learner, epochs=5, patience=2)
    assert learner.weight[0] == 6  # after the second epoch of three steps
    assert [score for _, score in history] == [1, 3, 2, 2.5]


def test_the_best_of_several_improvements_counts():
    learner = Counter([1, 3, 2, 5, 4, 4.5])
    run(learner, epochs=6, patience=2)
    assert learner.weight[0] == 12  # after the fourth epoch


def test_without_validation_the_last_epoch_counts():
    learner = Counter()
    run(learner, epochs=3)
    assert learner.weight[0] == 9


def test_every_epoch_contains_every_row_once_and_the_learning_rate_rises_and_falls():
    learner = Counter(range(4))
    run(learner, epochs=4)
    assert len(learner.steps) == 4 * 3
    for start in range(0, 12, 3):
        assert sorted(row for rows, _, _ in learner.steps[start : start + 3] for row in rows) == list(range(10))
    assert [step for _, step, _ in learner.steps] == list(range(1, 13))
    factors = [factor for _, _, factor in learner.steps]
    assert max(factors) == 1.0
    assert factors[-1] < 0.2
    assert learner.epochs == [0, 1, 2, 3]
    assert learner.validations == [(1, 3.0), (2, 6.0), (3, 9.0), (4, 12.0)]


def test_the_warmup_ratio_is_the_fraction_of_steps_with_a_rising_learning_rate():
    learner = Counter()
    run(learner, epochs=4, warmup_ratio=0.5)
    factors = [factor for _, _, factor in learner.steps]
    assert factors[:6] == pytest.approx(np.arange(1, 7) / 6)
    assert factors[5:] == pytest.approx([1, *(np.arange(6, 0, -1) / 6)])


def test_epochs_default_to_those_of_the_learner():
    learner = Counter()
    run(learner)
    assert len(learner.epochs) == 8


def test_small_data_sets_get_the_minimum_number_of_steps():
    learner = Counter()
    run(learner, n=3, epochs=2, batch_size=64, min_steps=50)
    assert [step for _, step, _ in learner.steps] == list(range(1, 51))
    assert [epoch for epoch, _ in learner.validations] == [25, 50]  # as often as there are nominal epochs


@pytest.mark.parametrize("max_samples", [8, 25, 48])
def test_training_can_be_measured_in_samples(max_samples):
    learner = Counter()
    run(learner, max_samples=max_samples)
    rows = [row for rows, _, _ in learner.steps for row in rows]
    assert max_samples <= len(rows) < max_samples + 5
    counts = np.bincount(rows, minlength=10)
    assert counts.max() - counts.min() <= 1  # permutations follow each other
    assert len(learner.validations) == max(4, -(-max_samples // 10))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("max_samples", 0),
        ("batch_size", 0),
        ("min_steps", 0),
        ("patience", 0),
        ("validation_size", -1),
        ("learning_rate", 0.0),
        ("encoder_learning_rate", -0.1),
        ("warmup_ratio", 1.1),
        ("weight_decay", -0.01),
        ("dropout", 0.96),
        ("gradient_clip", 0.0),
        ("batch_size", 2.5),
        ("learning_rate", "fast"),
        ("dropout", None),
    ],
)
def test_invalid_parameters_are_refused(name, value):
    with pytest.raises((ValueError, TypeError), match=name):
        TrainingConfig(**{name: value})


def test_parameters_are_validated_when_they_are_set():
    config = TrainingConfig(epochs=None, max_samples=None, gradient_clip=None, validation_size=0)
    assert config.gradient_clip is None
    with pytest.raises(ValueError, match="dropout"):
        config.set_params(dropout=2.0)
    with pytest.raises((ValueError, TypeError), match="average"):
        TrainingConfig(average=0.5)


CONFIG = TrainingConfig(epochs=6, batch_size=16, min_steps=1, patience=6)


def real_learner(validation_size=10):
    """An encoder with a graph head on 90 samples, and the others for validation."""
    head, samples, Y = problem()
    encoder = Bag.initialize(samples.features, Y, BagEncoder(dim=8), seed=0, threads=1)
    return graph_learner(encoder, head, samples, Y, np.arange(90, 90 + validation_size), CONFIG)


def resume(learner, checkpoint, rows=90, config=CONFIG, settings=None, seed=1, title="t"):
    learner.config = config
    return train(
        np.arange(rows),
        learner,
        title=title,
        seed=seed,
        verbose=0,
        settings=settings or {},
        checkpoint=checkpoint,
    )


@pytest.mark.parametrize("validation_size", [10, 0])
def test_an_interrupted_training_resumes_to_the_same_bits(tmp_path, validation_size):
    """Interrupted in the middle of an epoch, twice."""
    uninterrupted = real_learner(validation_size)
    history = resume(uninterrupted, None)
    for step in (9, 23):
        with pytest.raises(Killed):
            resume(kill_at(real_learner(validation_size), step), tmp_path / "c")
    resumed = real_learner(validation_size)
    assert resume(resumed, tmp_path / "c") == history
    for name, array in uninterrupted.arrays().items():
        assert np.array_equal(array, resumed.arrays()[name]), name
    finished = real_learner(validation_size)  # from the checkpoint of a finished training
    assert resume(finished, tmp_path / "c") == history
    assert np.array_equal(finished.arrays()["head.labels.weights"], uninterrupted.arrays()["head.labels.weights"])


def test_checkpoints_of_another_training_are_refused(tmp_path):
    resume(real_learner(), tmp_path / "c")
    other = real_learner()
    other.samples.features.sparse.data[7] += 1
    with pytest.raises(ModelFormatError, match="other data"):
        resume(other, tmp_path / "c")
    differences = {
        "rows": 80,
        "config": TrainingConfig(epochs=7),
        "settings": {"n_clusters": 4},
        "seed": 2,
        "title": "stage 2",
    }
    for name, value in differences.items():
        with pytest.raises(ModelFormatError, match="another training"):
            resume(real_learner(), tmp_path / "c", **{name: value})
