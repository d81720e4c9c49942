"""How much memory a training takes, estimated from the data before it starts.

The estimate counts what is in memory at the largest stage of `fit`, above the input itself: encoded labels, features of
texts, label representations, the clustering, negatives, the scratch memory of each thread, and weights. Features of
texts and the entries of label representations are measured on a sample of the rows and extrapolated. The factors below
were fitted to measured peaks. For neural models the estimate counts the parameters, the state of the optimizer, and
what each model has beside them. Transformers are not opened: their configuration and the sizes of their files are read
if they are in a directory, and assumed otherwise. benchmarks/RESULTS.md compares estimates with peaks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ramify.base.types import AnyArray, Csr
from ramify.features.concat import Concat
from ramify.features.tfidf import Tfidf
from ramify.io.inputs import Inputs, take_rows
from ramify.labels.representations import pifa

SAMPLE = 4000
"""Rows that features and label representations are measured on."""
OVERHEAD = 8 << 20
"""Bytes of what does not grow with the data: stacks of threads, pools of the allocator."""
ENTRY = 8
"""Bytes of an entry of a CSR matrix: an index and a value."""
TERM, CHARACTER = 250, 0.6
"""Bytes of a term of a vocabulary (text, hash table, counts), and of a character of the texts while X is made."""
LANES = 16 * 4
"""Bytes of a weight, or of a dual variable, of the labels that a thread trains at once."""
STEP = 5 << 20
"""Bytes of a training step: activations of a batch and their gradients."""
EMPTY_COLUMN = 22
"""Bytes of a column without entries while an index of the samples is made."""
PACKED_WEIGHT = 5
"""Bytes of a packed weight."""
DENSE_ENTRY = 60
"""Bytes of an entry of the dense part of label representations while they are made and clustered."""
PACKED_DENSE_WEIGHT = 20
"""Bytes of a weight of dense features while it is packed, beside the CSR matrix that it comes from."""
HIDDEN_SIZE, N_LAYERS, TRANSFORMER_WEIGHTS = 768, 12, 440 << 20
"""Assumed dimension and layers of a transformer, and bytes of its weights, where it is not a directory."""
ENCODING = 24 << 20
"""Bytes of encoding texts with a transformer: tokens and activations of batches."""
FROZEN, FINE_TUNED = 1.5, 4
"""Bytes for each byte of a transformer's weights: those of torch, and of layers in the compiled core; in fine-tuning
gradients and Adam's moments.
"""
KEPT_TERM = 60
"""Bytes of a term of a vocabulary that is kept: text, hash table, weight."""
LINK, PAIR, ASSOCIATION, QUERY = 19, 28, 30, 16
"""Bytes of a link between terms of samples and labels, of a pair of a sample and a label, of an association that may
become a link, and of a label term of a sample that is searched for; all of bilinear weights.
"""
MATCHING, MATCH, NAME = 143, 80, 300
"""Bytes of a name found in a text while names are matched, and afterwards; and of a name."""
BOOSTED_COLUMN, BOOSTED_ROW, BINNED_ROWS = 13, 100, 200_000
"""Bytes of a value of boosted trees' features (single and double precision, and its bin), and of what else a row has
(target, weight, prediction, gradients); rows that scikit-learn copies to choose bins.
"""
ACTIVATIONS = 64
"""Bytes of the activations that a layer keeps for the backward pass, for each token and dimension."""


class Memory(NamedTuple):
    """Bytes of a training at its largest stage, and bytes of the trained model, both above the input."""

    peak: int
    kept: int

    @classmethod
    def in_sequence(cls, trainings: Iterable[Memory]) -> Memory:
        """Memory of trainings one after the other, whose models are all kept."""
        peak = kept = 0
        for training in trainings:
            peak, kept = max(peak, kept + training.peak), kept + training.kept
        return cls(peak, kept)


def label_bytes(Y: Csr) -> int:
    """Bytes of Y, its transpose, and the label vocabulary."""
    return 24 * int(Y.nnz) + 60 * int(Y.shape[1]) + 8 * int(Y.shape[0])


@dataclass(frozen=True, eq=False)
class DataSizes:
    """Sizes of training data: n samples, L labels, d features.

    Attributes
    ----------
    label_counts : (L,) samples of each label
    label_entries : (L,) entries of each row of Z (L × d), the sum of the features of a label's samples
    n_entries : entries of X (n × d)
    n_characters : characters of the texts that X is made from; None: X is the input
    column_counts : entries of the columns of a sample of X
    n_sampled : rows of that sample
    n_parts : matrices that X is concatenated from
    n_empty : columns of X without entries
    """

    n_samples: int
    n_features: int
    n_entries: int
    label_counts: AnyArray
    label_entries: AnyArray
    n_characters: int | None
    column_counts: AnyArray
    n_sampled: int
    n_parts: int = 1
    n_empty: int = 0

    @property
    def n_labels(self) -> int:
        """Number of labels L."""
        return len(self.label_counts)

    @property
    def labels(self) -> int:
        """Bytes of Y, its transpose, and the label vocabulary."""
        return int(24 * self.label_counts.sum() + 60 * self.n_labels + 8 * self.n_samples)

    @property
    def vocabulary(self) -> int:
        """Bytes of what a model keeps to make features from texts."""
        return 0 if self.n_characters is None else KEPT_TERM * self.n_features

    def entries_of_rare(self, max_df: float, least: int) -> float:
        """Entries of X in columns of at most the fraction `max_df` of the samples, or of `least` samples."""
        most = self.n_sampled * max(max_df, least / max(1, self.n_samples))
        n = int(self.column_counts.sum())
        return self.n_entries * float(self.column_counts[self.column_counts <= most].sum()) / max(1, n)

    @property
    def features(self) -> int:
        """Bytes of X and its vocabulary, if they are made from texts."""
        if self.n_characters is None:
            return 0
        return ENTRY * self.n_entries + TERM * self.n_features

    @property
    def making_features(self) -> int:
        """Bytes while X is made from texts: counts, and the parts of a concatenation beside the whole."""
        if self.n_characters is None:
            return 0
        copies = 1 if self.n_parts == 1 else 2
        return self.features + copies * ENTRY * self.n_entries + int(CHARACTER * self.n_characters)


def measure_sizes(inputs: Inputs, Y: Csr, features: Tfidf | Concat) -> DataSizes:
    """Measure training data; of large data, features of texts and entries of Z are extrapolated from a sample."""
    n, n_labels = Y.shape
    counts = np.bincount(Y.indices, minlength=n_labels)
    if inputs.kind == "dense":
        d = int(inputs.data.shape[1])
        return DataSizes(n, d, n * d, counts, np.full(n_labels, d), None, np.full(d, n), n)
    rows = np.sort(np.random.default_rng(0).permutation(n)[:SAMPLE])
    X: Csr
    if inputs.kind == "sparse":
        X = inputs.data[rows]
        d, n_entries = int(X.shape[1]), int(inputs.data.nnz)
    else:
        features = features.suited_to(inputs.data)
        X = features.clone().fit_transform(take_rows(inputs, rows).data)
        d, n_entries = int(X.shape[1]), int(X.nnz)
        if n > len(rows):
            half = features.clone().fit_transform(take_rows(inputs, rows[::2]).data)
            d = _extrapolated(half.shape[1], d, n / len(rows), 1.0)
            n_entries = _extrapolated(half.nnz, n_entries, n / len(rows), 1.03)  # more terms are in two rows
    growth = n_entries / max(1, n) * len(rows) / max(1, X.nnz)  # of the entries of a row: terms that few rows have
    entries = np.minimum(_label_entries(X, Y[rows], counts) * growth, d)
    n_characters = None if inputs.kind == "sparse" else _n_characters(inputs.data)
    n_parts = len(features.parts) if isinstance(features, Concat) else 1
    column_counts = np.bincount(X.indices, minlength=X.shape[1])
    n_empty = d - len(np.unique(inputs.data.indices)) if inputs.kind == "sparse" else 0
    return DataSizes(n, d, n_entries, counts, entries, n_characters, column_counts, len(rows), n_parts, n_empty)


def _n_characters(documents: list[Any]) -> int:
    return sum(len(text) if isinstance(text, str) else sum(map(len, text.values())) for text in documents)


def _extrapolated(half: int, whole: int, factor: float, max_power: float) -> int:
    """Size at `factor` times the rows, given the sizes at half of the rows and at all: a power law."""
    power = np.clip(np.log2(max(whole, 1) / max(half, 1)), 0.0, max_power)
    return int(whole * factor**power)


def _label_entries(X: Csr, Y: Csr, counts: AnyArray) -> AnyArray:
    """Entries (L,) of Z for labels with `counts` samples, from those of sampled rows: a power of the count."""
    Z: Csr = pifa(X, Y, threads=1)
    entries: AnyArray = np.diff(Z.indptr)
    seen = np.bincount(Y.indices, minlength=Y.shape[1])
    if np.array_equal(seen, counts):
        return entries
    used = (seen > 0) & (entries > 0)
    if not used.any():
        return np.zeros(len(counts))
    power = 0.85 if np.ptp(seen[used]) == 0 else np.polyfit(np.log(seen[used]), np.log(entries[used]), 1)[0]
    power = float(np.clip(power, 0.3, 1.0))
    scale = entries[used].sum() / (seen[used] ** power).sum()
    expected: AnyArray = scale * counts.astype(np.float64) ** power
    return expected


def solver_bytes(sizes: DataSizes, n_dense: int, threads: int) -> int:
    """Scratch memory of `fit_ovr`: weights and dual variables of the lanes of each thread."""
    return threads * LANES * (sizes.n_features + n_dense + sizes.n_samples)


def boosting_bytes(n_rows: float, n_columns: int) -> int:
    """Bytes of the features of boosted trees and of their training."""
    return int(n_rows * (BOOSTED_COLUMN * n_columns + BOOSTED_ROW) + 8 * n_columns * min(n_rows, BINNED_ROWS))


def tree_bytes(sizes: DataSizes, *, n_terms: int | None, n_centroids: int) -> int:
    """Bytes of Z and its clustering: Z, the entries that are clustered, twice, and dense centroids."""
    Z = float(sizes.label_entries.sum())
    kept = Z if n_terms is None else float(np.minimum(sizes.label_entries, n_terms).sum())
    clustering = 2 * ENTRY * kept + 4.0 * n_centroids * (sizes.n_features - sizes.n_empty)
    return int(max(1.65 * ENTRY * Z, 1.2 * ENTRY * Z + clustering))


def encoder_bytes(sizes: DataSizes, dim: int, n_outputs: int, *, is_bag: bool) -> int:
    """Bytes of a training of embeddings with a head of `n_outputs` classifiers.

    Parameters with Adam's two moments and a copy of those that validated best, and embeddings of the samples.
    """
    parameters = dim * (n_outputs + (sizes.n_features if is_bag else 0))
    return 4 * 4 * parameters + 4 * 2 * dim * sizes.n_samples + STEP


class TransformerSizes(NamedTuple):
    """Sizes of a transformer, as far as they are known without opening it."""

    dim: int
    n_layers: int
    weights: int

    @classmethod
    def of(cls, path: str) -> TransformerSizes:
        """Read the configuration and the sizes of the files of a directory; for a name on the hub assume BERT's."""
        folder = Path(path).expanduser()
        try:
            settings = json.loads((folder / "config.json").read_text())
        except (OSError, ValueError, RecursionError):
            settings = None

        def size(name: str, default: int) -> int:
            value = settings.get(name) if isinstance(settings, dict) else None
            return value if type(value) is int and 0 < value < 2**20 else default

        weights = sum(file.stat().st_size for file in folder.glob("*.safetensors")) if folder.is_dir() else 0
        dim, n_layers = size("hidden_size", HIDDEN_SIZE), size("num_hidden_layers", N_LAYERS)
        return cls(dim, n_layers, weights or TRANSFORMER_WEIGHTS)

    def frozen_bytes(self) -> int:
        """Bytes of the weights, and of encoding texts."""
        return ENCODING + int(FROZEN * self.weights)

    def fine_tuning_bytes(self, n_texts: int, n_tokens: int) -> int:
        """Bytes of the weights, what is trained with them, and activations of `n_texts` texts of `n_tokens` tokens."""
        activations = ACTIVATIONS * self.dim * self.n_layers * n_tokens * n_texts
        return ENCODING + activations + FINE_TUNED * self.weights
