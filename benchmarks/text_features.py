"""Text features: what XRLinear makes of words, stems, parts of words and character n-grams of the same texts.

    python benchmarks/text_features.py DIRECTORY [--train 20000] [--test 2000] [--features words default]
        [--drop-label 0] [--model XRLinear]

DIRECTORY holds trn.jsonl and tst.jsonl (plain, .gz or .xz), lines with `text`, `labels` and optionally `lang`. CPU
seconds are from texts to the trained model, one thread. A label of the test set that training does not have stays in
the metrics. The last table shows P@1 by the fraction of the words of a text that training never saw.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import print_machine, print_table

import ramify
from ramify.features import Concat, Tfidf, text_features, word_features


def characters() -> Concat:
    """Words beside character 5-grams: the dear way to know what words are made of."""
    grams = Tfidf(analyzer="char_wb", ngram_range=(5, 5), sublinear_tf=True)
    return Concat(parts=(word_features(), grams))


FEATURES: dict[str, Any] = {
    "words": word_features,
    "words + char_wb 5": characters,
    "stems": lambda: Tfidf(sublinear_tf=True, stemmer="auto"),
    "stems and parts": lambda: Tfidf(sublinear_tf=True, stemmer="auto", subwords="parts", min_df=2),
    "default": text_features,
}


def read(path: Path, name: str, limit: int | None, dropped: int | None) -> list[dict[str, Any]]:
    """Rows of a part of a data set."""
    file = next(path / f"{name}.jsonl{end}" for end in ("", ".gz", ".xz") if (path / f"{name}.jsonl{end}").exists())
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(file.suffix, open)
    with opener(file, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines][:limit]
    for row in rows:
        row["labels"] = [label for label in row["labels"] if label != dropped]
    return [row for row in rows if row["labels"]]


def metrics(ids: Any, truth: list[set[int]]) -> dict[str, Any]:
    """Metrics (n,) of each sample, without leaving out any label; ids (n, 50)."""
    hits = np.array([[label in labels for label in row] for row, labels in zip(ids.tolist(), truth, strict=True)])
    sizes = np.array([len(labels) for labels in truth])
    discount = 1 / np.log2(np.arange(2, 52))
    ideal = np.concatenate([[0.0], np.cumsum(discount)])

    def ndcg(k: int) -> Any:
        return hits[:, :k] @ discount[:k] / ideal[np.minimum(sizes, k)]

    return {
        "P@1": hits[:, 0].astype(float),
        "P@5": hits[:, :5].mean(axis=1),
        "nDCG@5": ndcg(5),
        "nDCG@10": ndcg(10),
        "F1@5": 2 * hits[:, :5].sum(axis=1) / (5 + sizes),
        "R@10": hits[:, :10].sum(axis=1) / sizes,
        "R@50": hits.sum(axis=1) / sizes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--train", type=int, help="training rows; all without it")
    parser.add_argument("--test", type=int, help="test rows; all without it")
    parser.add_argument(
        "--features", nargs="+", choices=list(FEATURES), default=["words", "words + char_wb 5", "default"]
    )
    parser.add_argument("--drop-label", type=int, help="a label to leave out, such as one that every sample has")
    parser.add_argument("--model", default="XRLinear", help="class of the model")
    args = parser.parse_args()
    print_machine()
    train, test = (
        read(args.directory, name, n, args.drop_label) for name, n in (("trn", args.train), ("tst", args.test))
    )
    texts, queries = [row["text"] for row in train], [row["text"] for row in test]
    truth = [set(row["labels"]) for row in test]
    known = {word for text in texts for word in re.findall(r"\w\w+", text.lower())}
    words = [re.findall(r"\w\w+", text.lower()) for text in queries]
    unknown = np.array([sum(word not in known for word in w) / max(1, len(w)) for w in words])
    languages = np.array([row.get("lang", "") for row in test])
    present = sorted(set(languages) - {""})

    rows, by_unknown = [], []
    edges = [(0.0, 0.0), (0.0, 0.02), (0.02, 0.05), (0.05, 0.1), (0.1, 1.0)]
    for name in args.features:
        model = getattr(ramify, args.model)(features=FEATURES[name](), threads=1, verbose=0)
        started = time.process_time()
        model.fit(texts, [row["labels"] for row in train])
        cpu = time.process_time() - started
        ranking = model.predict_topk(queries, k=50)
        ids = np.array([[label for label, _ in row] + [-1] * (50 - len(row)) for row in ranking.labels()])
        with tempfile.TemporaryDirectory() as directory:
            model.save(Path(directory) / "model")
            size = sum(file.stat().st_size for file in Path(directory).rglob("*") if file.is_file()) / 1e6
        times = []
        for text in queries[:1000]:
            begin = time.perf_counter_ns()
            model.predict_topk([text], k=10)
            times.append(time.perf_counter_ns() - begin)
        found = metrics(ids, truth)
        languages_found = [
            f"{100 * found[metric][languages == x].mean():.1f}" for x in present for metric in ("P@1", "nDCG@5")
        ]
        cells = [f"{100 * values.mean():.2f}" for values in found.values()]
        rows.append([name, *cells, *languages_found, f"{cpu:.1f}", f"{size:.1f}", f"{np.median(times) / 1e6:.2f}"])
        masks = [(unknown >= low) & (unknown <= high) if low == high else (unknown > low) & (unknown <= high)
                 for low, high in edges]  # fmt: skip
        by_unknown.append([name, *(f"{100 * found['P@1'][m].mean():.1f}" if m.any() else "" for m in masks)])
    print(f"{len(train):,} training and {len(test):,} test rows, {args.model}\n")
    by_language = [f"{metric} {x}" for x in present for metric in ("P@1", "nDCG@5")]
    print_table(["", *metrics(ids[:1], truth[:1]), *by_language, "CPU s", "MB", "one query ms"], rows)
    print("\nP@1 by the fraction of unknown words\n")
    counts = [f"{m.sum():,}" for m in masks]
    header = ["none", "up to 2 %", "2 to 5 %", "5 to 10 %", "over 10 %"]
    print_table(["", *(f"{h} ({n})" for h, n in zip(header, counts, strict=True))], by_unknown)


if __name__ == "__main__":
    main()
