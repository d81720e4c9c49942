"""Products of embeddings with the table rows of their candidates, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from ramify import native

pytestmark = pytest.mark.native


def random_candidates(random, n, k, n_rows):
    candidates = np.stack([random.permutation(n_rows)[:k] for _ in range(n)]).astype(np.int32)
    candidates[random.random(candidates.shape) < 0.3] = -1
    return candidates


def test_pairs_are_grouped_by_row():
    random = np.random.default_rng(0)
    candidates = random_candidates(random, 9, 4, 11)
    rows, indptr, positions = native.neural.group_pairs(candidates, 11)
    assert np.all(np.diff(rows) > 0)
    flat = candidates.ravel()
    for i, row in enumerate(rows):
        assert positions[indptr[i] : indptr[i + 1]].tolist() == np.flatnonzero(flat == row).tolist()
    assert indptr[-1] == (flat >= 0).sum()
    assert native.neural.group_pairs(np.full((2, 2), -1, np.int32), 5)[0].size == 0


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("d", [1, 7, 64])
def test_products_with_candidates_and_their_gradients(threads, d):
    random = np.random.default_rng(d)
    table, bias = random.standard_normal((30, d)).astype(np.float32), random.standard_normal(30).astype(np.float32)
    embeddings = random.standard_normal((12, d)).astype(np.float32)
    candidates = random_candidates(random, 12, 8, 30)
    pairs = native.neural.group_pairs(candidates, 30)
    out = native.neural.gather_dot(pairs, 8, table, bias, embeddings, threads)
    mask = candidates >= 0
    expected = np.einsum("ijd,id->ij", table[candidates], embeddings) + bias[candidates]
    assert out[mask] == pytest.approx(expected[mask], abs=1e-4)
    assert np.all(out[~mask] == 0)
    gradients = np.where(mask, random.standard_normal(candidates.shape), 0).astype(np.float32)
    back = native.neural.gather_dot_backward(pairs, table, gradients, threads)
    assert back == pytest.approx(np.einsum("ij,ijd->id", gradients, table[candidates] * mask[..., None]), abs=1e-4)
