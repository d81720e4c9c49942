"""The scheduler: runs the tasks of a stage, largest first, and keeps what is done on disk.

A run can be repeated at any time, by the same command: what is done is found by its name, checked against its hashes
and kept. A task whose worker dies is started again; one that fails three times ends the run with its log. When a task
fails, the shards that it reads are checked, and damaged ones made again.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ramify.base.errors import DataError, ModelFormatError
from ramify.base.progress import Advance, progress
from ramify.distributed.engines import Engine
from ramify.distributed.task import Outcome, Shard, Task, shard_path
from ramify.io.store import Store, remove_model

MAX_FAILURES = 3
"""Failures of a task that end the run."""
MAX_LOST = 10
"""Workers that a task may lose: one that needs more memory than there is kills them all."""


class TaskError(RuntimeError):
    """A task has failed too often; the message has its log."""


class Run:
    """Runs tasks with an engine and a work directory.

    Attributes
    ----------
    counts : tasks that were "run" and "reused", attempts that "failed" or were "lost", shards found "damaged"
    log : an entry for each attempt: title, key, host, processor seconds, peak memory, bytes read and
        written, error; also in ``log.jsonl``
    """

    def __init__(self, work_dir: str, engine: Engine, verbose: int = 1) -> None:
        self.work_dir, self._engine, self._verbose = work_dir, engine, verbose
        self.counts: Counter[str] = Counter()
        self.log: list[dict[str, Any]] = []
        self._checked: set[str] = set()
        Path(work_dir).mkdir(parents=True, exist_ok=True)

    def shard(self, task: Task) -> Shard:
        """Open the result of a finished task."""
        return Shard(shard_path(self.work_dir, task.key))

    def result(self, task: Task) -> dict[str, Any]:
        """Return what a finished task has found beside its arrays."""
        return self.shard(task).result

    def run(self, title: str, tasks: Iterable[Task]) -> list[Task]:
        """Run the tasks of a stage that are not done, largest first; returns all of them."""
        tasks = list(tasks)
        waiting = {task.key: task for task in tasks if not self._is_done(task)}
        self.counts["reused"] += len(tasks) - len(waiting)
        total = sum(task.cost for task in tasks)
        with progress(title, total, self._verbose) as advance:
            advance(total - sum(task.cost for task in waiting.values()))
            self._run_all(sorted(waiting.values(), key=lambda task: (-task.cost, task.key)), advance)
        return tasks

    def _run_all(self, waiting: list[Task], advance: Advance) -> None:
        """Run tasks in order; no more at once than the engine has room for, so that none waits elsewhere."""
        failures: Counter[str] = Counter()
        lost: Counter[str] = Counter()
        running: dict[Any, Task] = {}
        n_done, n_tasks = 0, len(waiting)
        is_alone = n_tasks == 1  # nothing else has work: it may take a whole machine
        while waiting or running:
            while waiting and self._has_room(waiting[0], running):
                task = waiting.pop(0)
                running[self._engine.submit({**task.call(), "is_alone": is_alone}, task.memory)] = task
            for handle, outcome in self._engine.wait(list(running)):
                task = running.pop(handle)
                if not outcome.error and not shard_path(self.work_dir, task.key).exists():
                    outcome = outcome._replace(
                        error="the shard is not in the work directory; it must be a folder that all nodes share"
                    )
                self._record(task, outcome)
                if not outcome.error:
                    self._checked.add(task.key)
                    n_done += 1
                    advance(task.cost, f"task {n_done} of {n_tasks}, {self._engine.describe()}")
                    continue
                if outcome.is_lost:
                    lost[task.key] += 1
                elif not self._repair_inputs(task):
                    failures[task.key] += 1
                if outcome.is_data_error and failures[task.key]:
                    raise DataError(outcome.error.partition(": ")[2])
                if failures[task.key] >= MAX_FAILURES or lost[task.key] >= MAX_LOST:
                    n = failures[task.key] + lost[task.key]
                    raise TaskError(f"the task '{task.title}' has failed {n} times:\n{outcome.log or outcome.error}")
                waiting.insert(0, task)

    def _has_room(self, task: Task, running: dict[Any, Task]) -> bool:
        if not running:
            return True
        limit = self._engine.memory()
        taken = sum(other.memory for other in running.values())
        return len(running) < self._engine.slots() and (limit is None or taken + task.memory <= limit)

    def _is_done(self, task: Task) -> bool:
        """Whether the shard of a task is there and undamaged; a damaged one is removed."""
        path = shard_path(self.work_dir, task.key)
        if task.key in self._checked or not path.exists():
            return task.key in self._checked and path.exists()
        try:
            Store(path, verify=True)
        except ModelFormatError:
            self.counts["damaged"] += 1
            _remove(path)
            return False
        self._checked.add(task.key)
        return True

    def _repair_inputs(self, task: Task) -> bool:
        """Make damaged inputs of a task again; returns whether there were any. If theirs are damaged too, they fail."""
        inputs = {other.key: other for tasks in task.inputs.values() for other in tasks}
        self._checked -= set(inputs)
        damaged = [other for other in inputs.values() if not self._is_done(other)]
        if damaged:
            with progress("making damaged shards again", len(damaged), self._verbose) as advance:
                self._run_all(damaged, advance)
        return bool(damaged)

    def _record(self, task: Task, outcome: Outcome) -> None:
        self.counts["lost" if outcome.is_lost else "failed" if outcome.error else "run"] += 1
        entry = {"title": task.title, "key": task.key, "function": task.function, "cost": task.cost,
                 "memory": task.memory, "time": round(time.time(), 3), "host": outcome.host,
                 "seconds": round(outcome.seconds, 4), "peak": outcome.peak, "read": outcome.n_read,
                 "written": outcome.n_written, "error": outcome.error}  # fmt: skip
        self.log.append(entry)
        with (Path(self.work_dir) / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def _remove(path: Path) -> None:
    with contextlib.suppress(ModelFormatError):
        remove_model(path)
    if path.exists():  # its manifest is damaged: every file of a shard is ours
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
