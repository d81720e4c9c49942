"""A task: a pure function from files to files, named by what its result depends on.

The result of a task is a shard: a directory of arrays (`io.store`) below the work directory, whose name is a digest of
the function, its parameters and the names of the shards that it reads. So the same task has the same name in every
run, a finished one is never run again, and two that run at once write the same content.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import resource
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ramify.base.errors import DataError, ModelFormatError
from ramify.base.sparse import csr_from_parts, indptr_from_counts
from ramify.base.types import AnyArray, Csr
from ramify.io.store import Store, StoreWriter

VERSION = 3
"""Part of the name of every task; raised when the content of shards changes."""
KIND = "shard"


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be done.

    Attributes
    ----------
    title : what people read
    function : its name as module:function, below `ramify.distributed`
    params : its parameters, as JSON; they decide the result
    inputs : the tasks whose shards it reads, by role
    paths : data files that it reads; their names do not matter, the parameters have digests of their content
    cost : estimated work, in any unit that the tasks of a stage share; the largest are run first
    memory : estimated bytes that it takes
    """

    title: str
    function: str
    params: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, list[Task]] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    cost: float = 1.0
    memory: int = 0

    @cached_property
    def key(self) -> str:
        """Name of the shard."""
        inputs = {role: [task.key for task in tasks] for role, tasks in self.inputs.items()}
        content = json.dumps([VERSION, self.function, self.params, inputs], sort_keys=True)
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    def call(self) -> dict[str, Any]:
        """Return what a worker needs to know, as JSON."""
        inputs = {role: [task.key for task in tasks] for role, tasks in self.inputs.items()}
        return {"key": self.key, "function": self.function, "params": self.params, "inputs": inputs,
                "paths": self.paths}  # fmt: skip


class Outcome(NamedTuple):
    """How an attempt ended.

    Attributes
    ----------
    error : what went wrong, "" if nothing did
    is_data_error : whether the data are at fault, so that another attempt would fail too
    is_lost : whether the worker died
    log : the traceback
    host, seconds, peak : where it ran, the processor time, and the largest memory of its process in bytes
    n_read, n_written : bytes of arrays of other shards that it read, and of its own shard
    """

    error: str = ""
    is_data_error: bool = False
    is_lost: bool = False
    log: str = ""
    host: str = ""
    seconds: float = 0.0
    peak: int = 0
    n_read: int = 0
    n_written: int = 0


