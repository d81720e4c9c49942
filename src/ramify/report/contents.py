"""What a report contains, as data: one or two models on the same rows. `page` makes HTML of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ramify.base.errors import DataError
from ramify.base.ranking import Ranking
from ramify.base.types import AnyArray, Csr, LongArray
from ramify.io.labels import LabelVocabulary, align_labels
from ramify.metrics.bootstrap import Comparison, compare
from ramify.metrics.propensity import LabelCounts
from ramify.metrics.report import Evaluation, evaluate
from ramify.models.base import Model
from ramify.report.about import Curve, Table, index_figures, model_facts, training_curves
from ramify.report.labels import (
    ConfusedPair,
    DecileRecall,
    HardLabel,
    confused_pairs,
    hard_labels,
    recall_by_decile,
    true_label_ranks,
)
from ramify.report.mistakes import Mistake, describe_row, display_names, rows_that_differ, rows_with_errors
from ramify.report.rules import RuleResult, rule_results, rules_of

CUTOFFS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
"""Cutoffs of the curves."""
N_MISTAKES = 8


@dataclass(frozen=True, eq=False)
class Subject:
    """What a report is about: the ranking of a model for all rows, and the model itself where it is at hand.

    Attributes
    ----------
    name : what the report calls the model
    ranking : best labels of every row, 100 of them for all curves
    counts : training samples of the labels of the ranking; None: no PSP, no deciles
    model : for facts, the index, training curves and explanations
    times : name → measured value, such as seconds or milliseconds
    """

    name: str
    ranking: Ranking
    counts: LabelCounts | None = None
    model: Model | None = None
    times: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ModelReport:
    """What a report says of one model.

    Attributes
    ----------
    facts : name and value of what identifies the model
    evaluation : metrics at `CUTOFFS` with confidence intervals
    deciles : recall within each decile of label frequency; empty without training counts
    rules, thresholds : label sets by decision rule; threshold, precision and recall along the thresholds
    hard, confused : labels that are missed, and pairs that are confused
    mistakes : rows with their labels and explanations
    index, curves, times : figures of the index by title, training curves, measured times
    """

    name: str
    facts: list[tuple[str, str]]
    evaluation: Evaluation
    deciles: list[DecileRecall]
    rules: list[RuleResult]
    thresholds: list[tuple[float, float, float]]
    hard: list[HardLabel]
    confused: list[ConfusedPair]
    mistakes: list[Mistake]
    index: dict[str, Table]
    curves: list[Curve]
    times: dict[str, float]


@dataclass(frozen=True, eq=False)
class Report:
    """One or two models on the same rows; `comparison` only for two.

    `save` writes the self-contained HTML file.
    """

    data_name: str
    n_rows: int
    models: list[ModelReport]
    comparison: Comparison | None = None

    def to_html(self) -> str:
        """Return the report as one HTML document that needs no other file and no script."""
        from ramify.report.page import render_report

        return render_report(self)

    def save(self, path: str | Path) -> None:
        """Write the report to an HTML file."""
        Path(path).write_text(self.to_html(), encoding="utf-8")


def make_report(
    subjects: Sequence[Subject],
    y_true: Any,
    *,
    documents: Any = None,
    ids: Sequence[Any] | None = None,
    data_name: str = "test",
    confidence: float = 0.95,
    unseen: str = "count",
    propensity: str | tuple[float, float] = "default",
) -> Report:
    """Compute a report of one model, or of two side by side.

    Parameters
    ----------
    subjects : one or two rankings of the same rows, with their models
    y_true : true labels, as lists of labels or as an indicator (n × L)
    documents : texts or dicts of text fields of the rows, for the sample errors; None: errors without explanations
    ids : ids of the rows
    confidence, unseen, propensity : as in `ramify.evaluate`
    """
    if not 1 <= len(subjects) <= 2:
        raise ValueError(f"a report has one or two models; got {len(subjects)}")
    truths = [_truth(subject.ranking, y_true) for subject in subjects]
    rows: list[LongArray] = [rows_with_errors(subjects[0].ranking, truths[0].matrix, N_MISTAKES)]
    comparison = None
    if len(subjects) == 2:
        a, b = subjects
        ahead, behind = rows_that_differ(a.ranking, b.ranking, truths[0].matrix, truths[1].matrix, N_MISTAKES)
        rows = [np.concatenate([ahead, behind])] * 2
        k = min(10, a.ranking.k, b.ranking.k)
        comparison = compare(a.ranking, b.ranking, y_true, a.counts, k=k, confidence=confidence)
    models = []
    for subject, truth, shown in zip(subjects, truths, rows, strict=True):
        result = evaluate(
            subject.ranking,
            y_true,
            subject.counts,
            ks=[k for k in CUTOFFS if k <= subject.ranking.k] or None,
            threshold=0.5 if subject.model is None else subject.model.threshold,
            propensity=propensity,
            unseen=unseen,
            confidence=confidence,
        )
        models.append(_model_report(subject, truth, result, shown, documents, ids))
    return Report(data_name, len(subjects[0].ranking), models, comparison)


@dataclass(frozen=True, eq=False)
class _Truth:
    """True labels (n × L and the unknown ones), and the labels of the unknown columns."""

    matrix: Csr
    unknown: list[Any]


def _truth(ranking: Ranking, y_true: Any) -> _Truth:
    names = ranking.names if ranking.names is not None else range(ranking.n_labels)
    vocabulary = names if isinstance(names, LabelVocabulary) else LabelVocabulary(names)
    matrix, _ = align_labels(y_true, vocabulary)
    if matrix.shape[0] != len(ranking):
        raise DataError(f"the ranking has {len(ranking)} rows, but y_true has {matrix.shape[0]}")
    unknown: list[Any] = []
    if not sparse.issparse(y_true) and not isinstance(y_true, np.ndarray):
        unknown = list(dict.fromkeys(label for row in y_true for label in row if label not in vocabulary.ids))
    return _Truth(matrix, unknown)


def _model_report(
    subject: Subject, truth: _Truth, result: Evaluation, shown: LongArray, documents: Any, ids: Sequence[Any] | None
) -> ModelReport:
    ranking, matrix, model = subject.ranking, truth.matrix, subject.model
    counts: AnyArray | None = None if subject.counts is None else subject.counts.counts
    name = display_names(ranking, truth.unknown, None if model is None else model.catalogue_)
    ranks = true_label_ranks(ranking, matrix)
    rule = None if model is None else model.rule_
    rules, thresholds = rule_results(ranking, matrix, rules_of(rule, ranking.are_probabilities))
    mistakes = [
        describe_row(
            int(row),
            ranking,
            matrix,
            ranks,
            name,
            document=None if documents is None else documents[row],
            row_id=None if ids is None else ids[row],
            model=model,
        )
        for row in shown
    ]
    return ModelReport(
        subject.name,
        [] if model is None else model_facts(model),
        result,
        [] if counts is None else recall_by_decile(ranks, matrix, counts),
        rules,
        thresholds,
        hard_labels(ranking, matrix, ranks, counts, name),
        confused_pairs(ranking, matrix, ranks, name),
        mistakes,
        {} if model is None else index_figures(model),
        [] if model is None else training_curves(model),
        subject.times,
    )


def with_model(ranking: Ranking, model: Model) -> Ranking:
    """Return saved predictions with the labels of a model, so that label ids are those of the model."""
    names = ranking.names if ranking.names is not None else range(ranking.n_labels)
    known = model.labels_.ids
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise DataError(f"the predictions have the label {unknown!r}, which the model does not know")
    new_ids = np.array([*(known[name] for name in names), -1], np.int32)
    return dataclasses.replace(
        ranking, ids=new_ids[ranking.ids], n_labels=model.n_labels, names=model.labels_, catalogue=model.catalogue_
    )
