"""The engine on Ray: tasks run on the nodes of a cluster that share the work directory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ramify.distributed.task import Outcome, run_task


class RayEngine:
    """Runs tasks on a Ray cluster. The work directory must be a folder that all nodes share.

    Ray only places tasks: retries are the scheduler's, which knows what a task has read.
    """

    def __init__(self, work_dir: str, address: str | None = None, threads: int | None = None) -> None:
        try:
            import ray
        except ImportError as error:
            raise ImportError("engine='ray' needs Ray: pip install 'ramify[distributed]'") from error
        self._ray, self._work_dir, self._threads = ray, work_dir, threads or 1
        self._is_own = not ray.is_initialized()
        if self._is_own:
            ray.init(address=address, log_to_driver=False, include_dashboard=False)
        self._run = ray.remote(max_retries=0, num_cpus=self._threads)(_run_task)
        self._workers = 1

    def slots(self) -> int:
        """Return how many tasks the processors of all nodes can run."""
        self._workers = max(1, int(self._ray.cluster_resources().get("CPU", 1)) // self._threads)
        return self._workers

    def memory(self) -> int | None:
        """Unknown here: Ray places a task where there is memory for it."""
        return None

    def describe(self) -> str:
        """Return what the progress shows."""
        n = sum(node["Alive"] for node in self._ray.nodes())
        return f"{n} node{'s' * (n != 1)}, {self._workers} at once"

    def submit(self, call: dict[str, Any], memory: int) -> Any:
        """Start a task where there are a processor and memory for it."""
        # More than any node has would wait for ever: then it starts anyway.
        most = max((node["Resources"].get("memory", 0) for node in self._ray.nodes() if node["Alive"]), default=0)
        return self._run.options(memory=min(memory, int(0.9 * most))).remote(self._work_dir, call, self._threads)

    def wait(self, handles: Sequence[Any]) -> list[tuple[Any, Outcome]]:
        """Wait for the first task to end."""
        ready, _ = self._ray.wait(list(handles), num_returns=1)
        ended = []
        for handle in ready:
            try:
                ended.append((handle, Outcome(*self._ray.get(handle))))
            except self._ray.exceptions.RayError as error:  # the worker, its node or the network
                reason = str(error).strip().splitlines()[0]
                ended.append((handle, Outcome(f"{type(error).__name__}: {reason}", is_lost=True, log=str(error))))
        return ended

    def close(self) -> None:
        """Leave the cluster, if this engine has joined it; what still runs is cancelled."""
        if self._is_own:
            self._ray.shutdown()


def _run_task(work_dir: str, call: dict[str, Any], threads: int) -> tuple[Any, ...]:
    return tuple(run_task(work_dir, call, threads))
