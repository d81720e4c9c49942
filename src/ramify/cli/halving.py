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
from ramify.cli.time_limit import TimeIsOver, time_limit

REDUCTION = 3
"""A rung keeps this fraction of the settings and has as many times the samples of the one before."""
MIN_SAMPLES = 1000
MAX_RUNGS = 4
PILOT, PILOT_FRACTION = 250, 0.02
"""Samples of the first training, which tells how long larger ones take; a fraction of the budget that is enough."""
MAX_KNOWN = 100
"""Proposals in a row that were tried before: there are no others."""

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
        *lines, cut = log.path.read_text(encoding="utf-8").split("\n")  # an interrupted write leaves half a line
        try:
            found = json.loads(lines[0])["search"]
            log.trials = [Trial(**json.loads(line)) for line in lines[1:]]
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path} is not a log of ramify tune: {error!r}") from error
        if found != key:
            raise DataError(f"{path} has the trials of another search; delete it or choose another --out")
        if cut:
            log.path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return log

    def find(self, settings: Settings, n_samples: int) -> Trial | None:
        """Return the finished trial of these settings on so many samples."""
        return next((t for t in self.trials if t.settings == settings and t.n_samples == n_samples), None)

    def add(self, trial: Trial) -> None:
        """Append a finished trial."""
        self.trials.append(trial)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(trial)) + "\n")


def rungs(n: int, min_samples: int = MIN_SAMPLES) -> list[int]:
    """Samples of each rung, the last with all of them."""
    sizes = [n]
    while sizes[0] // REDUCTION >= min_samples and len(sizes) < MAX_RUNGS:
        sizes.insert(0, sizes[0] // REDUCTION)
    return sizes


@dataclass(frozen=True)
class Outcome:
    """What a search found.

    Attributes
    ----------
    best : trials of the last rung in which settings were compared, best first
    first : trials of the first rung
    """

    best: list[Trial]
    first: list[Trial]


class Search:
    """Successive halving within a budget.

    Parameters
    ----------
    train : validation nDCG@5 (percent) of settings that are trained on so many samples
    seconds : time that the search may take
    """

    def __init__(
        self, train: Callable[[Settings, int], float], log: TrialLog, seconds: float, report: Callable[[Trial], None]
    ) -> None:
        self._train, self._log, self._seconds, self._report = train, log, seconds, report
        self._end = time.monotonic() + seconds

    def run(
        self,
        proposals: Iterator[Settings],
        tell: Callable[[Settings, float], None],
        n_samples: int,
        max_settings: int,
    ) -> Outcome | None:
        """Search until the budget is used; None if it was over before the first training ended.

        The first proposal, the defaults, is kept in every rung, so that the result can be compared with it.
        """
        first: list[Trial] = []
        rungs_done = [first]
        try:
            sizes = self._sizes(n_samples)
            self._first_rung(first, proposals, tell, sizes, max_settings)
            for i, size in enumerate(sizes[1:], 2):
                chosen = _kept(rungs_done[-1], first[0].settings)
                rungs_done.append([])
                self._rung(rungs_done[-1], chosen, size, i / len(sizes))
        except TimeIsOver:
            pass  # what was compared so far counts
        if not first:
            return None
        compared = [trials for trials in rungs_done if len(trials) > 1] or [first]
        return Outcome(_best_first(compared[-1]), first)

    def _sizes(self, n_samples: int) -> list[int]:
        """Samples of each rung: so few that two trainings of the last rung fit in its part of the budget.

        Small trainings with the defaults tell how long larger ones take. An interrupted search finds them in the log,
        and comes to the same sizes.
        """
        sizes, pilots = rungs(n_samples), list[Trial]()
        size = PILOT
        while size < sizes[0] and (not pilots or pilots[-1].seconds < PILOT_FRACTION * self._seconds):
            pilots.append(self._trained({}, size))
            size *= 2
        if not pilots:
            return sizes
        available = (self._seconds - sum(trial.seconds for trial in pilots)) / (2 * len(sizes))
        smallest = pilots[-1].n_samples
        while sizes[-1] > smallest and _expected(pilots, sizes[-1]) > available:
            sizes = rungs(max(smallest, sizes[-1] * 4 // 5), smallest)
            available = (self._seconds - sum(trial.seconds for trial in pilots)) / (2 * len(sizes))
        return sizes

    def _first_rung(
        self,
        trials: list[Trial],
        proposals: Iterator[Settings],
        tell: Callable[[Settings, float], None],
        sizes: list[int],
        max_settings: int,
    ) -> None:
        n_known = 0
        for settings in proposals:
            if any(trial.settings == settings for trial in trials):
                n_known += 1
                if n_known == MAX_KNOWN:
                    break
                continue
            n_known = 0
            trials.append(self._reported(settings, sizes[0]))
            tell(settings, trials[-1].score)
            if len(trials) >= max_settings or self._used() >= 1 / len(sizes):
                break

    def _rung(self, trials: list[Trial], chosen: list[Trial], size: int, end: float) -> None:
        """Train the chosen settings; all but the first two only up to this fraction of the budget."""
        for trial in chosen:
            if self._used() >= end and len(trials) > 1:
                break
            self._check_time(size, max(1, 2 - len(trials)))  # a single training would compare nothing
            trials.append(self._reported(trial.settings, size))

    def _check_time(self, size: int, n: int) -> None:
        """Raise if n trainings of this size are not expected to end within the budget."""
        if time.monotonic() + n * _expected(self._log.trials, size) > self._end:
            raise TimeIsOver

    def _reported(self, settings: Settings, size: int) -> Trial:
        trial = self._trained(settings, size)
        self._report(trial)
        return trial

    def _trained(self, settings: Settings, size: int) -> Trial:
        trial = self._log.find(settings, size)
        if trial is None:
            begun = time.monotonic()
            if begun >= self._end:
                raise TimeIsOver
            with time_limit(self._end - begun):
                score = self._train(settings, size)
            trial = Trial(settings, size, round(score, 4), round(time.monotonic() - begun, 3))
            self._log.add(trial)
        return trial

    def _used(self) -> float:
        return 1 - (self._end - time.monotonic()) / self._seconds


def _expected(trials: list[Trial], size: int) -> float:
    """Seconds of a training on so many samples: a power of their number, from the two largest sizes that were timed."""
    seconds: dict[int, list[float]] = {}
    for trial in trials:
        seconds.setdefault(trial.n_samples, []).append(trial.seconds)
    times = sorted((n, float(np.median(found))) for n, found in seconds.items() if n <= size)[-2:]
    if not times:
        return 0.0
    power = 1.2
    if len(times) == 2:
        (small, a), (large, b) = times
        power = float(np.clip(np.log(max(b, 1e-6) / max(a, 1e-6)) / np.log(large / small), 0.5, 1.5))
    largest, longest = times[-1]
    return longest * math.pow(size / largest, power)


def _kept(trials: list[Trial], defaults: Settings) -> list[Trial]:
    """Settings for the next rung: the defaults first, so that there is always a comparison, then the best third."""
    default = next(trial for trial in trials if trial.settings == defaults)
    best = _best_first(trials)[: max(2, -(-len(trials) // REDUCTION))]
    return [default, *(trial for trial in best if trial is not default)]


def _best_first(trials: list[Trial]) -> list[Trial]:
    return sorted(trials, key=lambda trial: -trial.score)
