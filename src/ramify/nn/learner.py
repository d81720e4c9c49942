"""Learner: an encoder and a head, trained together on the labels that a sampler chooses."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from ramify.base.types import AnyArray, Csr, FloatArray, LongArray
from ramify.nn.config import TrainingConfig
from ramify.nn.encoders import Encoder
from ramify.nn.encoders.samples import Samples
from ramify.nn.optim import Adam, Arrays, SavedArrays, add_prefix, select_prefix
from ramify.nn.ranks import current_ranks
from ramify.nn.validation import ValidationScore

NORM_DECAY, NORM_GAIN = 0.98, 0.02
"""Running mean of gradient norms: weight of the previous mean, and of the new norm."""


class Head(Protocol):
    """Scores labels from embeddings; see `nn.heads`."""

    def step(
        self, phi: FloatArray, targets: Csr, adam: Adam, threads: int, sample_weight: FloatArray | None = None, /
    ) -> tuple[float, FloatArray]:
        """Update from a batch of embeddings (n, D); return the loss and the gradients (n, D).

        `sample_weight` (n,) are factors on the losses of the samples; None: 1.
        """

    def arrays(self) -> Arrays:
        """Return the trained arrays."""

    def set_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Copy the values of all arrays."""

    def saved(self, arrays: Arrays) -> SavedArrays:
        """Arrays with the names of `arrays()`, as a checkpoint has them."""

    def own_part(self, arrays: Mapping[str, AnyArray]) -> Arrays:
        """Reverse `saved`: what this process holds of the arrays of a checkpoint."""

    def optimizer_state(self) -> SavedArrays:
        """Return the optimizer state, as a checkpoint has it."""

    def set_optimizer_state(self, state: Mapping[str, AnyArray]) -> None:
        """Restore what `optimizer_state` returned."""


