"""The one training loop: batches, learning rates, validation on held-out training rows, early stopping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramify.base.config import Config, param
from ramify.base.progress import progress
from ramify.base.types import Csr, LongArray


@dataclass(kw_only=True, eq=False, repr=False)
class TrainingConfig(Config):
    """How a deep model is trained."""

    epochs: int = param(8, "passes over the points at most", low=1)
    batch_size: int = param(128, "points in a step", low=1)
    min_steps: int = param(200, "steps at least, for small data", low=1)
    patience: int = param(2, "passes without a better validation after which training ends", low=1)
    validation: int = param(2000, "points held out to judge by, at most a tenth; 0: none, the last state counts", low=0)
    rate: float = param(0.01, "learning rate of the label classifiers", above=0)
    encoder_rate: float = param(0.01, "learning rate of the encoder", above=0)
    warm_up: float = param(0.1, "share of the steps over which the rates rise", low=0, high=1)
    weight_decay: float = param(0.01, "how fast weights shrink, times the learning rate", low=0)
    dropout: float = param(0.3, "share of the encoder's numbers that a step leaves out", low=0, high=0.95)


def hold_out(Y: Csr, n_wanted: int, seed: int) -> tuple[LongArray, LongArray]:
    """Rows to train on and rows to judge by; no label loses its last training point, and rows without labels train."""
    n = Y.shape[0]
    n_wanted = min(n_wanted, n // 10)
    left = np.bincount(Y.indices, minlength=Y.shape[1])
    held: list[int] = []
    for row in np.random.default_rng(seed).permutation(n):
        if len(held) >= n_wanted:
            break
        labels = Y.indices[Y.indptr[row] : Y.indptr[row + 1]]
        if len(labels) and np.all(left[labels] > 1):
            left[labels] -= 1
            held.append(int(row))
    judged = np.sort(np.array(held, np.int64))
    return np.setdiff1d(np.arange(n), judged), judged


def train(
    rows: LongArray,
    step: Callable[[LongArray, int, float], float],
    judge: Callable[[], float] | None,
    snapshot: Callable[[], Any],
    config: TrainingConfig,
    *,
    title: str,
    seed: int,
    verbose: int,
) -> tuple[Any, list[tuple[float, float]]]:
    """Train on the given rows until validation has not risen for some passes.

    Parameters
    ----------
    step : called with the rows of a batch, the number of the step and the factor on the learning rates; returns the
        loss
    judge : how good the model is now, higher is better; None: nobody asks
    snapshot : the state to return if it is the best

    Returns
    -------
    best : snapshot of the best pass, the last one without a judge
    history : loss and judgement of each pass
    """
    random = np.random.default_rng(seed)
    per_epoch = -(-len(rows) // config.batch_size)
    epochs = max(config.epochs, -(-config.min_steps // per_epoch))
    n_steps = epochs * per_epoch
    rising = max(1, int(config.warm_up * n_steps))
    best, best_score, since = None, -np.inf, 0
    history: list[tuple[float, float]] = []
    number = 0
    # Small data is judged now and then only: a pass may be a single step.
    interval = max(1, epochs // max(config.epochs, 1))
    with progress(title, n_steps, verbose) as advance:
        for epoch in range(epochs):
            losses = []
            order = random.permutation(rows)
            for start in range(0, len(order), config.batch_size):
                number += 1
                factor = min(number / rising, (n_steps - number + 1) / max(1, n_steps - rising))
                losses.append(step(np.sort(order[start : start + config.batch_size]), number, factor))
                advance(1)
            if (epoch + 1) % interval and epoch + 1 < epochs:
                continue
            score = judge() if judge is not None else float(epoch)
            history.append((float(np.mean(losses)), score))
            since = 0 if score > best_score else since + 1
            if score > best_score:
                best, best_score = snapshot(), score
            if judge is not None and since >= config.patience:
                break
    return best, history
