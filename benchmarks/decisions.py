"""Probabilities and label sets: calibrated and fitted on dev rows, measured on test rows.

    python benchmarks/decisions.py DATA --model xr-linear          # DATA: a directory with trn, dev and tst .jsonl.xz
    python benchmarks/decisions.py DATA --saved MODEL              # a model that has been trained already

Tables: expected calibration error before and after, F1 by sample of each rule, and how often the guarantees of
`TargetRecall` and `TargetPrecision` hold when dev and test rows are shuffled 20 times.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from common import print_machine, print_table

import ramify
from ramify.base.ranking import Ranking
from ramify.io.labels import align_labels
from ramify.metrics.reliability import reliability
from ramify.models import model_class
from ramify.native.matrix import ranking_hits
from ramify.rank.decision_rule import HeldOut, mean_f1
from ramify.rank.decisions import parse_rule
from ramify.rank.probabilities import fit_calibration

WIDTH = 100
RULES = ("maximize-f1", "threshold", "top-k", "expected-count", "per-label-threshold")
TARGETS = {
    "TargetRecall(0.5)": lambda: ramify.TargetRecall(0.5),
    "TargetRecall(0.5, confidence=0.9)": lambda: ramify.TargetRecall(0.5, confidence=0.9),
    "TargetPrecision(0.5)": lambda: ramify.TargetPrecision(0.5),
}


class Rows:
    """Rankings of a data file, and its true labels."""

    def __init__(self, model: ramify.Model, data: ramify.Dataset) -> None:
        ranking = model.predict_topk(data.inputs, min(WIDTH, model.n_labels))
        self.ids, self.scores, self.n_labels = ranking.ids, ranking.scores, model.n_labels
        self.truth, _ = align_labels(data.labels(), model.labels_)

    def hits(self) -> np.ndarray:
        """Whether each label (n, k) is true."""
        return ranking_hits(self.ids, self.truth, 1).view(bool)


def set_metrics(chosen: np.ndarray, ids: np.ndarray, truth: object) -> tuple[float, ...]:
    """F1, recall and precision by sample, micro-F1, macro-F1 over the labels that occur and over all, in percent."""
    hits = ranking_hits(ids, truth, 1).view(bool) & chosen
    n_true, n_chosen, found = np.diff(truth.indptr), chosen.sum(axis=1), hits.sum(axis=1)
    rows = n_true > 0
    f1 = np.mean((2 * found / np.maximum(n_true + n_chosen, 1))[rows])
    recall = np.mean((found / np.maximum(n_true, 1))[rows])
    precision = np.mean((found / np.maximum(n_chosen, 1))[n_chosen > 0])
    micro = 2 * found.sum() / (n_true.sum() + n_chosen.sum())
    width = truth.shape[1]
    both = np.bincount(ids[chosen], minlength=width) + np.bincount(truth.indices, minlength=width)
    each = 2 * np.bincount(ids[hits], minlength=width) / np.maximum(both, 1)
    return tuple(100 * x for x in (f1, recall, precision, micro, np.mean(each[both > 0]), np.mean(each)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="xr-linear", help="kind of the model to train")
    parser.add_argument("--saved", help="directory of a trained model")
    parser.add_argument("--splits", type=int, default=20)
    args = parser.parse_args()
    read = {name: ramify.read(args.data / f"{name}.jsonl.xz") for name in ("dev", "tst")}
    if args.saved:
        model = ramify.load(args.saved)
    else:
        train = ramify.read(args.data / "trn.jsonl.xz")
        model = model_class(args.model)().fit(train.inputs, train.labels())
    dev, test = (Rows(model, read[name]) for name in ("dev", "tst"))
    print_machine()

    calibration = fit_calibration(dev.scores, dev.hits())
    p_dev, p_test = calibration(dev.scores), calibration(test.scores)
    raw = np.clip(test.scores, 0, 1)
    table = []
    for name, values in (("raw scores", raw), ("probabilities", p_test)):
        found = reliability(Ranking(test.ids, values, test.n_labels), test.truth)
        table.append([name, *(f"{found.ece[k]:.4f}" for k in (1, 3, 5)), f"{found.brier[5]:.4f}"])
    print_table(["", "ECE@1", "ECE@3", "ECE@5", "Brier@5"], table)
    same = np.array_equal(np.argsort(-p_test, axis=1, kind="stable")[:, :5], np.tile(np.arange(5), (len(p_test), 1)))
    print(f"\nthe order of the five best labels is the same: {same}\n")

    table = []
    held = HeldOut(dev.ids, p_dev, dev.truth, dev.n_labels)
    for name in RULES:
        rule = parse_rule(name).fit(held)
        chosen = rule.choose(test.ids, p_test)
        values = set_metrics(chosen, test.ids, test.truth)
        shown = repr(rule) if name != "per-label-threshold" else "PerLabelThreshold()"
        table.append([shown, f"{chosen.sum() / len(chosen):.2f}", *(f"{v:.2f}" for v in values)])
    raw_held = HeldOut(dev.ids, dev.scores, dev.truth, dev.n_labels)
    rule = max(
        (ramify.Threshold(t, of="score") for t in np.linspace(0.01, 0.99, 99)),
        key=lambda r: mean_f1(raw_held.hits, raw_held.n_true, r.choose(dev.ids, dev.scores).sum(axis=1)),
    )
    chosen = rule.choose(test.ids, test.scores)
    values = set_metrics(chosen, test.ids, test.truth)
    table.append([f"raw score >= {rule.value:.2f}", f"{chosen.sum() / len(chosen):.2f}", *(f"{v:.2f}" for v in values)])
    print_table(["rule", "labels per row", "F1", "recall", "precision", "micro-F1", "macro-F1", "of all labels"], table)
    print()

    ids, scores = np.vstack([dev.ids, test.ids]), np.vstack([dev.scores, test.scores])
    truth, _ = align_labels(read["dev"].labels() + read["tst"].labels(), model.labels_)
    results: dict[str, list[float]] = {name: [] for name in TARGETS}
    for seed in range(args.splits):
        order = np.random.default_rng(seed).permutation(len(ids))
        first, second, rest = np.split(order, [len(dev.ids) // 2, len(dev.ids)])
        fitted = fit_calibration(scores[first], ranking_hits(ids[first], truth[first], 1))
        held = HeldOut(ids[second], fitted(scores[second]), truth[second], model.n_labels)
        p = fitted(scores[rest])
        for name, make in TARGETS.items():
            chosen = make().fit(held).choose(ids[rest], p)
            _, recall, precision, *_ = set_metrics(chosen, ids[rest], truth[rest])
            results[name].append(recall if "Recall" in name else precision)
    table = [
        [name, f"{np.mean(v):.2f}", f"{min(v):.2f}", f"{sum(x >= 50 for x in v)} of {len(v)}"]
        for name, v in results.items()
    ]
    print_table(["rule", "mean on test", "lowest", "target met"], table)


if __name__ == "__main__":
    main()
