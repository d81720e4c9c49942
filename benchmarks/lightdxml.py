"""LightDXML beside Astec, both in Ramify, and XR-Linear: training, size, prediction and accuracy.

    python benchmarks/lightdxml.py MATRICES/eurlex-57k MATRICES/tibkat-gnd MATRICES/wordnet-hypernyms

A directory holds matrices ({X,Y}.{trn,tst}.npz). Every model is trained and measured in its own process, on one thread;
what a model selects is selected on a validation set taken from the training data.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from common import print_machine, print_table, run_child
from xrlinear import LOAD

COLUMNS = ["P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "nDCG@5", "R@100"]

MEASURE = (
    LOAD
    + """
import ramify
X, Y, X_test, Y_test = (matrix(name) for name in ("X.trn", "Y.trn", "X.tst", "Y.tst"))
model = eval(sys.argv[2], {"ramify": ramify})
model.set_params(threads=1)
before = peak(); start = time.process_time()
model.fit(X, Y)
cpu, memory = time.process_time() - start, peak() - before
model.save(sys.argv[3])
model = ramify.load(sys.argv[3])
model.set_params(threads=1)
result = ramify.evaluate(model.predict_topk(X_test, k=100), Y_test, Y)
one = per_query(lambda row: model.predict_topk(row, k=10), [X_test[i] for i in range(min(300, X_test.shape[0]))])
taken = []
for _ in range(3):
    start = time.process_time()
    model.predict_topk(X_test[:2000], k=10)
    taken.append(time.process_time() - start)
done(cpu=cpu, memory=memory, size=size(sys.argv[3]), one=one, tables=model.report(),
     batch=float(np.median(taken)) / min(2000, X_test.shape[0]) * 1e6,
     quality={name: result[name] for name in sys.argv[4].split()})
"""
)

MODELS = {
    "XRLinear": "ramify.XRLinear()",
    "Astec": "ramify.Astec(reranker=False)",
    "Astec + re-ranker": "ramify.Astec()",
    "LightDXML": "ramify.LightDXML()",
    "LightDXML + re-ranker": "ramify.LightDXML(reranker=True)",
}
ONE_THREAD = {"RAMIFY_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
COSTS = {"cpu": "train CPU s", "memory": "peak MB", "size": "MB", "one": "one query µs", "batch": "batch CPU µs/row"}


def main() -> None:
    """Train and measure each model on each data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", help="directories of matrices")
    parser.add_argument("--models", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--work", type=Path, default=Path("demo/benchmark"))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    print_machine()
    rows, ratios = [], []
    for path in args.data:
        name, results = Path(path).name, {}
        for title in args.models:
            r = run_child(MEASURE, path, MODELS[title], args.work / "lightdxml", " ".join(COLUMNS), env=ONE_THREAD)
            results[title] = r
            figures = [f"{x:.2f}" for x in r["quality"].values()] + [f"{r[c]:.0f}" for c in COSTS]
            rows.append([name, title, *figures])
            print(" ".join(rows[-1]), flush=True)
            for table in ("index", "score"):
                print(*(" | ".join(row) for row in r["tables"].get(table, [])), sep="\n", flush=True)
        for other in ("Astec + re-ranker", "Astec"):
            if {"LightDXML", other} <= set(results):
                ratio = [f"{results['LightDXML'][c] / results[other][c]:.2f}" for c in COSTS]
                ratios.append([f"{name}, {other}", *ratio])
    print_table(["data", "model", *COLUMNS, *COSTS.values()], rows)
    if ratios:
        print()
        print_table(["LightDXML relative to", *COSTS.values()], ratios)


if __name__ == "__main__":
    main()
