"""Mutants of models, checkpoints and the embedding cache: a few of those that `make fuzz` tries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "fuzz"))
from subjects import SUBJECTS  # noqa: E402

FEW = {"-checkpoint": 40}
"""Mutants of subjects that are slow, because each of them trains a model."""


@pytest.mark.parametrize("subject", SUBJECTS)
def test_mutants_answer_or_are_refused(subject):
    """In a process of its own: a crash, a hang or too much memory are findings too."""
    if subject.startswith(("lightdxml", "astec")):
        pytest.importorskip("faiss")
    if subject == "tokens-cache":
        pytest.importorskip("tokenizers")
    n_mutants = next((n for suffix, n in FEW.items() if subject.endswith(suffix)), 300)
    command = [sys.executable, "fuzz/mutants.py", subject, "--mutants", str(n_mutants)]
    environment = {**os.environ, "RAMIFY_THREADS": "1", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr[-2000:]
    assert " 0 findings" in result.stdout
    answered = int(result.stdout.split(f"{subject}: ")[1].split()[0])
    assert 0 < answered < n_mutants  # the mutations are neither harmless nor all refused at the door


def test_the_runner_finds_crashes_hangs_and_allocations(tmp_path):
    """A subject that misbehaves: every one of its mutants is a finding, and the run goes on behind it."""
    script = f"""
import os, sys, time
sys.path.insert(0, {str(ROOT / "fuzz")!r})
import mutants, subjects

class Bad:
    def reach(self, stage, loop):
        loop()

    def try_mutant(self, random, note):
        n = int(mutants_seen[0])
        mutants_seen[0] += 1
        note(f"mutation {{n}}")
        if n == 0: os.kill(os.getpid(), 11)
        if n == 1: bytearray(1 << 28)
        if n == 2: raise ValueError("not in words")
        if n == 3: raise subjects.Refused
        while n == 4: pass
        if n == 5: time.sleep(60)  # once: the same mutant is tried again, and answers

import mmap
import numpy as np
mutants_seen = np.frombuffer(mmap.mmap(-1, 4096), np.int64)
mutants.TIMEOUT, mutants.PATIENCE = 0.2, 5  # on a busy machine, too, the loop uses up the first before the second
mutants.SUBJECTS["bad"] = lambda folder: Bad()
counts = mutants.run("bad", 6, 0, 0, 64)
assert (counts.answered, counts.refused, counts.findings) == (1, 1, 4), counts
assert mutants_seen[0] == 7
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    for text in ("SIGSEGV", "MemoryError", "ValueError: not in words", "SIGPROF", "mutation 4"):
        assert text in result.stdout
