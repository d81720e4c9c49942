"""Predicts wall time, memory and traffic of training on many machines from the tasks of measured runs.

Assumptions
- The work of a stage (all tasks of one function at one level), its bytes, and the memory of a stage of one task are
  powers of the number of labels, c·Lᵃ, with as many samples as labels. They are fitted to the measured sizes, of which
  those with less than 50 ms are left out; a lies between 0 and 1.3, and is 1 if there is a single size.
- Stages follow each other. A stage that was one task at every measured size stays one task on one core. Training of the
  first level keeps its number of tasks, as many as the solver divides the children of the root into: each reads all
  samples. All other stages are divided into tasks of at most `--task-seconds` and `--task-memory`.
- A task takes `--latency` seconds to start. A stage takes as long as its tasks on all cores, or as its largest task, or
  as its bytes through the storage, `--bandwidth` MB/s for each machine, whichever is longest.
- The memory of a task above that of a bare worker is proportional to the bytes that it reads and writes.
- Every core is as fast as the measured one, however many of a machine are busy. No machine fails.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from common import print_table

SMALLEST, LARGEST_EXPONENT = 0.05, 1.3
FIRST_LEVEL = "level_tasks:fit_group 1"


@dataclass
class Stage:
    """What the tasks of a stage took together."""

    n_tasks: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    traffic: float = 0.0
    peaks: list[tuple[float, float]] = field(default_factory=list)  # of each task: bytes, and peak memory


def stages_of(log: Path) -> dict[str, Stage]:
    """Stages of a run, in order."""
    found: dict[str, Stage] = defaultdict(Stage)
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        if entry["error"]:
            continue
        level = entry["title"].rpartition("level ")[2] if "level" in entry["title"] else ""
        stage = found[f"{entry['function']} {level}"]
        n_bytes = entry["read"] + entry["written"]
        stage.n_tasks += 1
        stage.seconds += entry["seconds"]
        stage.longest = max(stage.longest, entry["seconds"])
        stage.traffic += n_bytes
        stage.peaks.append((n_bytes, entry["peak"]))
    return found


def power(sizes: list[int], values: list[float], at: float, smallest: float = 0.0) -> float:
    """Value at another size of the power law through measured values; the largest size counts most."""
    kept = [(n, v) for n, v in zip(sizes, values, strict=True) if v > smallest]
    if not kept:
        return max(values) * at / sizes[int(np.argmax(values))]
    last, value = kept[-1]
    exponent = 1.0
    if len(kept) > 1:
        x, y = (np.log([pair[i] for pair in kept]) for i in (0, 1))
        exponent = float(np.clip(np.polyfit(x, y, 1, w=np.arange(1, len(kept) + 1))[0], 0.0, LARGEST_EXPONENT))
    return value * (at / last) ** exponent


@dataclass
class Prediction:
    """Of a whole run: processor and wall seconds, bytes, memory of a task; wall and memory of stages of one task."""

    cpu: float = 0.0
    wall: float = 0.0
    alone: float = 0.0
    traffic: float = 0.0
    peak: float = 0.0
    peak_alone: float = 0.0
    slowest: str = ""


def predict(runs: dict[int, dict[str, Stage]], n_labels: int, cores: int, machines: int,
            args: argparse.Namespace, measured_tasks: bool = False) -> Prediction:  # fmt: skip
    """Predict a run from those of other sizes."""
    sizes = sorted(runs)
    names = list(dict.fromkeys(name for size in reversed(sizes) for name in runs[size]))
    total, longest_wall = Prediction(), 0.0
    base = min(peak for stages in runs.values() for stage in stages.values() for _, peak in stage.peaks)
    for name in names:
        at = [size for size in sizes if name in runs[size]]
        stages = [runs[size][name] for size in at]
        seconds = power(at, [stage.seconds for stage in stages], n_labels, SMALLEST)
        traffic = power(at, [stage.traffic for stage in stages], n_labels)
        if max(stage.n_tasks for stage in stages) == 1:
            n_tasks = 1
            above = [max(1.0, stage.peaks[0][1] - base) for stage in stages]
            total.peak_alone = max(total.peak_alone, base + power(at, above, n_labels))
            total.alone += seconds
        else:
            n_tasks = stages[-1].n_tasks
            ratios = [(p - base) / b for stage in stages for b, p in stage.peaks if b > 1e6]
            memory = (float(np.median(ratios)) if ratios else 1.0) * traffic
            if not measured_tasks and name != FIRST_LEVEL:
                n_tasks = max(n_tasks, int(seconds / args.task_seconds), int(memory / (1e9 * args.task_memory)))
            peak = base + memory / n_tasks
            total.peak = max(total.peak, peak)
        uneven = stages[-1].longest / (stages[-1].seconds / stages[-1].n_tasks) if stages[-1].seconds else 1.0
        longest = uneven * seconds / n_tasks
        wall = max(seconds / (cores * machines), longest, traffic / (1e6 * args.bandwidth * machines))
        wall += args.latency * -(-n_tasks // (cores * machines))
        total.cpu += seconds + args.latency * n_tasks
        total.wall += wall
        total.traffic += traffic
        if wall > longest_wall:
            longest_wall, total.slowest = wall, name.strip()
    return total


def error(predicted: float, measured: float) -> str:
    """Predicted beside measured."""
    return f"{predicted:,.0f} / {measured:,.0f} ({100 * (predicted / measured - 1):+.0f} %)"


def simulate(args: argparse.Namespace) -> None:
    """Compare predictions with every measured run, then predict."""
    measured: dict[int, dict[str, Any]] = {}
    runs: dict[int, dict[str, Stage]] = {}
    for line in (Path(args.directory) / "growth.jsonl").read_text().splitlines():
        found = json.loads(line)
        if "log" in found:
            size = int(found["name"].split()[0])
            measured[size], runs[size] = found, stages_of(Path(args.directory) / found["log"])
    rows = []
    for size, found in sorted(measured.items()):
        others = {n: stages for n, stages in runs.items() if n < size}
        kind = "from smaller sizes"
        if not others:
            others, kind = {size: runs[size]}, "from its own tasks"
        guess = predict(others, size, 1, found["nodes"], args, measured_tasks=True)
        peak = max(guess.peak, guess.peak_alone) / 1e6
        traffic = error(guess.traffic / 1e6, found["read"] + found["written"])
        rows.append([f"{size:,}", kind, error(guess.cpu, found["cpu"]), error(guess.wall, found["wall"]),
                     error(peak, found["peak"]), traffic])  # fmt: skip
    print_table(
        ["labels", "predicted", "CPU s: predicted / measured", "wall s", "peak MB of a task", "MB of traffic"], rows
    )
    for log in args.logs:
        own = {1: stages_of(Path(log))}
        guess = predict(own, 1, 1, args.nodes, args, measured_tasks=True)
        print(f"\n{log}: {args.nodes} cores: {guess.cpu:,.0f} CPU s, wall {guess.wall:,.0f} s")
    rows = []
    for machines in map(int, args.machines.split(",")):
        guess = predict(runs, args.labels, args.cores, machines, args)
        rows.append([f"{machines:,}", f"{guess.cpu / 3600:,.0f}", f"{guess.wall / 3600:,.1f}",
                     f"{guess.alone / 3600:,.1f}", guess.slowest, f"{guess.peak / 1e9:,.1f}",
                     f"{guess.peak_alone / 1e9:,.0f}", f"{guess.traffic / 1e12:,.2f}",
                     f"{guess.traffic / machines / 1e9:,.1f}"])  # fmt: skip
    print(f"\n{args.labels:,} labels and samples on machines of {args.cores} cores:\n")
    print_table(["machines", "CPU hours", "wall hours", "in stages of one task", "longest stage", "GB of a task",
                 "GB of the largest single task", "TB of traffic", "GB of traffic of a machine"], rows)  # fmt: skip


def add_simulator(commands: Any) -> None:
    """Add the command."""
    sub = commands.add_parser("simulate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub.set_defaults(function=simulate)
    sub.add_argument("directory", help="`--out` of growth")
    sub.add_argument("--logs", nargs="*", default=[], help="logs of other runs, whose wall time is to be compared")
    sub.add_argument("--nodes", type=int, default=2)
    sub.add_argument("--labels", type=int, default=100_000_000)
    sub.add_argument("--machines", default="10,100,1000")
    sub.add_argument("--cores", type=int, default=16)
    sub.add_argument("--task-seconds", type=float, default=60.0)
    sub.add_argument("--task-memory", type=float, default=2.0, help="GB")
    sub.add_argument("--latency", type=float, default=0.02)
    sub.add_argument("--bandwidth", type=float, default=500.0, help="MB/s of a machine to the storage")
