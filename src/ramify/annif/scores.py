"""Rankings of a model as scores of Annif's subjects."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ramify.base.ranking import Ranking
from ramify.base.types import IntArray
from ramify.models.base import Model


def rank(model: Model, texts: list[str], limit: int) -> Ranking:
    """Rank labels, with probabilities where the model has them; texts without a word get none."""
    return model.predict_topk(texts, max(1, limit), probabilities=model.is_calibrated)


def to_array(ranking: Ranking, subjects: IntArray, n_subjects: int) -> csr_array:
    """Scores (n × subjects) in (0, 1] of a ranking; labels that are no subject (any more) are left out."""
    kept = (ranking.ids >= 0) & (ranking.scores > 0)
    kept &= subjects[np.maximum(ranking.ids, 0)] >= 0
    rows, _ = np.nonzero(kept)
    columns = subjects[ranking.ids[kept]]
    scores = np.minimum(ranking.scores[kept], np.float32(1))
    return csr_array((scores, (rows, columns)), shape=(len(ranking), n_subjects), dtype=np.float32)


def subject_ids(model: Model, subjects: Any) -> IntArray:
    """Subject id (L,) of each label of a model, -1 where the vocabulary does not have it."""
    ids = (subjects.by_uri(str(uri), warnings=False) for uri in model.labels_)
    return np.array([-1 if i is None else i for i in ids], np.int32)
