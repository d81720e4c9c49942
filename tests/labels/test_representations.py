"""Label representations against their formulas, and the native products against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import ramify
from ramify import native
from ramify.base.mixed import Mixed
from ramify.base.sparse import as_csr, normalize_rows
from ramify.labels.representations import pifa, pifa_mixed, pifa_with_features, pii, spectral


def random_csr(rng, rows, cols, density, index_type=np.int32):
    matrix = sparse.random(rows, cols, density, format="csr", dtype=np.float32, random_state=int(rng.integers(1 << 30)))
    matrix.sort_indices()
    matrix.indptr, matrix.indices = matrix.indptr.astype(index_type), matrix.indices.astype(index_type)
    return matrix


@pytest.mark.native
@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32),
    st.tuples(st.integers(1, 200), st.integers(1, 40), st.integers(1, 300)),
    st.sampled_from([0.0, 0.01, 0.2, 1.0]),
    st.sampled_from([(np.int32, np.int32), (np.int64, np.int64), (np.int32, np.int64)]),
    st.sampled_from([1, 2, 5]),
)
def test_sparse_products_against_scipy(seed, shape, density, index_types, threads):
    rng = np.random.default_rng(seed)
    m, p, q = shape
    a, b = random_csr(rng, m, p, density, index_types[0]), random_csr(rng, p, q, density, index_types[1])
    found = native.matrix.spmm(a, b, threads)
    assert found.has_canonical_format
    assert np.allclose(found.toarray(), (a @ b).toarray(), rtol=1e-5, atol=1e-6)
    dense = rng.standard_normal((p, q)).astype(np.float32)
    assert np.allclose(native.matrix.spmm_dense(a, dense, threads), a @ dense, rtol=1e-4, atol=1e-5)


@pytest.mark.native
@pytest.mark.parametrize("unit_rows", [False, True])
def test_products_with_many_columns_and_few_entries(unit_rows):
    """Rows with few entries do not look at all columns, between others that do."""
    rng = np.random.default_rng(0)
    counts = rng.choice([0, 1, 5, 40, 400], 300)
    indices = np.concatenate([np.sort(rng.choice(50_000, n, replace=False)) for n in counts]).astype(np.int32)
    values = rng.standard_normal(len(indices)).astype(np.float32)
    b = sparse.csr_matrix((values, indices, np.concatenate([[0], np.cumsum(counts)])), shape=(300, 50_000))
    a = random_csr(rng, 500, 300, 0.01)
    expected = a @ b
    if unit_rows:
        norms = np.sqrt(np.asarray(expected.multiply(expected).sum(axis=1)).ravel())
        expected = sparse.diags(1 / np.where(norms > 0, norms, 1)) @ expected
    found = native.matrix.spmm(a, b, 2, unit_rows=unit_rows)
    assert found.has_canonical_format
    assert np.array_equal(found.indptr, sparse.csr_matrix(expected).indptr)
    assert abs(found - expected).max() < 1e-5


@pytest.mark.native
def test_sparse_products_have_the_same_bits_for_any_number_of_threads():
    rng = np.random.default_rng(0)
    a, b = random_csr(rng, 3000, 500, 0.02), random_csr(rng, 500, 2000, 0.03)
    dense = rng.standard_normal((500, 70)).astype(np.float32)
    first = native.matrix.spmm(a, b, 1), native.matrix.spmm_dense(a, dense, 1)
    for threads in (2, 7):
        again = native.matrix.spmm(a, b, threads)
        assert all(np.array_equal(getattr(again, x), getattr(first[0], x)) for x in ("indptr", "indices", "data"))
        assert np.array_equal(native.matrix.spmm_dense(a, dense, threads), first[1])
    with pytest.raises(ValueError, match="do not fit"):
        native.matrix.spmm(a, a, 1)


@pytest.fixture
def data():
    rng = np.random.default_rng(1)
    labels = (rng.random((60, 25)) < 0.15).astype(np.float32)
    labels[:, 7] = 0  # a label without samples
    labels[3] = 0  # a sample without labels
    return random_csr(rng, 60, 80, 0.1), as_csr(sparse.csr_matrix(labels))


def unit_norm(rows):
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1)


def test_pii(data):
    _, labels = data
    assert np.allclose(pii(labels).toarray(), unit_norm(labels.toarray().T), atol=1e-6)


@pytest.mark.parametrize("normalize_y", [True, False])
def test_pifa(data, normalize_y):
    features, labels = data
    left = unit_norm(labels.toarray()) if normalize_y else labels.toarray()
    expected = unit_norm(left.T @ features.toarray())
    assert np.allclose(pifa(features, labels, normalize_y=normalize_y).toarray(), expected, atol=1e-5)
    assert np.allclose(pifa(features.toarray(), labels, normalize_y=normalize_y), expected, atol=1e-5)
    assert pifa(features, labels)[7].nnz == 0
    with pytest.raises(ramify.DataError, match="rows"):
        pifa(features[:5], labels)


def test_pifa_of_mixed_features(data):
    features, labels = data
    mixed = Mixed(features[:, :50].tocsr(), features[:, 50:].toarray())
    assert np.allclose(pifa_mixed(mixed, labels).toarray(), pifa(features, labels).toarray(), atol=1e-6)
    only_sparse = pifa_mixed(Mixed(features, np.empty((60, 0), np.float32)), labels)
    assert (only_sparse != pifa(features, labels)).nnz == 0


def test_pifa_concatenated_with_label_features(data):
    features, labels = data
    label_features = random_csr(np.random.default_rng(2), 25, 80, 0.2)
    expected = np.hstack([pifa(features, labels).toarray(), label_features.toarray()])
    assert np.allclose(pifa_with_features(features, labels, label_features).toarray(), expected, atol=1e-6)
    dense = pifa_with_features(features.toarray(), labels, label_features.toarray())
    assert isinstance(dense, np.ndarray)
    assert np.allclose(dense, expected, atol=1e-5)
    with pytest.raises(ramify.DataError, match="label features"):
        pifa_with_features(features, labels, label_features[:3])


def test_spectral(data):
    _, labels = data
    dense = labels.toarray().astype(float)
    rows, columns = dense.sum(1), dense.sum(0)
    by_row, by_label = (np.where(s > 0, 1 / np.sqrt(np.maximum(s, 1e-9)), 0) for s in (rows, columns))
    _, _, right = np.linalg.svd(by_row[:, None] * dense * by_label)
    expected = (right[1:5] * by_label).T
    found = spectral(labels, 4)
    assert found.shape == (25, 4)
    assert np.allclose(np.abs(found), np.abs(expected), atol=1e-4)
    assert np.array_equal(found, spectral(labels, 4))
    assert np.all(found[7] == 0)
    with pytest.raises(ValueError, match="n_dimensions"):
        spectral(labels, 24)


def test_normalize_rows_keeps_zero_rows():
    matrix = as_csr(sparse.csr_matrix(np.array([[3.0, 4.0], [0.0, 0.0]])))
    assert np.allclose(normalize_rows(matrix).toarray(), [[0.6, 0.8], [0, 0]])
    assert np.allclose(normalize_rows(matrix.toarray()), [[0.6, 0.8], [0, 0]])
