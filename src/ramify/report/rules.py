"""Precision and recall of label sets, by decision rule and by threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ramify import native
from ramify.base.ranking import Ranking
from ramify.base.types import BoolArray, Csr, LongArray
from ramify.rank.decision_rule import DecisionRule
from ramify.rank.decisions import ExpectedCount, MaximizeF1, Threshold, TopK

THRESHOLDS = tuple(np.round(np.arange(1, 20) / 20, 2).tolist())
TOP_K = (1, 3, 5, 10)


@dataclass(frozen=True)
class RuleResult:
    """Label sets of a rule: precision, recall and F1 over all pairs of a row and a label, in percent.

    `f1_by_sample` is the mean F1 of the rows with a true label; `n_labels` the mean number of labels of a row; `empty`
    the fraction of the rows without a label.
    """

    name: str
    precision: float
    recall: float
    f1: float
    f1_by_sample: float
    n_labels: float
    empty: float


def rules_of(rule: DecisionRule | None, has_probabilities: bool) -> list[tuple[str, DecisionRule]]:
    """Rules to evaluate: that of the model, and those that need no fitting; nothing is fitted to the test set."""
    found: list[tuple[str, DecisionRule]] = []
    if rule is not None and (has_probabilities or not rule.needs_probabilities):
        found.append((f"{rule.name} (fitted)", rule))
    if has_probabilities:
        found += [("maximize-f1", MaximizeF1()), ("expected-count", ExpectedCount()), ("threshold=0.5", Threshold(0.5))]
    return found + [(f"top-k={k}", TopK(k)) for k in TOP_K]


def rule_results(
    ranking: Ranking, truth: Csr, rules: Sequence[tuple[str, DecisionRule]]
) -> tuple[list[RuleResult], list[tuple[float, float, float]]]:
    """Results of the rules; and threshold, precision and recall along the thresholds, if there are probabilities."""
    hits = native.matrix.ranking_hits(ranking.ids, truth, 1).view(bool)
    n_true = np.asarray(np.diff(truth.indptr), np.int64)
    results = []
    for name, rule in rules:
        if isinstance(rule, TopK) and (rule.k or 0) > ranking.k:
            continue
        results.append(_result(name, rule.choose(ranking.ids, ranking.scores), hits, n_true))
    curve = []
    if ranking.are_probabilities:
        for threshold in THRESHOLDS:
            chosen = (ranking.scores >= threshold) & (ranking.ids >= 0)
            if chosen.any():
                found = _result("", chosen, hits, n_true)
                curve.append((threshold, found.precision, found.recall))
    return results, curve


def _result(name: str, chosen: BoolArray, hits: BoolArray, n_true: LongArray) -> RuleResult:
    n_hits, n_chosen = (hits & chosen).sum(axis=1), chosen.sum(axis=1)
    total, right = int(n_chosen.sum()), int(n_hits.sum())
    rows = n_true > 0
    by_sample = 2 * n_hits[rows] / np.maximum(1, n_chosen[rows] + n_true[rows])
    return RuleResult(
        name,
        100 * right / max(1, total),
        100 * right / max(1, int(n_true.sum())),
        200 * right / max(1, total + int(n_true.sum())),
        100 * float(by_sample.mean()) if rows.any() else 0.0,
        float(n_chosen.mean()) if len(n_chosen) else 0.0,
        float((n_chosen == 0).mean()) if len(n_chosen) else 0.0,
    )
