"""The metrics of ``annif eval``, from the same formulas, so that results can be compared digit by digit.

A document's suggestions are its `limit` best labels with a positive score; no true label is dropped because training
did not have it. Averages are over documents, over all subjects of the vocabulary (macro), over subjects weighted by
their frequency, or over all pairs (micro). Rows without true labels count, with a precision and recall of 0 and an NDCG
of 1. NDCG has the ideal ranking of all true labels in the denominator; NDCG@k that of the k best.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from ramify import native
from ramify.base.errors import DataError
from ramify.base.ranking import Ranking
from ramify.base.types import Csr, DoubleArray
from ramify.io.labels import LabelVocabulary, align_labels

TABLE_HEADER = ("URI", "Label", "Support", "True_positives", "False_positives", "False_negatives", "Precision",
                "Recall", "F1_score")  # fmt: skip


def annif_metrics(
    ranking: Ranking, y_true: Any, *, limit: int | None = 10, threshold: float = 0.0, n_subjects: int | None = None
) -> dict[str, float]:
    """Metrics by the names that Annif gives them, as fractions.

    Parameters
    ----------
    ranking : at least `limit` labels of each row
    y_true : true labels, as lists of labels or as an indicator (n × L)
    limit : suggestions of a document; None: all labels of the ranking, as for label sets
    threshold : minimum score of a suggestion
    n_subjects : size of Annif's vocabulary, for the averages over subjects; None: the labels of the model and those
        that only y_true has
    """
    predicted, truth = _suggestions(ranking, y_true, limit, threshold, n_subjects)
    hits = native.matrix.ranking_hits(predicted.ids, truth, 1).view(bool)
    results: dict[str, float] = {}
    pairs = _indicator(predicted, predicted.k, truth.shape[1])
    for average, name in (("samples", "doc avg"), ("macro", "subj avg"), ("weighted", "weighted subj avg")):
        p, r, f = _precision_recall_f1(truth, pairs, average)
        results |= {f"Precision ({name})": p, f"Recall ({name})": r, f"F1 score ({name})": f}
    p, r, f = _precision_recall_f1(truth, pairs, "micro")
    results |= {"Precision (microavg)": p, "Recall (microavg)": r, "F1 score (microavg)": f}
    results["F1@5"] = _precision_recall_f1(truth, _indicator(predicted, 5, truth.shape[1]), "samples")[2]
    n_true = np.diff(truth.indptr)
    for name, k in (("NDCG", None), ("NDCG@5", 5), ("NDCG@10", 10)):
        results[name] = _ndcg(hits, n_true, k)
    for k in (1, 3, 5):
        results[f"Precision@{k}"] = _precision_recall_f1(truth, _indicator(predicted, k, truth.shape[1]), "samples")[0]
    n_hits = int(hits.sum())
    results["True positives"] = n_hits
    results["False positives"] = pairs.nnz - n_hits
    results["False negatives"] = truth.nnz - n_hits
    results["Documents evaluated"] = truth.shape[0]
    return results


def annif_label_table(
    ranking: Ranking, y_true: Any, *, limit: int | None = 10, threshold: float = 0.0, names: Any = None
) -> list[list[Any]]:
    """Rows of Annif's ``--results-file``, header first: counts, precision, recall and F1 of each label.

    Parameters
    ----------
    names : function from a label to its display name; None: the label itself
    """
    predicted, truth = _suggestions(ranking, y_true, limit, threshold, None)
    n = truth.shape[1]
    labels = [*_vocabulary(ranking), *_unknown_labels(y_true, ranking)]
    hits = native.matrix.ranking_hits(predicted.ids, truth, 1).view(bool)
    support = np.bincount(truth.indices, minlength=n)
    n_predicted = np.bincount(predicted.ids[predicted.ids >= 0], minlength=n)
    true_positives = np.bincount(predicted.ids[hits], minlength=n)
    with np.errstate(invalid="ignore"):
        precision = np.nan_to_num(true_positives / n_predicted)
        recall = np.nan_to_num(true_positives / support)
        f1 = np.nan_to_num(2 * (precision * recall) / (precision + recall))
    rows = zip(support, true_positives, n_predicted - true_positives, support - true_positives, precision, recall, f1,
               strict=True)  # fmt: skip
    return [
        list(TABLE_HEADER),
        *([label, label if names is None else names(label), *row] for label, row in zip(labels, rows, strict=True)),
    ]


def _suggestions(
    ranking: Ranking, y_true: Any, limit: int | None, threshold: float, n_subjects: int | None
) -> tuple[Ranking, Csr]:
    """Return the labels that are suggested, and the true labels (n × subjects)."""
    truth, n_known = align_labels(y_true, _vocabulary(ranking))
    if truth.shape[0] != len(ranking):
        raise DataError(f"the ranking has {len(ranking)} rows, but y_true has {truth.shape[0]}")
    limit = ranking.k if limit is None else limit
    if limit < 1 or (ranking.k < min(limit, n_known) and not np.any(ranking.ids[:, -1:] < 0)):
        raise DataError(
            f"the ranking has {ranking.k} labels of each row, too few for a limit of {limit}; a limit of {ranking.k} "
            "takes all of them"
        )
    if n_subjects is not None:
        if n_subjects < truth.shape[1]:
            raise DataError(f"n_subjects is {n_subjects}, but there are {truth.shape[1]} labels")
        truth = sparse.csr_matrix((truth.data, truth.indices, truth.indptr), shape=(truth.shape[0], n_subjects))
    best = ranking.top(limit)
    kept = (best.ids >= 0) & (best.scores > 0) & (best.scores >= threshold)
    return Ranking(np.where(kept, best.ids, -1), np.where(kept, best.scores, -np.inf), ranking.n_labels), truth


def _vocabulary(ranking: Ranking) -> LabelVocabulary:
    if isinstance(ranking.names, LabelVocabulary):
        return ranking.names
    return LabelVocabulary(range(ranking.n_labels) if ranking.names is None else ranking.names)


def _unknown_labels(y_true: Any, ranking: Ranking) -> list[Any]:
    """Labels that only y_true has, in the order of their columns."""
    if sparse.issparse(y_true) or isinstance(y_true, np.ndarray):
        return []
    known = _vocabulary(ranking).ids
    return list(dict.fromkeys(label for row in y_true for label in row if label not in known))


def _indicator(ranking: Ranking, k: int, n_columns: int) -> Csr:
    best = ranking.top(min(k, ranking.k)).to_csr()
    return sparse.csr_matrix((np.ones(best.nnz, bool), best.indices, best.indptr), shape=(len(ranking), n_columns))


def _precision_recall_f1(truth: Csr, predicted: Csr, average: str) -> tuple[float, float, float]:
    from sklearn.metrics import precision_recall_fscore_support

    found = precision_recall_fscore_support(truth.astype(bool), predicted, average=average, zero_division=0)
    return float(found[0]), float(found[1]), float(found[2])


def _ndcg(hits: Any, n_true: Any, limit: int | None) -> float:
    """Mean over the rows, in single precision as in Annif; 1 for a row without true labels."""
    discounts: DoubleArray = 1 / np.log2(np.arange(2, max(hits.shape[1], int(n_true.max(initial=0))) + 2))
    found = hits[:, :limit] @ discounts[: hits[:, :limit].shape[1]]
    ideal = np.append(0.0, np.cumsum(discounts))[n_true if limit is None else np.minimum(n_true, limit)]
    scores = np.ones(len(hits), np.float32)
    rows = ideal > 0
    scores[rows] = found[rows] / ideal[rows]
    return float(scores.mean())
