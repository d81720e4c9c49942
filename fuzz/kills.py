"""Ends trainings by SIGKILL at random moments, again and again; they resume from their checkpoints to the same bits.

python fuzz/kills.py [MODEL ...] [--kills N] [--seed S]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from subjects import CHECKPOINTED, MODELS, scratch_directory

from ramify import TrainingConfig

N_SAMPLES, N_LABELS, N_WORDS = 900, 150, 400
EPOCHS = 8


@dataclass
class Outcome:
    """What became of the trainings of a model."""

    kills: int = 0
    finished: int = 0
    resumed: int = 0
    """Trainings that found checkpoints of one that was killed."""
    different: int = 0
    """Finished trainings whose model is not that of an uninterrupted one."""


def samples() -> tuple[list[str], list[list[int]]]:
    """Texts, and labels that depend on their words."""
    random = np.random.default_rng(0)
    words = random.integers(N_WORDS, size=(N_SAMPLES, 12))
    labels = np.sort(words, axis=1)[:, :2] % N_LABELS
    return [" ".join(f"word{word}" for word in row) for row in words], [sorted(set(map(int, row))) for row in labels]


def train(kind: str, out: Path, checkpoints: Path | None) -> None:
    """Train and save a model."""
    model = MODELS[kind]()
    for config in (getattr(model, name) for name in model.get_params(deep=False)):
        if isinstance(config, TrainingConfig):
            config.set_params(epochs=EPOCHS)
    if checkpoints is not None:
        model.set_params(checkpoint_dir=str(checkpoints))
    model.fit(*samples()).save(out)


def digest(path: Path) -> dict[str, str]:
    """Hash the arrays of a saved model; its manifest names the directory of the checkpoints."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in path.glob("*.npy")}


def kill_trainings(kind: str, n_kills: int, seed: int) -> Outcome:
    """Kill trainings of one kind of model."""
    random, outcome = np.random.default_rng(seed), Outcome()
    with scratch_directory() as folder:
        out, checkpoints = Path(folder) / "model", Path(folder) / "checkpoints"
        train(kind, out, None)
        begin = time.monotonic()
        train(kind, out, None)
        seconds, expected = time.monotonic() - begin, digest(out)
        while outcome.kills < n_kills or not out.exists():
            shutil.rmtree(out, ignore_errors=True)
            outcome.resumed += checkpoints.exists() and any(checkpoints.iterdir())
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    train(kind, out, checkpoints)
                    code = 0
                finally:
                    os._exit(code)
            if outcome.kills < n_kills:
                time.sleep(1.2 * seconds * random.random())
                os.kill(child, signal.SIGKILL)  # without effect if it has ended
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code == -signal.SIGKILL:
                outcome.kills += 1
                continue
            outcome.finished += 1
            left = list(checkpoints.iterdir()) if checkpoints.exists() else []
            if code != 0 or digest(out) != expected or left:
                outcome.different += 1
                print(f"FINDING {kind}: exit code {code}, {len(left)} checkpoints left", flush=True)
                break
    return outcome


def main() -> int:
    """Run from the command line; the exit code says whether there were findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(CHECKPOINTED)}; all by default")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failed = False
    for kind in options.models or CHECKPOINTED:
        outcome = kill_trainings(kind, options.kills, options.seed)
        print(f"{kind}: {outcome}", flush=True)
        failed |= outcome.different > 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
