"""Progress bars on standard error: on a terminal only, silent with ``verbose=0``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Advance(Protocol):
    """Advances a progress bar; a note is shown after its description."""

    def __call__(self, step: float, note: str | None = None, /) -> None:
        """Advance by `step`."""


@contextmanager
def progress(description: str, total: float | None, verbose: int = 1) -> Iterator[Advance]:
    """Show a progress bar with the remaining time; the block calls the yielded function with the size of each step."""
    if verbose < 1 or not sys.stderr.isatty():
        yield lambda _step, _note=None: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)

        def advance(step: float, note: str | None = None) -> None:
            bar.advance(task, step)
            if note is not None:
                bar.update(task, description=f"{description}: {note}")

        yield advance


def steps(advance: Advance) -> Callable[[int], None]:
    """Convert a progress callback of absolute counts (work done so far) into steps of a bar."""
    before = 0

    def report(done: int) -> None:
        nonlocal before
        if done > before:
            advance(done - before)
            before = done

    return report
