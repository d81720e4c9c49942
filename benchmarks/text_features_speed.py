"""Speed of text features: words beside stems and parts of words, by Ramify and by scikit-learn with PyStemmer.

    python benchmarks/text_features_speed.py TEXTS.jsonl.xz [--texts 20000] [--stemmer german] [--runs 3]

The same columns and values on both sides, which is checked. scikit-learn's side has `TfidfVectorizer` for the words,
and for stems and parts a Python function that stems with PyStemmer and splits words in plain Python, each distinct word
once, with one language for all texts. Texts with a script without spaces are left out. Every measurement is a
fit_transform of all texts on one thread; the two alternate. At the end: one text of about 170 words at a time, with the
default features, which also recognize languages.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import re
import statistics
import time
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import Stemmer
from common import print_machine, print_table
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from ramify.features import Concat, Tfidf, text_features, word_features

UNSPACED = re.compile("[\u0e00-\u10ff\u1780-\u17ff\u3040-\U0003ffff]")
LINKS = ("s", "n", "en", "es", "er", "e")


def parts_of(word: str, costs: dict[str, Any]) -> list[str]:
    """Cheapest sequence of known parts with linking letters between; else the longest known beginning and end."""
    n = len(word)
    if n < 6 or n > 64 or any(c <= "9" for c in word):
        return []
    best: dict[int, tuple[Any, list[str], bool]] = {0: (np.float32(0), [], False)}
    for start in range(n - 3 if n >= 8 else 0):
        if start not in best:
            continue
        cost, parts, follows_part = best[start]
        options = [
            (end, costs[word[start:end]], [word[start:end]], True)
            for end in range(start + 4, n + 1)
            if word[start:end] in costs and (start, end) != (0, n)
        ]
        if follows_part:
            options += [(start + len(x), np.float32(2), [], False) for x in LINKS if word.startswith(x, start)]
        for end, more, added, is_part in options:
            if (end == n or end + 4 <= n) and (end not in best or cost + more < best[end][0]):
                best[end] = (cost + more, parts + added, is_part)
    if n in best:
        return best[n][1]
    begins = [word[:m] for m in range(n - 1, 4, -1) if word[:m] in costs][:1]
    return begins + [word[-m:] for m in range(n - 1, 4, -1) if word[-m:] in costs][:1]


def by_sklearn(texts: list[str], language: str) -> Any:
    """Features (n × d) by scikit-learn, PyStemmer and plain Python."""
    words = TfidfVectorizer(sublinear_tf=True, dtype=np.float32).fit_transform(texts)
    split, stem = TfidfVectorizer().build_analyzer(), lru_cache(None)(Stemmer.Stemmer(language).stemWord)
    documents = [[stem(word) for word in split(text)] for text in texts]
    df = Counter(term for document in documents for term in set(document))
    costs = {term: np.float32(math.log(len(texts) / n) + 1) for term, n in df.items() if n >= 3}
    known = {term for term, n in df.items() if n >= 2}
    terms = lru_cache(None)(lambda word: [term for term in (word, *parts_of(word, costs)) if term in known])
    stems = TfidfVectorizer(
        sublinear_tf=True, dtype=np.float32, analyzer=lambda document: [t for word in document for t in terms(word)]
    ).fit_transform(documents)
    return sparse.hstack([words * np.float32(0.75), stems], format="csr")


def by_ramify(texts: list[str], language: str) -> Any:
    """The same features (n × d) by Ramify, one thread."""
    stems = Tfidf(sublinear_tf=True, stemmer=language, subwords="parts", min_df=2, threads=1)
    words = word_features()
    words.threads = 1
    return Concat(parts=(words, stems), weights=(0.75, 1.0)).fit_transform(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--stemmer", default="german")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    print_machine()
    with lzma.open(args.file, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line, _ in zip(lines, range(args.texts), strict=False)]
    texts = [text for text in texts if not UNSPACED.search(text)]
    seconds: dict[str, list[float]] = {"Ramify": [], "scikit-learn": []}
    found = {}
    for _ in range(args.runs):
        for name, make in (("Ramify", by_ramify), ("scikit-learn", by_sklearn)):
            started = time.process_time()
            found[name] = make(texts, args.stemmer)
            seconds[name].append(time.process_time() - started)
    ours, theirs = found["Ramify"], found["scikit-learn"]
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    print(f"{len(texts):,} texts, {ours.shape[1]:,} columns, largest difference {abs(ours - theirs).max():.1e}\n")
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    print_table(["", "CPU s"], [[name, f"{value:.2f}"] for name, value in medians.items()])
    print(f"\nratio {medians['scikit-learn'] / medians['Ramify']:.1f}")

    rows = []
    queries = [text for text in texts if 160 <= len(text.split()) <= 180][:1000]
    for name, features in (("words", word_features()), ("default", text_features())):
        features.fit(texts)
        times = []
        for text in queries:
            started = time.perf_counter_ns()
            features.transform([text])
            times.append((time.perf_counter_ns() - started) / 1000)
        rows.append([name, f"{statistics.median(times):.0f}"])
    print(f"\nOne text of 160 to 180 words, {len(queries):,} of them\n")
    print_table(["", "median µs"], rows)


if __name__ == "__main__":
    main()
