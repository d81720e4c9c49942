"""ELIAS: accuracy of each component, effect of pruning, and cost.

    python benchmarks/elias.py MATRICES/tibkat-gnd
    python benchmarks/elias.py RECORDS/tibkat-gnd --texts --field lang=en --encoder MODEL --max-length 64

A directory holds either matrices ({X,Y}.{trn,tst}.npz) or, with --texts, records ({trn,tst}.jsonl.xz with text and
labels). Every model is trained in its own process, with a validation set taken from the training data; test labels that
do not occur in training are dropped, and test samples left without labels with them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from common import print_machine, print_table, run_child
from xrlinear import COLUMNS, LOAD

MEASURE = (
    LOAD
    + """
import dataclasses, lzma
import ramify
settings = json.loads(sys.argv[2])
if settings["texts"]:
    def records(name):
        key, _, value = (settings["field"] or "").partition("=")
        for line in lzma.open(f"{base}/{name}.jsonl.xz", "rt", encoding="utf-8"):
            record = json.loads(line)
            if not key or record[key] == value:
                yield record["text"], [label for label in record["labels"] if label not in settings["without"]]
    train = [row for row in records("trn") if row[1]][: settings["train_rows"]]
    known = {label for _, labels in train for label in labels}
    test = [(text, [label for label in labels if label in known]) for text, labels in records("tst")]
    test = [row for row in test if row[1]][: settings["rows"]]
    (X, Y), (X_test, Y_test) = zip(*train), zip(*test)
    X, Y, X_test, Y_test = list(X), list(Y), list(X_test), list(Y_test)
    queries = [[text] for text in X_test[:300]]
else:
    X, Y, X_test, Y_test = (matrix(name) for name in ("X.trn", "Y.trn", "X.tst", "Y.tst"))
    queries = [X_test[i] for i in range(min(300, X_test.shape[0]))]
encoder = ramify.BagEncoder()
if settings["encoder"]:
    encoder = ramify.TransformerEncoder(settings["encoder"], frozen=True, max_length=settings["max_length"])
    encoder.set_params(n_windows=settings.get("n_windows", 1))
model = eval(sys.argv[3], {"ramify": ramify, "encoder": encoder, "path": settings["encoder"]})
before = peak(); cpu = time.process_time(); wall = time.time()
model.fit(X, Y)
cpu, wall, memory = time.process_time() - cpu, time.time() - wall, peak() - before
names = sys.argv[5].split()
rows = []
def measure(name):
    result = ramify.evaluate(model.predict_topk(X_test, k=100), Y_test, Y)
    has_shortlist = hasattr(model, "shortlist_recall")
    shortlist = model.shortlist_recall(X_test, Y_test) if has_shortlist else float("nan")
    rows.append([name, *(result[column] for column in names), shortlist])
rankers = [member.ranker for member in model.members_] if hasattr(model, "members_") else []
if any(rankers):
    for name, change in (
        ("", lambda ranker: None),
        (" + ranker", lambda ranker: dataclasses.replace(ranker, calibrator=None)),
        (" + calibration", lambda ranker: ranker),
    ):
        for member, ranker in zip(model.members_, rankers):
            member.ranker = None if ranker is None else change(ranker)
        measure(name)
else:
    measure("")
model.save(sys.argv[4])
opened = ramify.load(sys.argv[4])
opened.threads = 1
one = per_query(lambda row: opened.predict_topk(row, k=10), queries)
pruning = []
if hasattr(model, "index_report") and settings["pruning"]:
    for member in model.members_:
        member.ranker = None
    pruning = [[p.how, p.kept, p.metrics] for p in model.index_report(X_test, Y_test).search.pruning]
history = [list(pair) for pair in model.members_[0].history] if rankers else []
done(cpu=cpu, wall=wall, memory=memory, size=size(sys.argv[4]), one=one, rows=rows, pruning=pruning, history=history)
"""
)

MODELS = [
    "ramify.XRLinear.pecos()",
    "ramify.XRLinear()",
    "ramify.Elias(encoder=encoder, stages=1)",
    'ramify.Elias(encoder=encoder, ranker="sparse")',
]


def main() -> None:
    """Train and measure each model on each data set."""
    import json

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", help="directories of matrices or records")
    parser.add_argument("--models", nargs="*", default=MODELS, help="expressions; `encoder` is the selected encoder")
    parser.add_argument("--texts", action="store_true", help="the directories hold records")
    parser.add_argument("--field", help="use only records with this value of a field, as in lang=en")
    parser.add_argument("--without", type=int, nargs="*", default=[], help="label ids to exclude")
    parser.add_argument("--rows", type=int, default=10**9, help="maximum number of test samples")
    parser.add_argument("--train-rows", type=int, default=10**9, help="maximum number of training samples")
    parser.add_argument("--encoder", help="directory of a transformer, used frozen")
    parser.add_argument("--max-length", type=int, default=64, help="tokens per text")
    parser.add_argument("--pruning", action="store_true", help="also measure with pruned label graphs")
    parser.add_argument("--work", type=Path, default=Path("demo/benchmark"))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    print_machine()
    options = ("texts", "field", "without", "rows", "train_rows", "encoder", "max_length", "pruning")
    settings = json.dumps({name: getattr(args, name) for name in options})
    rows, pruned = [], []
    for path in args.data:
        for model in args.models:
            r = run_child(MEASURE, path, settings, model, args.work / "elias", " ".join(COLUMNS))
            title = model.replace("ramify.", "").replace("encoder=encoder, ", "").replace("encoder=encoder", "")
            costs = [f"{r[c]:.0f}" for c in ("cpu", "wall", "memory", "size", "one")]
            for name, *figures in r["rows"]:
                last = name == r["rows"][-1][0]
                rows.append(
                    [Path(path).name, title + name, *(f"{x:.2f}" for x in figures), *(costs if last else [""] * 5)]
                )
                print(" ".join(rows[-1]), flush=True)
            print("validation by epoch:", " ".join(f"{score:.1f}" for _, score in r["history"]), flush=True)
            for how, kept, metrics in r["pruning"]:
                pruned.append([Path(path).name, title, how, f"{kept:.1%}", *(f"{x:.2f}" for x in metrics.values())])
    costs = ["train CPU s", "wall s", "peak MB", "MB", "one query µs"]
    print_table(["data", "model", *COLUMNS, "shortlist", *costs], rows)
    if pruned:
        print()
        print_table(["data", "model", "edges", "kept", "P@1", "P@5", "R@10", "R@100"], pruned)


if __name__ == "__main__":
    main()
