"""One training step of ELIAS, stage 2: native kernels beside the same step in plain torch.

    python benchmarks/elias_step.py [--labels 40000] [--batch 256] [--dim 300] [--shortlist-size 2000] [--edges 1000]
    python benchmarks/elias_step.py --growth

Each implementation runs in its own process: median CPU seconds of a few steps, and peak memory above the weights. With
--growth only the native one, from 10,000 labels to a million.
"""

from __future__ import annotations

import argparse

from common import alternate, print_machine, print_table, run_child

STEP = """
import json, resource, statistics, sys, time
import numpy as np
from scipy import sparse
from ramify.base.sparse import indptr_from_counts
from ramify.nn.heads.graph import Edges, GraphHead, GraphOptions
from ramify.nn.optim import Adam
side, n_labels, batch, dim, shortlist_size, n_edges, n_steps = sys.argv[1], *map(int, sys.argv[2:])
random = np.random.default_rng(0)
n_clusters = 2 ** int(np.ceil(np.log2(n_labels / 100)))
rows = [np.unique(random.integers(0, n_labels, n_edges)) for _ in range(n_clusters)]
indptr = indptr_from_counts(np.array([len(row) for row in rows]))
edge_labels = np.concatenate(rows).astype(np.int32)
options = GraphOptions(10.0, n_labels / n_clusters, 20, shortlist_size, 0.05)
edges = Edges(indptr, edge_labels, random.random(len(edge_labels), np.float32), options.beta, n_labels)
def table(m):
    return 0.1 * random.standard_normal((m, dim), np.float32), np.zeros(m, np.float32)
clusters, labels = table(n_clusters), table(n_labels)
popularity = 1 / np.arange(1, n_labels + 1) ** 0.8
popularity /= popularity.sum()
def make_batch():
    Y = sparse.lil_matrix((batch, n_labels), dtype=np.float32)
    for i in range(batch):
        Y[i, random.choice(n_labels, 3, p=popularity)] = 1
    return random.standard_normal((batch, dim), np.float32), Y.tocsr()
batches = [make_batch() for _ in range(n_steps + 1)]
if side == "native":
    head = GraphHead(clusters, edges, labels, options)
else:
    import torch
    from ramify.nn.heads.graph_torch import TorchGraphHead
    torch.set_num_threads(1)
    head = TorchGraphHead(clusters, edges, labels, options)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, times = peak(), []
for number, (embeddings, Y) in enumerate(batches, 1):
    start = time.process_time()
    head.step(embeddings, Y, Adam(0.005, number), 1)
    times.append(time.process_time() - start)
print(json.dumps({"step": statistics.median(times[1:]), "memory": peak() - before}))
"""


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=int, default=40_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--dim", type=int, default=300, help="dimension of the embeddings")
    parser.add_argument("--shortlist-size", type=int, default=2000)
    parser.add_argument("--edges", type=int, default=1000, help="edges per cluster")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--growth", action="store_true", help="measure native steps from 10,000 to a million labels")
    args = parser.parse_args()
    print_machine()

    def measure(side: str, n_labels: int):
        shape = n_labels, args.batch, args.dim, args.shortlist_size, args.edges, args.steps
        return run_child(STEP, side, *shape, env={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"})

    if args.growth:
        rows = []
        for n_labels in (10_000, 100_000, 1_000_000):
            found = measure("native", n_labels)
            weights = n_labels * (args.dim + 1) * 4 / 1e6
            rows.append([f"{n_labels:,}", f"{weights:,.0f}", f"{found['step'] * 1e3:,.0f}", f"{found['memory']:,.0f}"])
        print_table(["labels", "weights MB", "step CPU ms", "peak MB above the weights"], rows)
        return
    sides = alternate({side: lambda side=side: measure(side, args.labels) for side in ("native", "torch")}, args.runs)
    native, plain = sides["native"], sides["torch"]
    rows = [[name, f"{r['step'] * 1e3:,.0f}", f"{r['memory']:,.0f}"] for name, r in sides.items()]
    rows.append(["ratio", f"{plain['step'] / native['step']:.1f}", f"{plain['memory'] / native['memory']:.1f}"])
    print_table(["step", "CPU ms", "peak MB above the weights"], rows)


if __name__ == "__main__":
    main()
