"""Opens mutants of every kind of model, of its checkpoints, and of the embedding cache.

    python fuzz/mutants.py [SUBJECT ...] [--mutants N] [--seed S] [--first I] [--memory MB]

A mutant either answers or is refused with a `ModelFormatError`. Anything else, including a crash, a hang or an
allocation beyond the limit, is a finding; the seed and the number that are printed make it again. A forked worker opens
one mutant after the other. If it dies, the mutant that it was at is the finding, and a new worker goes on behind it.
"""

from __future__ import annotations

import argparse
import faulthandler
import mmap
import os
import resource
import signal
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from subjects import SUBJECTS, Refused, Subject, scratch_directory

BATCH = 5000
"""Mutants of a worker; a new one begins with fresh memory."""
STAGE = 250
"""Mutants that are opened where the same things were done before."""
TIMEOUT, PATIENCE = 20, 60
"""Seconds of processor time for a mutant, and seconds that it may take on a busy machine, twice."""


@dataclass
class Counts:
    """Outcomes of mutants."""

    answered: int = 0
    refused: int = 0
    findings: int = 0


class Report:
    """What a worker tells, in memory that it shares with its parent: where it is, counts, the names of mutations."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 4096)
        self.numbers = np.frombuffer(self._memory, np.int64, 4)  # next mutant, answered, refused, findings
        self._text = memoryview(self._memory)[64:]

    @property
    def mutations(self) -> str:
        """The mutations of the present mutant."""
        return bytes(self._text[:400]).rstrip(b"\0").decode()

    def note(self, text: str) -> None:
        """Tell the mutations of the present mutant."""
        self._text[:400] = text.encode()[:400].ljust(400, b"\0")


def limit_memory(megabytes: int) -> None:
    """Let the process allocate so much beyond what it has."""
    status = Path("/proc/self/status")
    if megabytes and status.exists():
        used = int(next(line for line in status.read_text().splitlines() if line.startswith("VmData")).split()[1]) << 10
        resource.setrlimit(resource.RLIMIT_DATA, (used + (megabytes << 20), resource.RLIM_INFINITY))


def work(subject: Subject, name: str, seed: int, end: int, report: Report) -> None:
    """Try the mutants up to `end`."""
    numbers = report.numbers
    warnings.simplefilter("ignore")  # numbers of a mutant may overflow

    def try_stage() -> None:
        stage_end = min(end, (int(numbers[0]) // STAGE + 1) * STAGE)
        while numbers[0] < stage_end:
            try_one(subject, name, seed, report)

    while numbers[0] < end:
        before = int(numbers[0])
        subject.reach(before // STAGE, try_stage)
        assert numbers[0] > before, f"{name} does not come to where mutants are opened"


def try_one(subject: Subject, name: str, seed: int, report: Report) -> None:
    """Try a mutant and count what came of it."""
    numbers = report.numbers
    i = int(numbers[0])
    random = np.random.default_rng([seed, i])
    report.note("")
    signal.setitimer(signal.ITIMER_PROF, TIMEOUT)  # a hang ends the process
    signal.alarm(PATIENCE)
    try:
        subject.try_mutant(random, report.note)
        numbers[1] += 1
    except Refused:
        numbers[2] += 1
    except Exception as error:
        numbers[3] += 1
        print(f"FINDING {name} seed {seed} mutant {i} ({report.mutations}): {type(error).__name__}: {error}")
        sys.stdout.flush()
    numbers[0] += 1


def run(name: str, n: int, seed: int, first: int, memory: int) -> Counts:
    """Try n mutants of a subject, from number `first`."""
    report = Report()
    numbers, end, waited = report.numbers, first + n, -1
    numbers[0] = first
    with scratch_directory() as folder:
        subject = SUBJECTS[name](Path(folder))
        sys.stdout.flush()
        while numbers[0] < end:
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    faulthandler.enable()
                    limit_memory(memory)
                    work(subject, name, seed, min(end, int(numbers[0]) + BATCH), report)
                    code = 0
                finally:
                    sys.stdout.flush()
                    os._exit(code)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code == -signal.SIGALRM and waited != numbers[0]:  # a machine that was stopped or busy: once more
                waited = int(numbers[0])
            elif code != 0:
                reason = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                print(f"FINDING {name} seed {seed} mutant {numbers[0]} ({report.mutations}): {reason}", flush=True)
                numbers[3] += 1
                numbers[0] += 1
            print(f"{name}: mutant {numbers[0]} of {end}", file=sys.stderr, flush=True)
    return Counts(*(int(count) for count in numbers[1:]))


def main() -> int:
    """Run from the command line; the exit code says whether there were findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"one of {', '.join(SUBJECTS)}; all by default")
    parser.add_argument("--mutants", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--memory", type=int, default=64, help="megabytes beyond what the library itself needs")
    options = parser.parse_args()
    n_findings = 0
    for name in options.subjects or SUBJECTS:
        if name not in SUBJECTS:
            parser.error(f"there is no subject {name!r}")
        begin = time.perf_counter()
        counts = run(name, options.mutants, options.seed, options.first, options.memory)
        seconds = time.perf_counter() - begin
        print(
            f"{name}: {counts.answered} answered, {counts.refused} refused, {counts.findings} findings "
            f"({options.mutants / seconds:.0f} mutants/s)",
            flush=True,
        )
        n_findings += counts.findings
    return 1 if n_findings else 0


if __name__ == "__main__":
    sys.exit(main())
