"""Checked input of `fit`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ramify.base.errors import DataError
from ramify.base.sparse import csr_from_parts
from ramify.base.types import AnyArray, Csr, LongArray
from ramify.io.catalogue import LabelCatalogue
from ramify.io.inputs import Inputs, take_rows
from ramify.io.labels import LabelVocabulary
from ramify.models.estimator import check_sample_weight


class TrainingData(NamedTuple):
    """Checked input of `fit`.

    Attributes
    ----------
    inputs : n inputs
    Y : (n × L) label indicator
    labels : the labels of its columns
    catalogue : their names
    sample_weight : (n,) weights above 0 of the samples; None: 1
    """

    inputs: Inputs
    Y: Csr
    labels: LabelVocabulary
    catalogue: LabelCatalogue | None = None
    sample_weight: AnyArray | None = None

    def weighted(self, sample_weight: Any) -> tuple[TrainingData, LongArray | None]:
        """Return the data with weights of the samples, and the rows that are left; None: all of them.

        A sample of weight 0 is left out, as if it had not been passed: nothing is learned from it, also where samples
        are counted and not weighted, as in TF-IDF and in the clustering of labels. Its labels stay labels of the model.
        """
        if sample_weight is None:
            return self, None
        weights = check_sample_weight(sample_weight, len(self.inputs))
        if weights.min() > 0:
            return self._replace(sample_weight=weights), None
        rows = np.flatnonzero(weights)
        Y = self.Y[rows]
        if Y.nnz == 0:
            raise DataError("no row with a weight above 0 has a label; there is nothing to train on")
        return self._replace(inputs=take_rows(self.inputs, rows), Y=Y, sample_weight=weights[rows]), rows

    def with_catalogue_labels(self) -> TrainingData:
        """Return the data with the labels of the catalogue that no sample has, behind the others."""
        new = [] if self.catalogue is None else [label for label in self.catalogue if label not in self.labels.ids]
        # Files have texts: the catalogue knows the label 7 as "7".
        known = {str(label) for label in self.labels} if new else set()
        new = [label for label in new if label not in known]
        if not new:
            return self
        labels = LabelVocabulary([*self.labels, *new])
        Y = csr_from_parts(self.Y.data, self.Y.indices, self.Y.indptr, (self.Y.shape[0], len(labels)))
        return self._replace(Y=Y, labels=labels)

    def names_by_id(self) -> LabelCatalogue | None:
        """Return the catalogue of the labels by their ids, for a model that is trained on the indicator."""
        if self.catalogue is None:
            return None
        entries = ((i, self.catalogue.get_entry(label)) for i, label in enumerate(self.labels))
        return LabelCatalogue({i: entry for i, entry in entries if entry is not None})
