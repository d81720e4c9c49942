"""`Ranking`: the top-k labels of each row, the result type of every model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from ramify.base.errors import DataError, check_integer
from ramify.base.extras import needed_for
from ramify.base.html import html_table
from ramify.base.sparse import MAX_COLUMNS, as_csr, csr_from_parts, entry_rows, indptr_from_counts
from ramify.base.types import AnyArray, Csr, FloatArray, IntArray, Label

SHOWN_ROWS, SHOWN_LABELS = 10, 5
"""Rows and labels that a notebook shows."""
_MAX_PADDED = 1 << 16
_FIELDS = ("ids", "scores", "n_labels", "names", "are_probabilities", "catalogue")


class DisplayNames(Protocol):
    """What a ranking needs of a label catalogue."""

    def display_name(self, label: Label, language: str | None = None) -> str:
        """Return the display name of a label; the label itself where there is none."""


def _is_plain(array: AnyArray, dtype: Any) -> bool:
    return array.dtype == dtype and array.flags.c_contiguous


def strictly_descending(ids: IntArray, scores: FloatArray) -> FloatArray:
    """Scores (n, k) of a ranking without ties: a score that does not descend becomes the next smaller number.

    So the scores alone give the order of the labels, and the first columns do not depend on k.
    """
    ties = scores[:, 1:] >= scores[:, :-1]
    if not ties.any():  # most single queries end here
        return scores
    ties &= ids[:, 1:] >= 0
    if not ties.any():
        return scores
    result = scores.copy()
    rows = np.flatnonzero(ties.any(axis=1))
    part, valid = result[rows], ids[rows] >= 0
    for j in range(1 + int(np.argmax(ties.any(axis=0))), part.shape[1]):
        below = np.nextafter(part[:, j - 1], np.float32(-np.inf))
        part[:, j] = np.where(valid[:, j], np.minimum(part[:, j], below), part[:, j])
    result[rows] = part
    return result


@dataclass(frozen=True, eq=False)
class Ranking:
    """Top-k labels and scores of n rows.

    Attributes
    ----------
    ids : (n, k) int32
        Label ids, best first; -1 is padding.
    scores : (n, k) float32
        Scores in descending order; -inf for padding.
    n_labels : int
        Number of labels L of the model.
    names : sequence, optional
        Label of each id; None: the ids are the labels.
    are_probabilities : bool
        Whether the scores are calibrated probabilities.
    catalogue : optional
        Display names of the labels (`LabelCatalogue`).
    """

    ids: IntArray
    scores: FloatArray
    n_labels: int
    names: Sequence[Label] | None = None
    are_probabilities: bool = False
    catalogue: DisplayNames | None = None

    def __post_init__(self) -> None:
        ids, scores = np.asarray(self.ids), np.asarray(self.scores)
        if ids.ndim != 2 or ids.shape != scores.shape:
            raise DataError(f"ids and scores must have the same (n, k) shape; got {ids.shape} and {scores.shape}")
        if ids.dtype.kind not in "iu":
            raise DataError(f"label ids must be integers; got {ids.dtype}")
        if self.names is not None and len(self.names) != self.n_labels:
            raise DataError(f"{len(self.names)} names for {self.n_labels} labels")
        if ids.size and (int(ids.min()) < -1 or int(ids.max()) >= self.n_labels):
            raise DataError(
                f"label ids must be between -1 and {self.n_labels - 1}; got {int(ids.min())} to {int(ids.max())}"
            )
        object.__setattr__(self, "ids", np.ascontiguousarray(ids, np.int32))
        object.__setattr__(self, "scores", np.ascontiguousarray(scores, np.float32))

    @classmethod
    def trusted(
        cls,
        ids: IntArray,
        scores: FloatArray,
        n_labels: int,
        names: Sequence[Label] | None,
        are_probabilities: bool,
        catalogue: DisplayNames | None,
    ) -> Ranking:
        """Return a ranking of what a search returned, without the checks, which take a tenth of a single query."""
        if not (_is_plain(ids, np.int32) and _is_plain(scores, np.float32)):
            return cls(ids, scores, n_labels, names, are_probabilities, catalogue)
        ranking = object.__new__(cls)
        values = (ids, scores, n_labels, names, are_probabilities, catalogue)
        ranking.__dict__.update(zip(_FIELDS, values, strict=True))
        return ranking

    @classmethod
    def from_csr(cls, scores: Any, k: int | None = None, names: Sequence[Label] | None = None) -> Ranking:
        """Take the k largest stored entries of each row of a score matrix (n × L), by default all of them.

        Ties are broken by label id. A k that is larger than L, or so large that it would be mostly padding, is lowered.
        """
        k = None if k is None else check_integer(k, "k")
        matrix = as_csr(scores, "scores")
        longest = int(np.diff(matrix.indptr).max(initial=0))
        k = min(max(1, longest) if k is None else k, matrix.shape[1], max(longest, _MAX_PADDED))
        rows = entry_rows(matrix)
        order = np.lexsort((matrix.indices, -matrix.data, rows))
        ranks = np.arange(matrix.nnz) - matrix.indptr[rows]
        kept = ranks < k
        ids = np.full((matrix.shape[0], k), -1, np.int32)
        best = np.full((matrix.shape[0], k), -np.inf, np.float32)
        ids[rows[kept], ranks[kept]] = matrix.indices[order][kept]
        best[rows[kept], ranks[kept]] = matrix.data[order][kept]
        return cls(ids, best, matrix.shape[1], names)

    @classmethod
    def from_sets(cls, chosen: Csr) -> Ranking:
        """Order all stored entries of each row of a score matrix (n × L)."""
        return cls.from_csr(chosen)

    @classmethod
    def concat(cls, parts: Sequence[Ranking]) -> Ranking:
        """Concatenate the rows of rankings of the same labels."""
        if len({(part.k, part.n_labels) for part in parts}) != 1:
            raise DataError("only rankings with the same k and the same labels can be concatenated")
        ids, scores = (np.concatenate([getattr(part, name) for part in parts]) for name in ("ids", "scores"))
        return replace(parts[0], ids=ids, scores=scores)

    def __len__(self) -> int:
        return int(self.ids.shape[0])

    @property
    def k(self) -> int:
        """Number of columns k."""
        return int(self.ids.shape[1])

    def labels(self, names: str | bool = False) -> list[list[tuple[Label, float]]]:
        """Labels and scores of each row, best first.

        Parameters
        ----------
        names : True or a language, such as "en": display names of the label catalogue instead of labels
        """
        name: Callable[[int], Label] = self.names.__getitem__ if self.names is not None else int
        if names:
            if self.catalogue is None:
                raise DataError("the model has no label catalogue; pass label_catalogue= to fit, or set_catalogue")
            catalogue, label_of = self.catalogue, name
            language = names if isinstance(names, str) else None
            name = lambda i: catalogue.display_name(label_of(i), language)  # noqa: E731
        return [
            [(name(int(i)), float(s)) for i, s in zip(ids, scores, strict=True) if i >= 0]
            for ids, scores in zip(self.ids, self.scores, strict=True)
        ]

    def to_csr(self) -> Csr:
        """Scores as a CSR matrix (n × L); a score of 0 is a stored entry."""
        kept = self.ids >= 0
        indptr = indptr_from_counts(kept.sum(axis=1))
        if self.ids.size < 2**31:
            indptr = indptr.astype(np.int32)
        matrix = csr_from_parts(
            self.scores[kept], self.ids[kept].astype(indptr.dtype), indptr, (len(self), self.n_labels)
        )
        matrix.has_sorted_indices = False
        matrix.sort_indices()
        return matrix

    def top(self, k: int) -> Ranking:
        """Return the first k columns."""
        k = check_integer(k, "k")
        return replace(self, ids=self.ids[:, :k], scores=self.scores[:, :k])

    def padded(self, k: int) -> Ranking:
        """Return the ranking with k columns or more: the further ones are empty."""
        missing = ((0, 0), (0, max(0, check_integer(k, "k", high=MAX_COLUMNS) - self.k)))
        ids, scores = (
            np.pad(self.ids, missing, constant_values=-1),
            np.pad(self.scores, missing, constant_values=-np.inf),
        )
        return replace(self, ids=ids, scores=scores)

    def __getitem__(self, rows: Any) -> Ranking:
        """Select rows by slice, mask or indices."""
        return replace(self, ids=np.atleast_2d(self.ids[rows]), scores=np.atleast_2d(self.scores[rows]))

    # ---- frames ----

    def to_columns(self) -> dict[str, list[Any]]:
        """One entry for each ranked label: row index, rank from 1, label, score, and name if there is a catalogue."""
        rows, positions = np.nonzero(self.ids >= 0)
        ids = self.ids[rows, positions].tolist()
        labels: list[Any] = ids if self.names is None else [self.names[i] for i in ids]
        columns: dict[str, list[Any]] = {"row": rows.tolist(), "rank": (positions + 1).tolist(), "label": labels}
        columns["score"] = self.scores[rows, positions].tolist()
        if self.catalogue is not None:
            columns["name"] = [self.catalogue.display_name(label) for label in labels]
        return columns

    def to_pandas(self) -> Any:
        """Pandas DataFrame with the columns of `to_columns`."""
        with needed_for("this conversion", "pandas"):
            import pandas as pd
        return pd.DataFrame(self.to_columns())

    def to_polars(self) -> Any:
        """Polars DataFrame with the columns of `to_columns`."""
        with needed_for("this conversion", "polars"):
            import polars as pl
        return pl.DataFrame(self.to_columns())

    def to_arrow(self) -> Any:
        """Arrow table with the columns of `to_columns`."""
        with needed_for("this conversion", "pyarrow", "parquet"):
            import pyarrow as pa
        return pa.table(self.to_columns())

    # ---- display ----

    def __repr__(self) -> str:
        return f"<Ranking: {len(self):,} rows, top {self.k} of {self.n_labels:,} labels>"

    def _repr_html_(self) -> str:
        """Show the first rows in a notebook."""
        head = self[:SHOWN_ROWS].top(min(self.k, SHOWN_LABELS)) if len(self) and self.k else self
        shown = head.labels(names=self.catalogue is not None)
        rows = [[str(i), *(f"{label} ({score:.3g})" for label, score in row)] for i, row in enumerate(shown)]
        return html_table([["row", *(str(i + 1) for i in range(head.k))], *rows], repr(self)[1:-1])
