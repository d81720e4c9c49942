"""The one training loop: batches, learning rates, validation on held-out training rows, checkpoints, early stopping."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ramify.base.config import Config, param
from ramify.base.errors import ModelFormatError
from ramify.base.progress import progress
from ramify.base.threads import blas_threads
from ramify.base.types import AnyArray, LongArray
from ramify.io.store import Store, StoreWriter
from ramify.nn.tables import Arrays


@dataclass(kw_only=True, eq=False, repr=False)
class TrainingConfig(Config):
    """How a deep model is trained."""

    epochs: int | None = param(
        None, "passes over the points at most; None: 8, or 5 over a frozen transformer's vectors, learned sooner", low=1
    )
    examples: int | None = param(
        None, "points that training looks at in all, in place of `epochs`, whatever the batch; None: by passes", low=1
    )
    batch_size: int = param(256, "points in a step", low=1)
    min_steps: int = param(200, "steps at least, for small data", low=1)
    patience: int = param(2, "passes without a better validation after which training ends", low=1)
    validation: int = param(2000, "points held out to judge by, at most a tenth; 0: none, the last state counts", low=0)
    rate: float = param(0.01, "learning rate of the label classifiers", above=0)
    encoder_rate: float = param(0.015, "learning rate of the encoder, unless it has its own", above=0)
    warm_up: float = param(0.1, "share of the steps over which the rates rise", low=0, high=1)
    weight_decay: float = param(0.01, "how fast weights shrink, times the learning rate", low=0)
    dropout: float = param(0.3, "share of the encoder's numbers that a step leaves out", low=0, high=0.95)
    clip: float | None = param(
        10.0, "longest gradient of the encoder, in lengths of the usual one; None: no limit", above=0
    )
    average: float = param(0.0, "share of the steps, the last ones, over which weights are averaged", low=0, high=1)


class Learner(Protocol):
    """What the loop trains."""

    def step(self, rows: LongArray, number: int, factor: float) -> float:
        """Learn from a batch with learning rates times `factor`; return the loss."""

    @property
    def passes(self) -> int:
        """Passes over the points that suit it."""

    def begin_pass(self, number: int) -> None:
        """Get ready for the next pass over the points, counted from 0."""

    def judge(self) -> tuple[float, float] | None:
        """How good it is now on held-out rows, higher is better, and P@1; None: nobody asks."""

    def arrays(self) -> Arrays:
        """What is trained."""

    def set_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take over the values of all arrays."""

    def memory(self) -> tuple[Arrays, dict[str, Any]]:
        """What else the next step depends on: arrays, and values for JSON."""

    def set_memory(self, arrays: Mapping[str, AnyArray], values: dict[str, Any]) -> None:
        """Go on from what `memory` gave."""

    def is_averaged(self, name: str) -> bool:
        """Whether an array takes part in the average of the last steps."""

    def data_digest(self) -> str:
        """Tell the data that it learns from apart from others: a checkpoint is of no use with others."""


@dataclass(eq=False)
class _Progress:
    """Where a training stands between two passes."""

    random: np.random.Generator
    epoch: int = 0
    number: int = 0
    best: Arrays | None = None  # None: what the learner has now
    best_score: float = -np.inf
    since: int = 0
    n_averaged: int = 0
    mean: Arrays | None = None
    history: list[tuple[float, float]] | None = None
    done: bool = False

    def save(self, place: Path, learner: Learner, key: str) -> None:
        """Write everything that the next pass depends on."""
        memory, values = learner.memory()
        groups = {"now": learner.arrays(), "memory": memory, "best": self.best or {}, "mean": self.mean or {}}
        state = {
            "key": key,
            "random": self.random.bit_generator.state,
            "learner": values,
            **{name: getattr(self, name) for name in ("epoch", "number", "since", "n_averaged", "history", "done")},
            "best_score": None if self.best is None else self.best_score,
            "groups": {group: list(arrays) for group, arrays in groups.items()},
        }
        with StoreWriter(place) as writer:
            for group, arrays in groups.items():
                for name, array in arrays.items():
                    writer.array(f"{group}-{name}", array)
            writer.manifest("checkpoint", {}, state)

    @classmethod
    def load(cls, place: Path, learner: Learner, key: str) -> _Progress | None:
        """Go on from a checkpoint, if there is one of this very training."""
        if not place.exists():
            return None
        store = Store(place)
        state = store.state
        if store.kind != "checkpoint" or state.get("key") != key:
            raise ModelFormatError(
                f"{place} is the checkpoint of another training (other data or other parameters); remove it, or choose "
                "another folder"
            )

        def group(name: str) -> Arrays:
            return {
                entry: np.array(store.array(f"{name}-{entry}", store.files[f"{name}-{entry}.npy"]["dtype"]))
                for entry in state["groups"][name]
            }

        learner.set_arrays(group("now"))
        learner.set_memory(group("memory"), state["learner"])
        random = np.random.default_rng()
        random.bit_generator.state = state["random"]
        best, mean = group("best"), group("mean")
        return cls(
            random,
            state["epoch"],
            state["number"],
            best or None,
            -np.inf if state["best_score"] is None else state["best_score"],
            state["since"],
            state["n_averaged"],
            mean or None,
            [(float(loss), float(score)) for loss, score in state["history"]],
            state["done"],
        )


