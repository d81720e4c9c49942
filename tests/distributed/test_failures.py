"""Dead workers, dead drivers, failing tasks and damaged shards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from distributed.corpus import digest, samples, write_files

import ramify
from ramify.distributed.engines import PoolEngine, ProcessEngine
from ramify.distributed.files import read_files
from ramify.distributed.scheduler import MAX_FAILURES, Run, TaskError
from ramify.distributed.task import Task, shard_path

OPTIONS = {"n_tasks": 2, "rows_per_block": 100}


def model():
    return ramify.XRLinear(verbose=0, tree=ramify.TreeConfig(branching=6, max_leaf_size=10, min_leaf_size=4))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Pattern of files, and the digest of the model that one process trains on them."""
    directory, rows = tmp_path_factory.mktemp("trained"), samples(160, 60)
    pattern = write_files(directory / "data", rows, (50, 60))
    model().fit([row["text"] for row in rows], [row["labels"] for row in rows]).save(directory / "one")
    return pattern, digest(directory / "one")


def saved(found, path):
    found.save(path)
    return digest(path)


class KillingEngine(PoolEngine):
    """Kills some workers as soon as they have started."""

    def __init__(self, work_dir, victims):
        super().__init__(work_dir, workers=2)
        self._victims, self._n_started = victims, 0

    def submit(self, call, memory):
        handle = super().submit(call, memory)
        self._n_started += 1
        if self._n_started in self._victims:
            os.kill(self._running[handle][0].pid, signal.SIGKILL)
        return handle


def test_a_killed_worker_costs_its_task_and_not_the_run(trained, tmp_path):
    pattern, expected = trained
    engine = KillingEngine(str(tmp_path / "work"), victims={2, 9, 10, 25})
    found = model()
    run = ramify.fit_files(found, pattern, engine=engine, work_dir=tmp_path / "work", **OPTIONS)
    assert run.counts["lost"] == 4
    assert run.counts["run"] == len({entry["key"] for entry in run.log})
    assert saved(found, tmp_path / "model") == expected
    assert not engine.pids()
    engine.close()


def test_a_worker_that_dies_while_it_is_idle_costs_nothing(tmp_path):
    (tmp_path / "file").write_text("content")
    engine = PoolEngine(str(tmp_path), workers=1)
    run = Run(str(tmp_path), engine, verbose=0)
    pids = []
    for i in range(3):
        task = Task(f"{i}", "data_tasks:digest", {"i": i}, paths=[str(tmp_path / "file")])
        run.run("hashing", [task])
        pids.append(engine._idle[0][0].pid)
        if i == 1:
            os.kill(pids[-1], signal.SIGKILL)
    assert run.counts["run"] == 3
    assert pids[0] == pids[1] != pids[2]
    engine.close()
    assert not engine._idle


def test_a_finished_run_is_not_repeated(trained, tmp_path):
    pattern, expected = trained
    first = ramify.fit_files(model(), pattern, engine="process", work_dir=tmp_path / "work", **OPTIONS)
    found = model()
    again = ramify.fit_files(found, pattern, engine="process", work_dir=tmp_path / "work", **OPTIONS)
    assert again.counts == {"reused": first.counts["run"]}
    assert saved(found, tmp_path / "model") == expected
    # Other classifiers: what does not depend on them is kept.
    other = ramify.fit_files(
        model().set_params(beam_size=7), pattern, engine="process", work_dir=tmp_path / "work", **OPTIONS
    )
    assert 0 < other.counts["run"] < other.counts["reused"]


def test_a_dead_driver_resumes(trained, tmp_path):
    pattern, expected = trained
    work = tmp_path / "work"
    code = (
        "import sys, ramify; from distributed.test_failures import model, OPTIONS\n"
        "from ramify.distributed import training as t\n"
        "t.LABELS_PER_TASK, t.WORK_PER_TASK, t.FEATURES_PER_TASK = 1, 1, 30\n"
        "model().fit_files(sys.argv[1], engine='process', work_dir=sys.argv[2], **OPTIONS)"
    )
    path = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    driver = subprocess.Popen([sys.executable, "-c", code, pattern, str(work)], env={**os.environ, "PYTHONPATH": path})
    log = work / "log.jsonl"
    while driver.poll() is None and (not log.exists() or log.read_text().count("\n") < 20):
        time.sleep(0.005)
    driver.kill()
    driver.wait()
    found = model()
    run = ramify.fit_files(found, pattern, engine="process", work_dir=work, **OPTIONS)
    assert run.counts["reused"] >= 20
    assert run.counts["run"] > 0
    assert saved(found, tmp_path / "model") == expected


