"""Tree levels: each sample trains on the children of the nodes that it reaches in the level above."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ramify.base.sparse import pattern
from ramify.base.types import Csr, LongArray
from ramify.nn.sampling.fixed import with_negatives
from ramify.nn.sampling.positives import StaticSampler


class TreeLevel(StaticSampler):
    """Candidates of a level are the children of the nodes in M.

    Parameters
    ----------
    M : (n × nodes above) nodes whose children a sample trains on, those of its own labels among them
    Y : (n × m) nodes of the level that are positive, as an indicator
    weights : (n × m) their weights, with the pattern of Y
    children : (nodes above + 1,) indptr of the children of each node above
    """

    def __init__(self, M: Csr, Y: Csr, weights: Csr, children: LongArray) -> None:
        self.M, self.Y, self.weights = M, Y, weights
        m = int(children[-1])
        ones = np.ones(m, np.float32)
        self._children = sparse.csr_matrix((ones, np.arange(m, dtype=np.int32), children), (len(children) - 1, m))

    def targets(self, rows: LongArray) -> Csr:
        """Targets (len(rows) × m) of a batch."""
        return with_negatives(pattern((self.M[rows] @ self._children).tocsr()), self.weights[rows])
