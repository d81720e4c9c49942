"""Helpers shared by the tests of neural models."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ramify.base.mixed import Mixed
from ramify.nn.encoders.samples import Samples
from ramify.nn.heads.graph import GraphHead, GraphOptions, TrainedEdges
from ramify.nn.learner import Learner
from ramify.nn.sampling.positives import Positives
from ramify.nn.validation import RankingValidator

WORDS = [f"w{i}" for i in range(60)]
"""Words that the tiny BERT of the tests knows."""


class Killed(Exception):
    """Interrupts a training in the middle of an epoch."""


def kill_at(learner, step):
    """Raise `Killed` in place of the given step of a learner."""
    run = learner.step

    def step_or_die(rows, number, factor):
        if number == step:
            raise Killed
        return run(rows, number, factor)

    learner.step = step_or_die
    return learner


def problem(n=100, n_labels=20, n_clusters=4, dim=8):
    """A head over a small label graph, with samples and labels to train it on."""
    random = np.random.default_rng(0)
    X = sparse.random(n, 30, 0.2, "csr", np.float32, random)
    Y = sparse.csr_matrix((random.random((n, n_labels)) < 0.15).astype(np.float32))
    indptr = np.arange(n_clusters + 1, dtype=np.int64) * 8
    labels = np.concatenate([np.sort(random.permutation(n_labels)[:8]) for _ in range(n_clusters)]).astype(np.int32)
    edges = TrainedEdges(indptr, labels, np.zeros(len(labels), np.float32), 5.0, n_labels)
    clusters, classifiers = (
        (random.standard_normal((m, dim)).astype(np.float32), np.zeros(m, np.float32)) for m in (n_clusters, n_labels)
    )
    return GraphHead(clusters, edges, classifiers, GraphOptions(2.0, 5.0, 2, 10, 0.05)), Samples(Mixed.of(X)), Y


def graph_learner(encoder, head, samples, Y, validation_rows, config, seed=3):
    """A learner as ELIAS composes it."""
    validator = RankingValidator(samples.take(validation_rows), Y[validation_rows], 1)
    return Learner(encoder, head, Positives(Y), validator, samples, config, seed=seed, threads=1)


def logit_gradients(head, batch):
    """Gradients of the edge logits from those of the edges' log scores, cluster by cluster."""
    if head.edges is None:
        return None
    passed = np.where(head.edges.unclipped <= 0, batch.edge_scores, 0)
    softmax = np.exp(head.edges.unclipped.astype(np.float64) - head.edges.log_beta)
    gradients, indptr = np.empty(len(passed)), head.graph.indptr
    for c in range(head.graph.n_clusters):
        row = slice(indptr[c], indptr[c + 1])
        gradients[row] = passed[row] - softmax[row] * passed[row].sum()
    return gradients


def texts_and_labels(n=100, seed=0):
    """Texts of words that the tiny BERT knows: some identify the labels, the rest are noise."""
    random = np.random.default_rng(seed)
    labels = [sorted({int(x) for x in random.integers(12, size=2)}) for _ in range(n)]
    texts = [" ".join([WORDS[x] for x in own] + [WORDS[12 + i] for i in random.integers(40, size=3)]) for own in labels]
    return texts, [[f"label{x}" for x in own] for own in labels]


def topics(n=900, n_labels=220, seed=0):
    """Texts with labels of many clusters: a word of each label, a word of its topic, and noise."""
    random = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n):
        own = sorted(set((random.zipf(1.3, 2) - 1) % n_labels))
        words = (
            [f"own{x}" for x in own]
            + [f"topic{x % 12}" for x in own]
            + [f"noise{x}" for x in random.integers(40, size=4)]
        )
        texts.append(" ".join(words))
        labels.append([f"label{x}" for x in own])
    return texts, labels
