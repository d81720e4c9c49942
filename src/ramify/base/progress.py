"""Progress bars: on a terminal only, on the error stream, silent with ``verbose=0``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(description: str, total: float | None, verbose: int = 1) -> Iterator[Callable[[float], None]]:
    """Show a bar with the time left while the block runs; call the given function with each step's size."""
    if verbose < 1 or not sys.stderr.isatty():
        yield lambda _step: None
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
        yield lambda step: bar.advance(task, step)


def steps(advance: Callable[[float], None]) -> Callable[[int], None]:
    """Return a function that takes what is done so far and advances by the difference."""
    before = 0

    def report(done: int) -> None:
        nonlocal before
        if done > before:
            advance(done - before)
            before = done

    return report
