"""The training loop: batches, learning rate schedule, validation, early stopping, checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ramify.base.config import Config, param
from ramify.base.progress import progress
from ramify.base.threads import blas_threads
from ramify.base.types import AnyArray, LongArray
from ramify.nn.checkpoint import load_checkpoint, save_checkpoint
from ramify.nn.optim import Arrays
from ramify.nn.validation import ValidationScore

MIN_VALIDATIONS = 4
"""Validations, each with a checkpoint, of a training that is measured in samples."""


@dataclass(kw_only=True, eq=False, repr=False)
class TrainingConfig(Config):
    """How encoder and head are trained: AdamW with linear warmup and decay, and early stopping."""

    epochs: int | None = param(
        None, "maximum number of epochs; None: 8, or 5 for a residual layer over fixed embeddings", low=1
    )
    max_samples: int | None = param(
        None, "number of samples to train on in total, in place of `epochs`; None: by epochs", low=1
    )
    batch_size: int = param(256, "samples in a step; larger batches train faster and take fewer steps", low=1)
    min_steps: int = param(200, "minimum number of steps; small data sets get more epochs", low=1)
    patience: int = param(2, "epochs without a better validation nDCG@5 after which training stops", low=1)
    validation_size: int = param(
        2000, "samples held out for validation, at most a tenth of the data; 0: none, the last epoch counts", low=0
    )
    learning_rate: float = param(0.01, "peak learning rate of the head", above=0)
    encoder_learning_rate: float = param(
        0.015, "peak learning rate of a BagEncoder; a TransformerEncoder has its own", above=0
    )
    warmup_ratio: float = param(0.1, "fraction of the steps over which the learning rate rises", low=0, high=1)
    weight_decay: float = param(0.01, "decoupled weight decay (AdamW), relative to the learning rate", low=0)
    dropout: float = param(0.3, "dropout probability on the embedding", low=0, high=0.95)
    gradient_clip: float | None = param(
        10.0, "clip the encoder's gradients to this multiple of their running mean norm; None: no clipping", above=0
    )


class Trainee(Protocol):
    """What the loop trains; `nn.learner.Learner` is the one implementation."""

    @property
    def default_epochs(self) -> int:
        """Number of epochs that suits it."""

    def begin_epoch(self, epoch: int) -> None:
        """Prepare an epoch, counted from 0."""

    def step(self, rows: LongArray, step: int, factor: float) -> float:
        """Update from a batch with learning rates times `factor`; return the loss."""

    def validate(self, epoch: int) -> ValidationScore | None:
        """Return the validation metrics after an epoch; None without validation samples."""

    def arrays(self) -> Arrays:
        """Return the trained arrays."""

    def set_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Copy the values of all arrays."""

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Return what else the next step depends on: arrays, and values for JSON."""

    def set_state(self, arrays: Mapping[str, AnyArray], values: dict[str, Any]) -> None:
        """Restore what `state` returned."""

    def data_digest(self) -> str:
        """Hash the training data."""


@dataclass(eq=False)
class _TrainingState:
    """State of a training between two epochs."""

    random: np.random.Generator
    epoch: int = 0
    step: int = 0
    epochs_without_improvement: int = 0
    done: bool = False
    best_score: float = -np.inf
    best: Arrays | None = None  # None: the present arrays are the best
    history: list[tuple[float, float]] = field(default_factory=list)

    def record(self, learner: Trainee, loss: float, score: ValidationScore | None) -> None:
        """Append an epoch to the history, and keep the arrays if it is the best one so far."""
        ndcg = float(self.epoch) if score is None else score.ndcg
        self.history.append((loss, ndcg))
        if not ndcg > self.best_score:
            self.epochs_without_improvement += 1
            return
        self.epochs_without_improvement, self.best_score = 0, ndcg
        if self.best is not None:
            for name, array in learner.arrays().items():
                self.best[name][...] = array
        elif score is not None:  # without validation the last arrays count, which the learner holds itself
            self.best = {name: array.copy() for name, array in learner.arrays().items()}

    def save(self, path: Path, key: str, learner: Trainee) -> None:
        """Write a checkpoint."""
        state, values = learner.state()
        names = ("epoch", "step", "epochs_without_improvement", "done", "history")
        save_checkpoint(
            path,
            key,
            {"arrays": learner.arrays(), "state": state, "best": self.best or {}},
            {
                **{name: getattr(self, name) for name in names},
                "best_score": None if self.best is None else self.best_score,
                "random": self.random.bit_generator.state,
                "learner": values,
            },
        )

    @classmethod
    def resume(cls, path: Path, key: str, learner: Trainee) -> _TrainingState | None:
        """Restore learner and state from a checkpoint of this training, if there is one."""
        checkpoint = load_checkpoint(path, key)
        if checkpoint is None:
            return None
        groups, values = checkpoint
        learner.set_arrays(groups["arrays"])
        learner.set_state(groups["state"], values["learner"])
        random = np.random.default_rng()
        random.bit_generator.state = values["random"]
        return cls(
            random,
            values["epoch"],
            values["step"],
            values["epochs_without_improvement"],
            values["done"],
            -np.inf if values["best_score"] is None else values["best_score"],
            groups["best"] or None,
            [(float(loss), float(score)) for loss, score in values["history"]],
        )


def train(
    rows: LongArray,
    learner: Trainee,
    config: TrainingConfig,
    *,
    title: str,
    seed: int,
    verbose: int,
    settings: dict[str, Any],
    checkpoint: Path | None = None,
    product_threads: int = 1,
) -> list[tuple[float, float]]:
    """Train on the given rows until validation stops improving, and leave the learner in its best state.

    Parameters
    ----------
    settings : what else the training depends on; a checkpoint of other settings is refused
    checkpoint : path that is written after each validation; if it exists, training resumes from it and ends with the
        same bits as without the interruption
    product_threads : threads of NumPy's matrix products; small ones are faster, and reproducible, on one thread

    Returns
    -------
    history : loss and validation nDCG@5 of each validation
    """
    passes = config.epochs or learner.default_epochs
    epoch_size, epochs = _schedule(len(rows), config, passes)
    n_steps = epochs * -(-epoch_size // config.batch_size)
    n_warmup = max(1, int(config.warmup_ratio * n_steps))
    # On small data sets an epoch may be a single step: validate as often as there are nominal epochs.
    validate_every = max(1, epochs // passes) if config.max_samples is None else 1

    key = ""
    state = None
    if checkpoint is not None:
        data = [len(rows), int(rows.sum()), learner.data_digest()]
        key = json.dumps([config.to_dict(), settings, data, seed, title])
        state = _TrainingState.resume(checkpoint, key, learner)
    if state is None:
        state = _TrainingState(np.random.default_rng(seed))
    with blas_threads(product_threads), progress(title, n_steps, verbose) as advance:
        advance(state.step)
        while state.epoch < epochs and not state.done:
            learner.begin_epoch(state.epoch)
            losses = []
            if epoch_size == len(rows):
                order = state.random.permutation(rows)
            else:
                order = _next_samples(rows, epoch_size, state.epoch, seed)
            for start in range(0, len(order), config.batch_size):
                state.step += 1
                factor = min(state.step / n_warmup, (n_steps - state.step + 1) / max(1, n_steps - n_warmup))
                losses.append(learner.step(np.sort(order[start : start + config.batch_size]), state.step, factor))
                advance(1)
            state.epoch += 1
            if state.epoch % validate_every and state.epoch < epochs:
                continue
            loss, score = float(np.mean(losses)), learner.validate(state.epoch)
            state.record(learner, loss, score)
            shown = "" if score is None else f", validation P@1 {score.precision:.1f}"
            advance(0, f"loss {loss:.4f}{shown}")
            state.done = state.epoch >= epochs or state.epochs_without_improvement >= config.patience
            if checkpoint is not None:
                state.save(checkpoint, key, learner)
    if state.best is not None:
        learner.set_arrays(state.best)
    return state.history


def _schedule(n: int, config: TrainingConfig, epochs: int) -> tuple[int, int]:
    """Samples of an epoch, and the number of epochs."""
    if config.max_samples is None:
        return n, max(epochs, -(-config.min_steps // -(-n // config.batch_size)))
    n_parts = max(MIN_VALIDATIONS, -(-config.max_samples // n))
    return -(-config.max_samples // n_parts), n_parts


def _next_samples(rows: LongArray, size: int, part: int, seed: int) -> LongArray:
    """Return part of an endless sequence of permutations of the rows."""
    parts, start, end = [], part * size, (part + 1) * size
    while start < end:
        permutation, at = divmod(start, len(rows))
        order = np.random.default_rng([seed, permutation]).permutation(rows)
        parts.append(order[at : at + end - start])
        start += len(parts[-1])
    return np.concatenate(parts)