class Shard:
    """The result of a task, memory-mapped. It is opened when it is read.

    Attributes
    ----------
    n_read : bytes of arrays, or of the parts of them, that were asked for
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.n_read = 0

    @cached_property
    def store(self) -> Store:
        """The opened directory."""
        return Store(self._path, lazy=True)

    @property
    def result(self) -> dict[str, Any]:
        """What the task has found beside its arrays."""
        return self.store.state

    def array(self, name: str) -> AnyArray:
        """Memory-map an array."""
        array = self._map(name)
        self.n_read += array.nbytes
        return array

    def _map(self, name: str) -> AnyArray:
        entry = self.store.files.get(f"{name}.npy")
        if entry is None:
            raise ModelFormatError(f"{self.store.path} has no array {name!r}")
        return self.store.array(name, entry["dtype"])

    def _entries(self, name: str, entries: slice) -> tuple[AnyArray, AnyArray]:
        """Column indices and values of some entries of a matrix; values that are all 1 are not stored."""
        indices = self._map(f"{name}_indices")[entries]
        if f"{name}_data.npy" not in self.store.files:
            return indices, np.ones(len(indices), np.float32)
        return indices, self._map(f"{name}_data")[entries]

    def _shape(self, name: str) -> tuple[int, int]:
        n, m = self.result["shapes"][name]
        return n, m

    def csr(self, name: str, n_rows: int | None = None) -> Csr:
        """Memory-map a matrix, of which `n_rows` rows will be read; None: all."""
        indices, data = self._entries(name, slice(None))
        shape, indptr = self._shape(name), self.array(f"{name}_indptr")
        self.n_read += (indices.nbytes + data.nbytes) * (shape[0] if n_rows is None else n_rows) // max(1, shape[0])
        return csr_from_parts(data, indices, indptr, shape)

    def rows(self, name: str, begin: int, end: int) -> Csr:
        """Rows begin to end of a matrix that `Job.write_rows` wrote; only they are read."""
        ids, indptr = self._map(f"{name}_ids"), self._map(f"{name}_indptr")
        first, last = np.searchsorted(ids, [begin, end])
        counts = np.zeros(end - begin, np.int64)
        counts[ids[first:last] - begin] = np.diff(indptr[first : last + 1])
        indices, data = self._entries(name, slice(int(indptr[first]), int(indptr[last])))
        self.n_read += int(last - first) * (ids.itemsize + indptr.itemsize) + indices.nbytes + data.nbytes
        index = np.int32 if len(indices) < 2**31 else np.int64
        found = indptr_from_counts(counts).astype(index)
        return csr_from_parts(data, indices.astype(index, copy=False), found, (end - begin, self._shape(name)[1]))


@dataclass(frozen=True, eq=False)
class Job:
    """What the function of a task gets.

    Attributes
    ----------
    params, paths : as of the task
    inputs : its shards, opened
    writer : takes the arrays of the result; the function returns all else, as JSON
    shapes : of the matrices of the result, by name
    """

    params: dict[str, Any]
    paths: list[str]
    inputs: dict[str, list[Shard]]
    writer: StoreWriter
    shapes: dict[str, list[int]] = field(default_factory=dict)

    def write_csr(self, name: str, matrix: Csr) -> None:
        """Write a matrix; both index arrays with as many bits as the larger needs."""
        index = np.int32 if matrix.nnz < 2**31 else np.int64
        self.writer.array(f"{name}_indptr", matrix.indptr.astype(index, copy=False))
        self._write_entries(name, matrix, index)

    def write_rows(self, name: str, matrix: Csr) -> None:
        """Write a matrix with many empty rows, of which `Shard.rows` reads a range."""
        ids = np.flatnonzero(np.diff(matrix.indptr))
        self.writer.array(f"{name}_ids", ids.astype(np.int32))
        self.writer.array(f"{name}_indptr", matrix.indptr[np.append(ids, matrix.shape[0])].astype(np.int64))
        self._write_entries(name, matrix, np.int32)

    def _write_entries(self, name: str, matrix: Csr, index: type[np.int32 | np.int64]) -> None:
        self.writer.array(f"{name}_indices", matrix.indices.astype(index, copy=False))
        if not np.all(matrix.data == 1):
            self.writer.array(f"{name}_data", np.asarray(matrix.data, np.float32))
        self.shapes[name] = [int(n) for n in matrix.shape]


def shard_path(work_dir: str | os.PathLike[str], key: str) -> Path:
    """Where the shard of a task is."""
    return Path(work_dir) / "shards" / key[:2] / key


def run_task(work_dir: str, call: dict[str, Any], threads: int) -> Outcome:
    """Run a task in this process, unless its shard is there."""
    # Memory and time of the whole process: a worker runs one task at a time.
    started = time.process_time()
    _reset_peak()
    error, log, is_data_error = "", "", False
    n_read = n_written = 0
    try:
        path = shard_path(work_dir, call["key"])
        with _default_threads(threads):
            if not path.exists():
                n_read, n_written = _run(work_dir, path, call)
    except Exception as found:
        error, log = f"{type(found).__name__}: {found}", traceback.format_exc()
        is_data_error = isinstance(found, DataError) and not isinstance(found, ModelFormatError)
    seconds = time.process_time() - started
    return Outcome(error, is_data_error, False, log, socket.gethostname(), seconds, _peak(), n_read, n_written)


def _reset_peak() -> None:
    """Let `_peak` begin anew, where the system can: a worker runs several tasks."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """Return the largest memory of this process in bytes."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@contextlib.contextmanager
def _default_threads(n: int) -> Iterator[None]:
    """Let everything that takes the default number of threads take n."""
    before = os.environ.get("RAMIFY_THREADS")
    os.environ["RAMIFY_THREADS"] = str(n)
    try:
        yield
    finally:
        if before is None:
            del os.environ["RAMIFY_THREADS"]
        else:
            os.environ["RAMIFY_THREADS"] = before


def _run(work_dir: str, path: Path, call: dict[str, Any]) -> tuple[int, int]:
    """Run the function of a task; returns the bytes that it read and wrote."""
    module, _, name = call["function"].partition(":")
    function: Callable[[Job], dict[str, Any] | None] = getattr(
        importlib.import_module(f"ramify.distributed.{module}"), name
    )
    inputs = {role: [Shard(shard_path(work_dir, key)) for key in keys] for role, keys in call["inputs"].items()}
    with StoreWriter(path, durable=False) as writer:  # a shard is checked by its hashes before it is used again
        job = Job(call["params"], call["paths"], inputs, writer)
        result = function(job)
        if result is not None:  # otherwise the function has written a manifest of its own
            writer.manifest(KIND, {"function": call["function"]}, {**result, "shapes": job.shapes})
    return sum(shard.n_read for shards in inputs.values() for shard in shards), writer.n_bytes
