"""What encoders read: the features of points, and their texts as tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ramify.base.errors import DataError
from ramify.base.mixed import Mixed
from ramify.base.types import IntArray, LongArray
from ramify.io.inputs import Inputs

LEAST_PART, MOST_PADDING = 8, 1.1
"""Texts that are worth a computation of their own in training, and tokens with padding over those without."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """Texts as token numbers, one behind the other; the arrays may lie on disk.

    Attributes
    ----------
    begin : (n + 1,) where the tokens of each text begin
    ids : numbers of the tokens
    """

    begin: LongArray
    ids: IntArray

    def __len__(self) -> int:
        return len(self.begin) - 1

    @classmethod
    def of(cls, lists: list[list[int]]) -> Tokens:
        """Put lists of numbers one behind the other."""
        begin = np.concatenate([[0], np.cumsum([len(tokens) for tokens in lists])]).astype(np.int64)
        return cls(begin, np.array([i for tokens in lists for i in tokens], np.int32))

    @classmethod
    def joined(cls, parts: list[Tokens]) -> Tokens:
        """Put texts behind each other."""
        counts = np.concatenate([np.empty(0, np.int64), *(np.diff(part.begin) for part in parts)])
        begin = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(begin, np.concatenate([np.empty(0, np.int32), *(part.ids for part in parts)]))

    def digest(self) -> str:
        """Tell the texts apart from others."""
        digest = hashlib.blake2b(np.ascontiguousarray(self.begin).data, digest_size=16)
        digest.update(np.ascontiguousarray(self.ids).data)
        return digest.hexdigest()

    def take(self, rows: LongArray) -> Tokens:
        """Return some of the texts."""
        counts = self.begin[rows + 1] - self.begin[rows]
        begin = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        places = np.arange(begin[-1]) + np.repeat(self.begin[rows] - begin[:-1], counts)
        return Tokens(begin, self.ids[places])

    def windows(self, max_len: int) -> tuple[Tokens, LongArray]:
        """Cut long texts into stretches of at most `max_len` tokens, each between the marks of the whole text.

        Returns
        -------
        stretches, owner : the stretches, and the text that each belongs to
        """
        counts, inner = np.diff(self.begin), max_len - 2
        if counts.max(initial=0) <= max_len:
            return self, np.arange(len(self))
        lists, owner = [], []
        for row, count in enumerate(counts):
            text = self.ids[self.begin[row] : self.begin[row + 1]]
            for start in range(1, max(2, int(count) - 1), inner):
                lists.append([text[0], *text[start : min(start + inner, int(count) - 1)], text[-1]])
                owner.append(row)
        return Tokens.of(lists), np.array(owner, np.int64)

    def padded(self) -> tuple[LongArray, LongArray]:
        """Numbers and mask (n, longest), 0 behind the last token."""
        counts = np.diff(self.begin)
        mask = (np.arange(max(1, int(counts.max(initial=0)))) < counts[:, None]).astype(np.int64)
        ids = np.zeros(mask.shape, np.int64)
        ids[mask > 0] = self.ids
        return ids, mask


@dataclass(frozen=True, eq=False)
class Points:
    """Features of points, with their tokens where an encoder reads them."""

    features: Mixed
    tokens: Tokens | None = None

    def __len__(self) -> int:
        return len(self.features)

    def take(self, rows: LongArray) -> Points:
        """Return some of the points."""
        part = Mixed(self.features.sparse[rows], self.features.dense[rows])
        return Points(part, None if self.tokens is None else self.tokens.take(rows))


def texts_of(inputs: Inputs) -> list[str]:
    """Texts of the input; the fields of a point become one text."""
    if inputs.kind == "text":
        return list(inputs.data)
    if inputs.kind == "fields":
        return [" ".join(document.values()) for document in inputs.data]
    raise DataError("a TransformerEncoder reads texts, but X is a matrix; give texts, or use a BagEncoder")


def parts_of_like_length(lengths: LongArray, most: int, n_tokens: int) -> Iterator[LongArray]:
    """Rows of a batch, so many rows or tokens together, cut where padding would cost more than a part of its own."""
    order = np.argsort(lengths, kind="stable")
    start, total = 0, 0
    for end, length in enumerate(lengths[order], 1):
        total += int(length)
        wasteful = end - start >= LEAST_PART and (end - start) * int(length) > MOST_PADDING * total
        full = end - start == most or (end - start + 1) * int(length) > n_tokens
        if full or wasteful or end == len(order):
            yield order[start:end]
            start, total = end, 0


def batches_by_length(lengths: LongArray, n_tokens: int) -> Iterator[LongArray]:
    """Rows of like length, as many as have so many tokens."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        count = max(1, n_tokens // max(1, int(lengths[order[start]])))
        yield order[start : start + count]
        start += count
