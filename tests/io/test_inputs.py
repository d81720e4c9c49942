from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import ramify
from ramify.base import sparse as ramify_sparse
from ramify.base.sparse import as_csr, csr_from_parts
from ramify.io.inputs import check_inputs


def csr(data, indices, indptr, shape):
    """CSR matrix without the checks of scipy."""
    matrix = sparse.csr_matrix(shape, dtype=np.float32)
    matrix.data, matrix.indices, matrix.indptr = np.array(data, np.float32), np.array(indices), np.array(indptr)
    return matrix


def test_input_kinds():
    assert check_inputs(["a", ""]).kind == "text"
    assert check_inputs(np.array(["a", "b"])).data == ["a", "b"]
    assert check_inputs(t for t in ("a", "b")).data == ["a", "b"]
    assert check_inputs([{"title": "a"}]).kind == "fields"
    assert check_inputs([[1, 2], [3, 4]]).kind == "dense"
    dense = check_inputs(np.eye(3, dtype=int))
    assert (dense.kind, dense.n_features, dense.data.dtype, len(dense)) == ("dense", 3, np.float32, 3)
    for kind in (sparse.csr_matrix, sparse.csc_matrix, sparse.coo_matrix, sparse.csr_array):
        assert check_inputs(kind(np.eye(2))).kind == "sparse"


def test_as_csr_makes_a_canonical_copy():
    matrix = csr([1, 2, 3], [2, 0, 2], [0, 3], (1, 3))
    canonical = as_csr(matrix)
    assert canonical.toarray().tolist() == [[2, 0, 4]]
    assert canonical.has_canonical_format
    assert matrix.indices.tolist() == [2, 0, 2]


@pytest.mark.parametrize(("X", "message"), [
    ("text", "pass a list"),
    ({"title": "a"}, "pass a list"),
    (5, "list of texts"),
    (["a", None], "row 1"),
    ([{"a": "x"}, "y"], "row 1"),
    ([{"a": 5}], "field 'a'"),
    (np.zeros(3), "two-dimensional"),
    (np.zeros((2, 2, 2)), "two-dimensional"),
    (np.array([[1.0, np.nan]]), "NaN or infinity .first in row 0"),
    (np.array([[1j]]), "complex"),
    ([["a", "b"]], "not rows of numbers"),
    (csr([np.inf], [0], [0, 0, 1], (2, 1)), "first in row 1"),
    (csr([1], [5], [0, 1], (1, 3)), "outside 0 to 2"),
    (csr([1], [-1], [0, 1], (1, 3)), "outside 0 to 2"),
    (csr([1, 1], [0, 1], [0, 2, 1], (2, 3)), "do not ascend"),
    (csr([1], [0], [0, 4], (1, 3)), "damaged"),
    (sparse.csr_matrix(np.array([[1j]])), "complex"),
])  # fmt: skip
def test_invalid_input_is_refused(X, message):
    with pytest.raises(ramify.DataError, match=message):
        check_inputs(X)


@pytest.mark.parametrize("fast", [True, False])
def test_csr_from_parts_equals_scipys_constructor(monkeypatch, fast):
    assert ramify_sparse._can_skip_checks  # the attributes of this version of scipy are known
    monkeypatch.setattr(ramify_sparse, "_can_skip_checks", fast)
    data, indices, indptr = (
        np.array([1, 2, 3], np.float32),
        np.array([0, 2, 1], np.int32),
        np.array([0, 2, 3], np.int32),
    )
    made = csr_from_parts(data, indices, indptr, (2, 3))
    expected = sparse.csr_matrix((data, indices, indptr), shape=(2, 3))
    assert vars(made).keys() == vars(sparse.csr_matrix((data, indices, indptr), shape=(2, 3))).keys()
    made.check_format(full_check=True)
    assert (made != expected).nnz == 0
    assert (made @ made.T).toarray().tolist() == (expected @ expected.T).toarray().tolist()
    assert made[1].toarray().tolist() == [[0, 3, 0]]
    assert made.copy().T.shape == (3, 2)
    assert repr(made) == repr(expected)