def train(
    rows: LongArray,
    learner: Learner,
    config: TrainingConfig,
    *,
    title: str,
    seed: int,
    verbose: int,
    settings: dict[str, Any],
    checkpoint: str | os.PathLike[str] | None = None,
    product_threads: int = 1,
) -> list[tuple[float, float]]:
    """Train on the given rows until validation has not risen for some passes, and leave the learner in its best state.

    Parameters
    ----------
    settings : what else the training depends on; a checkpoint with others is refused
    checkpoint : folder that is written after each pass; if it is there already, training goes on from it and ends with
        the same bits as if it had not been interrupted
    product_threads : threads of NumPy's matrix products; small ones are faster, and always the same, on one

    Returns
    -------
    history : loss and judgement of each pass
    """
    passes = config.epochs or learner.passes
    size, epochs = _rounds(len(rows), config, passes)
    per_epoch = -(-size // config.batch_size)
    n_steps = epochs * per_epoch
    rising = max(1, int(config.warm_up * n_steps))
    # Small data is judged now and then only: a pass may be a single step.
    interval = max(1, epochs // passes) if config.examples is None else 1
    averaged_from = n_steps - int(config.average * n_steps) + 1
    average_every = max(1, per_epoch // 8)

    place = None if checkpoint is None else Path(checkpoint)
    what = [config.to_dict(), settings, len(rows), int(rows.sum()), seed, title]
    key = "" if place is None else json.dumps([*what, learner.data_digest()])
    now = None if place is None else _Progress.load(place, learner, key)
    if now is None:
        now = _Progress(np.random.default_rng(seed), history=[])
    assert now.history is not None
    with blas_threads(product_threads), progress(title, n_steps, verbose) as advance:
        advance(now.number)
        while now.epoch < epochs and not now.done:
            learner.begin_pass(now.epoch)
            losses = []
            order = now.random.permutation(rows) if size == len(rows) else _stretch(rows, size, now.epoch, seed)
            for start in range(0, len(order), config.batch_size):
                now.number += 1
                factor = min(now.number / rising, (n_steps - now.number + 1) / max(1, n_steps - rising))
                losses.append(learner.step(np.sort(order[start : start + config.batch_size]), now.number, factor))
                advance(1)
                if now.number >= averaged_from and now.number % average_every == 0:
                    _average(now, learner)
            now.epoch += 1
            if now.epoch % interval and now.epoch < epochs:
                continue
            note = _judge(now, learner, float(np.mean(losses)))
            advance(0, note)
            now.done = now.epoch >= epochs or now.since >= config.patience
            if place is not None:
                now.save(place, learner, key)
    if now.best is not None:
        learner.set_arrays(now.best)
    return now.history


ROUNDS = 4
"""Looks at the held-out rows, each with a checkpoint, in a training that is counted in points."""


def _rounds(n: int, config: TrainingConfig, passes: int) -> tuple[int, int]:
    """Points between two looks at the held-out rows, and how many times so many."""
    if config.examples is None:
        return n, max(passes, -(-config.min_steps // -(-n // config.batch_size)))
    rounds = max(ROUNDS, -(-config.examples // n))
    return -(-config.examples // rounds), rounds


def _stretch(rows: LongArray, size: int, number: int, seed: int) -> LongArray:
    """Return the next points of an endless row of passes, each in an order of its own."""
    parts, start, end = [], number * size, (number + 1) * size
    while start < end:
        turn, at = divmod(start, len(rows))
        order = np.random.default_rng([seed, turn]).permutation(rows)
        parts.append(order[at : at + end - start])
        start += len(parts[-1])
    return np.concatenate(parts)


def remove_checkpoint(place: str | os.PathLike[str]) -> None:
    """Remove a checkpoint, and nothing that is not one."""
    with contextlib.suppress(ModelFormatError):
        if Store(place).kind == "checkpoint":
            shutil.rmtree(place)


def _average(now: _Progress, learner: Learner) -> None:
    """Take the present weights into their mean."""
    arrays = {name: a for name, a in learner.arrays().items() if learner.is_averaged(name)}
    now.n_averaged += 1
    if now.mean is None:
        now.mean = {name: a.copy() for name, a in arrays.items()}
        return
    for name, array in arrays.items():
        now.mean[name] += (array - now.mean[name]) / np.float32(now.n_averaged)


def _judge(now: _Progress, learner: Learner, loss: float) -> str:
    """Look at the held-out rows, with averaged weights where there are any, and keep what is best."""
    assert now.history is not None
    kept = None
    if now.mean is not None:
        kept = {name: a.copy() for name, a in learner.arrays().items()}
        learner.set_arrays({**kept, **now.mean})
    found = learner.judge()
    score, first = (float(now.epoch), float("nan")) if found is None else found
    now.history.append((loss, score))
    now.since = 0 if score > now.best_score else now.since + 1
    if score > now.best_score:
        now.best_score = score
        if now.best is not None:
            for name, array in learner.arrays().items():
                now.best[name][...] = array
        elif found is not None or kept is not None:  # else the last state counts, which the learner has itself
            now.best = {name: a.copy() for name, a in learner.arrays().items()}
    if kept is not None:
        learner.set_arrays(kept)
    return f"loss {loss:.4f}" if found is None else f"loss {loss:.4f}, validation P@1 {first:.1f}"
