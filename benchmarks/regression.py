"""Training and queries of two versions of Ramify, side by side: a check for regressions of speed.

    python benchmarks/regression.py --old OLD/.venv/bin/python --new .venv/bin/python [--data train.jsonl] [--rows 8000]

Each measurement runs in a fresh process with one thread; the versions alternate. Printed are the medians of the new
version and their ratios to the old one. Without --data, the built-in pydoc data is used.
"""

from __future__ import annotations

import argparse
import functools
import sys

from common import alternate, print_table, run_child

MODELS = ("XRLinear", "Elias", "LightDXML")
COLUMNS = {"fit": "training, CPU s", "batch": "batch, CPU s", "query": "one query, µs"}

CHILD = """
import json, statistics, sys, time
import ramify
name, path, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
data = ramify.datasets.load("pydoc").split("train") if path == "pydoc" else ramify.read(path)
texts, labels = data.texts[:n], data.labels()[:n]
model = getattr(ramify, name)(threads=1, verbose=0)
start = time.process_time()
model.fit(texts, labels)
fit = time.process_time() - start
queries = texts[:1000]
model.predict_topk(queries, 10)  # warm up
def batch():
    start = time.process_time()
    model.predict_topk(queries, 10)
    return time.process_time() - start
def query(text):
    start = time.process_time()
    model.predict_topk([text], 10)
    return time.process_time() - start
print(json.dumps({
    "fit": fit,
    "batch": statistics.median(batch() for _ in range(5)),
    "query": 1e6 * statistics.median(query(text) for text in queries),
}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", required=True, help="Python of an environment with the old version")
    parser.add_argument("--new", default=sys.executable, help="Python of an environment with the new version")
    parser.add_argument("--data", default="pydoc", help="data file with texts")
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    args = parser.parse_args()
    rows = []
    for name in args.models:
        job = functools.partial(run_child, CHILD, name, args.data, args.rows)
        jobs = {
            "old": functools.partial(job, python=args.old),
            "new": functools.partial(job, python=args.new),
        }
        medians = alternate(jobs, args.runs)
        cells = [f"{medians['new'][key]:.3g} ({medians['new'][key] / medians['old'][key]:.3f} ×)" for key in COLUMNS]
        rows.append([f"`{name}()`", *cells])
    print_table(["model", *COLUMNS.values()], rows)


if __name__ == "__main__":
    main()
