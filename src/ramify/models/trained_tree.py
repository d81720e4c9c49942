"""Training of models whose trees are those of XR-Linear: what `fit` takes beside samples and labels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from ramify.base.errors import DataError
from ramify.base.progress import progress
from ramify.base.sparse import as_csr
from ramify.base.types import AnyArray, Csr, FloatArray, LongArray
from ramify.index.tree import LabelTree
from ramify.models.label_features import check_label_features
from ramify.models.label_texts import TextSamples
from ramify.models.linear import TreeModel
from ramify.models.training_data import TrainingData
from ramify.rank.linear import check_relevance


@dataclass(frozen=True, eq=False)
class TreeOptions:
    """What `fit` takes beside X and y; see `TrainedTreeModel.fit`."""

    tree: LabelTree | Mapping[Any, Any] | Sequence[Any] | None = None
    relevance: Csr | None = None
    negatives: Sequence[Csr | None] | None = None
    label_features: Csr | FloatArray | None = None
    sample_weight: AnyArray | None = None
    label_texts: TextSamples | None = None

    def of_rows(self, rows: LongArray | None, sample_weight: AnyArray | None) -> TreeOptions:
        """Return the options for some rows, None: all, with their weights."""
        relevance, negatives = self.relevance, self.negatives
        if rows is not None:
            relevance = None if relevance is None else relevance[rows]
            negatives = (
                None if negatives is None else [None if M is None else as_csr(M, "negatives")[rows] for M in negatives]
            )
        return replace(self, relevance=relevance, negatives=negatives, sample_weight=sample_weight)


@dataclass(kw_only=True, eq=False, repr=False)
class TrainedTreeModel(TreeModel):
    """Base of models whose trees are those of XR-Linear: `fit` takes what their training does."""

    uses_relevance: ClassVar[bool] = True
    score_scale: ClassVar[str] = "xr-linear"

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        tree: LabelTree | Mapping[Any, Any] | Sequence[Any] | None = None,
        relevance: Any = None,
        negatives: Sequence[Csr | None] | None = None,
        label_features: Csr | FloatArray | Mapping[Any, str] | None = None,
        sample_weight: Any = None,
        label_catalogue: Any = None,
    ) -> Self:
        """Train the model.

        Parameters
        ----------
        X : list of str, list of dicts of text fields, CSR (n × d) or ndarray (n, d)
        y : list of lists of hashable labels, or an indicator (n × L)
        tree : label tree to use in place of a learned one: a `LabelTree`, a mapping from each label to its path, or a
            chain of cluster matrices (`LabelTree.from_chain`)
        relevance : weight of each positive in the loss (n × L), with the pattern of y; None: 1
        negatives : for each level of the tree, samples that give additional negatives (n × nodes of the level above),
            or None
        label_features : features of the labels themselves (L × e), or the text of each label; used for clustering
        sample_weight : weight of each sample in the loss (n,); None: 1; samples of weight 0 are left out
        label_catalogue : names of the labels
        """
        if negatives is not None and not isinstance(negatives, list | tuple):
            raise DataError(
                "negatives must be a list with a matrix (n × nodes of the level above), or None, for each level of the "
                f"tree, top down; got {type(negatives).__name__}"
            )
        data = self._check_training_data(X, y, label_catalogue)
        features = None if label_features is None else check_label_features(label_features, data.labels)
        options = TreeOptions(tree, check_relevance(relevance, data.Y), negatives, features)
        data, rows = data.weighted(sample_weight)
        with progress(f"training {self.kind}", None, self.verbose):
            self._fit(data, options.of_rows(rows, data.sample_weight))
        return self._finish_fit(data)

    @abstractmethod
    def _fit(self, data: TrainingData, options: TreeOptions | None = None) -> None:
        """Train on checked data; without options by the defaults."""
