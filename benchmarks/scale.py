"""Training by tasks beside training in one process: CPU seconds, memory, bytes, and the model's digest.

    python benchmarks/scale.py run RECORDS/tibkat-gnd/trn.jsonl.xz --files 8 --engines process,pool,ray --nodes 1,2,3
    python benchmarks/scale.py growth --labels 10000,30000,100000
    python benchmarks/scale.py simulate WORK/log.jsonl --factor 1000 --machines 10,100,1000

`run` and `growth` print a table; `run` also keeps the work directories for `simulate`.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import resource
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from common import print_machine, print_table, run_child
from synthetic import zipf

import ramify

ONE = """
import json, resource, sys, time, ramify
files = sys.argv[2:]
data = [ramify.read(path) for path in files]
started, cpu = time.perf_counter(), time.process_time()
model = ramify.XRLinear(verbose=0, threads=1)
if data[0].texts is not None:
    model.fit([text for part in data for text in part.texts], [row for part in data for row in part.labels()])
else:
    from scipy import sparse
    X, Y = (sparse.vstack([getattr(part, name) for part in data], format="csr") for name in "XY")
    model.fit(X, Y)
wall, cpu = time.perf_counter() - started, time.process_time() - cpu
model.save(sys.argv[1])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
print(json.dumps({"cpu": cpu, "wall": wall, "peak": peak, "driver": peak}))
"""

MANY = """
import json, resource, sys, time, ramify
from pathlib import Path
out, work, engine, address, n_tasks, *files = sys.argv[1:]
started, cpu = time.perf_counter(), time.process_time()
model = ramify.XRLinear(verbose=0, threads=1)
options = {"address": address or None} if engine == "ray" else {"workers": 2} if engine == "pool" else {}
options |= {"n_tasks": int(n_tasks), "rows_per_block": 20_000}
run = ramify.fit_files(model, files, engine=engine, work_dir=work, **options)
wall, driver_cpu = time.perf_counter() - started, time.process_time() - cpu
model.save(out)
tasks = sum(entry["seconds"] for entry in run.log)
reading = sum(e["seconds"] for e in run.log if e["function"] in ("data_tasks:read_file", "data_tasks:digest"))
print(json.dumps({
    "cpu": (driver_cpu if engine == "process" else driver_cpu + tasks) - reading, "wall": wall,
    "peak": max(entry["peak"] for entry in run.log) / 1e6,
    "driver": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    "bytes": sum(file.stat().st_size for file in Path(work).rglob("*.npy")) / 1e6, "tasks": run.counts["run"],
    "lost": run.counts["lost"],
}))
"""


def digest(directory: Path) -> str:
    found = hashlib.sha256()
    for file in sorted(directory.glob("*.npy")):
        found.update(file.name.encode() + file.read_bytes())
    return found.hexdigest()[:12]


def split_file(path: str, n_files: int, directory: Path) -> list[str]:
    """Write the lines of a JSON Lines file to several, in order."""
    import lzma

    with lzma.open(path, "rt") if path.endswith(".xz") else Path(path).open() as file:
        lines = file.readlines()
    bounds = np.linspace(0, len(lines), n_files + 1).astype(int).tolist()
    paths = [directory / f"part-{i:03}.jsonl" for i in range(n_files)]
    for file, (a, b) in zip(paths, itertools.pairwise(bounds), strict=True):
        file.write_text("".join(lines[a:b]))
    return [str(file) for file in paths]


@contextlib.contextmanager
def ray_cluster(n_nodes: int) -> Any:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100 << 20})
    for _ in range(n_nodes - 1):
        cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    try:
        yield cluster.address
    finally:
        cluster.shutdown()


HEADER = [
    "",
    "CPU s",
    "of one",
    "wall s",
    "tasks",
    "peak MB of a process",
    "peak MB of the driver",
    "MB of shards",
    "model",
]


def row(name: str, found: dict[str, float], one: dict[str, float], model: str) -> list[str]:
    return [name, f"{found['cpu']:.1f}", f"{100 * found['cpu'] / one['cpu']:.0f} %", f"{found['wall']:.1f}",
            f"{found.get('tasks', 0):,.0f}", f"{found['peak']:,.0f}", f"{found['driver']:,.0f}",
            f"{found.get('bytes', 0):,.0f}", model]  # fmt: skip


def compare(paths: list[str], args: argparse.Namespace, directory: Path) -> list[list[str]]:
    one = run_child(ONE, directory / "one", *paths, env={"RAMIFY_THREADS": "1", "OMP_NUM_THREADS": "1"})
    rows = [row("one process", one, one, digest(directory / "one"))]
    for engine in args.engines.split(","):
        for n_nodes in map(int, args.nodes.split(",")) if engine == "ray" else (1,):
            name = f"ray, {n_nodes} nodes" if engine == "ray" else engine
            work, out = directory / f"work-{engine}-{n_nodes}", directory / f"{engine}-{n_nodes}"
            with ray_cluster(n_nodes) if engine == "ray" else contextlib.nullcontext("") as address:
                found = run_child(MANY, out, work, engine, address, args.tasks, *paths)
            rows.append(row(name, found, one, digest(out)))
    return rows


def run(args: argparse.Namespace) -> None:
    directory = Path(tempfile.mkdtemp(prefix="ramify-scale-"))
    print_machine()
    print_table(HEADER, compare(split_file(args.file, args.files, directory), args, directory))
    print(f"\nwork directories: {directory}")


def growth(args: argparse.Namespace) -> None:
    print_machine()
    rows = []
    for n_labels in map(int, args.labels.split(",")):
        with tempfile.TemporaryDirectory(prefix="ramify-scale-") as name:
            X, Y, _ = zipf(n_labels)
            paths = []
            for i, part in enumerate(np.array_split(np.arange(X.shape[0]), args.files)):
                paths.append(str(Path(name) / f"part-{i:03}.npz"))
                data = ramify.Dataset(Y[part], ramify.LabelVocabulary(range(n_labels)), X=X[part])
                ramify.write(data, paths[-1])
            rows += [[f"{n_labels:,}", *found] for found in compare(paths, args, Path(name))]
    print_table(["labels", *HEADER], rows)


def stages(log: str) -> dict[str, list[tuple[float, int]]]:
    """Seconds and peak memory of the tasks of each stage, in the order of the stages."""
    found: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for line in Path(log).read_text().splitlines():
        entry = json.loads(line)
        if not entry["error"]:
            level = entry["title"].rpartition("level ")[2] if "level" in entry["title"] else ""
            found[f"{entry['function']} {level}"].append((entry["seconds"], entry["peak"]))
    return found


def simulate(args: argparse.Namespace) -> None:
    """Predict wall time from the measured costs of tasks: stages one after the other, largest tasks first.

    Assumptions: the work of every stage grows in proportion to the data, by `--factor`, and is divided into so many
    more tasks, except that stages of a single task stay one task; a task costs `--latency` seconds more for its start;
    every core is as fast as the measured one, and the storage keeps up.
    """
    found = stages(args.log)
    rows = []
    for machines in [0, *map(int, args.machines.split(","))]:
        factor, cores = (1, args.measured_cores) if machines == 0 else (args.factor, machines * args.cores)
        wall = serial = 0.0
        for tasks in found.values():
            seconds = [s for s, _ in tasks]
            if len(seconds) == 1:
                wall, serial = wall + factor * seconds[0] + args.latency, serial + factor * seconds[0]
                continue
            total = sum(seconds) * factor + args.latency * len(seconds) * factor
            wall += max(total / cores, max(seconds) + args.latency)
        name = "as measured" if machines == 0 else f"{machines:,} machines of {args.cores} cores"
        rows.append([name, f"{factor:,}", f"{wall / 3600:.3f}", f"{100 * serial / wall:.0f} %"])
    print_table(["", "times the data", "wall hours", "in stages of one task"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, function in (("run", run), ("growth", growth)):
        sub = commands.add_parser(name)
        sub.set_defaults(function=function)
        if name == "run":
            sub.add_argument("file")
        else:
            sub.add_argument("--labels", default="10000,30000,100000")
        sub.add_argument("--files", type=int, default=8)
        sub.add_argument("--tasks", type=int, default=16)
        sub.add_argument("--engines", default="process")
        sub.add_argument("--nodes", default="1,2,3")
    sub = commands.add_parser("simulate")
    sub.set_defaults(function=simulate)
    sub.add_argument("log")
    sub.add_argument("--factor", type=int, default=1000)
    sub.add_argument("--machines", default="10,100,1000")
    sub.add_argument("--cores", type=int, default=16)
    sub.add_argument("--measured-cores", type=int, default=1)
    sub.add_argument("--latency", type=float, default=0.05)
    args = parser.parse_args()
    started = time.perf_counter()
    args.function(args)
    print(f"\n{time.perf_counter() - started:.0f} s, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB")


if __name__ == "__main__":
    main()
