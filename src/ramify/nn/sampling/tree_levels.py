"""Tree levels: each sample trains on the children of the nodes that it reaches in the level above."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ramify.base.sparse import pattern
from ramify.base.types import Csr, LongArray
from ramify.nn.sampling.targets import StaticSampler, with_negatives


class TreeLevel(StaticSampler):
    """Candidates of a level are the children of the nodes in M.

    Parameters
    ----------
    M : (m × nodes above) nodes whose children a sample trains on, those of its own labels among them; of the m
        training rows, which are the first ones
    Y : (n × nodes) nodes of the level that are positive, as an indicator
    weights : (n × nodes) their weights, with the pattern of Y
    children : (nodes above + 1,) indptr of the children of each node above
    """

    def __init__(self, M: Csr, Y: Csr, weights: Csr, children: LongArray) -> None:
        self.M, self.Y, self.weights = M, Y, weights
        n_nodes = int(children[-1])
        ones, nodes = np.ones(n_nodes, np.float32), np.arange(n_nodes, dtype=np.int32)
        self._children = sparse.csr_matrix((ones, nodes, children), (len(children) - 1, n_nodes))

    def targets(self, rows: LongArray) -> Csr:
        """Targets (len(rows) × nodes) of a batch."""
        return with_negatives(pattern((self.M[rows] @ self._children).tocsr()), self.weights[rows])
