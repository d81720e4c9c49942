"""Metrics: P, nDCG, R, PSP, PSnDCG, coverage and F1 of a million samples with a hundred predictions each.

python benchmarks/metrics.py [--rows 1000000] [--k 100] [--labels 500000] [--runs 3]
"""

from __future__ import annotations

import argparse
import functools

from common import alternate, print_machine, print_table, run_child

CODE = """
import json, sys, time
import numpy as np
from scipy import sparse
import ramify
from ramify.metrics import LabelCounts
from ramify.metrics.ranking import frequency_deciles, ranking_metrics
from ramify.metrics.propensity import inverse_propensity
n, k, L, threads, what = *map(int, sys.argv[1:5]), sys.argv[5]
rng = np.random.default_rng(0)
truth = sparse.csr_matrix((np.ones(5 * n, np.float32), rng.integers(0, L, 5 * n, dtype=np.int32),
                           np.arange(0, 5 * n + 1, 5)), shape=(n, L))
truth.sum_duplicates(); truth.data[:] = 1
ids = rng.integers(0, L, (n, k), dtype=np.int32)
ids[:, 0] = truth.indices[truth.indptr[:-1]]  # some are correct
ids[::2, 3] = truth.indices[truth.indptr[1::2][: len(ids[::2])] - 1]
ranking = ramify.Ranking(ids, np.zeros((n, k), np.float32), L)
counts = LabelCounts(n, np.bincount(truth.indices, minlength=L))
if what == "ranking":
    weights, deciles = inverse_propensity(counts), frequency_deciles(counts.counts)
    run = lambda: ranking_metrics(ranking, truth, [1, 3, 5, 10, 100], weights, deciles, 10, threads)
else:
    run = lambda: ramify.evaluate(ranking, truth, counts, threads=threads)
run()
cpu, wall = time.process_time(), time.perf_counter()
run()
print(json.dumps({"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--labels", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    print_machine()
    names = {"ranking": "ranking metrics by decile", "all": "ramify.evaluate (with F1)"}
    jobs = {
        f"{name}, {threads} thread{'s' * (threads > 1)}": functools.partial(
            run_child, CODE, args.rows, args.k, args.labels, threads, what
        )
        for what, name in names.items()
        for threads in (1, 2)
    }
    rows = [[name, f"{r['cpu']:.2f}", f"{r['wall']:.2f}"] for name, r in alternate(jobs, args.runs).items()]
    print_table([f"{args.rows:,} × {args.k}", "CPU s", "wall s"], rows)


if __name__ == "__main__":
    main()
