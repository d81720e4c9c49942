"""Rows of a matrix in parts equal those of scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify import native

pytestmark = pytest.mark.native


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("fraction", [0.0, 0.02, 0.7, 1.0])
def test_rows_are_those_of_the_whole(fraction, threads):
    random = np.random.default_rng(0)
    parts = [sparse.random(n, 40, 0.1, "csr", np.float32, random) for n in (0, 1, 9000, 0, 700)]
    rows = np.flatnonzero(random.random(9701) < fraction)
    found = native.matrix.take_rows(parts, rows, threads)
    expected = sparse.vstack(parts, format="csr")[rows]
    assert found.shape == expected.shape
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_wide_indices_and_what_does_not_fit():
    a = sparse.random(5, 4, 0.5, "csr", np.float32, np.random.default_rng(1))
    wide = a.copy()
    wide.indices, wide.indptr = a.indices.astype(np.int64), a.indptr.astype(np.int64)
    assert (native.matrix.take_rows([wide, a], np.array([1, 7]), 1) != sparse.vstack([a[1], a[2]])).nnz == 0
    for rows in ([5], [2, 1], [1, 1], [-1]):
        with pytest.raises(ValueError, match="ascend"):
            native.matrix.take_rows([a], np.array(rows), 1)
    with pytest.raises(ValueError, match="same number of columns"):
        native.matrix.take_rows([a, a[:, :3]], np.array([0]), 1)