class Sampler(Protocol):
    """Chooses which labels a sample trains on; see `nn.sampling`."""

    Y: Csr
    """(n × L) labels of all samples."""

    def begin_epoch(self, epoch: int, encoder: Encoder) -> None:
        """Prepare the targets of an epoch, counted from 0."""

    def targets(self, rows: LongArray) -> Csr:
        """Targets (len(rows) × L) of a batch."""

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return what a checkpoint must hold: arrays, and values for JSON."""

    def set_state(self, arrays: Mapping[str, AnyArray], values: dict[str, Any]) -> None:
        """Restore what `state` returned."""


class Validator(Protocol):
    """Evaluates the learner on the validation set; see `nn.validation`."""

    def validate(self, encoder: Encoder, head: Any, epoch: int) -> ValidationScore | None:
        """Return the metrics after an epoch; None without validation samples."""

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint must hold, as values for JSON."""

    def set_state(self, values: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""


class Learner:
    """What the training loop trains.

    Parameters
    ----------
    encoder : embeds samples
    head : scores labels from embeddings
    sampler : chooses the labels that each sample trains on
    validator : evaluates encoder and head on the validation set
    samples : all samples, in the order of the sampler's labels
    sample_weight : (n,) weights of their losses, of which only the ratios matter; None: equal weights
    """

    def __init__(
        self,
        encoder: Encoder,
        head: Head,
        sampler: Sampler,
        validator: Validator,
        samples: Samples,
        config: TrainingConfig,
        *,
        seed: int,
        threads: int,
        sample_weight: AnyArray | None = None,
    ) -> None:
        self.encoder, self.head, self.sampler, self.validator = encoder, head, sampler, validator
        self.samples, self.config, self.threads = samples, config, threads
        self._weights: FloatArray | None = None
        if sample_weight is not None:  # with a mean of 1, so that losses and gradients keep their scale
            self._weights = (sample_weight / sample_weight.mean()).astype(np.float32)
        self.ranks = current_ranks()
        encoder.begin_training(seed)
        self._random = np.random.default_rng(seed)
        self._mean_norm = 0.0  # running mean of the norm of the encoder's gradients

    def begin_epoch(self, epoch: int) -> None:
        """Prepare an epoch, counted from 0."""
        self.sampler.begin_epoch(epoch, self.encoder)

    def step(self, rows: LongArray, step: int, factor: float) -> float:
        """Update encoder and head from a batch, with learning rates times `factor`; return the loss."""
        config, threads = self.config, self.threads
        keep = 1.0 - config.dropout
        # A transformer computes a part of the batch on each rank. A bag of words is cheaper than its exchange.
        own = self.ranks.part(len(rows)) if self.encoder.is_data_parallel else slice(None)
        phi, tape = self.encoder.forward(self.samples.take(rows[own]), threads)
        if self.encoder.is_data_parallel:
            phi = self.ranks.concatenate(phi)
        mask = np.where(self._random.random(phi.shape, np.float32) < keep, np.float32(1 / keep), np.float32(0))
        adam = Adam(factor * config.learning_rate, step, weight_decay=config.weight_decay)
        weights = None if self._weights is None else self._weights[rows]
        loss, d_phi = self.head.step(phi * mask, self.sampler.targets(rows), adam, threads, weights)
        encoder_lr = self.encoder.learning_rate(config.encoder_learning_rate)
        adam = Adam(factor * encoder_lr, step, weight_decay=config.weight_decay)
        self.encoder.backward(tape, self._clipped(d_phi * mask)[own], adam, threads)  # type: ignore[arg-type]
        return loss

    def _clipped(self, gradients: FloatArray) -> FloatArray:
        """Clip gradients to a multiple of their running mean norm: losses are means, so no absolute norm is right."""
        norm = float(np.sqrt(np.square(gradients, dtype=np.float64).sum()))
        clip = self.config.gradient_clip
        limit = np.inf if clip is None or self._mean_norm == 0 else clip * self._mean_norm
        clipped = min(norm, limit)
        if self._mean_norm == 0:
            self._mean_norm = clipped
        else:
            self._mean_norm = NORM_DECAY * self._mean_norm + NORM_GAIN * clipped
        return gradients if clipped == norm else gradients * np.float32(clipped / norm)

    def validate(self, epoch: int) -> ValidationScore | None:
        """Return the validation metrics after an epoch; None without validation samples."""
        return self.validator.validate(self.encoder, self.head, epoch)

    def end_training(self) -> None:
        """Drop the state of the encoder's optimizer, twice the size of its parameters: the encoder itself is kept."""
        self.encoder.begin_training(0)

    # ---- state ----

    def arrays(self) -> Arrays:
        """Return the trained arrays of encoder and head."""
        return {**add_prefix("encoder", self.encoder.arrays()), **add_prefix("head", self.head.arrays())}

    def set_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Copy the values of all arrays."""
        self.encoder.set_arrays(select_prefix("encoder", arrays))
        self.head.set_arrays(select_prefix("head", arrays))

    def saved(self, arrays: Arrays) -> SavedArrays:
        """Arrays with the names of `arrays()`, as a checkpoint has them."""
        head = self.head.saved(select_prefix("head", arrays))
        return {**add_prefix("encoder", select_prefix("encoder", arrays)), **add_prefix("head", head)}

    def own_part(self, arrays: Mapping[str, AnyArray]) -> Arrays:
        """Reverse `saved`: what this process holds of the arrays of a checkpoint."""
        head = self.head.own_part(select_prefix("head", arrays))
        return {**add_prefix("encoder", select_prefix("encoder", arrays)), **add_prefix("head", head)}

    def state(self) -> tuple[SavedArrays, dict[str, Any]]:
        """Return what else the next step depends on: arrays, and values for JSON."""
        sampler, sampler_values = self.sampler.state()
        arrays = {
            **add_prefix("encoder", self.encoder.optimizer_state()),
            **add_prefix("head", self.head.optimizer_state()),
            **add_prefix("sampler", sampler),
        }
        values = {
            "random": self._random.bit_generator.state,
            "mean_norm": self._mean_norm,
            "sampler": sampler_values,
            "validator": self.validator.state(),
        }
        return arrays, values

    def set_state(self, arrays: Mapping[str, AnyArray], values: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.encoder.set_optimizer_state(select_prefix("encoder", arrays))
        self.head.set_optimizer_state(select_prefix("head", arrays))
        self.sampler.set_state(select_prefix("sampler", arrays), values["sampler"])
        self.validator.set_state(values["validator"])
        self._random.bit_generator.state = values["random"]
        self._mean_norm = float(values["mean_norm"])

    def data_digest(self) -> str:
        """Hash the features, tokens, labels and weights: a checkpoint is valid for the same data only."""
        X, tokens, Y = self.samples.features, self.samples.tokens, self.sampler.Y
        arrays = [Y.indptr, Y.indices, X.sparse.indptr, X.sparse.indices, X.sparse.data, X.dense]
        arrays += [] if tokens is None else [tokens.indptr, tokens.ids]
        arrays += [] if self._weights is None else [self._weights]
        digest = hashlib.blake2b(digest_size=16)
        for array in arrays:
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()
