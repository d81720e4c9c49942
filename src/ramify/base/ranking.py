"""`Ranking`: the top-k labels of each row, the result type of every model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify.base.errors import DataError
from ramify.base.sparse import as_csr, csr_from_parts, entry_rows, indptr_from_counts
from ramify.base.types import Csr, FloatArray, IntArray, Label

_MAX_PADDED = 1 << 16


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
    """

    ids: IntArray
    scores: FloatArray
    n_labels: int
    names: Sequence[Label] | None = None

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
    def from_csr(cls, scores: Any, k: int, names: Sequence[Label] | None = None) -> Ranking:
        """Take the k largest stored entries of each row of a score matrix (n × L); ties are broken by label id.

        A k that is larger than L, or so large that it would be mostly padding, is lowered.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1; got {k}")
        matrix = as_csr(scores, "scores")
        longest = int(np.diff(matrix.indptr).max(initial=0))
        k = min(int(k), matrix.shape[1], max(longest, _MAX_PADDED))
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
    def concat(cls, parts: Sequence[Ranking]) -> Ranking:
        """Concatenate the rows of rankings of the same labels."""
        if len({(part.k, part.n_labels) for part in parts}) != 1:
            raise DataError("only rankings with the same k and the same labels can be concatenated")
        ids, scores = (np.concatenate([getattr(part, name) for part in parts]) for name in ("ids", "scores"))
        return cls(ids, scores, parts[0].n_labels, parts[0].names)

    def __len__(self) -> int:
        return int(self.ids.shape[0])

    @property
    def k(self) -> int:
        """Number of columns k."""
        return int(self.ids.shape[1])

    def labels(self) -> list[list[tuple[Label, float]]]:
        """Labels and scores of each row, best first."""
        name = self.names.__getitem__ if self.names is not None else int
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
        if k < 1:
            raise ValueError(f"k must be at least 1; got {k}")
        return Ranking(self.ids[:, :k], self.scores[:, :k], self.n_labels, self.names)

    def __getitem__(self, rows: Any) -> Ranking:
        """Select rows by slice, mask or indices."""
        return Ranking(np.atleast_2d(self.ids[rows]), np.atleast_2d(self.scores[rows]), self.n_labels, self.names)
