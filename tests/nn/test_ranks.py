"""Several ranks train the model of one process: the same losses, to rounding, and one model directory."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import numpy as np
import pytest
import train_with_ranks
from neural import WORDS

import ramify
from ramify import native
from ramify.io.store import Store
from ramify.nn.checkpoint import load_checkpoint, save_checkpoint, send_shards
from ramify.nn.heads.losses import squared_hinge
from ramify.nn.heads.shortlist import ShortlistHead
from ramify.nn.optim import Adam, RowTable, ShardedTable
from ramify.nn.ranks import Ranks

pytest.importorskip("torch")
SCRIPT = Path(train_with_ranks.__file__)


def torchrun(n_ranks: int, *arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n_ranks}"]
    return subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def corpus():
    random = np.random.default_rng(0)
    groups = [WORDS[i : i + 3] for i in range(0, len(WORDS) - 2, 3)]
    chosen = random.integers(0, len(groups), 120)
    texts = [" ".join(random.choice(groups[g], 4)) for g in chosen]
    return texts, [[f"label {g}", f"label {(g + 1) % len(groups)}"] for g in chosen.tolist()]


class Alone(Ranks):
    """One rank of several, in one process: sums and concatenations are left to the test."""

    def sum(self, array):
        return array

    def concatenate(self, own):
        return own


def test_ranks_divide_rows_without_gap_or_overlap():
    for n in (0, 1, 2, 5, 100):
        for size in (1, 2, 3, 7):
            rows = [i for rank in range(size) for i in range(n)[Ranks(rank, size).part(n)]]
            assert rows == list(range(n))


@pytest.mark.parametrize("size", [2, 3])
def test_shards_add_up_to_the_whole_table(size):
    random = np.random.default_rng(1)
    weights, bias = random.normal(size=(11, 4)).astype(np.float32), random.normal(size=11).astype(np.float32)
    candidates = np.array([[0, 3, 10], [3, -1, 7], [5, 4, 9], [-1, -1, -1]], np.int32)
    phi = random.normal(size=(4, 4)).astype(np.float32)
    pairs = native.neural.group_pairs(candidates, 11)
    whole = RowTable(weights.copy(), bias.copy())
    shards = [ShardedTable(weights, bias, Alone(rank, size)) for rank in range(size)]
    for step in (1, 2, 3):
        logits = whole.dot(pairs, 3, phi, 1)
        assert np.array_equal(sum(shard.dot(pairs, 3, phi, 1) for shard in shards), logits)
        gradients = np.where(candidates >= 0, logits - 1, 0).astype(np.float32)
        expected = whole.dot_backward(pairs, gradients, 1)
        assert np.allclose(sum(shard.dot_backward(pairs, gradients, 1) for shard in shards), expected, atol=1e-6)
        for table in (whole, *shards):
            table.step(pairs, gradients, phi, Adam(0.1, step), 1)
    assert not np.array_equal(whole.weights, weights)
    assert np.array_equal(np.concatenate([shard.weights for shard in shards]), whole.weights)
    assert np.array_equal(np.concatenate([shard.bias for shard in shards]), whole.bias)
    # The state of one table continues on any number of ranks.
    state = whole.optimizer_state()
    resumed = [ShardedTable(whole.weights, whole.bias, Alone(rank, size)) for rank in range(size)]
    for table in resumed:
        table.set_optimizer_state(state)
    whole.step(pairs, gradients, phi, Adam(0.1, 4), 1)
    for table in resumed:
        table.step(pairs, gradients, phi, Adam(0.1, 4), 1)
    assert np.array_equal(np.concatenate([table.weights for table in resumed]), whole.weights)


@pytest.mark.parametrize("size", [2, 3])
def test_losses_are_those_of_one_process(size, corpus, tiny, tmp_path):
    texts, labels = corpus
    short = {"stage1.epochs": 2, "stage2.epochs": 2, "stage1.batch_size": 25, "stage2.batch_size": 25}
    encoder = {"model": tiny, "max_length": 8, "cache_dir": str(tmp_path / "cache"), "learning_rate": 0.01}
    models = {
        "elias": ("Elias", {**short, "n_clusters": 4}),
        "fine-tuned": ("Elias", {**short, "n_clusters": 4, "encoder": encoder}),
        "lightdxml": ("LightDXML", {"training.epochs": 2}),
    }
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"texts": texts, "labels": labels, "models": models}))
    expected = train_with_ranks.trained(json.loads(settings.read_text()))
    run = torchrun(size, SCRIPT, settings, tmp_path / "out")
    assert run.returncode == 0, run.stderr
    found = [json.loads((tmp_path / f"out.{rank}").read_text()) for rank in range(size)]
    assert all(other == found[0] for other in found), "the ranks have different models"
    for name in models:
        assert np.allclose(found[0][name]["history"], expected[name]["history"], rtol=1e-3), name
        best = [np.sort(np.array(result[name]["ids"])[:, :2]) for result in (found[0], expected)]
        assert np.array_equal(*best), name
        if name != "lightdxml":  # whose calibration chooses from a grid, which rounding may decide
            assert np.allclose(found[0][name]["scores"], expected[name]["scores"], atol=2e-3), name
        assert expected[name]["history"], name
    assert len(expected["elias"]["history"]) == 4


def marked_losses(directory):
    """Add 1000 to the losses of the checkpoints below a directory, to tell them from those of a second training."""
    for path in directory.iterdir():
        store = Store(path)
        groups, values = load_checkpoint(path, store.state["key"])
        values["history"] = [[loss + 1000, score] for loss, score in values["history"]]
        save_checkpoint(path, store.state["key"], groups, values)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3)])
def test_a_killed_training_resumes_with_any_number_of_ranks(before, after, corpus, tmp_path):
    texts, labels = corpus
    checkpoints = tmp_path / "checkpoints"
    params = {"stage1.epochs": 2, "stage2.epochs": 2, "stage1.batch_size": 25, "stage2.batch_size": 25,
              "n_clusters": 4, "checkpoint_dir": str(checkpoints)}  # fmt: skip
    settings = {"texts": texts, "labels": labels, "models": {"elias": ("Elias", params)}}
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    killed = torchrun(before, SCRIPT, tmp_path / "settings.json", tmp_path / "out", 3)  # after an epoch of stage 2
    assert "SIGKILL" in killed.stderr
    assert not (tmp_path / "out.0").exists()
    assert len(list(checkpoints.iterdir())) == 2
    marked_losses(checkpoints)
    run = torchrun(after, SCRIPT, tmp_path / "settings.json", tmp_path / "out")
    assert run.returncode == 0, run.stderr
    found = json.loads((tmp_path / "out.0").read_text())["elias"]
    params.pop("checkpoint_dir")
    expected = train_with_ranks.trained(settings)["elias"]
    losses, others = (np.array(result["history"])[:, 0] for result in (found, expected))
    assert np.allclose(losses - [1000, 1000, 1000, 0], others, atol=1e-3)  # the marks show what was not trained again
    assert np.allclose(found["scores"], expected["scores"], atol=2e-3)


def run_ranks(size, function):
    """Results of a function of `Ranks`, called by as many threads; what they send goes through queues."""
    pipes = {(a, b): Queue() for a in range(size) for b in range(size)}
    barrier, shared = threading.Barrier(size), [None] * size

    class Thread(Ranks):
        def concatenate(self, own, *, in_file=False):
            shared[self.rank] = own
            barrier.wait()
            joined = np.concatenate(shared)
            barrier.wait()
            return joined

        def blocks(self, own):
            if not self.is_first:
                pipes[self.rank, 0].put(own)
                return
            for rank in range(size):
                yield own if rank == 0 else pipes[rank, 0].get()

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: function(Thread(rank, size)), range(size)))


@pytest.mark.parametrize("size", [2, 3, 5])
def test_the_best_rows_of_all_ranks(size):
    random = np.random.default_rng(0)
    weights, phi = random.normal(size=(4, 3)).astype(np.float32), random.normal(size=(6, 3)).astype(np.float32)
    bias = random.normal(size=4).astype(np.float32)
    expected = ShortlistHead(weights, bias, squared_hinge).search(phi, 3, 1)

    def search(ranks):
        head = ShortlistHead(weights, bias, squared_hinge)
        head.labels = ShardedTable(weights, bias, ranks)  # five ranks: one of them has no label
        return head.search(phi, 3, 1)

    for ids, scores in run_ranks(size, search):
        assert np.array_equal(ids, expected[0])
        assert np.allclose(scores, expected[1], atol=1e-6)


@pytest.mark.parametrize("size", [2, 3])
def test_checkpoints_are_written_shard_by_shard(size, tmp_path):
    random = np.random.default_rng(2)
    weights, bias = random.normal(size=(7, 3)).astype(np.float32), random.normal(size=7).astype(np.float32)

    def save(ranks):
        table = ShardedTable(weights, bias, ranks)
        groups = {"arrays": {"other": np.arange(3), **table.saved(table.arrays())}}
        assert all(array.own.nbytes < weights.nbytes for name, array in groups["arrays"].items() if name != "other")
        if ranks.is_first:
            save_checkpoint(tmp_path / "c", "key", groups, {})
        else:
            send_shards(groups)
        return table

    tables = run_ranks(size, save)
    arrays = load_checkpoint(tmp_path / "c", "key", mapped=True).groups["arrays"]
    assert np.array_equal(arrays["weights"], weights)
    assert np.array_equal(arrays["bias"], bias)
    assert np.array_equal(arrays["other"], np.arange(3))
    for table in tables:
        assert np.array_equal(table.own_part(arrays)["weights"], table.weights)


def test_the_shell_saves_one_model(corpus, tmp_path):
    texts, labels = corpus
    lines = [json.dumps({"text": text, "labels": row}) for text, row in zip(texts, labels, strict=True)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    command = ["-m", "ramify", "train", "elias", tmp_path / "train.jsonl", "--out", tmp_path / "model"]
    command += ["--set", "stage1.epochs=2", "--set", "stage2.epochs=2", "--set", "n_clusters=4"]
    command += ["--checkpoints", tmp_path / "checkpoints"]
    run = torchrun(2, *command)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("saved to") == 1
    assert not list((tmp_path / "checkpoints").iterdir())
    together = ramify.load(tmp_path / "model").predict_topk(texts, k=3)
    alone = ramify.Elias(n_clusters=4, verbose=0).set_params(**{"stage1.epochs": 2, "stage2.epochs": 2})
    assert np.allclose(together.scores, alone.fit(texts, labels).predict_topk(texts, k=3).scores, atol=2e-3)
    refused = torchrun(2, "-m", "ramify", "train", "xr-linear", tmp_path / "train.jsonl", "--out", tmp_path / "other")
    assert "xr-linear without it" in refused.stderr
