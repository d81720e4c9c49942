from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ramify import DataError
from ramify.rank import negatives


def test_schemes():
    above = sparse.csr_matrix(np.array([[2, 0, 0], [0, 1, 3], [0, 0, 0]], np.float32))
    proposed = np.array([[1, -1], [2, 1], [2, 0]], np.int32)
    teacher, matcher = negatives.teacher(above), negatives.matcher(proposed, 3)
    assert teacher.toarray().tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 0]]
    assert matcher.toarray().tolist() == [[0, 1, 0], [0, 1, 1], [1, 0, 1]]
    both = negatives.union(teacher, matcher)
    assert both.toarray().tolist() == [[1, 1, 0], [0, 1, 1], [1, 0, 1]]
    assert both.has_sorted_indices
    with pytest.raises(DataError, match="shapes"):
        negatives.union(teacher, matcher[:2])
