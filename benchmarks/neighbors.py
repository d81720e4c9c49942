"""Nearest neighbors among many texts: one query and batches of a `KNN` opened from disk, one thread.

    python benchmarks/neighbors.py DIRECTORY [--texts 100000 1000000] [--brute]

DIRECTORY is that of `hybrid.py`. Texts beyond those of the training part are mixtures: 70 % of the terms of one random
text and 30 % of those of another, so that terms are as frequent as in real texts; a real corpus of this size has more
different terms, and shorter lists. Queries are test rows. --brute: also scikit-learn's `NearestNeighbors` on the same
rows.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import print_machine, print_table
from scipy import sparse
from text_features import read

import ramify
from ramify.features.defaults import neighbor_features

QUERIES = 1000


def mixtures(X: Any, n: int, fraction: float, random: np.random.Generator) -> Any:
    """Rows (n × d): each the random `fraction` of the entries of a row of X, and the rest of another."""
    parts = []
    for share in (fraction, 1 - fraction):
        chosen = X[random.integers(X.shape[0], size=n)]
        chosen.data[random.random(chosen.nnz) >= share] = 0
        chosen.eliminate_zeros()
        parts.append(chosen)
    return parts[0] + parts[1]


def milliseconds(job: Any) -> float:
    """CPU milliseconds of a call."""
    start = time.process_time()
    job()
    return 1e3 * (time.process_time() - start)


def measure(X: Any, Y: Any, queries: Any, *, brute: bool) -> list[str]:
    """Cells of the table for training rows X (n × d) with labels Y (n × L)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        seconds = milliseconds(lambda: ramify.KNN(threads=1, verbose=0).fit(X, Y).save(path)) / 1e3
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        start = time.perf_counter()
        model: Any = ramify.load(path)
        opened = 1e3 * (time.perf_counter() - start)
        model.set_params(threads=1)
        model.predict_topk(queries, 10)  # pages are read once
        rows = [queries[i] for i in range(queries.shape[0])]
        single = [milliseconds(lambda row=row: model.predict_topk(row, 10)) for row in rows]
        batch = milliseconds(lambda: model.predict_topk(queries, 10)) / len(rows)
        cells = [f"{X.shape[0]:,}", f"{X.nnz / X.shape[0]:.0f}", f"{seconds:.0f}", f"{size / 1e6:.0f}", f"{opened:.0f}"]
        cells += [f"{statistics.median(single):.2f}", f"{np.quantile(single, 0.99):.2f}", f"{batch:.2f}"]
    if brute:
        from sklearn.neighbors import NearestNeighbors

        index = NearestNeighbors(n_neighbors=50, metric="cosine", algorithm="brute", n_jobs=1).fit(X)
        slow = [milliseconds(lambda row=row: index.kneighbors(row)) for row in rows[:20]]
        cells.append(f"{statistics.median(slow):.0f}")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--texts", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--brute", action="store_true", help="also brute force by scikit-learn")
    args = parser.parse_args()
    print_machine()
    train = read(args.directory, "trn", None, None)
    features = neighbor_features().set_params(threads=1)
    X = features.fit_transform([row["text"] for row in train])
    n_labels = len((args.directory / "labels.txt").read_text().splitlines())
    ends = np.cumsum([0, *(len(row["labels"]) for row in train)])
    entries = np.concatenate([row["labels"] for row in train])
    Y = sparse.csr_matrix((np.ones(len(entries), np.float32), entries, ends), shape=(X.shape[0], n_labels))
    queries = features.transform([row["text"] for row in read(args.directory, "tst", QUERIES, None)])
    random, table = np.random.default_rng(0), []
    for n in args.texts:
        more = max(0, n - X.shape[0])
        rows = random.integers(X.shape[0], size=more)
        both = X[:n] if not more else sparse.vstack([X, mixtures(X, more, 0.7, random)], format="csr")
        labels = Y[:n] if not more else sparse.vstack([Y, Y[rows]], format="csr")
        table.append(measure(both, labels, queries, brute=args.brute))
    header = ["texts", "terms a text", "training and saving, CPU s", "MB", "opening, ms"]
    header += ["one query, CPU ms", "99 %", "batch, CPU ms a row"] + ["brute force, CPU ms"] * args.brute
    print_table(header, table)


if __name__ == "__main__":
    main()
