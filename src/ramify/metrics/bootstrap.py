"""Confidence intervals of metrics by the bootstrap, and the paired comparison of two rankings of the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify import native
from ramify.base.errors import DataError, check_integer
from ramify.base.ranking import Ranking
from ramify.base.types import AnyArray, BoolArray, ByteArray, Csr, DoubleArray
from ramify.io.labels import LabelVocabulary, align_labels
from ramify.metrics.propensity import LabelCounts
from ramify.metrics.ranking import N_DECILES, frequency_deciles

N_RESAMPLES = 1000


def row_metrics(ranking: Ranking, truth: Csr, ks: Sequence[int]) -> dict[str, DoubleArray]:
    """P@k, nDCG@k and R@k in percent of each row with a true label (m,)."""
    rows = np.flatnonzero(np.diff(truth.indptr))
    hits = native.matrix.ranking_hits(ranking.ids, truth, 1).view(bool)[rows]
    n_true = np.diff(truth.indptr)[rows]
    discounts = 1 / np.log2(np.arange(2, max(ks) + 2))
    ideal = np.cumsum(discounts)
    values = {}
    for k in ks:
        found = hits[:, :k].sum(axis=1)
        values[f"P@{k}"] = 100 * found / k
        gain = hits[:, :k] @ discounts[: hits[:, :k].shape[1]]
        values[f"nDCG@{k}"] = 100 * gain / ideal[np.minimum(n_true, k) - 1]
        values[f"R@{k}"] = 100 * found / n_true
    order = [name for kind in ("P", "nDCG", "R") for name in values if name.startswith(f"{kind}@")]
    return {name: np.asarray(values[name], np.float64) for name in order}


def row_psp(
    ranking: Ranking, truth: Csr, weights: DoubleArray, ks: Sequence[int]
) -> dict[str, tuple[DoubleArray, DoubleArray]]:
    """Weighted hits in percent and their maximum over all rankings, of each row with a true label (m,).

    PSP@k is the sum of the first over the sum of the second.
    """
    rows = np.flatnonzero(np.diff(truth.indptr))
    hits = native.matrix.ranking_hits(ranking.ids, truth, 1).view(bool)[rows]
    gains = np.cumsum(np.where(hits, weights[ranking.ids[rows]], 0.0), axis=1)
    row_of = np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr))
    of_true = weights[truth.indices]
    of_true = of_true[np.lexsort((-of_true, row_of))]  # within its row, the largest first
    totals = np.concatenate([[0.0], np.cumsum(of_true)])
    starts, lengths = truth.indptr[rows], np.diff(truth.indptr)[rows]
    return {
        f"PSP@{k}": (
            100 * gains[:, min(k, gains.shape[1]) - 1],
            totals[starts + np.minimum(lengths, k)] - totals[starts],
        )
        for k in ks
    }


def bootstrap_intervals(
    values: AnyArray,
    *,
    per: AnyArray | None = None,
    confidence: float = 0.95,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> tuple[DoubleArray, DoubleArray]:
    """Lower and upper bounds (m,) of the means of values (n, m), from rows drawn with replacement.

    With `per` (n, m) the bounds are those of the ratios of the means of both.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1; got {confidence!r}")
    n = len(values)
    if n == 0:
        raise DataError("there is no row with a true label")
    random = np.random.default_rng(seed)
    means = np.empty((n_resamples, values.shape[1]))
    for mean in means:
        drawn = np.bincount(random.integers(n, size=n), minlength=n)
        mean[:] = drawn @ values / (n if per is None else np.maximum(drawn @ per, 1e-300))
    tail = 50 * (1 - confidence)
    low, high = np.percentile(means, [tail, 100 - tail], axis=0)
    return np.asarray(low), np.asarray(high)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two rankings of the same rows.

    Attributes
    ----------
    metrics : metric → values of A and B, their difference, and its confidence interval, in percent
    wins, losses : metric → rows in which A is better, and worse
    by_decile : by frequency decile of the labels, true labels within the first k of A only, and of B only
    k, confidence : cutoff of `by_decile`; confidence of the intervals
    """

    metrics: dict[str, tuple[float, float, float, float, float]]
    wins: dict[str, int]
    losses: dict[str, int]
    by_decile: list[tuple[int, int]]
    k: int
    confidence: float

    def to_dict(self) -> dict[str, Any]:
        """All values as plain numbers."""
        keys = ("a", "b", "difference", "low", "high")
        return {
            "metrics": {
                name: {**dict(zip(keys, v, strict=True)), "wins": self.wins[name], "losses": self.losses[name]}
                for name, v in self.metrics.items()
            },
            "deciles": [{"a_only": a, "b_only": b} for a, b in self.by_decile],
            "confidence": self.confidence,
        }

    def tables(self) -> dict[str, list[list[str]]]:
        """Tables by title, header first."""
        interval = f"{100 * self.confidence:g} % interval"
        rows = [["", "A", "B", "A - B", interval, "A better", "A worse"]]
        for name, (a, b, difference, low, high) in self.metrics.items():
            cells = [f"{a:.2f}", f"{b:.2f}", f"{difference:+.2f}", f"{low:+.2f} to {high:+.2f}"]
            rows.append([name, *cells, f"{self.wins[name]:,}", f"{self.losses[name]:,}"])
        tables = {"difference": rows}
        if self.by_decile:
            deciles = [[str(i + 1), f"{a:,}", f"{b:,}"] for i, (a, b) in enumerate(self.by_decile)]
            title = f"true labels that only one of them has among the {self.k} best, by label frequency decile"
            tables[title] = [["decile", "A only", "B only"], *deciles]
        return tables

    def __str__(self) -> str:
        lines = []
        for title, rows in self.tables().items():
            widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
            lines += [title, *("  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in rows)]
        return "\n".join(lines)

    __repr__ = __str__


def compare(
    a: Ranking, b: Ranking, y_true: Any, y_train: Any = None, *, k: int = 5, confidence: float = 0.95, seed: int = 0
) -> Comparison:
    """Compare two rankings of the same rows, row by row.

    Parameters
    ----------
    a, b : rankings with at least k labels of each row; their labels may have different ids
    y_true : true labels, as lists, or as an indicator if both have the same labels
    y_train : training labels or `LabelCounts` in the order of A's labels; for the table by decile
    k : largest cutoff; those of 1, 3, 5 and 10 below it are shown, too
    """
    k = check_integer(k, "k")
    ks = [*(cutoff for cutoff in (1, 3, 5, 10) if cutoff < k), k]
    if any(ranking.k < min(ks[-1], ranking.n_labels) for ranking in (a, b)):
        raise DataError(f"both rankings need at least {ks[-1]} labels of each row; they have {a.k} and {b.k}")
    a, b = _with_common_ids(a, b)
    truth, _ = align_labels(y_true, _vocabulary(a))
    if not len(a) == len(b) == truth.shape[0]:
        raise DataError(f"A has {len(a)} rows, B has {len(b)}, y_true has {truth.shape[0]}")
    of_a, of_b = (row_metrics(ranking, truth, ks) for ranking in (a, b))
    differences = np.stack([of_a[name] - of_b[name] for name in of_a], axis=1)
    low, high = bootstrap_intervals(differences, confidence=confidence, seed=seed)
    metrics = {
        name: (*_two_means(of_a[name], of_b[name]), float(low[i]), float(high[i])) for i, name in enumerate(of_a)
    }
    wins = {name: int((differences[:, i] > 0).sum()) for i, name in enumerate(of_a)}
    losses = {name: int((differences[:, i] < 0).sum()) for i, name in enumerate(of_a)}
    by_decile: list[tuple[int, int]] = []
    if y_train is not None:
        deciles = frequency_deciles(LabelCounts.of(y_train, _vocabulary(a)).counts)
        by_decile = _by_decile(a, b, truth, deciles, ks[-1])
    return Comparison(metrics, wins, losses, by_decile, ks[-1], confidence)


def _two_means(a: DoubleArray, b: DoubleArray) -> tuple[float, float, float]:
    return float(a.mean()), float(b.mean()), float((a - b).mean())


def _by_decile(a: Ranking, b: Ranking, truth: Csr, deciles: ByteArray, k: int) -> list[tuple[int, int]]:
    """Count true labels among the k best of one ranking only; labels without a decile are in the last one."""
    group = np.append(deciles, np.full(max(0, truth.shape[1] - len(deciles)), N_DECILES - 1, np.uint8))[truth.indices]
    in_a, in_b = _is_found(a, truth, k), _is_found(b, truth, k)
    only_a, only_b = in_a & ~in_b, in_b & ~in_a
    return [(int(only_a[group == g].sum()), int(only_b[group == g].sum())) for g in range(N_DECILES)]


def _is_found(ranking: Ranking, truth: Csr, k: int) -> BoolArray:
    """Whether each entry of truth (nnz,) is among the k best of its row."""
    n = truth.shape[1]
    ids = ranking.ids[:, :k]
    pairs = (np.arange(len(ids), dtype=np.int64)[:, None] * n + ids)[ids >= 0]
    rows = np.repeat(np.arange(truth.shape[0], dtype=np.int64), np.diff(truth.indptr))
    return np.isin(rows * n + truth.indices, pairs)


def _with_common_ids(a: Ranking, b: Ranking) -> tuple[Ranking, Ranking]:
    """Rankings with the same label ids: those of A, then the labels that only B has."""
    labels, others = list(_vocabulary(a)), list(_vocabulary(b))
    if labels == others:
        return a, b
    known = _vocabulary(a).ids
    names = LabelVocabulary([*labels, *(label for label in others if label not in known)])
    new_ids = np.array([*(names.ids[label] for label in others), -1], np.int32)  # the last one for padding
    return (
        Ranking(a.ids, a.scores, len(names), names),
        Ranking(new_ids[b.ids], b.scores, len(names), names),
    )


def _vocabulary(ranking: Ranking) -> LabelVocabulary:
    if isinstance(ranking.names, LabelVocabulary):
        return ranking.names
    return LabelVocabulary(range(ranking.n_labels) if ranking.names is None else ranking.names)
