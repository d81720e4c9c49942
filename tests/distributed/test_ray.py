"""The engine on Ray: the same model; workers and nodes that die. Those with several nodes: `make test-distributed`."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time

import pytest
from distributed.corpus import digest, samples, write_files

import ramify

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'ramify[distributed]'")
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"
)
OPTIONS = {"engine": "ray", "n_tasks": 2, "rows_per_block": 200}


def model(seed=0):
    return ramify.XRLinear(verbose=0, seed=seed, tree=ramify.TreeConfig(branching=6, max_leaf_size=10, min_leaf_size=4))


def train_one(directory, n_rows):
    """Pattern of files, and the digest of the model that one process trains on them."""
    rows = samples(n_rows, 60)
    pattern = write_files(directory / "data", rows, (50,))
    model().fit([row["text"] for row in rows], [row["labels"] for row in rows]).save(directory / "one")
    return pattern, digest(directory / "one")


def saved(found, path):
    found.save(path)
    return digest(path)


@pytest.fixture(scope="module")
def quiet_ray():
    """Ray as on a machine of its own: it gives workers the lowest priority otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        yield patch
        ray.shutdown()


@pytest.fixture(scope="module")
def elsewhere(quiet_ray, tmp_path_factory):
    """Ray with two workers; returns their directory for temporary files."""
    directory, short = tmp_path_factory.mktemp("elsewhere"), tempfile.gettempdir()
    quiet_ray.setenv("TMPDIR", str(directory))
    options = {"log_to_driver": False, "include_dashboard": False, "object_store_memory": 100 << 20}
    ray.init(num_cpus=2, _temp_dir=f"{short}/ray", **options)  # a longer path is none for sockets
    quiet_ray.delenv("TMPDIR")
    yield directory
    ray.shutdown()


def test_the_model_is_that_of_one_process_also_if_a_worker_is_killed(elsewhere, tmp_path):
    pattern, expected = train_one(tmp_path, 160)
    kill_worker = threading.Thread(target=_kill_a_worker, args=(tmp_path / "work" / "log.jsonl",))
    kill_worker.start()
    found = model()
    run = ramify.fit_files(found, pattern, work_dir=tmp_path / "work", **OPTIONS)
    kill_worker.join()
    assert saved(found, tmp_path / "model") == expected
    assert len(found.trees_[0].tree.widths) > 1
    assert run.counts["run"] == len({entry["key"] for entry in run.log})
    ranked = ramify.predict_files(
        tmp_path / "model", pattern, k=5, engine="ray", work_dir=tmp_path / "work", verbose=0
    ).ranking()
    texts = [text for path in sorted((tmp_path / "data").iterdir()) for text in ramify.read(path).texts]
    assert (ranked.ids == found.predict_topk(texts, 5).ids).all()


def test_nodes_that_share_no_folder(elsewhere, tmp_path):
    pattern, expected = train_one(tmp_path, 110)
    found = model()
    run = ramify.fit_files(found, pattern, work_dir=tmp_path / "work", shared=False, **OPTIONS)
    assert saved(found, tmp_path / "model") == expected
    assert run.counts["run"] == len(list((tmp_path / "work" / "shards").glob("*/*/manifest.json")))
    assert list(elsewhere.glob("ramify-*/shards/*/*"))
    (tmp_path / "data" / "part-9.jsonl").write_text('{"text": "a", "labels": "b"}\n')
    with pytest.raises(ramify.DataError, match=r"^part-9\.jsonl:1: 'labels' must be a list"):
        ramify.fit_files(model(), pattern, work_dir=tmp_path / "work", shared=False, **OPTIONS)


def _kill_a_worker(log):
    """Kill a process that has run a task, once ten are done."""
    while not log.exists() or log.read_text().count("\n") < 10:
        time.sleep(0.02)
    pids = ray.get([_pid.remote() for _ in range(2)])
    os.kill(pids[0], signal.SIGKILL)


@ray.remote(num_cpus=0.01)
def _pid():
    return os.getpid()


@pytest.mark.cluster
@pytest.mark.parametrize("n_nodes", [1, 3])
def test_a_cluster_that_loses_a_node(quiet_ray, tmp_path, n_nodes):
    from ray.cluster_utils import Cluster

    pattern, expected = train_one(tmp_path, 420)
    options = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=options)
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=100 << 20) for _ in range(n_nodes - 1)]
    try:
        log = tmp_path / "work" / "log.jsonl"
        killer = threading.Thread(target=_kill_a_node, args=(cluster, nodes, log))
        killer.start()
        found = model()
        run = ramify.fit_files(
            found, pattern, work_dir=tmp_path / "work", **{**OPTIONS, "rows_per_block": 60}, address=cluster.address
        )
        killer.join()
        assert saved(found, tmp_path / "model") == expected
        assert run.counts["run"] > 50
    finally:
        ray.shutdown()
        cluster.shutdown()


def _kill_a_node(cluster, nodes, log):
    while not log.exists() or log.read_text().count("\n") < 30:
        time.sleep(0.02)
    if nodes:
        cluster.remove_node(nodes[0], allow_graceful=False)
