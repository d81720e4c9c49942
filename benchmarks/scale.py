"""Training by tasks beside training in one process: CPU seconds, memory, bytes, recovery, and the model's digest.

    python benchmarks/scale.py run RECORDS/tibkat-gnd/trn.jsonl.xz --engines process,pool,ray --nodes 1,2,3
    python benchmarks/scale.py run --labels 1000000 --engines process,ray --nodes 1,2,3
    python benchmarks/scale.py recover RECORDS/tibkat-gnd/trn.jsonl.xz
    python benchmarks/scale.py growth --labels 10000,100000,1000000 --out growth/
    python benchmarks/scale.py driver RECORDS/tibkat-gnd/trn.jsonl.xz --copies 1,2,4
    python benchmarks/scale.py simulate growth/ --labels 100000000 --machines 10,100,1000

`run`, `recover` and `growth` print a table, and write what they measured to a line of `--out`/results.jsonl; the log of
the tasks of every run is beside it, for `simulate` (scale_simulator.py). CPU seconds are those of all processes from
their start to the trained model, reading of the files included, each task with one thread; those of Ray's own
services (raylet, GCS, agents) are a column of their own.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import print_machine, print_table, run_child
from scale_simulator import TREE, add_simulator, tree_file
from synthetic import short_rows

import ramify

MODELS = {
    "default": "ramify.XRLinear(verbose=0, threads=1)",
    # What 10 million labels on two cores allow: k-means trees, so that subtrees are tasks, and few, sparse negatives.
    "large": (f"ramify.XRLinear.pecos(verbose=0, threads=1, beam_size=10, tree=ramify.TreeConfig(**{TREE}))"),
}

# The kernel's ru_maxrss of a new process begins with that of the one that started it.
PEAK = """
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1e3 for line in file if line.startswith("VmHWM"))
"""

ONE = (
    PEAK
    + """
import json, sys, time, ramify
out, model, *files = sys.argv[1:]
started = time.perf_counter()
data = [ramify.read(path) for path in files]
model = eval(model)
if data[0].texts is not None:
    model.fit([text for part in data for text in part.texts], [row for part in data for row in part.labels()])
else:
    from scipy import sparse
    X, Y = (sparse.vstack([getattr(part, name) for part in data], format="csr") for name in "XY")
    model.fit(X, Y)
wall, cpu = time.perf_counter() - started, time.process_time()
model.save(out)
print(json.dumps({"cpu": cpu, "wall": wall, "peak": peak(), "driver": peak()}))
"""
)

MANY = (
    PEAK
    + """
import json, os, shutil, sys, threading, time
from pathlib import Path
out, model, work, engine_name, n_nodes, n_tasks, rows, kill_at, *files = sys.argv[1:]
import ramify
from ramify.distributed.engines import make_engine
TICK = os.sysconf("SC_CLK_TCK")

def processes():
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            status = (entry / "status").read_text()
            words = (entry / "cmdline").read_bytes().replace(b"\\0", b" ").decode()
        except (OSError, ValueError):
            continue
        high = next((int(l.split()[1]) for l in status.splitlines() if l.startswith("VmHWM")), 0)
        found[int(entry.name)] = (int(stat[1]), sum(map(int, stat[11:15])) / TICK, high / 1e3, words)
    return found

def descendants():
    found, mine = processes(), {os.getpid()}
    while more := {pid for pid, (parent, *_) in found.items() if parent in mine} - mine:
        mine |= more
    return {pid: found[pid] for pid in mine if pid in found}

cluster, nodes = None, []
if engine_name == "ray":
    import logging
    from ray.cluster_utils import Cluster
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    os.environ["RAY_worker_niceness"] = "0"  # otherwise workers give way to all that runs beside them
    options = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=options)
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=100 << 20) for _ in range(int(n_nodes) - 1)]
    import ray
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
started, cpu_before = time.perf_counter(), {pid: cpu for pid, (_, cpu, _, words) in descendants().items()}
engine = make_engine(engine_name, work, workers=2 if engine_name == "pool" else None, threads=1,
                     address=cluster.address if cluster else None)
killed = []
def kill():
    log = Path(work) / "log.jsonl"
    name, _, n = kill_at.partition(":")
    while not log.exists() or log.read_text().count(name) < int(n):
        time.sleep(0.02)
    raylet = nodes[0].all_processes["raylet"][0].process.pid
    workers = [pid for pid, (parent, *_) in processes().items() if parent == raylet]
    killed.append(time.time())
    for pid in workers:  # a machine takes its workers with it
        os.kill(pid, 9)
    cluster.remove_node(nodes[0], allow_graceful=False)
