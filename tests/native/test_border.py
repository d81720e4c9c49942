"""What native code takes: arrays of the exact dtype, contiguous, never a converted copy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify import native

pytestmark = pytest.mark.native

F = np.ones((3, 4), np.float32)
I = np.zeros((3, 2), np.int32)  # noqa: E741
CSR = sparse.csr_matrix(np.eye(4, dtype=np.float32))


def with_index_types(indptr, indices):
    matrix = CSR.copy()
    matrix.indptr, matrix.indices = matrix.indptr.astype(indptr), matrix.indices.astype(indices)
    return matrix


@pytest.mark.parametrize(
    "call",
    [
        lambda: native.matrix.dense_products(F, F.astype(np.float64), 1),
        lambda: native.matrix.unit_rows(F.astype(np.float16), 1),
        lambda: native.matrix.unit_rows(F.T, 1),  # not contiguous
        lambda: native.matrix.ranking_hits(I.astype(np.int64), CSR[:3], 1),
        lambda: native.matrix.blend_rankings(I[None].astype(np.int64), F[None, :, :2], 1, 1),
        lambda: native.ann.quantize(F.astype(np.float64), 1),
        lambda: native.neural.group_pairs(I.astype(np.int64), 4),
        lambda: native.neural.embed_dense(F[:, :3], np.eye(3, dtype=np.float32), np.zeros(3, np.float32), 1),
        lambda: native.neural.embed_bags(CSR, np.eye(4, dtype=np.float32), np.eye(4), np.zeros(4, np.float32), 1),
    ],
)
def test_arrays_of_another_type_or_order_are_refused(call):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        call()


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (CSR.astype(np.float64), "float32"),
        (with_index_types(np.int32, np.int64), "both be int32 or both be int64"),
        (with_index_types(np.int16, np.int16), "both be int32 or both be int64"),
    ],
)
def test_matrices_of_another_type_are_refused(matrix, message):
    for call in (
        lambda: native.matrix.csr_topk(matrix, 2, 1),
        lambda: native.matrix.largest_entries(matrix, 2, 1),
        lambda: native.linear.kmeans(matrix, 2, True, True, 5, 0.0, 0, 1),
        lambda: native.neural.embed_bags(matrix, F[:, :4].repeat(2, 0)[:4], *(np.eye(4, dtype=np.float32),) * 2, 1),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError, match=message):
        native.matrix.csr_topk(matrix, 2, 1)


def test_both_index_types_give_the_same():
    wide = with_index_types(np.int64, np.int64)
    for narrow, other in zip(native.matrix.csr_topk(CSR, 3, 1), native.matrix.csr_topk(wide, 3, 1), strict=True):
        assert np.array_equal(narrow, other)
    assert (native.matrix.spmm(CSR, wide, 1) != CSR).nnz == 0


def test_what_is_changed_in_place_is_never_a_copy():
    adam = native.neural.AdamOptions(learning_rate=0.1, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.0, step=1)
    moments = np.zeros(4, np.float32), np.zeros(4, np.float32)
    values = np.ones(4, np.float32)
    native.neural.adam_dense(values, np.ones(4, np.float32), moments, adam)
    assert np.allclose(values, 0.9)
    with pytest.raises(TypeError):
        native.neural.adam_dense(np.ones(4), np.ones(4, np.float32), moments, adam)
    d_edges = np.zeros(8)[::2]
    with pytest.raises(TypeError):
        native.neural.scatter_path_gradients(I, F[:, :2].copy(), np.zeros(4, np.int32), F.copy(), d_edges)
    read_only = values.copy()
    read_only.flags.writeable = False
    with pytest.raises(TypeError):
        native.neural.adam_dense(read_only, np.ones(4, np.float32), moments, adam)


def test_options_are_given_by_name():
    from ramify import _core

    with pytest.raises(TypeError):
        native.neural.AdamOptions(0.1, 0.9, 0.999, 1e-8, 0.0, 1)
    with pytest.raises(TypeError):
        _core.KMeansOptions(spherical=True, max_iterations=5, tolerance=0.0)
    with pytest.raises(KeyError):
        _core.Loss["huber"]
