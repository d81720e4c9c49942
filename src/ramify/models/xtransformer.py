"""X-Transformer: an encoder fine-tuned on clusters of labels, then a linear ranker within the clusters.

Chang et al. (2020), Taming Pretrained Transformers for Extreme Multi-label Text Classification. Here it is
XR-Transformer with a single matcher level, whose clusters the ranker uses too.

Differences from the paper
- As in PECOS, prediction does not use the head of the encoder: `XRLinear` finds the clusters.
- The matcher is trained on one clustering; the paper averages several clusterings and encoders (`Ensemble` does that).
"""

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

    There is one level, so `min_match_clusters`, `max_match_clusters` and `matcher_topk` have no effect.
    """

    kind: ClassVar[str] = "x-transformer"

    matcher_tree: TreeConfig = param(
        factory=lambda: TreeConfig(
            method="balanced-2means", branching=2**31 - 1, max_leaf_size=100, max_depth=1, n_terms=1024
        ),
        doc="clusters of labels that the encoder is fine-tuned on",
    )
    reuse_tree: bool = param(True, "the ranker uses the same clusters instead of a tree of its own")

    def _matched_levels(self, tree: LabelTree) -> range:
        return range(1)

    def _n_outputs(self, n_labels: int) -> int:
        return 2 * n_labels // self.matcher_tree.max_leaf_size + 1  # halved until they fit: at most twice as many