if kill_at:
    threading.Thread(target=kill, daemon=True).start()
model = eval(model)
shutil.rmtree(work, ignore_errors=True)
run = ramify.fit_files(model, files, engine=engine, work_dir=work, n_tasks=int(n_tasks), rows_per_block=int(rows))
wall = time.perf_counter() - started
driver = peak()
cpu = services = 0.0
of_node = {}
for pid, (parent, seconds, high, words) in descendants().items():
    if pid == os.getpid():
        cpu += time.process_time()  # of this process alone; its children are counted by themselves
    elif words.startswith("ray::") or "default_worker" in words:
        cpu += seconds
        of_node[parent] = of_node.get(parent, 0) + high
    elif cluster is not None:
        services += seconds - cpu_before.get(pid, 0.0)
    else:
        cpu += seconds
engine.close()
found = {
    "cpu": cpu, "services": services, "wall": wall, "driver": driver,
    "in_tasks": sum(entry["seconds"] for entry in run.log),
    "peak": max([entry["peak"] / 1e6 for entry in run.log]), "node": max(of_node.values(), default=0),
    "read": sum(entry["read"] for entry in run.log) / 1e6, "written": sum(entry["written"] for entry in run.log) / 1e6,
    "tasks": run.counts["run"], "lost": run.counts["lost"],
}
if killed:
    lost = [entry for entry in run.log if entry["error"]]
    found["noticed"] = max(entry["time"] for entry in lost) - killed[0] if lost else 0.0
    again = [e for e in run.log if not e["error"] and e["key"] in {entry["key"] for entry in lost}]
    found["recovered"] = max(e["time"] for e in again) - killed[0] if again else 0.0
    found["repeated"] = sum(e["seconds"] for e in again)
model.save(out)
print(json.dumps(found), flush=True)
if cluster:
    ray.shutdown()
    cluster.shutdown()
