"""The engine on Ray: tasks run on the nodes of a cluster, with a folder that they share or without one.

Without one, shards travel through Ray's object store: a node that needs a shard fetches it once and keeps it in its
temporary directory; the result of a task is written to the work directory of the driver.
"""

from __future__ import annotations

import hashlib
import shutil
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ramify.base.extras import needed_for
from ramify.base.types import AnyArray
from ramify.distributed.task import Outcome, run_task, shard_path
from ramify.io.directories import StagingDirectory

Packed = dict[str, AnyArray]
"""Content of the files of a directory, by name."""
LOOK_EVERY = 1.0
"""Seconds after which the driver asks again which nodes there are: an answer takes milliseconds of processor time."""


class RayEngine:
    """Runs tasks on a Ray cluster.

    Ray only places tasks: retries are the scheduler's, which knows what a task has read.

    Parameters
    ----------
    shared : whether all nodes see the work directory and the data files under the same paths
    """

    def __init__(
        self, work_dir: str, address: str | None = None, threads: int | None = None, *, shared: bool = True
    ) -> None:
        with needed_for("engine='ray'", "Ray", "distributed"):
            import ray
        self._ray, self._work_dir, self._threads, self._shared = ray, work_dir, threads or 1, shared
        self._is_own = not ray.is_initialized()
        if self._is_own:
            ray.init(address=address, log_to_driver=False, include_dashboard=False)
        self._run = ray.remote(max_retries=0, num_cpus=self._threads)(_run_shared if shared else _run_apart)
        self._workers, self._n_nodes, self._most, self._asked = 1, 1, 0, -LOOK_EVERY
        self._shards: dict[str, Any] = {}  # in the object store, by key
        self._results: dict[Any, tuple[dict[str, Any], Any]] = {}  # call and shard of the tasks that run

    def slots(self) -> int:
        """Return how many tasks the processors of all nodes can run."""
        self._look()
        return self._workers

    def _look(self) -> None:
        """See what the cluster has, which may grow and shrink."""
        if time.monotonic() - self._asked < LOOK_EVERY:
            return
        self._asked = time.monotonic()
        alive = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        self._n_nodes = len(alive)
        self._workers = max(1, int(sum(node.get("CPU", 0) for node in alive)) // self._threads)
        self._most = max((node.get("memory", 0) for node in alive), default=0)

    def memory(self) -> int | None:
        """Unknown here: Ray places a task where there is memory for it."""
        return None

    def describe(self) -> str:
        """Return what the progress shows."""
        n = self._n_nodes
        return f"{n} node{'s' * (n != 1)}, {self._workers} at once"

    def submit(self, call: dict[str, Any], memory: int) -> Any:
        """Start a task where there are a processor and memory for it."""
        # More than any node has would wait for ever: then it starts anyway.
        self._look()
        needed = min(memory, int(0.9 * self._most))
        if self._shared:
            return self._run.options(memory=needed).remote(self._work_dir, call, self._threads)
        inputs = {key: self._shard(key) for keys in call["inputs"].values() for key in keys}
        files = {path: self._ray.put(_read_file(Path(path))) for path in call["paths"] if Path(path).is_file()}
        outcome, packed = self._run.options(memory=needed, num_returns=2).remote(
            self._name(), call, self._threads, inputs, files
        )
        self._results[outcome] = (call, packed)
        return outcome

    def _name(self) -> str:
        """Name of the directory of this run on other machines."""
        return (
            f"ramify-{hashlib.blake2b(f'{socket.gethostname()}:{self._work_dir}'.encode(), digest_size=8).hexdigest()}"
        )

    def _shard(self, key: str) -> Any:
        if key not in self._shards:
            self._shards[key] = self._ray.put(_read_directory(shard_path(self._work_dir, key)))
        return self._shards[key]

    def wait(self, handles: Sequence[Any]) -> list[tuple[Any, Outcome]]:
        """Wait for the first task to end."""
        ready, _ = self._ray.wait(list(handles), num_returns=1)
        return [(handle, self._outcome(handle)) for handle in ready]

    def _outcome(self, handle: Any) -> Outcome:
        call, packed = self._results.pop(handle, (None, None))
        try:
            outcome = Outcome(*self._ray.get(handle))
            if call is not None and not outcome.error:
                _write_directory(shard_path(self._work_dir, call["key"]), self._ray.get(packed))
                self._shards[call["key"]] = packed
            return outcome
        except self._ray.exceptions.RayError as error:  # the worker, its node or the network
            for keys in call["inputs"].values() if call is not None else ():
                for key in keys:  # what a node held may be lost; the driver has it on disk
                    self._shards.pop(key, None)
            reason = str(error).strip().splitlines()[0]
            return Outcome(f"{type(error).__name__}: {reason}", is_lost=True, log=str(error))

    def close(self) -> None:
        """Leave the cluster, if this engine has joined it; what still runs is cancelled."""
        self._shards.clear()
        if self._is_own:
            self._ray.shutdown()


def _run_shared(work_dir: str, call: dict[str, Any], threads: int) -> tuple[Any, ...]:
    return tuple(run_task(work_dir, call, threads))


def _run_apart(
    name: str, call: dict[str, Any], threads: int, inputs: dict[str, Any], files: dict[str, Any]
) -> tuple[tuple[Any, ...], Packed]:
    """Run a task in a directory of this machine; returns the outcome, and the shard."""
    import ray

    work_dir = Path(tempfile.gettempdir()) / name
    for key, reference in inputs.items():
        if not shard_path(work_dir, key).exists():
            _write_directory(shard_path(work_dir, key), ray.get(reference))
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as directory:
        paths = []
        for path in call["paths"]:
            if path in files:
                local = Path(directory) / Path(path).name
                ray.get(files[path]).tofile(local)
                path = str(local)
            paths.append(path)
        outcome = run_task(str(work_dir), {**call, "paths": paths}, threads)
    if outcome.error:  # the copies may be damaged: the next attempt fetches them again
        for key in inputs:
            shutil.rmtree(shard_path(work_dir, key), ignore_errors=True)
        log, error = (text.replace(directory + "/", "") for text in (outcome.log, outcome.error))
        return tuple(outcome._replace(log=log, error=error)), {}
    return tuple(outcome), _read_directory(shard_path(work_dir, call["key"]))


def _read_file(path: Path) -> AnyArray:
    return np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)


def _read_directory(path: Path) -> Packed:
    return {file.name: _read_file(file) for file in path.iterdir()}


def _write_directory(path: Path, packed: Packed) -> None:
    """Write a shard; it appears whole or not at all."""
    staging = StagingDirectory(path)
    try:
        for name, content in packed.items():
            content.tofile(staging.path / name)
        staging.publish(durable=False)
    finally:
        staging.close()
