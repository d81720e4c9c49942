"""Mutated model directories are opened and answer, or are refused: a few of those that `make fuzz` tries."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from golden.make import LABELS, MODELS, TEXTS

from ramify import DataError, ModelFormatError
from ramify.io.store import FORMAT_VERSION
from ramify.models import level_checkpoints
from ramify.nn import trainer

ROOT = Path(__file__).parent.parent
N_MUTANTS = 200


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_mutants_answer_or_are_refused(kind):
    """In a process of its own: a crash, a hang or too much memory are findings too."""
    if kind.startswith(("lightdxml", "astec")):
        pytest.importorskip("faiss")
    command = [sys.executable, "fuzz/mutants.py", f"tests/golden/v{FORMAT_VERSION}/{kind}", "--mutants", str(N_MUTANTS)]
    environment = {**os.environ, "RAMIFY_THREADS": "1", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr[-2000:]
    assert " 0 findings" in result.stdout
    answered = int(result.stdout.split(f"{kind}: ")[1].split()[0])
    assert 0 < answered < N_MUTANTS  # the mutations are neither harmless nor all refused at the door


def load_mutants():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "fuzz" / "mutants.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["neural-one-vs-all", "elias", "lightdxml", "xr-transformer", "xr-linear"])
def test_mutants_of_checkpoints_are_resumed_or_refused(kind, tmp_path, monkeypatch):
    if kind == "lightdxml":
        pytest.importorskip("faiss")
    mutants, n_saved = load_mutants(), []
    module = level_checkpoints if kind == "xr-linear" else trainer
    save = module.save_checkpoint

    def save_and_stop(*args):
        save(*args)
        n_saved.append(1)
        raise KeyboardInterrupt

    def fit():
        MODELS[kind]().set_params(checkpoint_dir=str(tmp_path / "c")).fit(TEXTS, LABELS)

    with monkeypatch.context() as patch:
        patch.setattr(module, "save_checkpoint", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            fit()
    (saved,) = (tmp_path / "c").iterdir()
    saved.rename(tmp_path / "saved")
    outcomes = set()
    for i in range(40):
        random = np.random.default_rng(i)
        checkpoint = mutants.Directory(tmp_path / "saved")
        mutants.mutate(checkpoint, random)
        shutil.rmtree(tmp_path / "c")
        (tmp_path / "c").mkdir()
        checkpoint.write(tmp_path / "c" / saved.name)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # weights of a mutant may overflow
            try:
                fit()
                outcomes.add("resumed")
            except (ModelFormatError, DataError):  # DataError: the training diverges
                outcomes.add("refused")
    assert outcomes == {"resumed", "refused"}
