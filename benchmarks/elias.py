"""ELIAS: what each part of it brings, and what it costs.

    python benchmarks/elias.py WORK/bench/tibkat-gnd

WORK is where the peers' harness keeps its matrices ({X,Y}.{trn,tst}.npz). Every model is trained in a process of its
own; validation rows are held out of the training part.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from common import print_table, run_child
from xrlinear import COLUMNS, LOAD

MEASURE = (
    LOAD
    + """
import ramify
X, Y, X_test, Y_test = (matrix(name) for name in ("X.trn", "Y.trn", "X.tst", "Y.tst"))
model = eval(sys.argv[2], {"ramify": ramify})
before = peak(); cpu = time.process_time(); wall = time.time()
model.fit(X, Y)
cpu, wall, memory = time.process_time() - cpu, time.time() - wall, peak() - before
result = ramify.evaluate(model.predict_topk(X_test, k=100), Y_test, Y)
shortlist = model.shortlist_recall(X_test, Y_test) if hasattr(model, "shortlist_recall") else float("nan")
model.save(sys.argv[3])
model.threads = 1
one = per_query(lambda row: model.predict_topk(row, k=10), [X_test[i] for i in range(300)])
names = sys.argv[4].split()
figures = {name: result[name] for name in names}
done(cpu=cpu, wall=wall, memory=memory, shortlist=shortlist, size=size(sys.argv[3]), one=one, **figures)
"""
)


def main() -> None:
    """Train and measure each model on each folder of matrices."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", help="folders of matrices")
    parser.add_argument(
        "--models",
        nargs="*",
        default=["ramify.XRLinear()", "ramify.Elias(stages=1)", "ramify.Elias()", 'ramify.Elias(ranker="sparse")'],
    )
    parser.add_argument("--work", type=Path, default=Path("demo/benchmark"))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for place in args.data:
        for model in args.models:
            r = run_child(MEASURE, place, model, args.work / "elias", " ".join(COLUMNS))
            figures = [f"{r[c]:.2f}" for c in (*COLUMNS, "shortlist")]
            costs = [f"{r[c]:.0f}" for c in ("cpu", "wall", "memory", "size", "one")]
            rows.append([Path(place).name, model.replace("ramify.", ""), *figures, *costs])
            print(" ".join(rows[-1]), flush=True)
    costs = ["train CPU s", "wall s", "peak MB", "MB", "one query µs"]
    print_table(["data", "model", *COLUMNS, "shortlist", *costs], rows)


if __name__ == "__main__":
    main()
