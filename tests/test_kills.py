"""Trainings that are ended at any moment resume to the same bits: a few of the kills of `make kills`, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import ramify
from ramify.base.sparse import indicator_from_lists
from ramify.io.labels import LabelVocabulary
from ramify.io.store import Store

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "fuzz"))
from subjects import CHECKPOINTED, MODELS  # noqa: E402


def test_every_model_that_trains_in_steps_has_checkpoints():
    assert set(MODELS) - set(CHECKPOINTED) == {"popular", "knn", "label-matcher", "zest-xml"}


@pytest.mark.parametrize("kind", CHECKPOINTED)
def test_killed_trainings_resume_to_the_same_bits(kind):
    if kind.startswith(("lightdxml", "astec")):
        pytest.importorskip("faiss")
    environment = {**os.environ, "RAMIFY_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "fuzz/kills.py", kind, "--kills", "4"]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr[-2000:]
    assert "kills=4" in result.stdout
    assert "different=0" in result.stdout


SETTINGS = {"one-vs-all": "linear.tolerance=1e-6", "xr-linear": "n_trees=5", "hybrid": "n_trees=4"}


@pytest.mark.parametrize("kind", SETTINGS)
def test_ctrl_c_leaves_a_training_that_resumes_and_says_so(tmp_path, kind):
    random = np.random.default_rng(0)
    X = sparse.random(1000, 200, 0.1, "csr", np.float32, random)
    Y = indicator_from_lists([[int(random.integers(200))] for _ in range(1000)], 200)
    ramify.write(ramify.Dataset(Y, LabelVocabulary(range(200)), X=X), tmp_path / "data.txt")

    def command(out, *options):
        return [sys.executable, "-m", "ramify", "train", kind, str(tmp_path / "data.txt"), "--threads", "1",
                "--set", SETTINGS[kind], "--out", str(tmp_path / out), *options]  # fmt: skip

    resumable = command("model", "--checkpoints", str(tmp_path / "c"))
    process = subprocess.Popen(resumable, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not any((tmp_path / "c").glob("[a-z]*/manifest.json")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"the same command resumes from the last checkpoint in {tmp_path / 'c'}" in " ".join(message.split())
    assert any((tmp_path / "c").glob("[a-z]*/manifest.json"))
    assert not (tmp_path / "model").exists()

    subprocess.run(resumable, check=True, capture_output=True)
    subprocess.run(command("expected"), check=True, capture_output=True)
    found, expected = (
        {name: entry["sha256"] for name, entry in Store(tmp_path / out).files.items()} for out in ("model", "expected")
    )
    assert found == expected
