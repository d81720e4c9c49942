"""The training loop: batches, learning rate schedule, validation, early stopping, checkpoints."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ramify.base.errors import DataError, ModelFormatError
from ramify.base.progress import progress
from ramify.base.threads import blas_threads
from ramify.base.types import LongArray
from ramify.nn.checkpoint import load_checkpoint, save_checkpoint, send_shards
from ramify.nn.config import TrainingConfig
from ramify.nn.learner import Learner
from ramify.nn.optim import Arrays, restored
from ramify.nn.validation import ValidationScore

MIN_STEPS = 200
"""Steps of a training at least, unless the number of epochs is set."""
MIN_VALIDATIONS = 4
"""Validations, each with a checkpoint, of a training that is measured in samples."""


History = list[tuple[float, float | None]]
"""Loss and validation nDCG@5 of each validation; None without a validation set."""


@dataclass(eq=False)
class _TrainingState:
    """State of a training between two epochs."""

    random: np.random.Generator
    epoch: int = 0
    step: int = 0
    n_not_better: int = 0  # validations since the best one
    done: bool = False
    best_score: float = -np.inf
    best: Arrays | None = None  # None: the present arrays are the best
    history: History = field(default_factory=list)

    def record(self, learner: Learner, loss: float, score: ValidationScore | None) -> None:
        """Append a validation to the history, and keep the arrays if it is the best one so far."""
        self.history.append((loss, None if score is None else score.ndcg))
        if score is None:  # the last arrays count, which the learner holds itself
            return
        if not score.ndcg > self.best_score:
            self.n_not_better += 1
            return
        self.n_not_better, self.best_score = 0, score.ndcg
        if self.best is None:
            self.best = {name: array.copy() for name, array in learner.arrays().items()}
        else:
            for name, array in learner.arrays().items():
                self.best[name][...] = array

    def save(self, path: Path, key: str, learner: Learner) -> None:
        """Write a checkpoint; the first of several ranks writes the shards of all."""
        state, values = learner.state()
        best = {} if self.best is None else learner.saved(self.best)
        groups = {"arrays": learner.saved(learner.arrays()), "state": state, "best": best}
        names = ("epoch", "step", "n_not_better", "done", "history")
        all_values = {
            **{name: getattr(self, name) for name in names},
            "best_score": None if self.best is None else self.best_score,
            "random": self.random.bit_generator.state,
            "learner": values,
        }
        if learner.ranks.is_first:
            save_checkpoint(path, key, groups, all_values)
        else:
            send_shards(groups)
        learner.ranks.wait()

    @classmethod
    def resume(cls, path: Path, key: str, learner: Learner) -> _TrainingState | None:
        """Restore learner and state from a checkpoint of this training, if there is one."""
        checkpoint = load_checkpoint(path, key, mapped=learner.ranks.size > 1)
        if checkpoint is None:
            return None
        groups, values = checkpoint
        try:
            learner.set_arrays(learner.own_part(groups["arrays"]))
            learner.set_state(groups["state"], values["learner"])
            own_best = learner.own_part(groups["best"]) if groups["best"] else {}
            best = {
                name: restored(own_best, name, array.dtype, array.shape)
                for name, array in (learner.arrays() if own_best else {}).items()
            }
            random = np.random.default_rng()
            random.bit_generator.state = values["random"]
            epoch, step, n_not_better = (values[name] for name in ("epoch", "step", "n_not_better"))
            if not all(type(count) is int and 0 <= count < 2**62 for count in (epoch, step, n_not_better)):
                raise ModelFormatError("its epochs and steps are not counts")
            return cls(
                random,
                epoch,
                step,
                n_not_better,
                bool(values["done"]),
                -np.inf if values["best_score"] is None else float(values["best_score"]),
                best or None,
                [(float(loss), None if score is None else float(score)) for loss, score in values["history"]],
            )
        # The manifest and the state of NumPy's generator hold values of many kinds: damage raises many kinds of error.
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
            raise ModelFormatError(f"the checkpoint {path} is damaged: {error}; remove it") from error


def train(
    rows: LongArray,
    learner: Learner,
    *,
    title: str,
    seed: int,
    verbose: int,
    settings: dict[str, Any],
    checkpoint: Path | None = None,
    product_threads: int = 1,
) -> History:
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
    config = learner.config
    nominal_epochs = config.epochs or learner.encoder.default_epochs
    epoch_size, epochs = schedule(len(rows), config, nominal_epochs)
    n_steps = epochs * -(-epoch_size // config.batch_size)
    n_warmup = max(1, int(config.warmup_ratio * n_steps))
    # On small data sets an epoch may be a single step: validate as often as there are nominal epochs.
    validate_every = max(1, epochs // nominal_epochs) if config.max_samples is None else 1

    key = ""
    state = None
    if checkpoint is not None:
        data = [len(rows), int(rows.sum()), learner.data_digest()]
        key = json.dumps([config.to_dict(), settings, data, seed, title])
        state = _TrainingState.resume(checkpoint, key, learner)
    if state is None:
        state = _TrainingState(np.random.default_rng(seed))
    with blas_threads(product_threads), progress(title, n_steps, verbose, "steps") as advance:
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
            loss = float(np.mean(losses))
            if not np.isfinite(loss):
                raise DataError(
                    f"the training diverged: the loss is {loss} after {state.step} steps; lower the learning rate, set "
                    "gradient_clip, or scale the features"
                )
            score = learner.validate(state.epoch)
            state.record(learner, loss, score)
            shown = "" if score is None else f", validation P@1 {score.precision:.1f}"
            advance(0, f"loss {loss:.4f}{shown}")
            state.done = state.epoch >= epochs or state.n_not_better >= config.patience
            if checkpoint is not None:
                state.save(checkpoint, key, learner)
    if state.best is not None:
        learner.set_arrays(state.best)
    learner.end_training()
    return state.history


def schedule(n: int, config: TrainingConfig, epochs: int) -> tuple[int, int]:
    """Samples of an epoch, and the number of epochs, of a training on n samples with a default number of epochs."""
    if config.max_samples is None:
        min_steps = config.min_steps or (MIN_STEPS if config.epochs is None else 1)
        return n, max(epochs, -(-min_steps // -(-n // config.batch_size)))
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
