"""Probabilities and label sets: calibrated and fitted on dev rows, measured on test rows.

    python benchmarks/decisions.py DATA --model xr-linear          # DATA: a directory with trn, dev and tst .jsonl.xz
    python benchmarks/decisions.py DATA --saved MODEL              # a model that has been trained already
    python benchmarks/decisions.py DATA --saved MODEL --choose     # kinds of calibration, compared on dev rows only

Tables: expected calibration error before and after, F1 by sample of each rule, and how often the guarantees of
`TargetRecall` and `TargetPrecision` hold when dev and test rows are shuffled 20 times, beside what they promise.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import print_machine, print_table
from scipy import sparse

import ramify
from ramify.base.ranking import Ranking
from ramify.io.labels import align_labels
from ramify.metrics.reliability import reliability
from ramify.models import model_class
from ramify.native.matrix import ranking_hits
from ramify.rank import probabilities
from ramify.rank.decision_rule import HeldOut, mean_f1
from ramify.rank.decisions import MaximizeF1, parse_rule
from ramify.rank.probabilities import Calibration, MonotoneMap, fit_calibration

WIDTH = 100
RULES = ("maximize-f1", "threshold", "top-k", "expected-count", "per-label-threshold")
TARGETS = {
    "TargetRecall(0.5)": (ramify.TargetRecall(0.5), "the target in 90 % of the divisions"),
    "TargetRecall(0.5, confidence=None)": (ramify.TargetRecall(0.5, confidence=None), "a mean of the target"),
    "TargetPrecision(0.5)": (ramify.TargetPrecision(0.5), "the target in 90 % of the divisions"),
}


@dataclass(frozen=True)
class Rows:
    """Rankings (n, k) of rows, and their true labels (n × (L + unknown ones))."""

    ids: np.ndarray
    scores: np.ndarray
    truth: Any
    n_labels: int

    @classmethod
    def of(cls, model: ramify.Model, data: ramify.Dataset) -> Rows:
        """Rank the rows of a data file."""
        ranking = model.predict_topk(data.inputs, min(WIDTH, model.n_labels))
        return cls(ranking.ids, ranking.scores, align_labels(data.labels(), model.labels_)[0], model.n_labels)

    @property
    def hits(self) -> np.ndarray:
        """Whether each label (n, k) is true."""
        return ranking_hits(self.ids, self.truth, 1).view(bool)

    def take(self, rows: np.ndarray) -> Rows:
        """Select rows."""
        return Rows(self.ids[rows], self.scores[rows], self.truth[rows], self.n_labels)

    def held_out(self, values: np.ndarray) -> HeldOut:
        """Return what rules are fitted to, given probabilities (n, k)."""
        return HeldOut(self.ids, values, self.truth, self.n_labels)


def concatenated(a: Rows, b: Rows) -> Rows:
    """Return the rows of both; unknown labels of a and of b are different columns."""
    known = sparse.vstack([a.truth[:, : a.n_labels], b.truth[:, : b.n_labels]])
    unknown = sparse.block_diag([a.truth[:, a.n_labels :], b.truth[:, b.n_labels :]])
    truth = sparse.csr_matrix(sparse.hstack([known, unknown], format="csr"))
    return Rows(np.vstack([a.ids, b.ids]), np.vstack([a.scores, b.scores]), truth, a.n_labels)


def set_metrics(chosen: np.ndarray, rows: Rows) -> tuple[float, ...]:
    """F1, recall and precision by sample, micro-F1, macro-F1 over the labels that occur, macro-F1 over all, in percent.

    The last is LibMultiLabel's: over all labels of the training data, 0 for those that are neither true nor chosen.
    """
    hits, n_true, n_chosen = rows.hits & chosen, np.diff(rows.truth.indptr), chosen.sum(axis=1)
    found, labeled = hits.sum(axis=1), n_true > 0
    f1 = np.mean((2 * found / np.maximum(n_true + n_chosen, 1))[labeled])
    recall = np.mean((found / np.maximum(n_true, 1))[labeled])
    precision = np.mean((found / np.maximum(n_chosen, 1))[n_chosen > 0])
    micro = 2 * found.sum() / (n_true.sum() + n_chosen.sum())
    width = rows.truth.shape[1]
    both = np.bincount(rows.ids[chosen], minlength=width) + np.bincount(rows.truth.indices, minlength=width)
    each = 2 * np.bincount(rows.ids[hits], minlength=width) / np.maximum(both, 1)
    macro = np.mean(each[both > 0]), np.mean(each[: rows.n_labels])
    return tuple(100 * x for x in (f1, recall, precision, micro, *macro))


def print_calibration(dev: Rows, test: Rows) -> Calibration:
    """Print the calibration error on test rows before and after; return the calibration."""
    calibration = fit_calibration(dev.scores, dev.hits)
    p = calibration(test.scores)
    table = []
    for name, values in (("raw scores", np.clip(test.scores, 0, 1)), ("probabilities", p)):
        found = reliability(Ranking(test.ids, values, test.n_labels), test.truth)
        table.append([name, *(f"{found.ece[k]:.4f}" for k in (1, 3, 5)), f"{found.brier[5]:.4f}"])
    print_table(["", "ECE@1", "ECE@3", "ECE@5", "Brier@5"], table)
    same = np.array_equal(np.argsort(-p, axis=1, kind="stable")[:, :5], np.tile(np.arange(5), (len(p), 1)))
    print(f"\nthe order of the five best labels is the same: {same}\n")
    return calibration


def print_rules(dev: Rows, test: Rows, calibration: Calibration) -> None:
    """Print the metrics of each rule on test rows."""
    held, p = dev.held_out(calibration(dev.scores)), calibration(test.scores)
    raw = max(
        (ramify.Threshold(t / 100, of="score") for t in range(1, 100)),
        key=lambda rule: mean_f1(held.hits, held.n_true, rule.choose(dev.ids, dev.scores).sum(axis=1)),
    )
    rules = [(parse_rule(name).fit(held), p) for name in RULES]
    table = []
    for rule, values in [*rules, (raw, test.scores)]:
        chosen = rule.choose(test.ids, values)
        shown = "PerLabelThreshold()" if isinstance(rule, ramify.PerLabelThreshold) else repr(rule)
        metrics = (f"{value:.2f}" for value in set_metrics(chosen, test))
        table.append([shown, f"{chosen.sum() / len(chosen):.2f}", *metrics])
    header = ["rule", "labels per row", "F1", "recall", "precision", "micro-F1", "macro-F1", "macro-F1, all labels"]
    print_table(header, table)
    print()


def print_guarantees(dev: Rows, test: Rows, n_splits: int) -> None:
    """Print how often the targets are met when dev and test rows are shuffled, beside what is promised."""
    rows, n_dev = concatenated(dev, test), len(dev.ids)
    results: dict[str, list[float]] = {name: [] for name in TARGETS}
    for seed in range(n_splits):
        order = np.random.default_rng(seed).permutation(len(rows.ids))
        first, second, rest = (rows.take(part) for part in np.split(order, [n_dev // 2, n_dev]))
        fitted = fit_calibration(first.scores, first.hits)
        held, p = second.held_out(fitted(second.scores)), fitted(rest.scores)
        for name, values in results.items():
            rule = TARGETS[name][0]
            _, recall, precision, *_ = set_metrics(rule.fit(held).choose(rest.ids, p), rest)
            values.append(recall if isinstance(rule, ramify.TargetRecall) else precision)
    table = [
        [name, TARGETS[name][1], f"{np.mean(v):.2f}", f"{min(v):.2f}", f"{sum(x >= 50 for x in v)} of {len(v)}"]
        for name, v in results.items()
    ]
    print_table(["rule", "promise", "mean on test", "lowest", "target met"], table)


# ---- kinds of calibration ----


def pooled(rows: Rows) -> Callable[[Rows], np.ndarray]:
    """Isotonic regression over all candidates."""
    valid = rows.scores > -np.inf
    own = MonotoneMap.fit(rows.scores[valid], rows.hits[valid])
    return lambda new: own(np.where(new.scores > -np.inf, new.scores, own.x[0]))


def by_frequency(counts: np.ndarray) -> Callable[[Rows], Callable[[Rows], np.ndarray]]:
    """Return the calibration of the library, one for each third of the candidates by label frequency."""

    def fit(rows: Rows) -> Callable[[Rows], np.ndarray]:
        edges = np.quantile(counts[np.maximum(rows.ids[:, :10], 0)], [1 / 3, 2 / 3])
        whole, z = fit_calibration(rows.scores, rows.hits), counts[np.maximum(rows.ids, 0)]
        p, bins = whole(rows.scores), np.searchsorted(edges, z)
        valid = rows.scores > -np.inf
        maps = [MonotoneMap.fit(p[valid & (bins == b)], rows.hits[valid & (bins == b)]) for b in range(3)]

        def apply(new: Rows) -> np.ndarray:
            values, which = whole(new.scores), np.searchsorted(edges, counts[np.maximum(new.ids, 0)])
            return np.choose(which, [m(np.maximum(values, 0)) for m in maps])

        return apply

    return fit


def library(**constants: Any) -> Callable[[Rows], Callable[[Rows], np.ndarray]]:
    """Return the calibration of the library with other constants."""

    def fit(rows: Rows) -> Callable[[Rows], np.ndarray]:
        before = {name: getattr(probabilities, name) for name in constants}
        for name, value in constants.items():
            setattr(probabilities, name, value)
        try:
            fitted = fit_calibration(rows.scores, rows.hits)
        finally:
            for name, value in before.items():
                setattr(probabilities, name, value)
        groups = constants.get("RANK_GROUPS", probabilities.RANK_GROUPS)

        def apply(new: Rows) -> np.ndarray:
            probabilities.RANK_GROUPS, own = groups, probabilities.RANK_GROUPS
            try:
                return fitted(new.scores)
            finally:
                probabilities.RANK_GROUPS = own

        return apply

    return fit


def print_choice(dev: Rows, counts: np.ndarray, repetitions: int = 3) -> None:
    """Fit kinds of calibration to one half of the dev rows, and print what they do on the other; both ways."""
    kinds = {
        "isotonic, pooled": pooled,
        "Platt": library(MIN_ISOTONIC_ROWS=1 << 30),
        "isotonic, then row and rank": library(RANK_GROUPS=(0,)),
        "isotonic again for rank 1, for others": library(RANK_GROUPS=(0, 1)),
        "the same for 1, 2 to 5, others (the library)": fit_library,
        "the same, by label frequency": by_frequency(counts),
    }
    table = []
    for name, fit in kinds.items():
        values = []
        for seed in range(repetitions):
            halves = np.array_split(np.random.default_rng(seed).permutation(len(dev.ids)), 2)
            for first, second in (halves, halves[::-1]):
                a, b = dev.take(np.sort(first)), dev.take(np.sort(second))
                apply = fit(a)
                p, q = np.clip(apply(a), 1e-6, 1 - 1e-6), np.clip(apply(b), 1e-6, 1 - 1e-6)
                values.append(_choice_metrics(a, p, b, q))
        table.append([name, *(f"{x:.4f}" for x in np.mean(values, axis=0)[:3]), f"{np.mean(values, axis=0)[3]:.2f}"])
    print_table(["calibration", "ECE@1", "ECE@5", "cross-entropy", "F1 of MaximizeF1()"], table)


def fit_library(rows: Rows) -> Callable[[Rows], np.ndarray]:
    """Return the calibration of the library."""
    fitted = fit_calibration(rows.scores, rows.hits)
    return lambda new: fitted(new.scores)


def _choice_metrics(a: Rows, p: np.ndarray, b: Rows, q: np.ndarray) -> list[float]:
    order, other = (np.argsort(-values, axis=1, kind="stable") for values in (p, q))
    first = Rows(np.take_along_axis(a.ids, order, 1), np.take_along_axis(p, order, 1), a.truth, a.n_labels)
    second = Rows(np.take_along_axis(b.ids, other, 1), np.take_along_axis(q, other, 1), b.truth, b.n_labels)
    found = reliability(Ranking(second.ids, second.scores.astype(np.float32), b.n_labels), b.truth)
    hits = second.hits
    entropy = -np.mean(np.where(hits, np.log(second.scores), np.log1p(-second.scores)))
    rule = MaximizeF1().fit(first.held_out(first.scores))
    return [found.ece[1], found.ece[5], entropy, set_metrics(rule.choose(second.ids, second.scores), second)[0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="xr-linear", help="kind of the model to train")
    parser.add_argument("--saved", help="directory of a trained model")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--choose", action="store_true", help="compare kinds of calibration on the dev rows")
    args = parser.parse_args()
    if args.saved:
        model = ramify.load(args.saved)
    else:
        train = ramify.read(args.data / "trn.jsonl.xz")
        model = model_class(args.model)().fit(train.inputs, train.labels())
    print_machine()
    dev = Rows.of(model, ramify.read(args.data / "dev.jsonl.xz"))
    if args.choose:
        print_choice(dev, model.label_counts_.counts)
        return
    test = Rows.of(model, ramify.read(args.data / "tst.jsonl.xz"))
    print_rules(dev, test, print_calibration(dev, test))
    print_guarantees(dev, test, args.splits)


if __name__ == "__main__":
    main()
