"""Progress of long work on standard error; silent with ``verbose=0``.

A terminal and a notebook show a bar. Elsewhere, as in a log file, a line is written every few seconds.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Protocol

LOG_EVERY = 10.0
"""Seconds between two lines in a log; shorter work writes none."""
REDRAW_EVERY = 0.3
"""Seconds between two states of a bar in a notebook; shorter work shows none."""


class Advance(Protocol):
    """Advances the progress; a note is shown after its description."""

    def __call__(self, step: float, note: str | None = None, /) -> None:
        """Advance by `step`."""


@contextmanager
def progress(description: str, total: float | None, verbose: int = 1, unit: str = "") -> Iterator[Advance]:
    """Show progress with the remaining time; the block calls the yielded function with the size of each step."""
    if verbose < 1:
        yield lambda _step, _note=None: None
    elif in_notebook():
        notebook = _Notebook(description, total, unit)
        yield notebook
        notebook.finish()
    elif sys.stderr.isatty():
        with _bar(description, total, unit) as advance:
            yield advance
    else:
        yield _Log(description, total, unit)


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


class _Log:
    """Writes a line every few seconds."""

    every = LOG_EVERY

    def __init__(self, description: str, total: float | None, unit: str) -> None:
        self._description, self._total, self._unit = description, total, unit
        self._done, self._note = 0.0, ""
        self._started = self._written = time.monotonic()

    def __call__(self, step: float, note: str | None = None, /) -> None:
        self._done += step
        if note is not None:
            self._note = f" ({note})"
        now = time.monotonic()
        if now - self._written >= self.every:
            self._written = now
            self._write(self._line(now - self._started))

    def _write(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def _line(self, elapsed: float) -> str:
        parts = [f"{int(self._done):,} {self._unit}".rstrip()]
        if self._total:
            fraction = min(1.0, self._done / self._total)
            parts = [f"{int(self._done):,} of {int(self._total):,} {self._unit}".rstrip(), f"{100 * fraction:.0f} %"]
        left = seconds_left(self._done, self._total, elapsed)
        parts += [f"{duration(elapsed)} elapsed", *([] if left is None else [f"{duration(left)} left"])]
        return f"{self._description}{self._note}: {', '.join(parts)}"


class _Notebook(_Log):
    """Shows a bar in the cell of a notebook and updates it; the last state stays. It needs no widgets."""

    every = REDRAW_EVERY
    _handle: Any = None

    def _write(self, line: str) -> None:
        value = "" if not self._total else f' value="{min(self._done, self._total):g}" max="{self._total:g}"'
        bar = {"text/plain": line, "text/html": f"<div><progress{value}></progress> {escape(line)}</div>"}
        if self._handle is None:
            self._handle = importlib.import_module("IPython.display").display(bar, raw=True, display_id=True)
        else:
            self._handle.update(bar, raw=True)

    def finish(self) -> None:
        """Show the last state, if any was shown."""
        if self._handle is not None:
            self._total = self._done  # early stopping: nothing is left
            elapsed = duration(time.monotonic() - self._started)
            self._write(f"{self._description}{self._note}: {round(self._done):,} {self._unit}, {elapsed} elapsed")


def duration(seconds: float) -> str:
    """Format seconds as 0:05, 12:30 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def _bar(description: str, total: float | None, unit: str) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
    from rich.text import Text

    class TimeLeft(ProgressColumn):
        """Remaining time at the mean speed: rich's own estimate follows the last seconds, which vary."""

        def render(self, task: Any) -> Text:
            left = seconds_left(task.completed, task.total, task.elapsed or 0.0)
            return Text("" if left is None else f"{duration(left)} left", style="progress.remaining")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *([TextColumn(unit)] if unit else []),
        TimeElapsedColumn(),
        TimeLeft(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)

        def advance(step: float, note: str | None = None) -> None:
            bar.advance(task, step)
            if note is not None:
                bar.update(task, description=f"{description}: {note}")

        yield advance


def steps(advance: Advance, weight: float = 1.0) -> Callable[[int], None]:
    """Convert a progress callback of absolute counts (work done so far) into steps, each of `weight`."""
    before = 0

    def report(done: int) -> None:
        nonlocal before
        if done > before:
            advance((done - before) * weight)
            before = done

    return report
