"""Progress of long work on standard error; silent with ``verbose=0``.

A terminal and a notebook show a bar. Elsewhere, as in a log file, a line is written every few seconds. Stages may be
nested: a training of many short ones writes its lines, too, because the seconds are counted from its start.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from typing import Any, Protocol

LOG_EVERY = 5.0
"""Seconds between two lines in a log; shorter work writes none."""
REDRAW_EVERY = 0.3
"""Seconds between two states of a bar in a notebook; shorter work shows none."""


class Advance(Protocol):
    """Advances the progress; a note is shown after its description."""

    def __call__(self, step: float, note: str | None = None, /) -> None:
        """Advance by `step`."""


@contextmanager
def progress(description: str, total: float | None, verbose: int = 1, unit: str = "") -> Iterator[Advance]:
    """Show progress with the remaining time; the block calls the yielded function with the size of each step.

    Inside of another progress it is a stage of that one. A progress whose steps are stages has a singular description,
    such as "tree": while a stage runs, it is shown as "tree 2 of 3".
    """
    if verbose < 1:
        yield lambda _step, _note=None: None
        return
    outer = _shown.get()
    shown: _Lines | _Bars = outer or (_Notebook() if in_notebook() else _Bars() if sys.stderr.isatty() else _Log())
    stage = _Stage(description, total, unit)
    _shown.set(shown)
    shown.open(stage)
    try:

        def advance(step: float, note: str | None = None, /) -> None:
            now = time.monotonic()
            stage.advance(step, note, now)
            shown.advanced(stage, now)

        yield advance
    finally:
        shown.close(stage)
        if outer is None:
            _shown.set(None)


def message(text: str, verbose: int = 1) -> None:
    """Write a line to standard error, unless ``verbose=0``."""
    if verbose >= 1:
        print(text, file=sys.stderr)


def in_notebook() -> bool:
    """Whether the process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def seconds_left(done: float, total: float | None, elapsed: float) -> float | None:
    """Remaining time at the mean speed so far; None where nothing is known yet."""
    if not total or done <= 0 or elapsed < 1.0:
        return None
    return elapsed * max(0.0, total - done) / done


