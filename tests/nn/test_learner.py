"""Learner: one step of encoder and head, gradient clipping, state."""

from __future__ import annotations

import json

import numpy as np
import pytest
from neural import graph_learner, problem
from scipy import sparse

from ramify.base.mixed import Mixed
from ramify.index.ann import AnnConfig
from ramify.metrics.propensity import LabelCounts, inverse_propensity
from ramify.nn.config import TrainingConfig
from ramify.nn.encoders.bag import Bag, BagEncoder
from ramify.nn.encoders.samples import Samples
from ramify.nn.encoders.tokens import Tokens
from ramify.nn.heads.initialization import init_classifiers
from ramify.nn.heads.losses import binary_cross_entropy
from ramify.nn.heads.shortlist import ShortlistHead
from ramify.nn.label_embeddings import LabelEncoderConfig
from ramify.nn.learner import NORM_DECAY, NORM_GAIN, Learner
from ramify.nn.sampling.positives import Positives
from ramify.nn.sampling.refreshed import RefreshedShortlists
from ramify.nn.validation import BlendValidator, RankingValidator


def learner_on_graph(**options):
    head, samples, Y = problem()
    encoder = Bag.initialize(samples.features, Y, BagEncoder(dim=8), seed=0, threads=1)
    return graph_learner(encoder, head, samples, Y, np.arange(90, 100), TrainingConfig(**options))


def learner_on_shortlists(**options):
    """The composition of LightDXML: refreshed shortlists, and validation by the blended score."""
    _, samples, Y = problem()
    encoder = Bag.initialize(samples.features, Y, BagEncoder(dim=8), seed=0, threads=1)
    rows, validation_rows = np.arange(90), np.arange(90, 100)
    embeddings = encoder.encode(samples.take(rows), 1)
    sampler = RefreshedShortlists(
        samples,
        Y,
        rows,
        embeddings,
        shortlist_size=6,
        refresh_every=2,
        label_encoder=LabelEncoderConfig(),
        ann=AnnConfig(),
        seed=0,
        threads=1,
    )
    inverse = inverse_propensity(LabelCounts.of(Y[rows]))
    shift = (0.1 * np.log(inverse)).astype(np.float32)
    held = samples.take(validation_rows), Y[validation_rows]
    validator = BlendValidator(*held, sampler, inverse, shift, None, False, 1)
    head = ShortlistHead(*init_classifiers(Y[rows], embeddings, 6, 1), binary_cross_entropy)
    return Learner(encoder, head, sampler, validator, samples, TrainingConfig(**options), seed=3, threads=1)


def run(learner, epochs, n_batches=3):
    """Train on a few batches in each epoch; return losses and validation scores."""
    history = []
    for epoch in epochs:
        learner.begin_epoch(epoch)
        for i in range(n_batches):
            step = 1 + n_batches * epoch + i
            history.append(learner.step(np.arange(i, 90, n_batches), step, 1.0))
        history.append(learner.validate(epoch + 1))
    return history


@pytest.mark.parametrize("make", [learner_on_graph, learner_on_shortlists])
def test_state_round_trip(make):
    """A learner that takes over arrays and state continues with the same bits."""
    uninterrupted, first, resumed = make(), make(), make()
    history = run(uninterrupted, range(5))
    run(first, range(3))
    arrays = {name: array.copy() for name, array in first.arrays().items()}
    state, values = first.state()
    state = {name: array.copy() for name, array in state.items()}
    values = json.loads(json.dumps(values))  # as a checkpoint stores them
    run(first, range(3, 5))
    resumed.set_arrays(arrays)
    resumed.set_state(state, values)
    assert run(resumed, range(3, 5)) == history[-8:]
    for learner in (first, resumed):
        for name, array in uninterrupted.arrays().items():
            assert np.array_equal(array, learner.arrays()[name]), name
        found, found_values = learner.state()
        expected, expected_values = uninterrupted.state()
        assert found_values == expected_values
        for name, array in expected.items():
            assert np.array_equal(array, found[name]), name


@pytest.mark.parametrize("make", [learner_on_graph, learner_on_shortlists])
def test_the_optimizer_state_matters(make):
    """Without it, the same arrays lead elsewhere: the round trip above restores more than the arrays."""
    uninterrupted, resumed = make(), make()
    run(uninterrupted, range(2))
    resumed.set_arrays(uninterrupted.arrays())
    if make is learner_on_shortlists:
        state, values = uninterrupted.state()
        resumed.sampler.set_state(
            {name[len("sampler.") :]: a for name, a in state.items() if name.startswith("sampler.")}, values["sampler"]
        )
    for learner in (uninterrupted, resumed):
        learner.step(np.arange(20), 7, 1.0)
    assert not np.array_equal(
        uninterrupted.arrays()["encoder.residual.values"], resumed.arrays()["encoder.residual.values"]
    )


@pytest.mark.parametrize("make", [learner_on_graph, learner_on_shortlists])
def test_training_lowers_the_loss(make):
    learner = make(dropout=0.0)
    history = run(learner, range(12))
    losses = [value for value in history if isinstance(value, float)]
    assert np.mean(losses[-3:]) < 0.8 * np.mean(losses[:3])


