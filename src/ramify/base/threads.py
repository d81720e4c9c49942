"""How many threads native work may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

MAX_THREADS = 4096


def resolve_threads(threads: int | None = None) -> int:
    """Threads to use: the given number, else ``RAMIFY_THREADS``, else the cores that this process may run on."""
    if threads is not None:
        if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
            raise ValueError(
                f"threads must be a whole number from 1 to {MAX_THREADS}, or None for all cores; got {threads!r}"
            )
        return threads
    wish = os.environ.get("RAMIFY_THREADS", "").strip()
    if wish:
        if not wish.isdecimal() or not 1 <= int(wish) <= MAX_THREADS:
            raise ValueError(f"RAMIFY_THREADS must be a whole number from 1 to {MAX_THREADS}; it is {wish!r}")
        return int(wish)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def blas_threads(n: int) -> Iterator[None]:
    """Let NumPy's matrix products use n threads: those that wait for the next one take time from native work."""
    with threadpool_limits(n, user_api="blas"):
        yield
