"""Targets from fixed and from refreshed shortlists."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify.base.mixed import Mixed
from ramify.index.ann import AnnConfig
from ramify.nn.encoders.bag import Bag
from ramify.nn.encoders.samples import Samples
from ramify.nn.label_embeddings import LabelEncoderConfig
from ramify.nn.sampling.fixed import FixedShortlists
from ramify.nn.sampling.positives import Positives
from ramify.nn.sampling.refreshed import RefreshedShortlists
from ramify.nn.sampling.targets import with_negatives

pytestmark = pytest.mark.native


def test_targets_are_the_labels_and_the_shortlist_of_each_sample():
    random = np.random.default_rng(0)
    Y = sparse.csr_matrix((random.random((40, 50)) < 0.3).astype(np.float32))
    rows = np.sort(random.permutation(40)[:30])
    shortlists = np.argsort(random.random((30, 50)), axis=1)[:, :12].astype(np.int32)
    shortlists[:, 9:] = -1
    shortlists[3] = -1
    shortlists[5, 1] = shortlists[5, 0]  # a repeated candidate counts once
    sampler = FixedShortlists(Y, rows, shortlists)
    batch = random.permutation(30)
    targets = sampler.targets(rows[batch])
    assert targets.has_sorted_indices
    for target, i in zip(targets, batch, strict=True):
        listed, own = set(shortlists[i][shortlists[i] >= 0].tolist()), set(Y[rows[i]].indices.tolist())
        assert len(target.indices) == len(set(target.indices.tolist()))
        assert set(target.indices.tolist()) == listed | own
        assert {j for j, w in zip(target.indices.tolist(), target.data, strict=True) if w > 0} == own
        assert {j for j, w in zip(target.indices.tolist(), target.data, strict=True) if w == 0} == listed - own
    assert set(targets.data.tolist()) == {0.0, 1.0}


def test_negatives_are_explicit_zeros():
    candidates = sparse.csr_matrix(np.array([[1, 1, 0, 1], [0, 1, 0, 0]], np.float32))
    positives = sparse.csr_matrix(np.array([[0, 2.5, 0, 0], [0, 0, 0, 0]], np.float32))
    targets = with_negatives(candidates, positives)
    assert targets.indices.tolist() == [0, 1, 3, 1]
    assert targets.data.tolist() == [0, 2.5, 0, 0]


def test_static_samplers_have_no_state():
    Y = sparse.csr_matrix(np.eye(3, dtype=np.float32))
    for sampler in (Positives(Y), FixedShortlists(Y, np.arange(3), np.zeros((3, 1), np.int32))):
        assert sampler.state() == ({}, {})
        sampler.set_state({}, {})
        before = sampler.targets(np.array([2, 0])).toarray()
        sampler.begin_epoch(0, None)
        assert np.array_equal(sampler.targets(np.array([2, 0])).toarray(), before)
    assert Positives(Y).targets(np.array([2, 0])).toarray().tolist() == [[0, 0, 1], [1, 0, 0]]


class CountingEncoder:
    """An encoder that counts its calls; `bag` may be trained in between."""

    def __init__(self, bag):
        self.bag, self.calls = bag, 0

    def encode(self, samples, threads):
        self.calls += 1
        return self.bag.encode(samples, threads)


def refreshed(shortlist_size=8, refresh_every=3, n=120, n_labels=30, seed=0):
    """A sampler over 100 training rows, and its encoder; the last label has no training sample."""
    random = np.random.default_rng(seed)
    centroids = random.standard_normal((n_labels, 10))
    label_of = random.integers(0, n_labels - 1, n)
    features = (centroids[label_of] + 0.3 * random.standard_normal((n, 10))).astype(np.float32)
    Y = sparse.csr_matrix((np.ones(n, np.float32), (np.arange(n), label_of)), (n, n_labels))
    samples, rows = Samples(Mixed.of(features)), np.arange(100)
    encoder = CountingEncoder(Bag.initialize(samples.features, Y, None, seed=0, threads=1))
    sampler = RefreshedShortlists(
        samples,
        Y,
        rows,
        encoder.encode(samples.take(rows), 1),
        shortlist_size=shortlist_size,
        refresh_every=refresh_every,
        label_encoder=LabelEncoderConfig(),
        ann=AnnConfig(),
        seed=0,
        threads=1,
    )
    encoder.calls = 0
    return sampler, encoder


def test_refreshed_shortlists_are_the_nearest_labels():
    sampler, encoder = refreshed()
    sampler.begin_epoch(0, encoder)
    batch = np.array([7, 80, 3])
    targets = sampler.targets(batch)
    ids, _ = sampler.index.search(encoder.encode(sampler.samples.take(batch), 1), 8, 1)
    for target, row, shortlist in zip(targets, batch, ids, strict=True):
        own = set(sampler.Y[row].indices.tolist())
        assert set(target.indices.tolist()) == set(shortlist.tolist()) | own
        assert {j for j, w in zip(target.indices.tolist(), target.data, strict=True) if w > 0} == own


def test_labels_without_a_training_sample_are_not_indexed():
    sampler, encoder = refreshed()
    sampler.begin_epoch(0, encoder)
    known = np.flatnonzero(np.bincount(sampler.Y[:100].indices, minlength=30))
    assert len(known) < 30
    assert len(sampler.index) == len(known)
    ids, _ = sampler.index.search(encoder.encode(sampler.samples, 1), len(known), 1)
    assert set(ids.ravel().tolist()) <= set(known.tolist())


def test_shortlists_are_refreshed_every_few_epochs():
    sampler, encoder = refreshed(refresh_every=3)
    indexes = []
    for epoch in range(8):
        sampler.begin_epoch(epoch, encoder)
        indexes.append(sampler.index)
    changed = [0, *(i for i in range(1, 8) if indexes[i] is not indexes[i - 1])]
    assert changed == [0, 1, 3, 6]  # also after the first epoch
    assert encoder.calls == 3  # the first refresh uses the given embeddings


def test_candidates_have_similarity_scores():
    sampler, encoder = refreshed()
    sampler.begin_epoch(0, encoder)
    embeddings = encoder.encode(sampler.samples, 1)
    ids, similarity_scores = sampler.candidates(embeddings)
    expected, similarities = sampler.index.search(embeddings, 8, 1)
    assert np.array_equal(ids, expected)
    sigma = 1 / (1 + np.exp(-similarities.astype(float)))
    assert similarity_scores == pytest.approx(sigma, abs=1e-6)


def test_state_round_trip():
    """A restored sampler has the same targets, and the same ones after the next refresh."""
    sampler, encoder = refreshed()
    for epoch in range(2):
        sampler.begin_epoch(epoch, encoder)
    arrays, values = sampler.state()
    arrays = {name: array.copy() for name, array in arrays.items()}
    resumed, _ = refreshed()
    resumed.set_state(arrays, values)
    batch = np.arange(100)

    def same():
        return np.array_equal(sampler.targets(batch).toarray(), resumed.targets(batch).toarray()) and np.array_equal(
            sampler.targets(batch).indices, resumed.targets(batch).indices
        )

    assert same()
    for either in (sampler, resumed):
        either.begin_epoch(3, encoder)
    assert same()
    embeddings = encoder.encode(sampler.samples, 1)
    for mine, other in zip(sampler.candidates(embeddings), resumed.candidates(embeddings), strict=True):
        assert np.array_equal(mine, other)
