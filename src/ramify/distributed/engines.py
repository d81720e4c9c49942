"""Engines: what runs the tasks of a run. Three of them: in this process, in processes of this machine, on Ray.

All of them only run what the scheduler hands them. They know nothing of the order of tasks, of retries or of files.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from ramify.base.threads import resolve_threads
from ramify.distributed.task import Outcome, run_task

Call = dict[str, Any]
"""What a worker needs to know of a task: `Task.call`, and whether it is the only one (`is_alone`)."""


class Engine(Protocol):
    """Runs tasks; a handle stands for one that runs."""

    def slots(self) -> int:
        """Tasks that can run at once; may change while a cluster grows or shrinks."""

    def memory(self) -> int | None:
        """Bytes that tasks may take together; None: unknown."""

    def describe(self) -> str:
        """Where tasks run, in a few words, for the progress."""

    def submit(self, call: Call, memory: int) -> Any:
        """Start a task that takes about `memory` bytes; returns its handle."""

    def wait(self, handles: Sequence[Any]) -> list[tuple[Any, Outcome]]:
        """Wait until at least one has ended; returns those that have."""

    def close(self) -> None:
        """Stop what still runs."""


class ProcessEngine:
    """Runs tasks one after the other in this process."""

    def __init__(self, work_dir: str, threads: int | None = None) -> None:
        self._work_dir, self._threads = work_dir, resolve_threads(threads)

    def slots(self) -> int:
        """One."""
        return 1

    def memory(self) -> int | None:
        """Unknown: a task starts whatever it takes."""
        return None

    def describe(self) -> str:
        """Return what the progress shows."""
        return "this process"

    def submit(self, call: Call, memory: int) -> Any:
        """Run the task."""
        return call["key"], run_task(self._work_dir, call, self._threads)

    def wait(self, handles: Sequence[Any]) -> list[tuple[Any, Outcome]]:
        """Return all of them: they have ended."""
        return [(handle, handle[1]) for handle in handles]

    def close(self) -> None:
        """Nothing runs."""


class PoolEngine:
    """Runs tasks in processes of this machine, several at a time.

    A process takes one task after the other; one that dies takes nothing with it but its task. The processes are forked
    from a server that has loaded the library and has no threads.
    """

    def __init__(self, work_dir: str, workers: int | None = None, threads: int | None = None) -> None:
        self._work_dir = work_dir
        n_cores = resolve_threads(None)
        self._workers = workers or max(1, n_cores // (threads or 1))
        self._threads = threads or max(1, n_cores // self._workers)
        self._all_threads = max(n_cores, self._threads)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(
            [f"ramify.distributed.{name}_tasks" for name in ("data", "feature", "tree", "level")]
        )
        self._idle: list[tuple[Any, Any]] = []  # processes with their connections
        self._running: dict[Any, tuple[Any, Any]] = {}  # by connection

    def slots(self) -> int:
        """Return the number of processes."""
        return self._workers

    def memory(self) -> int | None:
        """Return the memory of the machine."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def describe(self) -> str:
        """Return what the progress shows."""
        return f"{self._workers} processes"

    def submit(self, call: Call, memory: int) -> Any:
        """Give the task to a process."""
        process, connection = self._idle.pop() if self._idle else self._start()
        self._running[connection] = (process, connection)
        with contextlib.suppress(OSError):  # it has died while it was idle: wait() finds out
            connection.send((call, self._all_threads if call["is_alone"] else self._threads))
        return connection

    def _start(self) -> tuple[Any, Any]:
        connection, of_worker = self._context.Pipe()
        process = self._context.Process(target=_work, args=(of_worker, self._work_dir), daemon=True)
        with _without_main():
            process.start()
        of_worker.close()
        return process, connection

    def pids(self) -> list[int]:
        """Return the ids of the processes that run tasks."""
        return [process.pid for process, _ in self._running.values()]

    def wait(self, handles: Sequence[Any]) -> list[tuple[Any, Outcome]]:
        """Wait for the first task to end."""
        ended: list[tuple[Any, Outcome]] = []
        for ready in multiprocessing.connection.wait(list(handles)):
            process, connection = self._running.pop(ready)
            try:
                outcome = Outcome(*connection.recv())
                self._idle.append((process, connection))
            except (EOFError, OSError):
                process.join()
                connection.close()
                outcome = Outcome(f"the worker died (exit code {process.exitcode})", is_lost=True)
            ended.append((connection, outcome))
        return ended

    def close(self) -> None:
        """Stop all processes."""
        for process, connection in [*self._running.values(), *self._idle]:
            process.kill()
            process.join()
            connection.close()
        self._running.clear()
        self._idle.clear()


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Keep a new process from importing the user's script, which it does not need and which may have no guard."""
    main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _work(connection: Any, work_dir: str) -> None:
    """Run the tasks that come in, until the driver closes the connection."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            call, threads = connection.recv()
            connection.send(tuple(run_task(work_dir, call, threads)))


def make_engine(
    name: str | Engine,
    work_dir: str,
    *,
    workers: int | None = None,
    threads: int | None = None,
    address: str | None = None,
    shared: bool = True,
) -> Engine:
    """Return an engine by its name: process, pool or ray.

    Parameters
    ----------
    workers : pool: processes at a time; None: one for each core
    threads : threads of a task; None: process: all cores, pool: the cores of a process, ray: 1
    address : ray: address of the cluster; "auto": the one of this machine; None: a new one on this machine
    shared : ray: whether the nodes share the work directory and the data files
    """
    if not isinstance(name, str):
        return name
    if name == "process":
        return ProcessEngine(work_dir, threads)
    if name == "pool":
        return PoolEngine(work_dir, workers, threads)
    if name == "ray":
        from ramify.distributed.ray_engine import RayEngine

        return RayEngine(work_dir, address, threads, shared=shared)
    raise ValueError(f"engine must be process, pool or ray; got {name!r}")