"""
)

QUERY = """
import json, sys, time
import numpy as np
sys.path.insert(0, sys.argv[3])
import ramify
from synthetic import short_rows
n_labels = int(sys.argv[2])
model = ramify.load(sys.argv[1]).set_params(threads=1, verbose=0)
X, Y = short_rows(n_labels, 1000, first=10**10)
beam = model.beam_size
wide = model.set_params(beam_size=4 * beam).predict_topk(X, 10)
found = {}
for name, size in (("", beam), ("_small", max(1, beam // 2))):
    model.set_params(beam_size=size).predict_topk(X[:100], 10)
    times = []
    for i in range(300):
        started = time.perf_counter()
        ranking = model.predict_topk(X[i : i + 1], 10)
        times.append(time.perf_counter() - started)
    ranked = model.predict_topk(X, 10)
    found["query" + name] = 1e6 * float(np.median(times))
    common = [len(set(a) & set(b) - {-1}) / max(1, len(set(b) - {-1})) for a, b in zip(ranked.ids, wide.ids)]
    found["beam_recall" + name] = 100 * float(np.mean(common))
    hits = [len(set(a) & set(b)) / len(b) for a, b in zip(ranked.ids, np.split(Y.indices, Y.indptr[1:-1]))]
    found["recall" + name] = 100 * float(np.mean(hits))
print(json.dumps(found))
"""

HEADER = ["", "CPU s", "of one", "Ray's CPU s", "wall s", "tasks", "peak MB of a task", "MB of a node's workers",
          "MB of the driver", "MB read", "MB written", "model"]  # fmt: skip


def digest(directory: Path) -> str:
    found = hashlib.sha256()
    for file in sorted(directory.glob("*.npy")):
        with file.open("rb") as opened:
            found.update(file.name.encode() + hashlib.file_digest(opened, "sha256").digest())
    return found.hexdigest()[:12]


def split_file(path: str, n_files: int, directory: Path, copies: int = 1) -> list[str]:
    """Write the lines of a JSON Lines file to several, in order; `copies` times, with labels of their own each time."""
    import lzma

    with lzma.open(path, "rt") if path.endswith(".xz") else Path(path).open() as file:
        lines = file.readlines()
    bounds = np.linspace(0, len(lines), n_files + 1).astype(int).tolist()
    paths = []
    for copy in range(copies):
        for i, (a, b) in enumerate(itertools.pairwise(bounds)):
            paths.append(directory / f"part-{copy:02}-{i:03}.jsonl")
            part = lines[a:b]
            if copies > 1:
                rows = [json.loads(line) for line in part]
                part = [
                    json.dumps({"text": row["text"], "labels": [f"{x} {copy}" for x in row["labels"]]}) + "\n"
                    for row in rows
                ]
            paths[-1].write_text("".join(part))
    return [str(file) for file in paths]


def write_synthetic(n_labels: int, n_rows: int, directory: Path) -> list[str]:
    """Files of at most 500,000 short rows."""
    names, paths = ramify.LabelVocabulary(range(n_labels)), []
    n_files = max(4, -(-n_rows // 500_000))
    for i, (a, b) in enumerate(itertools.pairwise(np.linspace(0, n_rows, n_files + 1).astype(int).tolist())):
        X, Y = short_rows(n_labels, b - a, a)
        paths.append(str(directory / f"part-{i:03}.npz"))
        ramify.write(ramify.Dataset(Y, names, X=X), paths[-1])
    return paths


class Bench:
    """Runs measurements in fresh processes and keeps what they found."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.out = Path(args.out or tempfile.mkdtemp(prefix="ramify-scale-"))
        self.out.mkdir(parents=True, exist_ok=True)
        print_machine()

    def data(self, n_labels: int | None = None, copies: int = 1) -> list[str]:
        """Paths of the data files."""
        name = f"data-{n_labels or 'file'}-{copies}"
        directory = self.out / name
        if directory.exists():
            return sorted(map(str, directory.iterdir()))
        directory.mkdir()
        if n_labels:
            return write_synthetic(n_labels, max(20_000, copies * n_labels), directory)
        return split_file(self.args.file, self.args.files, directory, copies)

    def one(self, name: str, paths: list[str]) -> dict[str, Any]:
        """Train in one process."""
        env = {"RAMIFY_THREADS": "1", "OMP_NUM_THREADS": "1"}
        found = run_child(ONE, self.out / "model", MODELS[self.args.model], *paths, env=env)
        return self._keep(name, "one process", found)

    def many(self, name: str, paths: list[str], engine: str, n_nodes: int = 1, kill_at: str = "") -> dict[str, Any]:
        """Train with an engine; `kill_at` is a task and how many of it are done when a node is killed."""
        work, label = self.out / "work", f"ray, {n_nodes} nodes" if engine == "ray" else engine
        arguments = (work, engine, n_nodes, self.args.tasks, self.args.rows, kill_at, *paths)
        env = {"RAMIFY_THREADS": "1", "OMP_NUM_THREADS": "1"}
        found = run_child(MANY, self.out / "model", MODELS[self.args.model], *arguments, env=env)
        log = self.out / f"{name}-{engine}-{n_nodes}{'-killed' * bool(kill_at)}.jsonl"
        shutil.copy(work / "log.jsonl", log)
        shutil.rmtree(work)
        found |= {"nodes": n_nodes if engine == "ray" else 2 if engine == "pool" else 1, "log": log.name}
        return self._keep(name, label, found)

    def _keep(self, name: str, label: str, found: dict[str, Any]) -> dict[str, Any]:
        found = {"name": name, "run": label, "model": digest(self.out / "model"), **found}
        found["model_mb"] = sum(file.stat().st_size for file in (self.out / "model").iterdir()) / 1e6
        with (self.out / "results.jsonl").open("a") as file:
            file.write(json.dumps({**found, "time": time.time()}) + "\n")
        print(f"# {name}, {label}: {found['cpu']:.1f} CPU s, {found['wall']:.1f} s", flush=True)
        return found


def row(found: dict[str, Any], one: dict[str, Any]) -> list[str]:
    shown = [found["run"], f"{found['cpu']:.1f}", f"{100 * found['cpu'] / one['cpu']:.0f} %"]
    for key, form in (("services", ".1f"), ("wall", ".0f"), ("tasks", ",.0f"), ("peak", ",.0f"), ("node", ",.0f"),
                      ("driver", ",.0f"), ("read", ",.0f"), ("written", ",.0f")):  # fmt: skip
        shown.append(format(found[key], form) if found.get(key) else "")
    return [*shown, found["model"]]


def run(args: argparse.Namespace) -> None:
    bench = Bench(args)
    name = f"{args.labels} labels" if args.labels else Path(args.file).parent.name
    paths = bench.data(args.labels)
    one = bench.one(name, paths)
    rows = [row(one, one)]
    for engine in args.engines.split(","):
        for n_nodes in map(int, args.nodes.split(",")) if engine == "ray" else (1,):
            rows.append(row(bench.many(name, paths, engine, n_nodes), one))
    print_table(HEADER, rows)


def recover(args: argparse.Namespace) -> None:
    bench, rows = Bench(args), []
    name = f"{args.labels} labels" if args.labels else Path(args.file).parent.name
    for kill_at in args.kill_at.split(","):
        found = bench.many(name, bench.data(args.labels), "ray", 3, kill_at)
        rows.append([kill_at, f"{found['lost']}", f"{found['noticed']:.1f}", f"{found['recovered']:.1f}",
                     f"{found['repeated']:.1f}", f"{found['wall']:.0f}", found["model"]])  # fmt: skip
    print_table(["a node killed after", "tasks lost", "s until noticed", "s until done again", "CPU s of these tasks",
                 "wall s", "model"], rows)  # fmt: skip


def driver(args: argparse.Namespace) -> None:
    """Memory of the driver as the data grow."""
    bench, rows = Bench(args), []
    for copies in map(int, args.copies.split(",")):
        found = bench.many(f"{copies} × {args.labels or Path(args.file).parent.name}",
                           bench.data(args.labels, copies), "pool")  # fmt: skip
        rows.append([found["name"], f"{found['cpu']:.1f}", f"{found['tasks']:,.0f}", f"{found['driver']:,.0f}",
                     f"{found['peak']:,.0f}", f"{found['written']:,.0f}"])  # fmt: skip
    print_table(["data", "CPU s", "tasks", "MB of the driver", "peak MB of a task", "MB written"], rows)


def growth(args: argparse.Namespace) -> None:
    bench, rows = Bench(args), []
    for n_labels in map(int, args.labels.split(",")):
        name = f"{n_labels} labels"
        paths = bench.data(n_labels)
        for engine in args.engines.split(","):
            found = bench.one(name, paths) if engine == "one" else bench.many(name, paths, engine)
            tree = ramify.load(bench.out / "model").trees_[0].tree
            np.savez(bench.out / tree_file(n_labels), *tree.levels)
            found |= run_child(QUERY, bench.out / "model", n_labels, str(Path(__file__).parent))
            with (bench.out / "growth.jsonl").open("a") as file:
                file.write(json.dumps(found) + "\n")
            rows.append([f"{n_labels:,}", found["run"], f"{found['cpu']:,.0f}", f"{found['wall']:,.0f}",
                         f"{found['peak']:,.0f}", f"{found['driver']:,.0f}", f"{found.get('written', 0):,.0f}",
                         f"{found['model_mb']:,.0f}", f"{found['query']:.0f}", f"{found['query_small']:.0f}",
                         *(f"{found[key]:.1f}" for key in ("recall", "recall_small", "beam_recall",
                                                           "beam_recall_small"))])  # fmt: skip
        shutil.rmtree(bench.out / f"data-{n_labels}-1")
    print_table(["labels", "", "CPU s", "wall s", "peak MB", "MB of the driver", "MB written", "model MB",
                 "query µs", "half the beam", "R@10", "half the beam", "of a beam four times as wide: top 10",
                 "half the beam"], rows)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for function in (run, recover, driver, growth):
        sub = commands.add_parser(function.__name__)
        sub.set_defaults(function=function)
        if function is growth:
            sub.add_argument("--labels", default="10000,100000,1000000")
        else:
            sub.add_argument("file", nargs="?")
            sub.add_argument("--labels", type=int, help="synthetic short rows, as many as labels, in place of a file")
        sub.add_argument("--engines", default="pool" if function is growth else "process,pool,ray")
        sub.add_argument("--nodes", default="1,2,3")
        sub.add_argument("--kill-at", default="represent:3,fit_group:8", help="task and number")
        sub.add_argument("--copies", default="1,2,4")
        sub.add_argument("--files", type=int, default=8)
        sub.add_argument("--tasks", type=int, default=16)
        sub.add_argument("--rows", type=int, default=20_000, help="rows of a block")
        sub.add_argument("--model", default="large" if function is growth else "default", choices=MODELS)
        sub.add_argument("--out")
    add_simulator(commands)
    args = parser.parse_args()
    args.function(args)


if __name__ == "__main__":
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    main()
