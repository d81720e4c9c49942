"""Several processes at one address: forked after the models are loaded, so that these are in memory once."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable
from types import FrameType

log = logging.getLogger("ramify.serve")
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run_workers(n: int, serve: Callable[[int], None]) -> None:
    """Run `serve(i)`, i < n, in n processes until this one gets SIGTERM or SIGINT; a process that dies is replaced."""
    started: dict[int, tuple[int, float]] = {}
    ends: list[int] = []

    def start(i: int) -> None:
        pid = _fork(serve, i)
        started[pid] = (i, time.monotonic())
        if ends:  # meanwhile
            _kill(pid)

    def end(number: int, _: FrameType | None) -> None:
        ends.append(number)
        for pid in list(started):
            _kill(pid)

    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        for i in range(n):
            start(i)
        while started:
            pid, status = os.wait()
            i, born = started.pop(pid)
            if ends:
                continue
            code = os.waitstatus_to_exitcode(status)
            log.error("a worker has ended", extra={"facts": {"pid": pid, "code": code}})
            if time.monotonic() - born < 1:
                time.sleep(1)  # it may fail again at once
            start(i)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _fork(serve: Callable[[int], None], i: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        serve(i)
        code = 0
    except KeyboardInterrupt:
        code = 0
    finally:
        os._exit(code)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
