"""Synthetic data with the statistics of real data: Zipf-distributed labels and features, labels grouped in topics."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse


def zipf(n_labels: int, *, n_test: int = 1000, seed: int = 0) -> tuple[Any, Any, Any]:
    """Return training features (n × d), labels (n × L) and test features.

    About three labels per sample; its words belong to its labels, to their topic, or to neither.
    """
    random = np.random.default_rng(seed)
    n = max(20_000, n_labels) + n_test
    d = int(20 * n_labels**0.7) + 20_000
    n_topics = max(20, n_labels // 50)

    def draw(size: int, exponent: float, shape: Any) -> Any:
        """Integers below `size` from a power law, by inverting its distribution."""
        u = random.random(shape)
        power = 1 - exponent
        return np.minimum(((u * (size**power - 1) + 1) ** (1 / power)).astype(np.int64) - 1, size - 1)

    topic_of = random.integers(0, n_topics, n_labels)
    by_topic = np.argsort(topic_of, kind="stable")
    borders = np.searchsorted(topic_of[by_topic], np.arange(n_topics + 1))
    words_of_label = draw(d, 0.8, (n_labels, 8))
    words_of_topic = draw(d, 0.8, (n_topics, 40))

    first = draw(n_labels, 0.8, n)
    topic = topic_of[first]
    size = np.maximum(1, borders[topic + 1] - borders[topic])
    others = by_topic[borders[topic][:, None] + (random.random((n, 2)) ** 2 * size[:, None]).astype(np.int64)]
    labels = np.hstack([first[:, None], others])
    words = np.hstack([
        words_of_label[labels][:, :, :].reshape(n, -1)[:, random.permutation(24)[:14]],
        np.take_along_axis(words_of_topic[topic], random.integers(0, 40, (n, 12)), axis=1),
        draw(d, 0.8, (n, 14)),
    ])  # fmt: skip
    rows = np.repeat(np.arange(n), words.shape[1])
    X = sparse.csr_matrix((np.ones(words.size, np.float32), (rows, words.ravel())), (n, d))
    X.sum_duplicates()
    df = np.bincount(X.indices, minlength=d)
    X.data = (np.log1p(X.data) * np.log((1 + n) / (1 + df))[X.indices]).astype(np.float32)
    X = sparse.csr_matrix(X.multiply(1 / np.sqrt(np.asarray(X.multiply(X).sum(axis=1)))), dtype=np.float32)
    Y = sparse.csr_matrix(
        (np.ones(labels.size, np.float32), (np.repeat(np.arange(n), 3), labels.ravel())), (n, n_labels)
    )
    Y.sum_duplicates()
    Y.data[:] = 1
    return X[n_test:], Y[n_test:], X[:n_test]


def short_rows(n_labels: int, n: int, first: int = 0, *, n_features: int | None = None) -> tuple[Any, Any]:
    """Return features (n × d) and labels (n × L) of the rows from `first` on of a set of any size, block by block.

    Two labels per sample: every label in turn, and another one of its topic, some more often; nine words: three of
    each label, two of the topic, one of neither. Words of labels are hashes, so that nothing grows with the set.
    """
    d = n_features or min(1 << 20, int(20 * n_labels**0.7) + 20_000)
    random = np.random.default_rng([first, n_labels])
    # Labels in an order that mixes topics: any range of rows is like any other.
    label = ((first + np.arange(n, dtype=np.int64)) * 2_654_435_761) % n_labels
    topic = label // 50
    size = np.minimum(50, n_labels - 50 * topic)
    other = 50 * topic + (random.random(n) ** 2 * size).astype(np.int64)

    def words(key: Any, kind: int, choice: Any) -> Any:
        """Words of a label or a topic, frequent ones with small ids."""
        mixed = (key * 8 + choice + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15 + 2 * kind)
        uniform = (mixed ^ mixed >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9) >> np.uint64(11)
        return (d * (uniform.astype(np.float64) / 2**53) ** 2).astype(np.int64)

    columns = np.stack([
        *(words(key, 0, random.integers(0, 5, n)) for key in (label, other) for _ in range(3)),
        *(words(topic, 1, random.integers(0, 8, n)) for _ in range(2)),
        (d * random.random(n) ** 2).astype(np.int64),
    ], axis=1)  # fmt: skip
    X = _rows_of(columns, d)
    # TF-IDF with the probability of a word in place of its frequency, which would take a second traversal.
    probability = 9 * np.diff(np.sqrt(np.arange(d + 1) / d))
    X.data = np.log(1 + 1 / probability)[X.indices].astype(np.float32)
    norms = np.sqrt(np.add.reduceat(X.data * X.data, X.indptr[:-1]))
    X.data /= norms.repeat(np.diff(X.indptr))
    return X, _rows_of(np.stack([label, other], axis=1), n_labels)


def _rows_of(columns: Any, width: int) -> Any:
    """Indicator (n × width) of the columns (n, m) of each row."""
    n, m = columns.shape
    indptr = np.arange(n + 1, dtype=np.int32) * m
    matrix = sparse.csr_matrix((np.ones(n * m, np.float32), columns.ravel().astype(np.int32), indptr), (n, width))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix
