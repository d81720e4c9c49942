"""What the tests of deep models share."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ramify.base.mixed import Mixed
from ramify.nn.encoders.samples import Samples
from ramify.nn.heads.graph import GraphHead, GraphOptions, TrainedEdges

WORDS = [f"w{i}" for i in range(60)]
"""Words that the tiny BERT of the tests knows."""


class Killed(Exception):
    """Ends a training in the middle of a pass."""


def problem(n=100, n_labels=20, n_clusters=4, width=8):
    """A head over a small graph, with points and labels to train it on."""
    random = np.random.default_rng(0)
    X = sparse.random(n, 30, 0.2, "csr", np.float32, random)
    Y = sparse.csr_matrix((random.random((n, n_labels)) < 0.15).astype(np.float32))
    begin = np.arange(n_clusters + 1, dtype=np.int64) * 8
    ends = np.concatenate([np.sort(random.permutation(n_labels)[:8]) for _ in range(n_clusters)]).astype(np.int32)
    edges = TrainedEdges(begin, ends, np.zeros(len(ends), np.float32), 5.0, n_labels)
    weights = [
        (random.standard_normal((m, width)).astype(np.float32), np.zeros(m, np.float32)) for m in (n_clusters, n_labels)
    ]
    return GraphHead(weights[0], edges, weights[1], GraphOptions(2.0, 5.0, 2, 10, 0.05)), Samples(Mixed.of(X)), Y


def logit_gradients(head, found):
    """Gradients of the edges' logits from those of their log scores, cluster by cluster."""
    if head.edges is None:
        return None
    passed = np.where(head.edges.unclipped <= 0, found.edge_scores, 0)
    shares = np.exp(head.edges.unclipped.astype(np.float64) - head.edges.log_beta)
    gradients, begin = np.empty(len(passed)), head.graph.indptr
    for c in range(head.graph.n_clusters):
        row = slice(begin[c], begin[c + 1])
        gradients[row] = passed[row] - shares[row] * passed[row].sum()
    return gradients


def texts_and_labels(n=100, seed=0):
    """Texts of words of the tiny BERT: some name their labels, the rest is noise."""
    random = np.random.default_rng(seed)
    labels = [sorted({int(x) for x in random.integers(12, size=2)}) for _ in range(n)]
    texts = [" ".join([WORDS[x] for x in own] + [WORDS[12 + i] for i in random.integers(40, size=3)]) for own in labels]
    return texts, [[f"label{x}" for x in own] for own in labels]


def topics(n=900, n_labels=220, seed=0):
    """Texts with labels of many clusters: a label's own word, a word of its topic, and noise."""
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
