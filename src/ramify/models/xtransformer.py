"""X-Transformer: an encoder fine-tuned on clusters of labels, then a linear ranker within them (Chang et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ramify.base.config import param
from ramify.index.kmeans import TreeConfig
from ramify.index.tree import LabelTree
from ramify.models.xrtransformer import XRTransformer


@dataclass(kw_only=True, eq=False, repr=False)
class XTransformer(XRTransformer):
    """Fine-tunes an encoder on one level of label clusters, and ranks labels within the same clusters.

    XR-Transformer with a single matcher level and one tree for both.
    """

    kind: ClassVar[str] = "x-transformer"

    matcher_tree: TreeConfig = param(
        factory=lambda: TreeConfig(
            method="balanced-2means", branching=2**31 - 1, max_leaf_size=100, max_depth=1, n_terms=1024
        ),
        doc="clusters of labels that the encoder learns",
    )
    fixed_tree: bool = param(True, "the ranker uses the clusters that the encoder learned, and no second ones")

    def _matched_levels(self, tree: LabelTree) -> range:
        return range(1)