def flip(path):
    """Damage a file without changing its size."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_damaged_shards_are_made_again(trained, tmp_path):
    pattern, expected = trained
    run = ramify.fit_files(model(), pattern, engine="process", work_dir=tmp_path / "work", **OPTIONS)
    keys = {entry["function"]: entry["key"] for entry in run.log}
    damaged = [keys[f"level_tasks:{name}"] for name in ("fit_group", "pack", "join_model")]
    for key in damaged[:2]:
        flip(max(shard_path(tmp_path / "work", key).glob("*.npy"), key=lambda file: file.stat().st_size))
    (shard_path(tmp_path / "work", damaged[2]) / "manifest.json").write_text("{")
    found = model()
    again = ramify.fit_files(found, pattern, engine="process", work_dir=tmp_path / "work", **OPTIONS)
    assert again.counts["damaged"] == again.counts["run"] == 3
    assert {entry["key"] for entry in again.log} == set(damaged)
    assert saved(found, tmp_path / "model") == expected


def test_a_shard_that_is_damaged_during_a_run_is_made_again(trained, tmp_path):
    pattern, _ = trained
    work = str(tmp_path / "work")
    run = Run(work, ProcessEngine(work), verbose=0)
    paths = sorted(map(str, Path(pattern).parent.iterdir()))
    files = read_files(run, paths, {"options": {}})
    broken = shard_path(work, files[1].key) / "labels_text.npy"
    broken.write_bytes(broken.read_bytes()[:-3])
    merge = Task("merging", "data_tasks:merge_labels", {}, {"files": files})
    run.run("merging", [merge])
    assert run.counts["damaged"] == run.counts["failed"] == 1
    assert run.result(merge)["n_labels"] > 0


def test_a_task_that_fails_three_times_ends_the_run_with_its_log(tmp_path):
    for engine in (ProcessEngine(str(tmp_path)), PoolEngine(str(tmp_path), workers=2)):
        run = Run(str(tmp_path), engine, verbose=0)
        task = Task("hashing nothing", "data_tasks:digest", {"path": "x"}, paths=[str(tmp_path / "x")])
        with pytest.raises(TaskError, match=r"'hashing nothing' has failed 3 times:\nTraceback(.|\n)*No such file"):
            run.run("hashing", [task])
        assert run.counts["failed"] == MAX_FAILURES
        engine.close()


def test_the_largest_tasks_come_first_and_memory_is_a_limit(tmp_path):
    class Recorder(ProcessEngine):
        """Takes calls, and ends them only when it is waited for."""

        started, most, running = [], 0, {}

        def slots(self):
            return 3

        def memory(self):
            return 100

        def submit(self, call, memory):
            self.started.append(call["params"]["i"])
            self.running[call["key"]] = memory
            assert len(self.running) == 1 or sum(self.running.values()) <= 100
            self.most = max(self.most, len(self.running))
            return super().submit(call, memory)

        def wait(self, handles):
            ended = super().wait(handles[:1])
            self.running.pop(ended[0][0][0])
            return ended

    file = tmp_path / "file"
    file.write_text("content")
    engine = Recorder(str(tmp_path))
    memory = [150, 20, 20, 20, 90, 10]
    tasks = [
        Task(f"{i}", "data_tasks:digest", {"i": i}, paths=[str(file)], cost=10 - i, memory=memory[i]) for i in range(6)
    ]
    Run(str(tmp_path), engine, verbose=0).run("hashing", tasks[::-1])
    assert engine.started == list(range(6))
    assert engine.most == 3
