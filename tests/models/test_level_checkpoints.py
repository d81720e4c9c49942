"""Interrupted trainings of linear models: killed at any moment, they resume to the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy import sparse

import ramify
from ramify import ModelFormatError
from ramify.base.sparse import indicator_from_lists
from ramify.io.labels import LabelVocabulary
from ramify.io.store import Store
from ramify.models import level_checkpoints

LABELS = 60  # several jobs of the solver


def data(n=400, d=80):
    random = np.random.default_rng(0)
    X = sparse.random(n, d, 0.1, "csr", np.float32, random)
    return X, [[int(i % LABELS), int(random.integers(LABELS))] for i in range(n)]


def model(directory=None, **options):
    tree = ramify.TreeConfig(branching=4, max_leaf_size=5)
    return ramify.XRLinear(tree=tree, n_trees=2, verbose=0, threads=1, checkpoint_dir=directory, **options)


def files(path):
    return {entry["sha256"] for entry in Store(path).files.values()}


def interrupted(monkeypatch, after, train):
    """Train until so many checkpoints are written."""
    save, n = level_checkpoints.save_checkpoint, iter(range(after))

    def save_or_die(*args):
        if next(n, None) is None:
            raise KeyboardInterrupt
        save(*args)

    with monkeypatch.context() as patch:
        patch.setattr(level_checkpoints, "save_checkpoint", save_or_die)
        with pytest.raises(KeyboardInterrupt):
            train()


@pytest.mark.parametrize("after", [0, 1, 3, 5])
def test_an_interrupted_training_resumes_to_the_same_bits(tmp_path, monkeypatch, after):
    model().fit(*data()).save(tmp_path / "expected")
    interrupted(monkeypatch, after, lambda: model(str(tmp_path / "c")).fit(*data()))
    trained = []
    fit_ovr = ramify.models.xrlinear.fit_ovr
    monkeypatch.setattr(ramify.models.xrlinear, "fit_ovr", lambda *a, **o: trained.append(1) or fit_ovr(*a, **o))
    model(str(tmp_path / "c")).fit(*data()).save(tmp_path / "found")
    assert files(tmp_path / "found") == files(tmp_path / "expected")
    depth = ramify.load(tmp_path / "found").trees_[0].tree.depth
    assert len(trained) == 2 * depth - after
    assert list((tmp_path / "c").iterdir()) == []  # a finished training leaves none


@pytest.mark.parametrize("after", [0, 1, 3])
def test_an_interrupted_training_without_a_tree_resumes_to_the_same_bits(tmp_path, monkeypatch, after):
    def one_vs_all(directory=None, threads=1):
        return ramify.OneVsAll(verbose=0, threads=threads, checkpoint_dir=directory)

    one_vs_all().fit(*data()).save(tmp_path / "expected")
    interrupted(monkeypatch, after, lambda: one_vs_all(str(tmp_path / "c")).fit(*data()))
    assert len(list((tmp_path / "c").glob("*"))) == after
    one_vs_all(str(tmp_path / "c"), threads=2).fit(*data()).save(tmp_path / "found")
    assert files(tmp_path / "found") == files(tmp_path / "expected")
    assert list((tmp_path / "c").iterdir()) == []


def test_checkpoints_of_parts_that_overlap_are_refused(tmp_path):
    checkpoints = level_checkpoints.PartCheckpoints(str(tmp_path / "c"), {}, [], 2)
    W = sparse.csr_matrix(np.array([[0, 1.0], [2.0, 0]], np.float32))
    for part in range(2):
        checkpoints.save(part, W)
    parts = [checkpoints.load(part, W.shape) for part in range(2)]
    assert np.array_equal(parts[1].toarray(), W.toarray())
    with pytest.raises(ModelFormatError, match="same label"):
        checkpoints.join(parts)
    with pytest.raises(ModelFormatError, match="not weights"):
        checkpoints.load(0, (2, 1))


def test_checkpoints_of_other_data_or_parameters_are_refused(tmp_path, monkeypatch):
    interrupted(monkeypatch, 2, lambda: model(str(tmp_path / "c")).fit(*data()))
    X, y = data()
    changed = X.copy()
    changed.data[0] += 1
    for attempt in (
        lambda: model(str(tmp_path / "c")).fit(changed, y),
        lambda: model(str(tmp_path / "c")).fit(X, y[::-1]),
        lambda: model(str(tmp_path / "c"), matcher_kept=1).fit(X, y),
    ):
        with pytest.raises(ModelFormatError, match="another training"):
            attempt()
    model(str(tmp_path / "c")).fit(X, y)


def test_damaged_checkpoints_are_refused(tmp_path, monkeypatch):
    interrupted(monkeypatch, 2, lambda: model(str(tmp_path / "c")).fit(*data()))
    file = next((tmp_path / "c").glob("*/kept-bias.npy"))
    content = bytearray(file.read_bytes())
    content[-3] ^= 64
    file.write_bytes(content)
    with pytest.raises(ModelFormatError, match="damaged"):
        model(str(tmp_path / "c")).fit(*data())


def test_killed_at_random_moments(tmp_path):
    """The command line, ended by SIGKILL again and again until one run gets through."""
    X, y = data(1500)
    dataset = ramify.Dataset(indicator_from_lists(y, LABELS), LabelVocabulary(range(LABELS)), X=X)
    ramify.write(dataset, tmp_path / "data.txt")
    settings = [
        "--set",
        "tree.branching=4",
        "--set",
        "tree.max_leaf_size=5",
        "--set",
        "n_trees=3",
        "--threads",
        "1",
        "--quiet",
    ]

    def command(out, *extra):
        return [sys.executable, "-m", "ramify", "train", "xr-linear", str(tmp_path / "data.txt"), *settings, *extra,
                "--out", str(tmp_path / out)]  # fmt: skip

    begin = time.monotonic()
    subprocess.run(command("expected"), check=True)
    seconds, random = time.monotonic() - begin, np.random.default_rng(0)  # machines differ, and are busy
    for attempt in range(9):
        process = subprocess.Popen(command("found", "--checkpoints", str(tmp_path / "c")))
        try:
            code = process.wait(None if attempt == 8 else seconds * (0.3 + 0.1 * attempt + 0.5 * random.random()))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            continue
        assert code == 0
        break
    assert files(tmp_path / "found") == files(tmp_path / "expected")
    assert sorted(path.name for path in tmp_path.iterdir()) in (
        ["c", "data.txt", "expected", "found"], ["data.txt", "expected", "found"]
    )  # fmt: skip
