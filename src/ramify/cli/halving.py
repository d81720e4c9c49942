"""Successive halving: many settings on small subsets, the best third of them on ever larger ones.

Jamieson and Talwalkar (2016), Non-stochastic Best Arm Identification and Hyperparameter Optimization.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ramify.base.errors import DataError

REDUCTION = 3
"""A rung keeps this fraction of the settings and has as many times the samples of the one before."""
MIN_SAMPLES = 1000

Settings = dict[str, Any]
Space = dict[str, "Choice"]


@dataclass(frozen=True)
class Choice:
    """Values of a parameter: a list to choose from, or a range of numbers on a logarithmic scale."""

    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0

    def sample(self, random: np.random.Generator) -> Any:
        """Draw a value."""
        if self.values:
            return self.values[int(random.integers(len(self.values)))]
        return float(f"{math.exp(random.uniform(math.log(self.low), math.log(self.high))):.3g}")


@dataclass(frozen=True)
class Trial:
    """One training: its settings, the number of samples, validation nDCG@5 (percent) and seconds."""

    settings: Settings
    n_samples: int
    score: float
    seconds: float


@dataclass
class TrialLog:
    """Trials that were finished, in a file that an interrupted search resumes from."""

    path: Path
    key: str
    trials: list[Trial] = field(default_factory=list)

    @classmethod
    def open(cls, path: str | os.PathLike[str], key: str) -> TrialLog:
        """Read the trials of an earlier run; those of other data or another model are refused."""
        log = cls(Path(path), key)
        if not log.path.exists():
            log.path.parent.mkdir(parents=True, exist_ok=True)
            log.path.write_text(json.dumps({"search": key}) + "\n", encoding="utf-8")
            return log
        lines = log.path.read_text(encoding="utf-8").splitlines()
        try:
            found = json.loads(lines[0])["search"]
            values = [json.loads(line) for line in lines[1:] if line.endswith("}")]  # the last line may be cut
            log.trials = [Trial(**value) for value in values]
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path} is not a log of ramify tune: {error!r}") from error
        if found != key:
            raise DataError(f"{path} has the trials of another search; delete it or choose another --out")
        return log

    def find(self, settings: Settings, n_samples: int) -> Trial | None:
        """Return the finished trial of these settings on so many samples."""
        return next((t for t in self.trials if t.settings == settings and t.n_samples == n_samples), None)

    def add(self, trial: Trial) -> None:
        """Append a finished trial."""
        self.trials.append(trial)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(trial)) + "\n")


def rungs(n: int) -> list[int]:
    """Samples of each rung, the last with all of them."""
    sizes = [n]
    while sizes[0] // REDUCTION >= MIN_SAMPLES and len(sizes) < 4:
        sizes.insert(0, sizes[0] // REDUCTION)
    return sizes


def successive_halving(
    train: Callable[[Settings, int], float],
    proposals: Iterator[Settings],
    tell: Callable[[Settings, float], None],
    sizes: list[int],
    log: TrialLog,
    budget: float,
    max_settings: int,
    report: Callable[[Trial], None],
) -> list[Trial]:
    """Search until the budget (seconds) is used; returns the trials of the last rung that was begun, best first.

    The first proposal, the defaults, is kept in every rung, so that the result can be compared with it.
    """
    started = time.monotonic()

    def run(settings: Settings, size: int) -> Trial:
        trial = log.find(settings, size)
        if trial is None:
            begun = time.monotonic()
            score = train(settings, size)
            trial = Trial(settings, size, round(score, 4), round(time.monotonic() - begun, 3))
            log.add(trial)
        report(trial)
        return trial

    def used() -> float:
        return (time.monotonic() - started) / budget

    first: list[Trial] = []
    for settings in proposals:
        if any(t.settings == settings for t in first):
            continue
        first.append(run(settings, sizes[0]))
        tell(settings, first[-1].score)
        if len(first) >= max_settings or used() >= 1 / len(sizes):
            break
    result, kept = _best_first(first), first
    for rung, size in enumerate(sizes[1:], 2):
        n_kept = max(2, -(-len(kept) // REDUCTION))
        best = _best_first(kept)[:n_kept]
        default = next(t for t in kept if t.settings == first[0].settings)
        chosen = [default, *(t for t in best if t is not default)]  # the defaults first: there is always a comparison
        kept = []
        for trial in chosen:
            if used() >= rung / len(sizes) and kept:
                break
            if used() >= 1.0:
                return result
            kept.append(run(trial.settings, size))
        result = _best_first(kept)
    return result


def _best_first(trials: list[Trial]) -> list[Trial]:
    return sorted(trials, key=lambda trial: -trial.score)
