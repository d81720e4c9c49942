"""Initial label classifiers."""

from __future__ import annotations

import math

import numpy as np

from ramify import native
from ramify.base.sparse import normalize_rows
from ramify.base.types import Csr, FloatArray
from ramify.nn.heads.classifiers import Classifiers


def init_classifiers(Y: Csr, embeddings: FloatArray, n_scored: int, threads: int) -> Classifiers:
    """Weights (L, D) and bias (L,) of label classifiers, directed at the centroids of their samples.

    An embedding unlike a label's samples gets the logit of the base rate of positives among the `n_scored` labels that
    a step scores for each sample; one just like them gets about 0.

    Parameters
    ----------
    Y : (n × L) labels of the samples
    embeddings : (n, D)
    """
    base_rate = min(0.5, Y.nnz / max(1, Y.shape[0]) / n_scored)
    base_logit = math.log(max(base_rate, 1e-6) / (1 - base_rate))
    mean = embeddings.mean(axis=0)
    centered = embeddings - mean
    norm = float(np.sqrt(np.mean(np.square(centered).sum(axis=1))))
    sums = native.matrix.spmm_dense(Y.T.tocsr(), np.ascontiguousarray(centered, np.float32), threads)
    weights = normalize_rows(sums)
    weights *= np.float32(-base_logit / max(norm, 1e-6))
    return weights, (base_logit - weights @ mean).astype(np.float32)
