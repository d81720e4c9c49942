"""Tokenizer of a transformer, with a disk cache for the tokens of a training set."""

from __future__ import annotations

from typing import Any

import numpy as np

from ramify.nn.encoders.cache import cache_directory, digest_of, write_array
from ramify.nn.encoders.tokens import Tokens

BATCH_SIZE = 1024
"""Texts of a call: what a tokenizer returns takes far more memory than the ids."""


class TextTokenizer:
    """A tokenizer of the `tokenizers` library that truncates texts behind their last window."""

    def __init__(self, tokenizer: Any, *, max_length: int, n_windows: int) -> None:
        self._tokenizer = tokenizer
        tokenizer.enable_truncation(2 + n_windows * (max_length - 2))  # 2: the special tokens at both ends
        tokenizer.no_padding()

    def __call__(self, texts: list[str]) -> Tokens:
        """Tokenize texts."""
        batches = [texts[start : start + BATCH_SIZE] for start in range(0, len(texts), BATCH_SIZE)]
        return Tokens.concat(
            [Tokens.from_lists([e.ids for e in self._tokenizer.encode_batch(batch)]) for batch in batches]
        )

    def cached(self, texts: list[str], cache_dir: str | None) -> Tokens:
        """Tokenize texts once; the tokens are stored on disk and memory-mapped."""
        key = digest_of(self.to_json(), *texts)
        directory = cache_directory(cache_dir)
        ids, indptr = directory / f"tokens-{key}.npy", directory / f"tokens-{key}-indptr.npy"
        if not (ids.exists() and indptr.exists()):
            tokens = self(texts)
            write_array(indptr, tokens.indptr)
            write_array(ids, tokens.ids)
        return Tokens(np.load(indptr, mmap_mode="r"), np.load(ids, mmap_mode="r"))

    def to_json(self) -> str:
        """Return the tokenizer, with its truncation, as JSON."""
        text: str = self._tokenizer.to_str()
        return text

    @property
    def backend(self) -> Any:
        """The tokenizer of the `tokenizers` library."""
        return self._tokenizer
