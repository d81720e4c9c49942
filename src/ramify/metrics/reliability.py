"""Reliability of probabilities: how far they are from the fraction of labels that are true.

Labels are sorted by probability into bins of equal size. The expected calibration error over the k best labels of each
row is the mean distance of a bin's mean probability from its fraction of true labels:

    ECE@k = Σ_b |b| / N · |mean p_b - mean y_b|          Brier@k = mean (p - y)²
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify import native
from ramify.base.errors import DataError
from ramify.base.ranking import Ranking
from ramify.base.types import BoolArray, ByteArray, Csr, FloatArray

CUTOFFS = (1, 3, 5)
N_BINS = 15
TABLE_EDGES = np.linspace(0, 1, 11)


@dataclass(frozen=True, eq=False)
class Reliability:
    """Calibration of a ranking by probability.

    Attributes
    ----------
    ece, brier : expected calibration error and Brier score, by k
    bins : lower and upper bound, number of labels, mean probability and fraction of true labels of each tenth of the
        probabilities, over the k best labels of the largest k
    by_decile : mean probability and fraction of true labels, by decile of label frequency; empty without deciles
    """

    ece: dict[int, float]
    brier: dict[int, float]
    bins: list[tuple[float, float, int, float, float]]
    by_decile: list[tuple[int, float, float]]

    def to_dict(self) -> dict[str, Any]:
        """All values by name, such as "ECE@1"."""
        values: dict[str, Any] = {f"ECE@{k}": v for k, v in self.ece.items()}
        values.update({f"Brier@{k}": v for k, v in self.brier.items()})
        return values

    def tables(self) -> dict[str, list[list[str]]]:
        """Tables by title, header first."""
        rows = [["", *(f"@{k}" for k in self.ece)]]
        rows += [["ECE", *(f"{v:.4f}" for v in self.ece.values())]]
        rows += [["Brier", *(f"{v:.4f}" for v in self.brier.values())]]
        bins = [["probability", "labels", "mean", "true"]]
        bins += [[f"{a:.1f} to {b:.1f}", f"{n:,}", f"{p:.3f}", f"{y:.3f}"] for a, b, n, p, y in self.bins if n]
        tables = {"calibration": rows, f"reliability of the {max(self.ece)} best labels": bins}
        if self.by_decile:
            deciles = [[str(i + 1), f"{n:,}", f"{p:.3f}", f"{y:.3f}"] for i, (n, p, y) in enumerate(self.by_decile)]
            tables["reliability by label frequency decile"] = [["decile", "labels", "mean", "true"], *deciles]
        return tables


def reliability(ranking: Ranking, truth: Csr, groups: ByteArray | None = None, n_groups: int = 10) -> Reliability:
    """Compare the probabilities of a ranking with the true labels (n × L).

    Parameters
    ----------
    groups : (L,) group of each label, such as its frequency decile
    """
    valid = ranking.ids >= 0
    p = ranking.scores
    if valid.any() and (p[valid].min() < 0 or p[valid].max() > 1):
        raise DataError("the scores are not probabilities; use predict_topk(X, k, probabilities=True)")
    hits = native.matrix.ranking_hits(ranking.ids, truth, 1).view(bool)
    ks = [k for k in CUTOFFS if k <= ranking.k] or [ranking.k]
    ece, brier = {}, {}
    for k in ks:
        kept = valid[:, :k]
        ece[k] = expected_calibration_error(p[:, :k][kept], hits[:, :k][kept])
        brier[k] = float(np.mean((p[:, :k][kept] - hits[:, :k][kept]) ** 2)) if kept.any() else 0.0
    k = ks[-1]
    kept = valid[:, :k]
    best, right, labels = p[:, :k][kept], hits[:, :k][kept], ranking.ids[:, :k][kept]
    bins = []
    for a, b in itertools.pairwise(TABLE_EDGES):
        inside = (best >= a) & ((best < b) | (b == 1))
        bins.append((float(a), float(b), *_means(best, right, inside)))
    by_group = [] if groups is None else [_means(best, right, groups[labels] == g) for g in range(n_groups)]
    return Reliability(ece, brier, bins, by_group)


def expected_calibration_error(probabilities: FloatArray, correct: BoolArray) -> float:
    """ECE over `N_BINS` bins of equal size, of probabilities (n,) and whether each label is true (n,)."""
    n = len(probabilities)
    if n == 0:
        return 0.0
    order = np.argsort(probabilities, kind="stable")
    gaps = probabilities[order].astype(np.float64) - correct[order]
    starts = np.unique(np.arange(N_BINS) * n // N_BINS)
    return float(np.abs(np.add.reduceat(gaps, starts)).sum() / n)


def _means(p: FloatArray, correct: BoolArray, inside: BoolArray) -> tuple[int, float, float]:
    n = int(inside.sum())
    return (n, float(p[inside].mean()), float(correct[inside].mean())) if n else (0, 0.0, 0.0)
