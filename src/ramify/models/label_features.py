"""Features of the labels themselves, which join the representations that labels are clustered by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from ramify.base.errors import DataError
from ramify.base.sparse import as_csr
from ramify.base.types import Csr, FloatArray
from ramify.features.tfidf import Tfidf
from ramify.io.inputs import check_inputs
from ramify.io.labels import LabelVocabulary


def check_label_features(features: Any, labels: LabelVocabulary) -> Csr | FloatArray:
    """Features (L × e), one row for each label id.

    `features` is such a matrix, or a mapping from labels to texts, whose TF-IDF is taken; a label that is not in it has
    no features.
    """
    if isinstance(features, Mapping):
        texts = [features.get(label, "") for label in labels]
        wrong = next((text for text in texts if not isinstance(text, str)), None)
        if wrong is not None:
            raise DataError(f"label_features maps labels to texts; one of them is {type(wrong).__name__}")
        if not any(texts):
            raise DataError("label_features has a text for none of the labels in y; check their names and types")
        return Tfidf(sublinear_tf=True).fit_transform(texts)
    if not sparse.issparse(features) and not (isinstance(features, np.ndarray) and features.dtype.kind in "biuf"):
        raise DataError(
            "label_features must be a matrix (L × e) with a row for each label in the order of classes_, or a dict "
            f"from each label to a text, such as its name; got {type(features).__name__}"
        )
    matrix = as_csr(features, "label_features") if sparse.issparse(features) else check_inputs(features).data
    if matrix.shape[0] != len(labels):
        raise DataError(f"the label features have {matrix.shape[0]} rows for {len(labels)} labels")
    return matrix
