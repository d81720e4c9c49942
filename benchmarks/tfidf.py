"""TF-IDF: Ramify beside scikit-learn and PECOS's vectorizer on the same texts.

    python benchmarks/tfidf.py TEXTS.jsonl.xz [--sizes 5000 20000] [--pecos-python PYTHON] [--runs 3]

Every measurement is a fresh process that runs once before it measures; the libraries alternate. CPU seconds are those
of the whole process, with any number of threads. `--sizes` gives a table for the first texts of each number, in place
of all texts. `--pecos-python` is an interpreter with libpecos.
"""

from __future__ import annotations

import argparse
import functools

from common import alternate, print_machine, print_table, run_child

READ = """
import gzip, itertools, json, lzma, sys, time
import numpy as np
name, size, threads = sys.argv[1], int(sys.argv[2]) or None, int(sys.argv[3])
opener = {"xz": lzma.open, "gz": gzip.open}.get(name.rsplit(".", 1)[-1], open)
with opener(name, "rt", encoding="utf-8") as file:
    texts = [json.loads(line)["text"] for line in itertools.islice(file, size)]

def measure(fit, one):
    fit(texts)
    cpu, wall = time.process_time(), time.perf_counter()
    model, shape = fit(texts)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    times = []
    for text in texts[:2000]:
        started = time.perf_counter_ns()
        one(model, text)
        times.append(time.perf_counter_ns() - started)
    print(json.dumps({"cpu": cpu, "wall": wall, "texts": shape[0], "terms": shape[1],
                      "one": float(np.median(times)) / 1000, "one_p99": float(np.percentile(times, 99)) / 1000}))
"""
RAMIFY = (
    READ
    + """
from ramify import Tfidf
def fit(texts):
    model = Tfidf(sublinear_tf=True, min_df=2, threads=threads)
    return model, model.fit_transform(texts).shape
measure(fit, lambda model, text: model.transform([text]))
"""
)
SKLEARN = (
    READ
    + """
from sklearn.feature_extraction.text import TfidfVectorizer
def fit(texts):
    model = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32)
    return model, model.fit_transform(texts).shape
measure(fit, lambda model, text: model.transform([text]))
"""
)
PECOS = (
    READ
    + """
from pecos.utils.featurization.text.vectorizers import Vectorizer
texts = [text.replace("\\n", " ") for text in texts]
def fit(texts):
    options = dict(ngram_range=[1, 1], max_df_ratio=1.0, min_df_cnt=2, analyzer="word", sublinear_tf=True, norm="l2")
    model = Vectorizer.train(texts, dict(type="tfidf", kwargs=dict(base_vect_configs=[options], threads=threads)))
    return model, model.predict(texts, threads=threads).shape
measure(fit, lambda model, text: model.predict([text], threads=1))
"""
)
EQUAL = (
    READ
    + """
from ramify import Tfidf
from sklearn.feature_extraction.text import TfidfVectorizer
worst = 0.0
for options in ({}, {"ngram_range": (1, 2), "min_df": 2}, {"analyzer": "char_wb", "ngram_range": (3, 4), "min_df": 3}):
    some = texts[::10]
    theirs, ours = TfidfVectorizer(**options), Tfidf(**options)
    a, b = theirs.fit_transform(some), ours.fit_transform(some)
    assert theirs.get_feature_names_out().tolist() == ours.get_feature_names_out().tolist()
    worst = max(worst, float(abs(a - b).max()))
print(json.dumps({"worst": worst}))
"""
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", help="JSON Lines with a field 'text'; plain, .gz or .xz")
    parser.add_argument("--sizes", type=int, nargs="+", default=[0], help="a table for each number of texts; 0: all")
    parser.add_argument("--pecos-python", help="interpreter with libpecos; PECOS is omitted without it")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    print_machine()
    worst = run_child(EQUAL, args.texts, 0, 1)["worst"]
    print(f"Largest difference from scikit-learn on a tenth of the texts, three analyzers: {worst:.1e}")
    for size in args.sizes:
        compare(args.texts, size, args.pecos_python, args.runs)


def compare(texts: str, size: int, pecos_python: str | None, runs: int) -> None:
    """Print the table for the first `size` texts."""
    jobs = {
        "scikit-learn": functools.partial(run_child, SKLEARN, texts, size, 1),
        "Ramify, 1 thread": functools.partial(run_child, RAMIFY, texts, size, 1),
        "Ramify, 2 threads": functools.partial(run_child, RAMIFY, texts, size, 2),
    }
    if pecos_python:
        for threads in (1, 2):
            job = functools.partial(run_child, PECOS, texts, size, threads, python=pecos_python)
            jobs[f"PECOS, {threads} thread{'s' * (threads > 1)}"] = job
    results = alternate(jobs, runs)
    base = results["scikit-learn"]
    rows = [
        [
            name,
            f"{r['cpu']:.3f}",
            f"{base['cpu'] / r['cpu']:.1f} ×",
            f"{r['wall']:.3f}",
            f"{base['wall'] / r['wall']:.1f} ×",
            f"{r['one']:.1f}",
            f"{r['one_p99']:.0f}",
            f"{base['one'] / r['one']:.0f} ×",
        ]
        for name, r in results.items()
    ]
    print(f"\n{base['texts']:,.0f} texts, {base['terms']:,.0f} terms\n")
    header = ["", "fit+transform CPU s", "ratio", "wall s", "ratio", "one text µs, median", "99 %", "ratio"]
    print_table(header, rows)


if __name__ == "__main__":
    main()
