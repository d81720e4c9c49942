"""Ends work that takes longer than it may."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

REPEAT = 0.5
"""Seconds after which the end is asked for again: an exception within a destructor or a callback is lost."""


class TimeIsOver(BaseException):
    """The work was ended; not an `Exception`, which the work itself might handle."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeIsOver` within the block after so many seconds.

    Native code looks for signals, too, and ends. Without effect outside the main thread and on systems without timers.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeIsOver

    previous = signal.signal(signal.SIGALRM, end)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6), REPEAT)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
