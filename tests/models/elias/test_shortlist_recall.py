"""Recall of the shortlist: which true labels are on it."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ramify.models.elias.report import is_listed


def test_labels_on_a_shortlist():
    Y = sparse.csr_matrix(np.array([[0, 1, 0, 1], [1, 0, 0, 0]], np.float32))
    assert is_listed(np.array([[1, 2], [3, -1]], np.int32), Y).tolist() == [True, False, False]
