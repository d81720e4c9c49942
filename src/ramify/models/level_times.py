"""How the time of training a label tree is divided among its levels, for the time left."""

from __future__ import annotations

import numpy as np

from ramify.base.types import Csr
from ramify.index.tree import LabelTree

_COST_POWER, _POSITIVE_COST = 0.27, 84.0
"""Time of a level: pairs of node and sample, times a power of the samples of a node, and its positives times a factor.

Fitted to times of all presets on three data sets: samples of large nodes and positives take more epochs.
"""


def level_times(tree: LabelTree, nodes: list[Csr], n_mined: float = 0.0) -> list[float]:
    """How much of the training a node of each level is, 1 on average: a node near the root sees far more samples.

    `n_mined` is the number of clusters that take a sample as a mined negative, at the level of the labels.
    """
    costs, n = [], nodes[0].shape[0]
    for t, children in enumerate(tree.levels):
        counts = np.bincount(nodes[t - 1].indices, minlength=len(children) - 1) if t else np.array([n])
        if t == tree.depth - 1 > 0:
            counts = counts + n * min(1.0, n_mined / len(counts))
        pairs = float(np.dot(counts, np.diff(children)))
        costs.append(pairs * (pairs / max(1, tree.widths[t])) ** _COST_POWER + _POSITIVE_COST * nodes[t].nnz)
    scale = sum(tree.widths) / max(sum(costs), 1.0)
    return [scale * cost / width for cost, width in zip(costs, tree.widths, strict=True)]
