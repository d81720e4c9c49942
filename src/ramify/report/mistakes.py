"""Sample errors: rows whose labels are wrong, with the words that led there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify import native
from ramify.base.ranking import Ranking
from ramify.base.types import Csr, LongArray
from ramify.metrics.ranking import ndcg_by_row
from ramify.models.base import Model
from ramify.rank.explanation import weighted_pieces

N_SHOWN = 5
"""Labels of a row that are shown."""
MAX_TEXT = 700
"""Characters of a text that are shown."""
N_WORDS = 6
"""Words of an explanation that are listed."""


@dataclass(frozen=True)
class Highlight:
    """Why a label has its score: the text in pieces with their contributions, and the words that contribute most."""

    label: str
    is_true: bool
    score: float
    pieces: list[tuple[str, float]]
    words: list[tuple[str, float]]


@dataclass(frozen=True)
class Mistake:
    """A row with what a model makes of it.

    Attributes
    ----------
    row, id : index of the row, and its id in the data file or None
    text : the beginning of the text; "" for rows of features
    true : true labels with their ranks from 1; None where a label is not ranked
    predicted : best labels with their scores, and whether they are true
    highlights : of the best wrong label, and of the true label that was ranked best behind it
    """

    row: int
    id: str | None
    text: str
    true: list[tuple[str, int | None]]
    predicted: list[tuple[str, float, bool]]
    highlights: list[Highlight]


def rows_with_errors(ranking: Ranking, truth: Csr, n: int, seed: int = 0) -> LongArray:
    """Rows whose best label is wrong: half of them those with the highest scores, half drawn at random."""
    hits = native.matrix.ranking_hits(ranking.ids, truth, 1).view(bool)
    is_known = truth[:, : ranking.n_labels].getnnz(axis=1) > 0
    wrong = np.flatnonzero(is_known & ~hits[:, 0] & (ranking.ids[:, 0] >= 0))
    confident = wrong[np.lexsort((wrong, -ranking.scores[wrong, 0]))][: n - n // 2]
    rest = np.setdiff1d(wrong, confident)
    drawn = np.random.default_rng(seed).permutation(rest)[: n // 2]
    return np.concatenate([confident, np.sort(drawn)])


def rows_that_differ(a: Ranking, b: Ranking, truth_a: Csr, truth_b: Csr, n: int) -> tuple[LongArray, LongArray]:
    """Rows in which A is most ahead of B in nDCG@5, and those in which B is most ahead of A."""
    difference = np.nan_to_num(ndcg_by_row(a.ids, truth_a, 5) - ndcg_by_row(b.ids, truth_b, 5))
    order = np.lexsort((np.arange(len(difference)), -difference))
    ahead = order[: n - n // 2]
    behind = order[::-1][: n // 2]
    return ahead[difference[ahead] > 0], behind[difference[behind] < 0]


def describe_row(
    row: int,
    ranking: Ranking,
    truth: Csr,
    ranks: LongArray,
    name: Callable[[int], str],
    *,
    document: Any = None,
    row_id: Any = None,
    model: Model | None = None,
) -> Mistake:
    """Describe what a model makes of a row; `name` gives the display name of a label id, unknown ones included."""
    first, last = truth.indptr[row], truth.indptr[row + 1]
    true_ids = truth.indices[first:last]
    true = [
        (name(int(label)), None if rank >= ranking.k else int(rank) + 1)
        for label, rank in sorted(zip(true_ids, ranks[first:last], strict=True), key=lambda pair: pair[1])
    ]
    ids = [int(i) for i in ranking.ids[row, :N_SHOWN] if i >= 0]
    is_true = set(true_ids.tolist())
    predicted = [(name(i), float(s), i in is_true) for i, s in zip(ids, ranking.scores[row], strict=False)]
    highlights = []
    if model is not None and document is not None:
        wrong = next((i for i in ids if i not in is_true), None)
        by_rank = sorted(zip(ranks[first:last].tolist(), true_ids.tolist(), strict=True))
        missed = next((i for rank, i in by_rank if rank > 0 and i < ranking.n_labels), None)
        for label in (wrong, missed):
            if label is not None:
                highlights.append(_highlight(model, document, label, name(label), label in is_true))
    identifier = None if row_id is None else str(row_id)
    return Mistake(row, identifier, _shortened(_as_text(document)), true, predicted, highlights)


def _highlight(model: Model, document: Any, label_id: int, name: str, is_true: bool) -> Highlight:
    explanation = model.explain(document, model.labels_[label_id])
    score = explanation.score if explanation.probability is None else explanation.probability
    pieces = weighted_pieces(_shortened(_as_text(document)), explanation.terms)
    return Highlight(name, is_true, score, pieces, explanation.terms[:N_WORDS])


def _as_text(document: Any) -> str:
    if isinstance(document, dict):
        return "\n".join(str(part) for part in document.values() if part)
    return document if isinstance(document, str) else ""


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT].rsplit(' ', 1)[0]} …"


def display_names(ranking: Ranking, unknown: Sequence[Any], catalogue: Any = None) -> Callable[[int], str]:
    """Return what gives the display name of a label id; ids from L on are labels that the model does not know."""
    catalogue = ranking.catalogue if catalogue is None else catalogue

    def name(label_id: int) -> str:
        if label_id >= ranking.n_labels:
            label = unknown[label_id - ranking.n_labels] if label_id - ranking.n_labels < len(unknown) else label_id
            return str(label)
        label = label_id if ranking.names is None else ranking.names[label_id]
        return str(label) if catalogue is None else str(catalogue.display_name(label))

    return name
