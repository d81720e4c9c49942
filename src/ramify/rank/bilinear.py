"""Sparse bilinear scores xᵀ W z of samples x and labels z: which weights there are, and their training.

As in ZestXML (Gupta et al. 2021), a weight links a term of samples with a term of labels. Only links between terms that
go together have one; they are trained on the labels that are hardest to tell from the true ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from ramify import native
from ramify.base.config import Config, param
from ramify.base.sparse import as_csr, csr_from_parts, indicator_from_ids, keep_entries, pattern
from ramify.base.types import AnyArray, BoolArray, Csr, FloatArray
from ramify.index.postings import Postings

BLOCK = 8192
"""Terms whose associations are in memory at a time."""
ROWS = 1024
"""Samples that are searched for at a time: their terms of labels are the largest matrices of the training."""
SMOOTHING = 1.0
"""Added to the frequency of a term: two terms that occur once, together, say little."""


@dataclass(kw_only=True, eq=False, repr=False)
class BilinearConfig(Config):
    """Parameters of bilinear weights."""

    n_links: int = param(
        40,
        "links of each term of samples, and of each term of labels; raising it learns more, and is slower; 0: only "
        "terms that a sample and a label have in common count",
        low=0,
    )
    n_shortlist: int = param(60, "labels that a sample is trained on, beside its own: the best ones", low=1)
    max_rows: int = param(
        100_000, "training samples whose pairs the weights are trained on; lowering it is faster, less exact", low=1
    )
    C: float = param(0.3, "inverse regularization strength; raising it fits the training data more closely", above=0)
    positive_weight: float = param(2.0, "factor on the loss of positives; raising it favors recall", above=0)
    direct: float = param(
        1.75,
        "factor on the learned weight of terms that a sample and a label have in common; raising it favors labels "
        "with few training samples, or none",
        low=0,
    )
    min_direct: float = param(
        0.5, "the weight of common terms is at least this, also where training says that they mean little", low=0
    )
    threshold: float = param(
        0.02, "weights below this magnitude are dropped; raising it shrinks and speeds up the model", low=0
    )
    tolerance: float = param(
        0.1, "training stops at this violation of the optimality conditions; raising it is faster, less exact", above=0
    )
    max_epochs: int = param(4, "epochs over the pairs at most", low=1, high=2**31 - 1)


@dataclass(frozen=True, eq=False)
class Bilinear:
    """score(x, l) = xᵀ W z_l + bias, where the last d of the columns are the terms of samples themselves.

    Attributes
    ----------
    W : (d × (e + d)) learned weights beside β on the diagonal: of terms that a sample and a label have in common
    """

    W: Csr
    direct: float
    bias: float

    def queries(self, X: Csr, threads: int) -> Csr:
        """Samples in terms of labels (n × (e + d)): inner products with labels are scores without the bias."""
        return native.matrix.spmm(X, self.W, threads)


def fit_bilinear(
    X: Csr,
    Y: Csr,
    Z: Csr,
    config: BilinearConfig,
    *,
    linked: BoolArray,
    candidates: BoolArray,
    costs: FloatArray,
    are_texts: bool,
    seed: int,
    threads: int,
) -> Bilinear:
    """Train weights on samples X (n × d), their labels Y (n × L) and label features Z (L × e).

    Parameters
    ----------
    linked : (d,) terms of samples that may have weights
    candidates : (L,) labels that may be negatives: those with samples
    costs : (n,) weights of the samples
    are_texts : terms go together where they occur in the same samples, however often; else values count
    """
    S: Csr = sparse.csr_matrix((X.shape[1], Z.shape[1]), dtype=np.float32)
    if config.n_links:
        of_links = keep_entries(X, linked[X.indices])
        of_labels = native.matrix.spmm(Y, pattern(Z), threads)
        S = find_links(pattern(of_links) if are_texts else of_links, of_labels, config.n_links, threads)
    rows = np.sort(np.random.default_rng(seed).permutation(X.shape[0])[: config.max_rows])
    X, Y = X[rows], Y[rows]
    start = as_csr(
        csr_from_parts(S.data * np.float32(0.5), S.indices, S.indptr, S.shape) + _diagonal(S.shape, 1.0), "W"
    )
    pairs = shortlisted_pairs(X, Y, start, Z, candidates, config.n_shortlist, threads)
    W, direct, bias = native.linear.fit_bilinear(
        X, Z, pairs, S, positive_cost=config.C * config.positive_weight, negative_cost=config.C, costs=costs[rows],
        tolerance=config.tolerance, max_epochs=config.max_epochs, seed=seed,
    )  # fmt: skip
    direct = max(config.min_direct, direct * config.direct)
    kept = keep_entries(W, np.abs(W.data) >= config.threshold)
    d = W.shape[0]
    return Bilinear(as_csr(sparse.hstack([kept, _diagonal((d, d), direct)], format="csr"), "W"), direct, bias)


def find_links(X: Csr, T: Csr, n: int, threads: int) -> Csr:
    """Links (d × e) between terms of samples and of their labels: the n best of each, with their association.

    X (n × d) are features of samples, T (n × e) has an entry for each term of their labels. The association of the
    columns a of X and b of T is their covariance, divided by the smoothed norms of both.
    """
    T = pattern(T)
    by_rows = _associations(X, T, n, threads)
    by_columns = _associations(T, X, n, threads)
    both = by_rows.maximum(as_csr(by_columns.T.tocsr(), "links"))
    return as_csr(both, "links")


def _associations(A: Csr, B: Csr, n: int, threads: int) -> Csr:
    """Positive associations of the columns of A and B: for each column of A the n largest."""
    n_samples = A.shape[0]
    sums_a, sums_b = (np.asarray(M.sum(axis=0), np.float64).ravel() for M in (A, B))
    norms_a, norms_b = (np.sqrt(_column_squares(M) + SMOOTHING).astype(np.float32) for M in (A, B))
    means_a = (sums_a / n_samples).astype(np.float32)
    sums_b = sums_b.astype(np.float32)
    columns, parts = as_csr(A.T.tocsr(), "A"), []
    for first in range(0, A.shape[1], BLOCK):
        product = native.matrix.spmm(columns[first : first + BLOCK], B, threads)
        at = first + np.repeat(np.arange(product.shape[0]), np.diff(product.indptr))
        expected = means_a[at] * sums_b[product.indices]
        product.data = (product.data - expected) / (norms_a[at] * norms_b[product.indices])
        parts.append(native.matrix.largest_entries(keep_entries(product, product.data > 0), n, threads))
    return as_csr(sparse.vstack(parts, format="csr"), "links")


def _column_squares(M: Csr) -> AnyArray:
    return np.bincount(M.indices, np.square(M.data, dtype=np.float64), minlength=M.shape[1])


def _diagonal(shape: tuple[int, int], value: float) -> Csr:
    """Matrix with a value for the same term of samples and labels."""
    n = min(shape)
    return sparse.csr_matrix((np.full(n, value, np.float32), (np.arange(n), np.arange(n))), shape=shape)


def shortlisted_pairs(X: Csr, Y: Csr, W: Csr, Z: Csr, candidates: BoolArray, n: int, threads: int) -> Csr:
    """Targets (n × L) to train on: 1 for the labels of each sample, -1 for the n best others."""
    index = Postings.of(keep_entries(Z, np.repeat(candidates, np.diff(Z.indptr))))
    parts = []
    for first in range(0, X.shape[0], ROWS):
        ids, _ = index.products(native.matrix.spmm(X[first : first + ROWS], W, threads), min(n, Z.shape[0]), threads)
        parts.append(indicator_from_ids(ids, Z.shape[0]))
    found = as_csr(sparse.vstack(parts, format="csr"), "pairs").astype(np.float32)
    pairs = as_csr((2 * pattern(Y) - found).tocsr().astype(np.float32), "pairs")  # 2 or 1 where true
    pairs.data = np.sign(pairs.data)
    return pairs