def duration(seconds: float) -> str:
    """Format seconds as 0:05, 12:30 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _Stage:
    """What is done of one stage."""

    def __init__(self, description: str, total: float | None, unit: str) -> None:
        self.description, self.total, self.unit = description, total, unit
        self.done, self.note = 0.0, ""
        self.started = self.advanced = time.monotonic()
        self.task: Any = None  # of a bar

    def advance(self, step: float, note: str | None, now: float) -> None:
        self.done += step
        self.advanced = now
        if note is not None:
            self.note = note

    def name(self, has_stages: bool) -> str:
        if has_stages and self.total:
            return f"{self.description} {int(self.done) + 1:,} of {int(self.total):,}"
        if has_stages:
            return self.description
        return f"{self.description} ({self.note})" if self.note else self.description

    def left(self, now: float, has_stages: bool) -> float | None:
        """Remaining seconds; None where nothing is known.

        Steps that are stages are long: between two of them the time counts down. One that takes longer than those
        before it leaves nothing to say.
        """
        if not has_stages:
            return seconds_left(self.done, self.total, now - self.started)
        left = seconds_left(self.done, self.total, self.advanced - self.started)
        waited = now - self.advanced
        return None if left is None or waited >= left else left - waited

    def amount(self) -> list[str]:
        if self.total:
            percent = 100 * min(1.0, self.done / self.total)
            return [f"{int(self.done):,} of {int(self.total):,} {self.unit}".rstrip(), f"{percent:.0f} %"]
        return [f"{int(self.done):,} {self.unit}".rstrip()] if self.done else []


class _Lines:
    """Stages that run, the innermost last, as a line that is written every few seconds."""

    every: float

    def __init__(self) -> None:
        self._stages: list[_Stage] = []
        self._written = 0.0
        self._writing = threading.Lock()

    def open(self, stage: _Stage) -> None:
        if not self._stages:
            self._written = stage.started
        self._stages.append(stage)

    def close(self, stage: _Stage) -> None:
        self._stages.remove(stage)

    def advanced(self, stage: _Stage, now: float) -> None:
        self.write_if_due(now)

    def write_if_due(self, now: float) -> None:
        """Write a line, if none was written for some seconds, and no other thread is about to."""
        if now - self._written < self.every or not self._writing.acquire(blocking=False):
            return
        try:
            stages = list(self._stages)
            if stages and now - self._written >= self.every:
                self._written = now
                self._write(_line(stages, now))
        finally:
            self._writing.release()

    def _write(self, line: str) -> None:
        raise NotImplementedError


def _line(stages: list[_Stage], now: float) -> str:
    *outer, stage = stages
    name = ", ".join([*(other.name(has_stages=True) for other in outer), stage.name(has_stages=False)])
    parts = [*stage.amount(), f"{duration(now - stages[0].started)} elapsed"]
    # Stages differ in length: the time left of what surrounds them is known once one of them has ended.
    known = [left for other in outer if (left := other.left(now, has_stages=True)) is not None]
    if known:
        parts.append(f"{duration(known[0])} left")
    elif (own := stage.left(now, has_stages=False)) is not None:
        parts.append(f"{duration(own)} left{' in this stage' if outer else ''}")
    return f"{name}: {', '.join(parts)}"


class _Log(_Lines):
    """Writes lines to standard error, also while a stage does not advance."""

    every = LOG_EVERY

    def open(self, stage: _Stage) -> None:
        if not self._stages:
            self._ended = threading.Event()
            threading.Thread(target=self._watch, args=(self._ended,), name="ramify-progress", daemon=True).start()
        super().open(stage)

    def close(self, stage: _Stage) -> None:
        super().close(stage)
        if not self._stages:
            self._ended.set()

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(self.every / 5):
            self.write_if_due(time.monotonic())

    def _write(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class _Notebook(_Lines):
    """Shows a bar in the cell of a notebook and updates it; the last state stays. It needs no widgets."""

    every = REDRAW_EVERY
    _handle: Any = None

    def close(self, stage: _Stage) -> None:
        if len(self._stages) == 1 and self._handle is not None:
            elapsed = f"{duration(time.monotonic() - stage.started)} elapsed"
            amount = [f"{round(stage.done):,} {stage.unit}".rstrip()] if stage.done else []
            stage.total = stage.done = stage.done or 1.0  # also after early stopping: nothing is left
            self._write(f"{stage.name(has_stages=False)}: {', '.join([*amount, elapsed])}")
        super().close(stage)

    def _write(self, line: str) -> None:
        stage = self._stages[-1]
        value = "" if not stage.total else f' value="{min(stage.done, stage.total):g}" max="{stage.total:g}"'
        bar = {"text/plain": line, "text/html": f"<div><progress{value}></progress> {escape(line)}</div>"}
        if self._handle is None:
            self._handle = importlib.import_module("IPython.display").display(bar, raw=True, display_id=True)
        else:
            self._handle.update(bar, raw=True)


class _Bars:
    """Shows a bar for each stage on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
        from rich.text import Text

        class Amount(ProgressColumn):
            """What is done; nothing for work that is not counted."""

            def render(self, task: Any) -> Text:
                return Text(", ".join(task.fields["stage"].amount()[:1]), style="progress.download")

        class TimeLeft(ProgressColumn):
            """Remaining time at the mean speed: rich's own estimate follows the last seconds, which vary."""

            def render(self, task: Any) -> Text:
                stage = task.fields["stage"]
                left = stage.left(time.monotonic(), has_stages=stage not in stages[-1:])
                return Text("" if left is None else f"{duration(left)} left", style="progress.remaining")

        self._stages: list[_Stage] = []
        stages = self._stages
        columns = (TextColumn("{task.description}"), BarColumn(), Amount(), TimeElapsedColumn(), TimeLeft())
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)

    def open(self, stage: _Stage) -> None:
        if not self._stages:
            self._progress.start()
        self._stages.append(stage)
        stage.task = self._progress.add_task(stage.description, total=stage.total, stage=stage)

    def close(self, stage: _Stage) -> None:
        self._progress.remove_task(stage.task)
        self._stages.remove(stage)
        if not self._stages:
            self._progress.stop()

    def advanced(self, stage: _Stage, now: float) -> None:
        self._progress.update(stage.task, completed=stage.done, description=stage.name(has_stages=False))


_shown: ContextVar[_Lines | _Bars | None] = ContextVar("shown", default=None)


def steps(advance: Advance, weight: float = 1.0) -> Callable[[int], None]:
    """Convert a progress callback of absolute counts (work done so far) into steps, each of `weight`."""
    before = 0

    def report(done: int) -> None:
        nonlocal before
        if done > before:
            advance((done - before) * weight)
            before = done

    return report
