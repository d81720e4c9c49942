"""Hybrid beside its members: names of labels, nearest neighbors and linear classifiers, alone and together.

    python benchmarks/hybrid.py DIRECTORY [--train 20000] [--test 2000] [--open] [--ablation] [--drop-label 0]
        [--glosses]

DIRECTORY holds trn.jsonl and tst.jsonl (plain, .gz or .xz), lines with `text`, `labels` (line numbers of labels.txt)
and optionally `lang`, labels.txt with the name of each label, and optionally dev.jsonl. Models see training rows only.
Metrics are those of Annif: F1@5 is the mean over samples, nDCG is of the twenty best, and no test label is left out,
whether training has it or not. F1 is that of the label sets of `MaximizeF1`, fitted to dev rows, if there are any.
--open: labels without a training sample can be predicted, too; their R@10 has a column of its own, and so has P@1 of
the labels with one: whether the best of these is right, of the samples that have any. Also with other
values of `unseen_weight`, and beside a `Hybrid` that predicts the labels with a training sample only. A table of its
own is of zero-shot learning: only the labels without a training sample are ranked (`allow=`), for the dev and test
samples that have at least one of them; P@1 and R@10 of these labels.
--ablation: also without each member. --test takes a random sample; so does --train. CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import print_machine, print_table
from text_features import read

import ramify

CALIBRATION_ROWS = 4000
WIDTH = 50
UNSEEN_WEIGHTS = (1.0, 3.0, 5.0)


def sample(rows: list[Any], n: int | None) -> list[Any]:
    """Return n random rows, or all."""
    if n is None or n >= len(rows):
        return rows
    return [rows[i] for i in np.sort(np.random.default_rng(0).permutation(len(rows))[:n])]


def read_names(path: Path, with_glosses: bool) -> dict[int, Any]:
    """Names of the labels by line number; with glosses, lines are `name, synonym, …: description`."""
    names: dict[int, Any] = dict(enumerate(path.read_text().splitlines()))
    for label, line in names.items() if with_glosses else ():
        head, _, description = line.partition(": ")
        name, *synonyms = head.split(", ")
        names[label] = {"name": name, "synonyms": synonyms, "description": description}
    return names


def metrics(ranking: ramify.Ranking, truth: list[set[Any]], unseen: set[Any], languages: list[Any]) -> list[str]:
    """Cells of the table: F1@5, nDCG, P@1, R@10, R@50, nDCG by language, P@1 of seen and R@10 of unseen labels."""
    labels = [[label for label, _ in row] for row in ranking.labels()]
    hits = np.zeros((len(truth), WIDTH), bool)
    for i, (row, true) in enumerate(zip(labels, truth, strict=True)):
        hits[i, : len(row)] = [label in true for label in row]
    sizes = np.array([len(row) for row in truth])
    discount = 1 / np.log2(np.arange(2, 22))
    ndcg = hits[:, :20] @ discount / np.cumsum(discount)[np.minimum(sizes, 20) - 1]
    values = [2 * hits[:, :5].sum(axis=1) / (5 + sizes), ndcg, hits[:, 0], hits[:, :10].sum(axis=1) / sizes]
    cells = [f"{100 * value.mean():.2f}" for value in (*values, hits.sum(axis=1) / sizes)]
    known = sorted({language for language in languages if language})
    cells.append(" / ".join(f"{100 * ndcg[[x == language for x in languages]].mean():.1f}" for language in known))
    best_seen = [next((label for label in row if label not in unseen), None) for row in labels]
    right = [label in true for label, true in zip(best_seen, truth, strict=True) if true - unseen]
    cells.append(f"{100 * np.mean(right):.2f}")
    n_unseen = sum(len(row & unseen) for row in truth)
    found = sum(len(true & unseen & set(row[:10])) for row, true in zip(labels, truth, strict=True))
    cells.append(f"{100 * found / n_unseen:.1f}" if n_unseen else "")
    return cells


def zero_shot(model: ramify.Model, data: list[Any], unseen: set[Any]) -> list[str]:
    """Number of the samples with unseen labels, and P@1 and R@10 of a ranking of the unseen labels alone."""
    rows = [row for row in data if unseen & set(row["labels"])]
    if not rows:
        return ["0", "", ""]
    ranking = model.predict_topk([row["text"] for row in rows], 10, allow=unseen).labels()
    hits = [[label in set(row["labels"]) for label, _ in best] for row, best in zip(rows, ranking, strict=True)]
    n_true = sum(len(unseen & set(row["labels"])) for row in rows)
    first, found = np.mean([row[:1] == [True] for row in hits]), sum(map(sum, hits)) / n_true
    return [str(len(rows)), f"{100 * first:.1f}", f"{100 * found:.1f}"]


def set_f1(model: ramify.Model, texts: list[str], truth: list[set[Any]]) -> str:
    """Mean F1 of the label sets of a calibrated model."""
    sets = [{label for label, _ in row} for row in model.predict_sets(texts).labels()]
    pairs = zip(sets, truth, strict=True)
    return f"{100 * np.mean([2 * len(a & b) / max(1, len(a) + len(b)) for a, b in pairs]):.2f}"


def single_query(model: ramify.Model, texts: list[str]) -> float:
    """Median CPU milliseconds of one query."""
    times = []
    for text in texts[:300]:
        start = time.process_time()
        model.predict_topk([text], 10)
        times.append(1e3 * (time.process_time() - start))
    return statistics.median(times)


def print_zero_shot(hybrid: Any, parts: dict[str, list[Any]], unseen: set[int]) -> None:
    """Print how the hybrid and its members rank the labels without a training sample alone, on each part."""
    print("\nlabels without a training sample, ranked alone\n")
    header = ["model", *(f"{name} {cell}" for name in parts for cell in ("rows", "P@1", "R@10"))]
    ranked = set(hybrid.labels_) & unseen
    models = [hybrid, *hybrid.members_]
    cells = [[cell for part in parts.values() for cell in zero_shot(model, part, ranked)] for model in models]
    titles = [type(model).__name__ for model in models]
    print_table(header, [[title, *row] for title, row in zip(titles, cells, strict=True)])


def print_all_rows(hybrid: Any, queries: list[str], truth: list[set[int]], train_labels: list[list[int]]) -> None:
    """Print the metrics of the members and the hybrid, in which test labels without a training sample count."""
    print("\nmetrics of extreme classification, test labels without a training sample count as misses\n")
    names = ["P@1", "P@5", "PSP@5", "nDCG@5", "R@100"]
    cells = []
    for model in (*hybrid.members_, hybrid):
        found = ramify.evaluate(model.predict_topk(queries, 100), [list(row) for row in truth], train_labels)
        cells.append([type(model).__name__, *(f"{found[name]:.2f}" for name in names)])
    print_table(["model", *names], cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--train", type=int, help="training rows; all without it")
    parser.add_argument("--test", type=int, help="test rows; all without it")
    parser.add_argument("--drop-label", type=int, help="a label to leave out, such as one that every sample has")
    parser.add_argument("--open", action="store_true", help="predict labels without a training sample, too")
    parser.add_argument("--ablation", action="store_true", help="train also without each member")
    parser.add_argument("--glosses", action="store_true", help="labels.txt has lines `name, synonym: description`")
    parser.add_argument("--save", type=Path, help="where to save the model")
    args = parser.parse_args()
    print_machine()
    names = read_names(args.directory / "labels.txt", args.glosses)
    names.pop(args.drop_label, None)
    train = sample(read(args.directory, "trn", None, args.drop_label), args.train)
    test = sample(read(args.directory, "tst", None, args.drop_label), args.test)
    has_dev = bool(list(args.directory.glob("dev.jsonl*")))
    dev = sample(read(args.directory, "dev", None, args.drop_label), CALIBRATION_ROWS) if has_dev else []
    texts, labels = [row["text"] for row in train], [row["labels"] for row in train]
    queries, truth = [row["text"] for row in test], [set(row["labels"]) for row in test]
    unseen = set(names).union(*truth) - {label for row in labels for label in row}
    n_unseen = len(unseen & set().union(*truth))
    languages = [row.get("lang") for row in test]
    print(f"{len(train):,} training and {len(test):,} test rows, {n_unseen:,} test labels without a training sample\n")

    header = ["model", "F1@5", "nDCG", "P@1", "R@10", "R@50", "nDCG by language", "P@1 seen", "R@10 unseen"]
    header += ["F1 of sets", "training CPU s", "ms/row", "one query ms"]
    rows = []

    def measure(title: str, model: ramify.Model, seconds: float | None) -> None:
        start = time.process_time()
        ranking = model.predict_topk(queries, WIDTH)
        batch = 1e3 * (time.process_time() - start) / len(queries)
        sets = ""
        if dev and title == "Hybrid":
            model.calibrate([row["text"] for row in dev], [row["labels"] for row in dev])
            sets = set_f1(model, queries, truth)
        cost = ["" if seconds is None else f"{seconds:.0f}", f"{batch:.2f}", f"{single_query(model, queries):.2f}"]
        rows.append([title, *metrics(ranking, truth, unseen, languages), sets, *cost])

    def fit(members: tuple[ramify.Model, ...] = (), is_open: bool = args.open) -> tuple[Any, float]:
        model = ramify.Hybrid(members, labels="catalogue" if is_open else "seen", threads=1, verbose=0)
        start = time.process_time()
        model.fit(texts, labels, label_catalogue=names)
        return model, time.process_time() - start

    if args.open:
        measure("Hybrid of seen labels", *fit(is_open=False))
    hybrid, seconds = fit()
    if args.save:
        hybrid.save(args.save)
    for member in hybrid.members_:
        measure(type(member).__name__, member, None)
    for weight in UNSEEN_WEIGHTS if args.open else ():
        measure(f"Hybrid(unseen_weight={weight})", hybrid.set_params(unseen_weight=weight), None)
    hybrid.set_params(unseen_weight=type(hybrid)().unseen_weight)
    measure("Hybrid", hybrid, seconds)
    if args.ablation:
        for left_out in hybrid.members_:
            others = tuple(member.clone() for member in hybrid.members_ if member is not left_out)
            measure(f"without {type(left_out).__name__}", *fit(others))
    print_table(header, rows)
    if args.open:
        parts = {"test": test, **({"dev": read(args.directory, "dev", None, args.drop_label)} if has_dev else {})}
        print_zero_shot(hybrid, parts, unseen)
    else:
        print_all_rows(hybrid, queries, truth, labels)
    for title, table in hybrid.report().items():
        print(f"\n{title}, on training rows that it was not trained on (%)\n")
        print_table(table[0], table[1:])


if __name__ == "__main__":
    main()
