"""An encoder with a head on it, as the training loop takes them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from ramify.base.ranking import Ranking
from ramify.base.types import AnyArray, Csr, FloatArray, IntArray, LongArray
from ramify.metrics.report import evaluate
from ramify.nn.encoder import Bag
from ramify.nn.points import Points
from ramify.nn.tables import Adam, Arrays, arrays_of, named_arrays
from ramify.nn.trainer import TrainingConfig
from ramify.nn.transformer import Transformer

Encoder = Bag | Transformer


class Head(Protocol):
    """What stands on the vectors of points: it scores labels."""

    def step(self, vectors: FloatArray, Y: Csr, adam: Adam, threads: int) -> tuple[float, FloatArray]:
        """Learn from a batch: loss and gradients (n, D) of its vectors (n, D)."""

    def search(self, vectors: FloatArray, k: int, threads: int) -> tuple[IntArray, FloatArray]:
        """Ids and log scores (n, k) of the best labels."""

    def arrays(self) -> Arrays:
        """What is trained."""

    def set_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take over the values of all arrays."""

    def moments(self) -> Arrays:
        """What the optimiser remembers."""

    def set_moments(self, moments: Mapping[str, AnyArray]) -> None:
        """Go on from what `moments` gave."""


class EncoderWithHead:
    """Trains an encoder and a head together on points with labels Y (n × L); `judged` are the rows to judge by.

    `targets` gives what the head learns from, for the rows of a batch; None: their labels.
    """

    def __init__(
        self,
        encoder: Encoder,
        head: Head,
        points: Points,
        Y: Csr,
        judged: LongArray,
        config: TrainingConfig,
        *,
        seed: int,
        threads: int,
        targets: Callable[[LongArray], Csr] | None = None,
    ) -> None:
        self.encoder, self.head, self.points, self.Y, self.config, self.threads = (
            encoder,
            head,
            points,
            Y,
            config,
            threads,
        )
        self._targets = targets or (lambda rows: Y[rows])
        self._held, self._truth = points.take(judged), Y[judged]
        encoder.begin(seed)
        self._random = np.random.default_rng(seed)
        self._usual = 0.0  # length of the encoder's gradient, a running mean

    @property
    def passes(self) -> int:
        """Passes over the points that suit the encoder."""
        return 5 if isinstance(self.encoder, Bag) and self.encoder.words is None else 8

    def begin_pass(self, number: int) -> None:
        """Nothing changes between passes."""

    def step(self, rows: LongArray, number: int, factor: float) -> float:
        """Learn from a batch with learning rates times `factor`; return the loss."""
        config = self.config
        keep = 1.0 - config.dropout
        vectors, tape = self.encoder.forward(self.points.take(rows), self.threads)
        mask = np.where(self._random.random(vectors.shape, np.float32) < keep, np.float32(1 / keep), np.float32(0))
        adam = Adam(factor * config.rate, number, weight_decay=config.weight_decay)
        loss, d_vectors = self.head.step(vectors * mask, self._targets(rows), adam, self.threads)
        adam = Adam(factor * self.encoder.rate(config.encoder_rate), number, weight_decay=config.weight_decay)
        self.encoder.backward(tape, self._clipped(d_vectors * mask), adam, self.threads)
        return loss

    def _clipped(self, gradients: FloatArray) -> FloatArray:
        """Gradients of at most `clip` times the usual length: losses are means, a length alone says nothing."""
        length = float(np.sqrt(np.square(gradients, dtype=np.float64).sum()))
        longest = np.inf if self.config.clip is None or self._usual == 0 else self.config.clip * self._usual
        kept = min(length, longest)
        self._usual = kept if self._usual == 0 else 0.98 * self._usual + 0.02 * kept
        return gradients if kept == length else gradients * np.float32(kept / length)

    def judge(self) -> tuple[float, float] | None:
        """NDCG@5 and P@1 on the held-out rows."""
        if len(self._held) == 0:
            return None
        k = min(5, self.Y.shape[1])
        ids, scores = self.head.search(self.encoder.encode(self._held, self.threads), k, self.threads)
        found = evaluate(Ranking(ids, scores, self.Y.shape[1]), self._truth, ks=[1, k])
        return float(found[f"nDCG@{k}"]), float(found["P@1"])

    def arrays(self) -> Arrays:
        """What is trained."""
        return {**named_arrays("encoder", self.encoder.arrays()), **named_arrays("head", self.head.arrays())}

    def set_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take over the values of all arrays."""
        self.encoder.set_arrays(arrays_of("encoder", arrays))
        self.head.set_arrays(arrays_of("head", arrays))

    def memory(self) -> tuple[Arrays, dict[str, Any]]:
        """Moments and random numbers."""
        arrays = {**named_arrays("encoder", self.encoder.moments()), **named_arrays("head", self.head.moments())}
        return arrays, {"random": self._random.bit_generator.state, "usual": self._usual}

    def set_memory(self, arrays: Mapping[str, AnyArray], values: dict[str, Any]) -> None:
        """Go on from what `memory` gave."""
        self.encoder.set_moments(arrays_of("encoder", arrays))
        self.head.set_moments(arrays_of("head", arrays))
        self._random.bit_generator.state = values["random"]
        self._usual = float(values["usual"])

    def data_digest(self) -> str:
        """Digest of features, tokens and labels."""
        X, tokens = self.points.features, self.points.tokens
        arrays = [self.Y.indptr, self.Y.indices, X.sparse.indptr, X.sparse.indices, X.sparse.data, X.dense]
        digest = hashlib.blake2b(digest_size=16)
        for array in arrays if tokens is None else [*arrays, tokens.ids]:
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def is_averaged(self, name: str) -> bool:
        """Edges are not: the mean of several graphs is none of them."""
        return not name.startswith("head.edges.")
