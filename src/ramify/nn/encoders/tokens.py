"""Token sequences: ragged arrays, windows of long texts, and batches of similar length."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ramify.base.errors import DataError
from ramify.base.sparse import indptr_from_counts
from ramify.base.types import IntArray, LongArray
from ramify.io.inputs import Inputs

MIN_MICRO_BATCH, MAX_PADDING_RATIO = 8, 1.1
"""A micro-batch is cut short once it has this many texts and padding exceeds this ratio of tokens."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """Token ids of n texts, concatenated; the arrays may be memory-mapped.

    Attributes
    ----------
    indptr : (n + 1,) text i has the tokens from indptr[i] to indptr[i + 1]
    ids : token ids
    """

    indptr: LongArray
    ids: IntArray

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @classmethod
    def from_lists(cls, lists: list[list[int]]) -> Tokens:
        """Concatenate lists of token ids."""
        indptr = indptr_from_counts([len(tokens) for tokens in lists])
        return cls(indptr, np.array([i for tokens in lists for i in tokens], np.int32))

    @classmethod
    def concat(cls, parts: list[Tokens]) -> Tokens:
        """Concatenate texts."""
        counts = np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)])
        return cls(indptr_from_counts(counts), np.concatenate([np.empty(0, np.int32), *(part.ids for part in parts)]))

    @property
    def lengths(self) -> LongArray:
        """Number of tokens (n,) of each text."""
        return np.diff(self.indptr)

    def digest(self) -> str:
        """Return a hash of the content."""
        digest = hashlib.blake2b(np.ascontiguousarray(self.indptr).data, digest_size=16)
        digest.update(np.ascontiguousarray(self.ids).data)
        return digest.hexdigest()

    def take(self, rows: LongArray) -> Tokens:
        """Select texts."""
        counts = self.indptr[rows + 1] - self.indptr[rows]
        indptr = indptr_from_counts(counts)
        positions = np.arange(indptr[-1]) + np.repeat(self.indptr[rows] - indptr[:-1], counts)
        return Tokens(indptr, self.ids[positions])

    def windows(self, max_length: int) -> tuple[Tokens, LongArray]:
        """Cut long texts into windows of at most `max_length` tokens, each with the text's first and last token.

        Returns
        -------
        windows : the windows of all texts
        owners : (n_windows,) text of each window, ascending
        """
        counts, inner = self.lengths, max_length - 2
        if counts.max(initial=0) <= max_length:
            return self, np.arange(len(self))
        lists, owners = [], []
        for row, count in enumerate(counts):
            text = self.ids[self.indptr[row] : self.indptr[row + 1]]
            for start in range(1, max(2, int(count) - 1), inner):
                lists.append([text[0], *text[start : min(start + inner, int(count) - 1)], text[-1]])
                owners.append(row)
        return Tokens.from_lists(lists), np.array(owners, np.int64)

    def padded(self) -> tuple[LongArray, LongArray]:
        """Token ids and attention mask (n, longest), padded with 0."""
        counts = self.lengths
        mask = (np.arange(max(1, int(counts.max(initial=0)))) < counts[:, None]).astype(np.int64)
        ids = np.zeros(mask.shape, np.int64)
        ids[mask > 0] = self.ids
        return ids, mask


def texts_of(inputs: Inputs) -> list[str]:
    """Return the texts of the input; the fields of a sample are joined."""
    if inputs.kind == "text":
        return list(inputs.data)
    if inputs.kind == "fields":
        return [" ".join(document.values()) for document in inputs.data]
    raise DataError("a TransformerEncoder reads texts, but X is a matrix; pass texts, or use a BagEncoder")


def micro_batches(lengths: LongArray, max_rows: int, max_tokens: int) -> Iterator[LongArray]:
    """Split the rows of a batch by length; a part ends once it reaches the limit of rows, tokens or padding."""
    order = np.argsort(lengths, kind="stable")
    start, total = 0, 0
    for end, length in enumerate(lengths[order], 1):
        total += int(length)
        wasteful = end - start >= MIN_MICRO_BATCH and (end - start) * int(length) > MAX_PADDING_RATIO * total
        full = end - start == max_rows or (end - start + 1) * int(length) > max_tokens
        if full or wasteful or end == len(order):
            yield order[start:end]
            start, total = end, 0


def batches_by_length(lengths: LongArray, max_tokens: int) -> Iterator[LongArray]:
    """Group rows of similar length, longest first, up to `max_tokens` tokens with padding."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        count = max(1, max_tokens // max(1, int(lengths[order[start]])))
        yield order[start : start + count]
        start += count
