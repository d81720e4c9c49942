"""Mutated model directories are opened and answer, or are refused: a few of those that `make fuzz` tries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from golden.make import MODELS

from ramify.io.store import FORMAT_VERSION

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
