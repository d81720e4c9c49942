"""One classifier for each label against all points: the exact baseline of the trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ramify.base.config import param
from ramify.base.progress import progress, steps
from ramify.base.types import Csr
from ramify.index.tree import LabelTree
from ramify.io.inputs import Inputs
from ramify.io.labels import LabelVocabulary
from ramify.models.base import refuse_given
from ramify.models.linear import LinearModel
from ramify.rank.beam import LinearTree, PackedLevel
from ramify.rank.linear import LinearConfig, fit_ovr
from ramify.rank.score_transforms import ScoreTransform


@dataclass(kw_only=True, eq=False, repr=False)
class OneVsAll(LinearModel):
    """Scores every label of every point.

    Training and prediction grow with the number of labels: for thousands, not millions, or to see what a tree loses.
    """

    kind: ClassVar[str] = "one-vs-all"

    linear: LinearConfig = param(factory=LinearConfig, doc="how the classifiers are trained")
    scores: str = param("l3-hinge", "score transform of the labels; all of them keep the order, but for ties")

    def check_params(self) -> None:
        """Check also that the score transform exists."""
        super().check_params()
        ScoreTransform.parse(self.scores)

    def _fit(self, inputs: Inputs, labels: Csr, names: LabelVocabulary, **given: Any) -> None:
        refuse_given(self, given)
        X = self._fit_features(inputs)
        tree = LabelTree.flat(labels.shape[1])
        with progress("training", labels.shape[1], self.verbose) as advance:
            W = fit_ovr(X, labels, config=self.linear, seed=self.seed, threads=self.threads, progress=steps(advance))
        n_sparse = X.sparse.shape[1]
        level = PackedLevel.pack(W, tree.levels[0], n_sparse, self.linear.bias, self.threads)
        self.trees_ = [LinearTree(tree, [level], [ScoreTransform.parse(self.scores)], n_sparse)]
