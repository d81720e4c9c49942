"""One linear classifier for each label, trained on all samples: the exact baseline of label trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from ramify.base.config import param
from ramify.base.progress import progress, steps
from ramify.base.threads import resolve_threads
from ramify.base.types import Csr
from ramify.index.tree import LabelTree
from ramify.models.level_checkpoints import PartCheckpoints
from ramify.models.linear import LinearModel
from ramify.models.memory import ENTRY, PACKED_WEIGHT, DataSizes, solver_bytes
from ramify.models.training_data import TrainingData
from ramify.rank.beam import LinearTree, PackedLevel
from ramify.rank.linear import LinearConfig, check_relevance, fit_ovr
from ramify.rank.score_transforms import ScoreTransform

ONE_VS_ALL_WEIGHTS = 0.5
"""Weights of a label, relative to the features of its samples: measured with the default threshold."""
N_PARTS = 32
"""Checkpoints of a training."""


@dataclass(kw_only=True, eq=False, repr=False)
class OneVsAll(LinearModel):
    """Scores every label for every sample.

    Training and prediction time grow with the number of labels: for thousands of labels, or to measure what a tree
    loses.
    """

    kind: ClassVar[str] = "one-vs-all"
    uses_relevance: ClassVar[bool] = True

    linear: LinearConfig = param(factory=LinearConfig, doc="training of the classifiers")
    score_transform: str = param(
        "l3-hinge", "transform from margins to scores; all transforms keep the order, except for ties"
    )

    checkpoint_dir: str | None = param(
        None,
        "directory for checkpoints of the trained labels; an interrupted training resumes from there, to the same bits",
    )

    def check_params(self) -> None:
        """Check also that the score transform exists."""
        super().check_params()
        ScoreTransform.parse(self.score_transform)

    def classifier_bytes(self, sizes: DataSizes, n_dense: int = 0) -> int:
        """Estimated bytes of the training: the scratch memory of the solver, and all weights."""
        weights = self._n_weights(sizes, n_dense)
        return int(solver_bytes(sizes, n_dense, resolve_threads(self.threads)) + 1.5 * ENTRY * weights)

    def kept_bytes(self, sizes: DataSizes, n_dense: int = 0) -> int:
        """Estimated bytes of the trained classifiers."""
        return int(PACKED_WEIGHT * self._n_weights(sizes, n_dense))

    @staticmethod
    def _n_weights(sizes: DataSizes, n_dense: int) -> float:
        return ONE_VS_ALL_WEIGHTS * float(sizes.label_entries.sum()) + n_dense * sizes.n_labels

    def fit(
        self, X: Any, y: Any, *, relevance: Any = None, sample_weight: Any = None, label_catalogue: Any = None
    ) -> Self:
        """Train the model.

        Parameters
        ----------
        X : list of str, list of dicts of text fields, CSR (n × d) or ndarray (n, d)
        y : list of lists of hashable labels, or an indicator (n × L)
        relevance : weight of each positive in the loss (n × L), with the pattern of y; None: 1
        sample_weight : weight of each sample in the loss (n,); None: 1; samples of weight 0 are left out
        label_catalogue : names of the labels
        """
        data = self._check_training_data(X, y, label_catalogue)
        weights_of_labels = check_relevance(relevance, data.Y)
        data, rows = data.weighted(sample_weight)
        if weights_of_labels is not None and rows is not None:
            weights_of_labels = weights_of_labels[rows]
        with progress(f"training {self.kind}", None, self.verbose):
            self._fit(data, weights_of_labels)
        return self._finish_fit(data)

    def _fit(self, data: TrainingData, relevance: Csr | None = None) -> None:
        X, n_labels = self._fit_features(data.inputs), data.Y.shape[1]
        tree = LabelTree.flat(n_labels)
        irrelevant = ("threads", "verbose", "checkpoint_dir", "threshold", "features", "beam_size", "score_transform")
        settings = {name: value for name, value in self.to_dict().items() if name not in irrelevant}
        everything = [X, data.Y, relevance, data.sample_weight]
        checkpoints = PartCheckpoints(self.checkpoint_dir, settings, everything, N_PARTS)
        parts: list[Csr] = []
        with progress("classifiers", n_labels, self.verbose, "labels") as advance:
            for part in range(checkpoints.n_parts):
                W = checkpoints.load(part, (n_labels, X.shape[1] + 1))
                if W is not None:
                    advance(int(np.count_nonzero(np.diff(W.indptr))))
                    parts.append(W)
                    continue
                W = fit_ovr(
                    X,
                    data.Y,
                    config=self.linear,
                    relevance=relevance,
                    sample_weight=data.sample_weight,
                    seed=self.seed,
                    part=(part, checkpoints.n_parts),
                    threads=self.threads,
                    progress=steps(advance),
                )
                checkpoints.save(part, W)
                parts.append(W)
        W = checkpoints.join(parts)
        checkpoints.clear()
        n_sparse = X.sparse.shape[1]
        level = PackedLevel.pack(W, tree.levels[0], n_sparse, self.linear.bias, self.threads)
        self.trees_ = [LinearTree(tree, [level], [ScoreTransform.parse(self.score_transform)], n_sparse)]
