"""`evaluate`: compare a ranking with the true labels; all metrics in one `Evaluation`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from ramify.base.errors import DataError
from ramify.base.html import html_table
from ramify.base.ranking import Ranking
from ramify.base.sparse import indicator
from ramify.base.threads import resolve_threads
from ramify.base.types import AnyArray, Csr, DoubleArray
from ramify.io.labels import LabelVocabulary, align_labels
from ramify.metrics.bootstrap import bootstrap_intervals, row_metrics, row_psp
from ramify.metrics.propensity import LabelCounts, inverse_propensity
from ramify.metrics.ranking import (
    N_DECILES,
    RankingMetrics,
    as_ranking,
    f1_scores,
    frequency_deciles,
    ranking_metrics,
    remove_pairs,
)
from ramify.metrics.reliability import Reliability, reliability

CUTOFFS = (1, 3, 5, 10, 100)
ORDER = ("P", "nDCG", "PSP", "PSnDCG", "R", "coverage")


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Metrics in percent: `print` shows a table, `to_dict` returns the values."""

    metrics: RankingMetrics
    f1: dict[str, AnyArray]
    threshold: float
    n_rows_without_labels: int
    unseen_fraction: float
    has_deciles: bool = field(default=False)
    f1_is_truncated: bool = field(default=False)
    n_unseen_dropped: int = field(default=0)
    reliability: Reliability | None = field(default=None)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        """Number of rows with a true label, over which the metrics are averaged."""
        return self.metrics.n_rows

    def __getitem__(self, name: str) -> float:
        """Return one metric, such as "P@1"."""
        return self.to_dict()[name]

    def to_dict(self) -> dict[str, float]:
        """All metrics by name, such as "P@1"."""
        values = {
            f"{name}@{k}": float(self.metrics.values[name][i])
            for name in ORDER
            if name in self.metrics.values
            for i, k in enumerate(self.metrics.cutoffs)
        }
        values.update({name: float(v[0]) for name, v in self.f1.items()})
        if self.reliability is not None:
            values.update(self.reliability.to_dict())
        return values

    def deciles(self) -> dict[str, list[float]]:
        """Contribution of each label frequency decile to each metric, most frequent labels first."""
        if not self.has_deciles:
            raise DataError("deciles require the training labels: evaluate(ranking, y_true, y_train)")
        deciles = {
            f"{name}@{k}": self.metrics.by_group[name][:, i].tolist()
            for name in ORDER
            if name in self.metrics.by_group
            for i, k in enumerate(self.metrics.cutoffs)
        }
        deciles.update({name: v[1:].tolist() for name, v in self.f1.items()})
        return deciles

    def table(self) -> list[list[str]]:
        """Rows of the table, header first."""
        rows = [["", *(f"@{k}" for k in self.metrics.cutoffs)]]
        rows += [
            [name, *(f"{v:.2f}" for v in self.metrics.values[name])] for name in ORDER if name in self.metrics.values
        ]
        return rows

    def notes(self) -> list[str]:
        """Notes below the table."""
        f1 = ", ".join(f"{name} {v[0]:.2f}" for name, v in self.f1.items())
        value = "score" if self.reliability is None else "probability"
        notes = [f"{f1} at {value} >= {self.threshold:g}; percent, over {self.n_rows:,} rows"]
        if self.f1_is_truncated:
            notes.append(
                "F1 is computed from the top-k labels only, but more labels reach the threshold; use a larger k"
            )
        if self.n_rows_without_labels:
            notes.append(f"{self.n_rows_without_labels:,} rows without true labels are excluded")
        if self.n_unseen_dropped:
            notes.append(
                f"protocol seen: {self.n_unseen_dropped:,} true labels that the model does not know are dropped"
            )
        if self.unseen_fraction:
            notes.append(
                f"{100 * self.unseen_fraction:.2f} % of the true labels are unknown to the model and count as misses"
            )
        return notes

    def __str__(self) -> str:
        rows = self.table()
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        ]
        lines += [f"{name} {low:.2f} to {high:.2f}" for name, (low, high) in self.intervals.items()]
        if self.reliability is not None:
            calibration = {name: f"{value:.4f}" for name, value in self.reliability.to_dict().items()}
            lines.append(", ".join(f"{name} {value}" for name, value in calibration.items()))
        return "\n".join([*lines, *self.notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Show the table in a notebook."""
        return html_table(self.table(), "percent", self.notes())


def evaluate(
    ranking: Ranking | Any,
    y_true: Any,
    y_train: Any = None,
    *,
    ks: Sequence[int] | int | None = None,
    propensity: str | tuple[float, float] = "default",
    threshold: float = 0.5,
    unseen: str = "count",
    filter_pairs: Any = None,
    confidence: float | None = None,
    threads: int | None = None,
) -> Evaluation:
    """Compare a ranking with the true labels.

    A ranking by probability also gets its expected calibration error and Brier score (`metrics.reliability`).

    Parameters
    ----------
    ranking : Ranking, or a matrix of scores (n × L), whose zeros are not ranked
    y_true : true labels, as lists of labels or as an indicator (n × L)
    y_train : training labels or their `LabelCounts`; required for PSP, PSnDCG and deciles
    ks : cutoffs; None: those of 1, 3, 5, 10, 100 up to the k of the ranking
    propensity : family of data sets (`ramify.metrics.FAMILIES`) or the constants (A, B)
    threshold : minimum score of a predicted label, for F1
    unseen : "count" true labels unknown to the model as misses, or "drop" them
    filter_pairs : (row, label id) pairs to remove from the ranking first: an (m, 2) array or an n × L matrix
    confidence : also compute confidence intervals of P@k, nDCG@k, R@k and PSP@k by the bootstrap, such as 0.95
    threads : threads to use; None: RAMIFY_THREADS or all cores
    """
    threads = resolve_threads(threads)
    may_be_truncated = isinstance(ranking, Ranking)  # a matrix has all scores
    ranking = as_ranking(ranking, threads)
    if unseen not in ("count", "drop"):
        raise ValueError(f"unseen must be 'count' or 'drop'; got {unseen!r}")
    vocabulary = ranking.names if isinstance(ranking.names, LabelVocabulary) else _vocabulary(ranking)
    truth, n_known = align_labels(y_true, vocabulary)
    if truth.shape[0] != len(ranking):
        raise DataError(f"the ranking has {len(ranking)} rows, but y_true has {truth.shape[0]}")
    n_unseen = int((truth.indices >= n_known).sum())
    if truth.nnz and n_unseen == truth.nnz:
        raise DataError(
            "none of the true labels is known to the model: check that they have the same type (1 is not '1') and the "
            "same names (--label-names)"
        )
    unseen_fraction = n_unseen / max(1, truth.nnz)
    n_dropped = n_unseen if unseen == "drop" else 0
    if unseen == "drop":
        truth, unseen_fraction = truth[:, :n_known].tocsr(), 0.0
    if filter_pairs is not None:
        ranking = remove_pairs(ranking, _pairs(filter_pairs, len(ranking), truth.shape[1]), threads)
    cutoffs = _cutoffs(ks, ranking, may_be_truncated)
    weights, groups = _label_weights(y_train, vocabulary, n_known, truth.shape[1], propensity)
    n_groups = 1 if groups is None else N_DECILES
    metrics = ranking_metrics(ranking, truth, cutoffs, weights, groups, n_groups, threads)
    group_of = np.zeros(truth.shape[1], np.uint8) if groups is None else groups
    last_reaches = ranking.k < ranking.n_labels and bool(np.any(ranking.scores[:, -1:] >= threshold))
    f1 = f1_scores(ranking, truth, threshold, group_of, n_groups, threads)
    n_empty = len(ranking) - metrics.n_rows
    f1_is_truncated = may_be_truncated and last_reaches
    found = reliability(ranking, truth, groups) if ranking.are_probabilities else None
    intervals = {} if confidence is None else _intervals(ranking, truth, cutoffs, confidence, weights)
    has_deciles = groups is not None
    return Evaluation(
        metrics, f1, threshold, n_empty, unseen_fraction, has_deciles, f1_is_truncated, n_dropped, found, intervals
    )


def _cutoffs(ks: Sequence[int] | int | None, ranking: Ranking, may_be_truncated: bool) -> list[int]:
    """Check the cutoffs; without any, those of the ranking."""
    if ks is None:
        return [k for k in CUTOFFS if k <= ranking.k] or [1]
    ks = [ks] if isinstance(ks, int) else ks
    if any(isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1 for k in ks):
        raise ValueError(f"ks must be positive integers; got {list(ks)!r}")
    if may_be_truncated and ranking.k < min(max(ks, default=1), ranking.n_labels):
        raise DataError(
            f"the ranking has {ranking.k} labels of each row, too few for a cutoff of {max(ks)}; rank as many labels"
        )
    return sorted(set(ks))


def _label_weights(
    y_train: Any, vocabulary: LabelVocabulary, n_known: int, n_labels: int, propensity: str | tuple[float, float]
) -> tuple[DoubleArray | None, AnyArray | None]:
    """Inverse propensities and frequency deciles (n_labels,); the labels from n_known on were never seen."""
    if y_train is None:
        return None, None
    counts = LabelCounts.of(y_train, vocabulary)
    if len(counts.counts) != n_known:
        raise DataError(f"y_train has {len(counts.counts)} labels, but the ranking has {n_known}")
    seen = np.concatenate([counts.counts, np.zeros(n_labels - n_known, np.int64)])
    weights = inverse_propensity(LabelCounts(counts.n_samples, seen), propensity)
    unseen = np.full(n_labels - n_known, N_DECILES - 1, np.uint8)
    return weights, np.concatenate([frequency_deciles(counts.counts), unseen])


def _intervals(
    ranking: Ranking, truth: Csr, cutoffs: Sequence[int], confidence: float, weights: DoubleArray | None
) -> dict[str, tuple[float, float]]:
    means = row_metrics(ranking, truth, cutoffs)
    parts = {name: (values, np.ones(len(values))) for name, values in means.items()}
    if weights is not None:
        parts |= row_psp(ranking, truth, weights, cutoffs)
    values, per = (np.stack(columns, axis=1) for columns in zip(*parts.values(), strict=True))
    low, high = bootstrap_intervals(values, per=per, confidence=confidence)
    return {name: (float(a), float(b)) for name, a, b in zip(parts, low, high, strict=True)}


def _vocabulary(ranking: Ranking) -> LabelVocabulary:
    return LabelVocabulary(range(ranking.n_labels) if ranking.names is None else ranking.names)


def _pairs(pairs: Any, n: int, n_labels: int) -> Csr:
    if sparse.issparse(pairs):
        matrix = indicator(pairs, "filter_pairs")
        if matrix.shape[0] != n or matrix.shape[1] > n_labels:
            raise DataError(f"filter_pairs has shape {matrix.shape}, but the ranking is {n} × {n_labels}")
        return matrix
    array = np.asarray(pairs)
    if array.size == 0:
        array = np.zeros((0, 2), np.int64)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise DataError("filter_pairs must be an (m, 2) array of row indices and label ids")
    if array.size and (array.min() < 0 or array[:, 0].max() >= n or array[:, 1].max() >= n_labels):
        raise DataError(f"filter_pairs has row indices or label ids outside {n} × {n_labels}")
    ones = np.ones(len(array), np.float32)
    return indicator(sparse.csr_matrix((ones, (array[:, 0], array[:, 1])), shape=(n, n_labels)), "filter_pairs")
