"""Number of threads of native code and of BLAS."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from threadpoolctl import threadpool_limits

MAX_THREADS = 4096

Item = TypeVar("Item")
Result = TypeVar("Result")


def resolve_threads(threads: int | None = None, n_rows: int | None = None) -> int:
    """Return the number of threads: `threads` if given, else ``RAMIFY_THREADS``, else all cores of this process.

    A single row (``n_rows=1``) is computed on the calling thread: starting another thread costs more than it saves.
    """
    if threads is not None and (
        isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS
    ):
        raise ValueError(f"threads must be an integer from 1 to {MAX_THREADS}, or None for all cores; got {threads!r}")
    if n_rows == 1:
        return 1
    if threads is not None:
        return threads
    setting = os.environ.get("RAMIFY_THREADS", "").strip()
    if setting:
        if not setting.isdecimal() or not 1 <= int(setting) <= MAX_THREADS:
            raise ValueError(f"RAMIFY_THREADS must be an integer from 1 to {MAX_THREADS}; got {setting!r}")
        return int(setting)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def ordered_map(function: Callable[[Item], Result], items: Sequence[Item], threads: int) -> Iterator[Result]:
    """Results of a function that releases the GIL, in the order of the items, on threads that live for this call."""
    n = min(threads, len(items))
    if n <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(n) as pool:
        try:
            yield from pool.map(function, items)
        finally:  # after an error nothing new is started
            pool.shutdown(cancel_futures=True)


@contextmanager
def blas_threads(n: int) -> Iterator[None]:
    """Limit BLAS to n threads within the block: idle BLAS threads spin and slow down native code."""
    with threadpool_limits(n, user_api="blas"):
        yield
