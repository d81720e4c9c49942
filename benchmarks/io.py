"""Reading XMC text: Ramify's native reader beside a Python loop and scikit-learn, in time and memory.

    python benchmarks/io.py [FILE.txt] [--megabytes 165] [--runs 3]

Without a file, one of the given size is generated from random sparse rows. Memory is the peak of the process above what
it held before reading, relative to the size of the returned CSR arrays.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
from pathlib import Path

import numpy as np
from common import alternate, print_machine, print_table, run_child

COMMON = """
import json, sys, time
import numpy as np
import scipy.sparse as sp
name, threads = sys.argv[1], int(sys.argv[2])
def memory(kind):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(kind))
def measure(read):
    before = memory("VmRSS")
    cpu, wall = time.process_time(), time.perf_counter()
    X, Y = read(name)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    size = sum(a.nbytes for m in (X, Y) for a in (m.data, m.indices, m.indptr))
    above = (memory("VmHWM") - before) / size
    print(json.dumps({"cpu": cpu, "wall": wall, "memory": above, "nnz": X.nnz, "mb": size / 1e6}))
"""
RAMIFY = (
    COMMON
    + """
import ramify
ramify.read  # imported here, so that importing is not measured
from ramify import native
def read(name):
    data = ramify.read(name, threads=threads)
    return data.X, data.Y
measure(read)
"""
)
PYTHON = (
    COMMON
    + """
def read(name):
    xi, xv, xp, yi, yp = [], [], [0], [], [0]
    with open(name) as file:
        n, d, L = map(int, file.readline().split())
        for line in file:
            labels, _, pairs = line.rstrip("\\n").partition(" ")
            yi.extend(int(l) for l in labels.split(",") if l)
            yp.append(len(yi))
            for pair in pairs.split():
                f, v = pair.split(":")
                xi.append(int(f))
                xv.append(float(v))
            xp.append(len(xi))
    return (sp.csr_matrix((np.array(xv, np.float32), xi, xp), (n, d)),
            sp.csr_matrix((np.ones(len(yi), np.float32), yi, yp), (n, L)))
measure(read)
"""
)
SKLEARN = (
    COMMON
    + """
from sklearn.datasets import load_svmlight_file
def read(name):
    body = name + ".body"
    X, labels = load_svmlight_file(body, multilabel=True, dtype=np.float32, zero_based=True)
    indptr = np.concatenate([[0], np.cumsum([len(l) for l in labels])])
    indices = np.array([i for l in labels for i in l], np.int32)
    return X, sp.csr_matrix((np.ones(len(indices), np.float32), indices, indptr))
measure(read)
"""
)


def write_random(path: Path, megabytes: float) -> None:
    """Rows of about a hundred features with four significant digits, until the file is large enough."""
    rng = np.random.default_rng(0)
    n_features, n_labels, lines, size = 200_000, 40_000, [], 0
    while size < megabytes * 1e6:
        features = np.unique((rng.zipf(1.3, 110) * 7919) % n_features)
        values = rng.random(len(features))
        labels = ",".join(map(str, sorted(set(rng.integers(0, n_labels, 3).tolist()))))
        line = labels + " " + " ".join(f"{f}:{v:.6g}" for f, v in zip(features.tolist(), values.tolist(), strict=True))
        lines.append(line)
        size += len(line) + 1
    path.write_text(f"{len(lines)} {n_features} {n_labels}\n" + "\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", help="XMC text with a header")
    parser.add_argument("--megabytes", type=float, default=165, help="size of the generated file")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    print_machine()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.txt"
        if args.file:
            path.symlink_to(Path(args.file).resolve())
        else:
            write_random(path, args.megabytes)
        with path.open("rb") as file:  # scikit-learn's reader takes no header
            file.readline()
            Path(f"{path}.body").write_bytes(file.read())
        jobs = {
            "Python loop": functools.partial(run_child, PYTHON, path, 1),
            "scikit-learn's load_svmlight_file": functools.partial(run_child, SKLEARN, path, 1),
            "Ramify, 1 thread": functools.partial(run_child, RAMIFY, path, 1),
            "Ramify, 2 threads": functools.partial(run_child, RAMIFY, path, 2),
        }
        results = alternate(jobs, args.runs)
        megabytes = path.stat().st_size / 1e6
    base = results["Python loop"]
    print(f"{megabytes:.0f} MB of text, {base['nnz']:,.0f} features, {base['mb']:.0f} MB as CSR\n")
    rows = [
        [
            name,
            f"{r['cpu']:.2f}",
            f"{base['cpu'] / r['cpu']:.0f} ×",
            f"{r['wall']:.2f}",
            f"{base['wall'] / r['wall']:.0f} ×",
            f"{megabytes / r['wall']:.0f}",
            f"{r['memory']:.2f} ×",
        ]
        for name, r in results.items()
    ]
    print_table(["", "CPU s", "ratio", "wall s", "ratio", "MB/s", "peak memory over CSR"], rows)


if __name__ == "__main__":
    main()
