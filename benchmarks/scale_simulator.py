"""Predicts wall time, memory and traffic of training on many machines from the tasks of measured runs.

Assumptions
- There are as many samples as labels, L. A stage is all tasks of one function at one level of the tree.
- Training of a level costs Σ nₑ (kₑ + 8) over its clusters c, of nₑ samples and kₑ children, as the planner has it. The
  clusters are those of the tree of the largest measured size, grown: each keeps its part of the labels and of the
  samples, is split where k-means would split it, and on the last inner level, if it is large, into as many clusters a
  label as the large ones of that tree. The seconds of a unit of this cost are a power of L between 0 and 0.5.
- The seconds of any other stage, above those of its start, its bytes, and the memory of a stage of one task are powers
  of L between 0 and 1.3. Powers are fitted to the measured sizes, the largest of which count most; stages with less
  than 50 ms are left out, and with a single size the power is 1, or 0 for a unit of cost.
- A task costs as much as the median of those of the smallest size, which do nearly nothing. Processes cost the CPU
  seconds that the measured runs took outside of tasks.
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

from ramify import TreeConfig

SMALLEST, LARGEST_EXPONENT, LARGEST_RATE_EXPONENT = 0.05, 1.3, 0.5
TRAINING = "level_tasks:fit_group "
FIRST_LEVEL = f"{TRAINING}1"
SMALLEST_ROWS = 20_000
"""Samples of the smallest measured runs, which have fewer labels."""
TREE = {"branching": 64, "max_leaf_size": 100, "max_depth": 3, "n_terms": 16, "max_iterations": 5}
"""Tree of the measured model."""
LARGE = 4
"""Clusters of so many times `max_leaf_size` are split again and again, into many small ones."""
OF_A_NODE = 8
"""Work of a sample of a cluster, in children, beside that on its children."""


@dataclass(frozen=True, eq=False)
class TreeShape:
    """Clusters of each level of a label tree, from the root down.

    Attributes
    ----------
    n_labels : labels of the tree
    parts : of each level, the part of all labels that is below each cluster
    children : of each level, the number of children of each cluster
    """

    n_labels: int
    parts: list[np.ndarray]
    children: list[np.ndarray]

    @classmethod
    def of(cls, levels: list[np.ndarray]) -> TreeShape:
        """Shape of a tree with these children pointers, one array for each level."""
        below = np.arange(levels[-1][-1] + 1)  # labels in front of each node
        parts = []
        for pointers in reversed(levels):
            below = below[pointers]
            parts.append(np.diff(below) / below[-1])
        return cls(int(levels[-1][-1]), parts[::-1], [np.diff(pointers) for pointers in levels])

    def grown(self, n_labels: int, config: TreeConfig) -> TreeShape:
        """The same with more labels: clusters are split where k-means would split them."""
        parts, all_children = [np.ones(1)], []
        sizes, children = self.parts[-2] * self.n_labels, self.children[-2]
        is_large = sizes > LARGE * config.max_leaf_size
        labels_per_child = sizes[is_large].sum() / children[is_large].sum() if is_large.any() else config.max_leaf_size
        for level in range(len(self.parts) - 1):
            sizes = parts[-1] * n_labels
            children = np.minimum(config.branching, np.maximum(2, sizes // config.min_leaf_size))
            if level == len(self.parts) - 2:
                is_large = sizes > LARGE * config.max_leaf_size
                children = np.where(is_large, sizes // labels_per_child, children)
            children = np.where(sizes > config.max_leaf_size, children, 1).astype(np.int64)
            all_children.append(children)
            is_known = len(children) == len(self.children[level])
            if is_known and np.array_equal(children, self.children[level]):
                parts.append(self.parts[level + 1])
            elif is_known:  # clusters that have as many children as before keep them
                before = np.split(self.parts[level + 1], np.cumsum(self.children[level])[:-1])
                pairs = zip(children, parts[-1], before, strict=True)
                parts.append(np.concatenate([old if len(old) == n else np.full(n, p / n) for n, p, old in pairs]))
            else:
                parts.append(np.repeat(parts[-1] / children, children))
        return TreeShape(n_labels, parts, [*all_children, np.maximum(1, parts[-1] * n_labels)])

    def work(self, level: int) -> float:
        """Cost of training a level, counted from 0, for a sample that is in one cluster of it."""
        return float(self.parts[level] @ (self.children[level] + OF_A_NODE))


@dataclass
class Stage:
    """What the tasks of a stage took together."""

    n_tasks: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    cost: float = 0.0
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
        stage.cost += entry["cost"]
        stage.longest = max(stage.longest, entry["seconds"])
        stage.traffic += n_bytes
        stage.peaks.append((n_bytes, entry["peak"]))
    return found


def power(
    sizes: list[int],
    values: list[float],
    at: float,
    smallest: float = 0.0,
    largest_exponent: float = LARGEST_EXPONENT,
    only: float = 1.0,
) -> float:
    """Value at another size of the power law through measured values; the largest size counts most.

    `only` is the exponent if there is a single value.
    """
    kept = [(n, v) for n, v in zip(sizes, values, strict=True) if v > smallest]
    if not kept:
        return max(values) * (at / sizes[int(np.argmax(values))]) ** only
    last, value = kept[-1]
    exponent = only
    if len(kept) > 1:
        x, y = (np.log([pair[i] for pair in kept]) for i in (0, 1))
        exponent = float(np.clip(np.polyfit(x, y, 1, w=4.0 ** np.arange(len(kept)))[0], 0.0, largest_exponent))
    return value * (at / last) ** exponent


@dataclass(frozen=True, eq=False)
class Measured:
    """A measured run.

    Attributes
    ----------
    stages : by name, in order
    tree : shape of the tree that was trained; None: unknown
    outside : CPU seconds outside of tasks
    """

    stages: dict[str, Stage]
    tree: TreeShape | None = None
    outside: float = 0.0


def training_seconds(runs: dict[int, Measured], name: str, n_labels: int) -> float:
    """Seconds of the training of a level at another size."""
    level = int(name.removeprefix(TRAINING)) - 1
    at = [size for size in sorted(runs) if name in runs[size].stages]
    found, tree = runs[at[-1]].stages[name], runs[at[-1]].tree
    if tree is None or level >= len(tree.parts):
        return power(at, [runs[size].stages[name].seconds for size in at], n_labels, SMALLEST)
    config = TreeConfig(**TREE)
    # As both are predicted, an error of the shape at the measured size cancels.
    growth = tree.grown(n_labels, config).work(level) / tree.grown(at[-1], config).work(level)
    cost = found.cost * growth * max(n_labels, SMALLEST_ROWS) / max(at[-1], SMALLEST_ROWS)
    rates = [runs[size].stages[name].seconds / runs[size].stages[name].cost for size in at]
    return cost * power(at, rates, n_labels, 0.0, LARGEST_RATE_EXPONENT, only=0.0)


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


def predict(runs: dict[int, Measured], n_labels: int, cores: int, machines: int,
            args: argparse.Namespace, measured_tasks: bool = False) -> Prediction:  # fmt: skip
    """Predict a run from those of other sizes."""
    sizes = sorted(runs)
    names = list(dict.fromkeys(name for size in reversed(sizes) for name in runs[size].stages))
    total, longest_wall = Prediction(cpu=float(np.mean([run.outside for run in runs.values()]))), 0.0
    base = min(peak for run in runs.values() for stage in run.stages.values() for _, peak in stage.peaks)
    of_task = float(np.median([stage.seconds / stage.n_tasks for stage in runs[sizes[0]].stages.values()]))
    for name in names:
        at = [size for size in sizes if name in runs[size].stages]
        stages = [runs[size].stages[name] for size in at]
        if name.startswith(TRAINING):
            seconds = training_seconds(runs, name, n_labels)
        else:
            above = [max(0.0, stage.seconds - of_task * stage.n_tasks) for stage in stages]
            seconds = power(at, above, n_labels, SMALLEST) + of_task * stages[-1].n_tasks
        traffic = power(at, [stage.traffic for stage in stages], n_labels)
        if max(stage.n_tasks for stage in stages) == 1:
            n_tasks = 1
            peaks = [max(1.0, stage.peaks[0][1] - base) for stage in stages]
            total.peak_alone = max(total.peak_alone, base + power(at, peaks, n_labels))
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
        total.cpu += seconds + of_task * max(0, n_tasks - stages[-1].n_tasks)
        total.wall += wall
        total.traffic += traffic
        if wall > longest_wall:
            longest_wall, total.slowest = wall, name.strip()
    return total


def tree_file(n_labels: int) -> str:
    """Name of the file with the children pointers of the tree of a measured run."""
    return f"{n_labels} labels-tree.npz"


def error(predicted: float, measured: float) -> str:
    """Predicted beside measured."""
    return f"{predicted:,.0f} / {measured:,.0f} ({100 * (predicted / measured - 1):+.0f} %)"


def simulate(args: argparse.Namespace) -> None:
    """Compare predictions with every measured run, then predict."""
    measured: dict[int, dict[str, Any]] = {}
    runs: dict[int, Measured] = {}
    for line in (Path(args.directory) / "growth.jsonl").read_text().splitlines():
        found = json.loads(line)
        if "log" in found:
            size = int(found["name"].split()[0])
            measured[size] = found
            shape = Path(args.directory) / tree_file(size)
            runs[size] = Measured(
                stages_of(Path(args.directory) / found["log"]),
                TreeShape.of(list(np.load(shape).values())) if shape.exists() else None,
                found["cpu"] - found["in_tasks"],
            )
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
        own = {1: Measured(stages_of(Path(log)))}
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
