"""``ramify train --dry-run``: what a training would read, and estimates of memory, time and size.

Time and size are measured on subsets of the data and extrapolated as powers of the number of samples. For models that
are trained in epochs, the time of an epoch is measured, by trainings of one and of two epochs, and multiplied by their
number; the rest is extrapolated. All labels keep their columns there: a step takes longer the more labels there are.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ramify.cli.training import fit_model, training_memory
from ramify.io.catalogue import LabelCatalogue
from ramify.io.dataset import Dataset
from ramify.models.base import Model
from ramify.nn.config import TrainingConfig
from ramify.nn.trainer import schedule

SUBSET = 2000
"""Samples that are trained on at most."""
FINE_TUNED_SUBSET = 200
"""The same where the transformer itself is trained."""
EPOCHS, RESIDUAL_EPOCHS = 8, 5
"""Epochs that encoders take by default, and that a residual layer over fixed embeddings takes."""


@dataclasses.dataclass
class Estimate:
    """Seconds and bytes of a training; whether early stopping may end it before."""

    seconds: float
    n_bytes: float
    n_samples: int
    may_stop: bool = False


def dry_run(model: Model, data: Dataset, catalogue: LabelCatalogue | None, out: str | None) -> list[list[str]]:
    """Table of what would be read, an estimate of memory, and of time and size from trainings on subsets."""
    used = int((np.bincount(data.Y.indices, minlength=data.n_labels) > 0).sum())
    rows = [
        ["model", repr(model)],
        ["samples", f"{len(data):,}"],
        ["labels", f"{used:,}"],
        ["labels per sample", f"{data.Y.nnz / max(1, len(data)):.2f}"],
        ["save to", out or "-"],
        ["memory, estimated", f"{training_memory(model, data, catalogue) / 1e6:,.0f} MB"],
    ]
    if len(data) < 20:
        return [*rows, ["estimates of time and size", "none for so few samples"]]
    found = estimate(model, data, catalogue)
    limit = ", less if training stops early" if found.may_stop else ""
    return [
        *rows,
        ["time, estimated", f"{found.seconds:,.0f} s (from {found.n_samples:,} samples{limit})"],
        ["model size, estimated", f"{found.n_bytes / 1e6:,.1f} MB"],
    ]


def estimate(model: Model, data: Dataset, catalogue: LabelCatalogue | None = None) -> Estimate:
    """Estimate the time of a training on this machine, and the size of the model."""
    members: tuple[Model, ...] = getattr(model, "models", ())
    if members:
        parts = [estimate(member, data, catalogue) for member in members]
        seconds, n_bytes = sum(part.seconds for part in parts), sum(part.n_bytes for part in parts)
        return Estimate(seconds, n_bytes, parts[0].n_samples, any(part.may_stop for part in parts))
    trainings = [f.name for f in dataclasses.fields(model) if isinstance(getattr(model, f.name), TrainingConfig)]
    frozen = getattr(getattr(model, "encoder", None), "frozen", None)
    largest = min(len(data), FINE_TUNED_SUBSET if frozen is False else SUBSET)
    sizes = [largest // 2, largest]
    rows = np.random.default_rng(0).permutation(len(data))
    subsets = [data.subset(np.sort(rows[:size])) for size in sizes]
    growth, measured = len(data) / largest, partial(_measure, catalogue=catalogue)
    if not trainings or (frozen and hasattr(model, "matcher_tree")):  # XR-Transformer trains no epochs over it
        times, stored = zip(*(measured(model, subset) for subset in subsets), strict=True)
        return Estimate(_extrapolated(times, growth), _extrapolated(stored, growth), largest)
    (first, small), (second, large) = (measured(_with_epochs(model, trainings, 1), subset) for subset in subsets)
    epoch = max(0.0, measured(_with_epochs(model, trainings, 2), subsets[1])[0] - second)
    rest = [max(1e-3, first - epoch / 2), max(1e-3, second - epoch)]
    epochs = [_n_epochs(model, getattr(model, name), data) for name in trainings]
    total = _extrapolated(rest, growth) + epoch * growth * float(np.mean(epochs))
    return Estimate(total, _extrapolated((small, large), growth), largest, may_stop=max(epochs) > 1)


def _with_epochs(model: Model, trainings: list[str], epochs: int) -> Model:
    """Return a copy whose trainings take a number of epochs."""
    only: dict[str, Any] = {"epochs": epochs, "min_steps": None, "max_samples": None, "patience": epochs}
    return model.clone().set_params(**{f"{name}.{key}": value for name in trainings for key, value in only.items()})


def _n_epochs(model: Model, config: TrainingConfig, data: Dataset) -> float:
    """Epochs of a training on all data at most."""
    n = max(1, len(data) - min(config.validation_size, len(data) // 10))
    is_residual = isinstance(data.X, np.ndarray) or getattr(getattr(model, "encoder", None), "frozen", False)
    default = getattr(model, "default_epochs", None) or (RESIDUAL_EPOCHS if is_residual else EPOCHS)
    size, epochs = schedule(n, config, config.epochs or default)
    return size * epochs / n


def _measure(model: Model, data: Dataset, catalogue: LabelCatalogue | None) -> tuple[float, float]:
    """Seconds of a training, and bytes of the saved model."""
    trained = model.clone().set_params(verbose=0)
    if hasattr(trained, "checkpoint_dir"):
        trained.set_params(checkpoint_dir=None)  # an estimate must not touch those of the training
    is_neural = any(isinstance(getattr(trained, f.name), TrainingConfig) for f in dataclasses.fields(trained))
    with tempfile.TemporaryDirectory() as directory:
        if hasattr(getattr(trained, "encoder", None), "cache_dir"):
            trained.set_params(encoder__cache_dir=directory)  # embeddings are computed, not read
        started = time.perf_counter()
        if is_neural:
            trained.fit(data.inputs, data.Y)
        else:
            fit_model(trained, data, {}, catalogue)
        seconds = time.perf_counter() - started
        trained.save(Path(directory) / "m")
        return seconds, float(sum(f.stat().st_size for f in (Path(directory) / "m").iterdir()))


def _extrapolated(values: Any, growth: float) -> float:
    """Value at `growth` times the samples, from those at half of them and at all: a power, at most quadratic."""
    power = np.clip(np.log2(max(values[1], 1e-9) / max(values[0], 1e-9)), 0.0, 2.0)
    return float(values[1] * growth**power)