def test_names_of_arrays():
    names = set(learner_on_graph().arrays())
    assert names == {
        "encoder.words.weights",
        "encoder.residual.values",
        "encoder.bias.values",
        "head.cluster_weights.values",
        "head.cluster_bias.values",
        "head.labels.weights",
        "head.labels.bias",
        "head.edges.values",
    }


class RecordingHead:
    """A head that records what it gets, with gradients of one."""

    def step(self, phi, targets, adam, threads, sample_weight):
        self.phi, self.targets, self.adam, self.sample_weight = phi, targets, adam, sample_weight
        return 0.5, np.ones_like(phi)


class RecordingEncoder:
    """An encoder of ones that records its gradients."""

    default_epochs = 3
    is_data_parallel = False

    def begin_training(self, seed):
        self.seed = seed

    def learning_rate(self, default):
        return default / 2

    def forward(self, samples, threads):
        return np.ones((len(samples), 400), np.float32), "tape"

    def backward(self, tape, gradients, adam, threads):
        self.tape, self.gradients, self.adam = tape, gradients, adam


def recording_learner(sample_weight=None, **options):
    Y = sparse.csr_matrix(np.eye(6, dtype=np.float32))
    samples = Samples(Mixed.of(np.zeros((6, 1), np.float32)))
    validator = RankingValidator(samples.take(np.arange(0)), Y[:0], 1)
    config = TrainingConfig(**options)
    parts = RecordingEncoder(), RecordingHead(), Positives(Y), validator
    return Learner(*parts, samples, config, seed=7, threads=1, sample_weight=sample_weight)


def test_weights_of_samples_have_a_mean_of_1():
    learner = recording_learner(np.array([10.0, 20.0, 30.0, 0.0, 30.0, 30.0]))
    learner.step(np.array([1, 2]), 1, 1.0)
    assert learner.head.sample_weight.tolist() == [1.0, 1.5]
    assert learner.data_digest() != recording_learner().data_digest()


def test_a_step_passes_embeddings_targets_and_learning_rates():
    learner = recording_learner(
        dropout=0.0, learning_rate=0.02, encoder_learning_rate=0.06, weight_decay=0.3, gradient_clip=None
    )
    assert learner.encoder.seed == 7
    assert learner.step(np.array([4, 1]), 5, 0.5) == 0.5
    assert np.all(learner.head.phi == 1)
    assert learner.head.targets.indices.tolist() == [4, 1]
    assert (learner.head.adam.learning_rate, learner.head.adam.step) == (0.01, 5)
    assert learner.encoder.adam.learning_rate == pytest.approx(0.015)  # the encoder halves its default
    assert learner.head.adam.weight_decay == learner.encoder.adam.weight_decay == 0.3
    assert learner.encoder.tape == "tape"
    assert learner.head.sample_weight is None
    assert np.all(learner.encoder.gradients == 1)


def test_dropout_masks_embeddings_and_gradients_alike():
    learner = recording_learner(dropout=0.25, gradient_clip=None)
    learner.step(np.arange(6), 1, 1.0)
    phi, gradients = learner.head.phi, learner.encoder.gradients
    assert set(np.unique(phi)) == {np.float32(0), np.float32(1 / 0.75)}  # the expectation is unchanged
    assert np.mean(phi == 0) == pytest.approx(0.25, abs=0.04)
    assert np.array_equal(phi, gradients)
    learner.step(np.arange(6), 2, 1.0)
    assert not np.array_equal(phi, learner.head.phi)  # each step has its own mask


def test_gradients_are_clipped_to_a_multiple_of_their_running_mean_norm():
    learner = learner_on_graph(gradient_clip=3.0)
    usual = np.ones((2, 2), np.float32)
    assert np.array_equal(learner._clipped(usual), usual)
    assert np.linalg.norm(learner._clipped(100 * usual)) == pytest.approx(3 * 2, rel=1e-3)
    assert learner.state()[1]["mean_norm"] == pytest.approx(NORM_DECAY * 2 + NORM_GAIN * 6)
    assert np.array_equal(learner._clipped(0 * usual), 0 * usual)


def test_without_a_limit_gradients_are_not_clipped():
    learner = recording_learner(gradient_clip=None)
    for scale in (1, 1000):
        gradients = np.full((2, 2), scale, np.float32)
        assert learner._clipped(gradients) is gradients


def test_the_digest_covers_features_tokens_and_labels():
    def digest(change=None, tokens=None):
        learner = learner_on_graph()
        if tokens is not None:
            learner.samples = Samples(learner.samples.features, tokens)
        if change is not None:
            change(learner)
        return learner.data_digest()

    def change_value(learner):
        learner.samples.features.sparse.data[7] += 1

    def change_label(learner):
        learner.sampler.Y.indices[0] = (learner.sampler.Y.indices[0] + 1) % 20

    tokens = [Tokens.from_lists([[i, last] for i in range(100)]) for last in (1, 2)]
    digests = [digest(), digest(change_value), digest(change_label), *(digest(tokens=part) for part in tokens)]
    assert digest() == digests[0]
    assert len(set(digests)) == 5
