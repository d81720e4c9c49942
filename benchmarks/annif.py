"""From text to subjects: Annif with its Snowball analyzer and omikuji beside XRLinear, on the same records.

    python benchmarks/annif.py DIRECTORY --annif ENVIRONMENT/bin/annif [--train 20000] [--test 2000]

DIRECTORY holds trn.jsonl and tst.jsonl (plain, .gz or .xz; lines with `text` and `labels`) and labels.txt. ENVIRONMENT
is a virtual environment of its own with `annif[omikuji]`. Both sides get the first records and one thread. Annif's
figures are those of `annif eval`, ours the same metrics; no label is left out. CPU seconds are user and system time
from texts to the trained model.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import print_machine, print_table
from text_features import FEATURES, metrics, read

import ramify

METRICS = {"P@1": "Precision@1", "nDCG@5": "NDCG@5", "nDCG@10": "NDCG@10", "F1@5": "F1@5"}
PROJECT = """[bonsai]
name=bonsai
language=de
backend=omikuji
analyzer=snowball({language})
vocab=subjects
cluster_balanced=False
cluster_k=100
max_depth=3
min_df=2
"""
TOKENIZER_FILES = ("collocations.tab", "sent_starters.txt", "abbrev_types.txt", "ortho_context.tab")


def write_inputs(folder: Path, names: list[str], parts: dict[str, list[dict[str, Any]]], language: str) -> None:
    """Project, vocabulary and documents as Annif reads them."""
    (folder / "projects.cfg").write_text(PROJECT.format(language=language))
    subjects = [f"<http://subject/{i}>\t{' '.join(name.split())}\n" for i, name in enumerate(names) if name.strip()]
    (folder / "subjects.tsv").write_text("".join(subjects))
    for part, rows in parts.items():
        lines = [
            f"{' '.join(row['text'].split())}\t{' '.join(f'<http://subject/{i}>' for i in row['labels'])}\n"
            for row in rows
        ]
        (folder / f"{part}.tsv").write_text("".join(lines))
    # Its sentence tokenizer only needs its files to exist: they may be empty.
    tokenizer = folder / "nltk" / "tokenizers" / "punkt_tab" / "english"
    tokenizer.mkdir(parents=True)
    for name in TOKENIZER_FILES:
        (tokenizer / name).touch()


def run_annif(command: str, folder: Path) -> tuple[dict[str, float], float]:
    """Metrics of Annif, and CPU seconds of its training."""

    def run(*arguments: str) -> tuple[str, float]:
        env = {**os.environ, "NLTK_DATA": str(folder / "nltk"), "OMP_NUM_THREADS": "1"}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([command, *arguments], cwd=folder, env=env, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0:
            raise SystemExit(f"annif {' '.join(arguments)} failed:\n{done.stderr[-3000:]}")
        return done.stdout, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    run("load-vocab", "subjects", "subjects.tsv", "--language", "de")
    _, cpu = run("train", "-j", "1", "bonsai", "trn.tsv")
    shown, _ = run("eval", "-l", "10", "bonsai", "tst.tsv")
    values = dict(line.split(":", 1) for line in shown.splitlines() if ":" in line)
    return {name: 100 * float(values[theirs]) for name, theirs in METRICS.items()}, cpu


def run_ramify(
    train: list[dict[str, Any]], test: list[dict[str, Any]], **options: Any
) -> tuple[dict[str, float], float]:
    """The same metrics of XRLinear, and CPU seconds from texts to model."""
    model = ramify.XRLinear(threads=1, verbose=0, **options)
    started = time.process_time()
    model.fit([row["text"] for row in train], [row["labels"] for row in train])
    cpu = time.process_time() - started
    ranking = model.predict_topk([row["text"] for row in test], k=50)
    ids = np.array([[label for label, _ in row] + [-1] * (50 - len(row)) for row in ranking.labels()])
    found = metrics(ids, [set(row["labels"]) for row in test])
    return {name: 100 * float(found[name].mean()) for name in METRICS}, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--annif", required=True, help="the command annif of its environment")
    parser.add_argument("--train", type=int, default=20_000)
    parser.add_argument("--test", type=int, default=2_000)
    parser.add_argument("--stemmer", default="german", help="of Annif's analyzer")
    args = parser.parse_args()
    print_machine()
    parts = {name: read(args.directory, name, n, None) for name, n in (("trn", args.train), ("tst", args.test))}
    names = (args.directory / "labels.txt").read_text(encoding="utf-8").split("\n")
    rows = []

    def add(name: str, found: dict[str, float], cpu: float) -> None:
        rows.append([name, *(f"{found[metric]:.1f}" for metric in METRICS), f"{cpu:.0f}"])

    with tempfile.TemporaryDirectory() as directory:
        write_inputs(Path(directory), names, parts, args.stemmer)
        add(f"Annif, {args.stemmer} stemmer, three Bonsai trees", *run_annif(args.annif, Path(directory)))
    add("XRLinear, words", *run_ramify(parts["trn"], parts["tst"], features=FEATURES["words"]()))
    add("XRLinear()", *run_ramify(parts["trn"], parts["tst"]))
    print(f"{len(parts['trn']):,} training and {len(parts['tst']):,} test records\n")
    print_table(["", *METRICS, "CPU s, text to model"], rows)


if __name__ == "__main__":
    main()
