"""LightDXML beside Astec, both ours, and XR-Linear: training, size, prediction and quality.

    python benchmarks/lightdxml.py WORK/bench/eurlex-57k WORK/bench/tibkat-gnd WORK/bench/wordnet-hypernyms

A folder holds matrices ({X,Y}.{trn,tst}.npz, as the peers' harness makes them). Every model is trained and measured in
a process of its own, on one thread, with what it chooses chosen on rows held out of the training part. A model with a
re-ranker is measured with it and again without: what comes before it is the same.
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
from ramify.models.shortlisted import ShortlistedModel
X, Y, X_test, Y_test = (matrix(name) for name in ("X.trn", "Y.trn", "X.tst", "Y.tst"))
model = eval(sys.argv[2], {"ramify": ramify})
model.set_params(threads=1)
fit_reranker, before_reranker = ShortlistedModel._fit_reranker, []
def timed(self, *given):
    before_reranker.append((time.process_time(), peak()))
    fit_reranker(self, *given)
ShortlistedModel._fit_reranker = timed
before = peak(); start = time.process_time()
model.fit(X, Y)
def measured(cpu, memory):
    model.save(sys.argv[3])
    opened = ramify.load(sys.argv[3])
    opened.set_params(threads=1)
    result = ramify.evaluate(opened.predict_topk(X_test, k=100), Y_test, Y)
    one = per_query(lambda row: opened.predict_topk(row, k=10), [X_test[i] for i in range(min(300, X_test.shape[0]))])
    rounds = []
    for _ in range(3):
        begun = time.process_time()
        opened.predict_topk(X_test[:2000], k=10)
        rounds.append(time.process_time() - begun)
    return dict(cpu=cpu, memory=memory, size=size(sys.argv[3]), one=one, tables=opened.report(),
                many=float(np.median(rounds)) / min(2000, X_test.shape[0]) * 1e6,
                quality={name: result[name] for name in sys.argv[4].split()})
whole = measured(time.process_time() - start, peak() - before)
plain = None
if getattr(model, "reranker_", None) is not None:
    model.reranker_ = None  # as if it had never been trained
    plain = measured(before_reranker[0][0] - start, before_reranker[0][1] - before)
done(whole=whole, plain=plain)
"""
)

MODELS = ["ramify.XRLinear()", "ramify.Astec()", "ramify.LightDXML(reranker=True)"]
ONE_THREAD = {"RAMIFY_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
COSTS = {"cpu": "train CPU s", "memory": "peak MB", "size": "MB", "one": "one query µs", "many": "batch CPU µs/row"}


def main() -> None:
    """Train and measure each model on each folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", help="folders of matrices")
    parser.add_argument("--models", nargs="*", default=MODELS, help="expressions")
    parser.add_argument("--work", type=Path, default=Path("demo/benchmark"))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    print_machine()
    rows, ratios = [], []
    for place in args.data:
        name, costs = Path(place).name, {}
        for model in args.models:
            both = run_child(MEASURE, place, model, args.work / "lightdxml", " ".join(COLUMNS), env=ONE_THREAD)
            plain = model.replace("ramify.", "").replace("reranker=True", "").replace("()", "")
            parts = {plain: both["whole"]}
            if both["plain"] is not None:
                parts = {plain: both["plain"], f"{plain} + re-ranker": both["whole"]}
            for title, r in parts.items():
                figures = [f"{x:.2f}" for x in r["quality"].values()] + [f"{r[c]:.0f}" for c in COSTS]
                rows.append([name, title, *figures])
                print(" ".join(rows[-1]), flush=True)
                for table in ("index", "score"):
                    print(*(" | ".join(row) for row in r["tables"].get(table, [])), sep="\n", flush=True)
            costs |= parts
        ours, theirs = costs.get("LightDXML"), costs.get("Astec + re-ranker")
        if ours and theirs:
            ratios.append([name, *(f"{ours[c] / theirs[c]:.2f}" for c in COSTS)])
    print_table(["data", "model", *COLUMNS, *COSTS.values()], rows)
    if ratios:
        print("\nLightDXML over Astec with its re-ranker:\n")
        print_table(["data", *COSTS.values()], ratios)


if __name__ == "__main__":
    main()
