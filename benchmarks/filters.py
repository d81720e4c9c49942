"""Label filters among a million labels: time of one query without a filter and with ten allowed labels, and exactness.

    python benchmarks/filters.py --labels 1000000
    python benchmarks/filters.py --data RECORDS/tibkat-gnd --rows 10000     # every kind of model, trained on its rows

The models of the first have random weights over a random index, which costs a search what trained ones of the same size
do.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import print_machine, print_table
from scipy import sparse

import ramify
from ramify.base.sparse import csr_from_parts
from ramify.index.ann import AnnConfig
from ramify.index.tree import LabelTree
from ramify.io.labels import LabelVocabulary
from ramify.metrics.propensity import LabelCounts
from ramify.nn.label_index import LabelIndex
from ramify.rank.beam import LinearTree, PackedLevel
from ramify.rank.score_transforms import ScoreTransform

N_FEATURES, N_TERMS = 50_000, 40
DIM = 64


def prepared(model: Any, n_labels: int, kind: str, n_features: int) -> Any:
    """Give a model what `fit` sets."""
    model.labels_, model.catalogue_ = LabelVocabulary(list(range(n_labels))), None
    model.label_counts_ = LabelCounts(n_labels, np.ones(n_labels, np.int64))
    model.input_kind_, model.n_features_in_, model.transformer_ = kind, n_features, None
    model._set_decisions(None, None)
    return model


def xr_linear(n_labels: int, random: np.random.Generator) -> tuple[Any, list[Any]]:
    """Return an `XRLinear` with random weights, and queries."""
    widths = [128, 128 * 128, n_labels]
    levels, packed, above = [], [], 1
    for width in widths:
        children = np.linspace(0, width, above + 1).astype(np.int64)
        n_terms = N_TERMS if width < n_labels else N_TERMS // 2
        columns = np.sort(random.integers(0, N_FEATURES, (width, n_terms)), axis=1).ravel()
        W = sparse.csr_matrix(
            (random.normal(0, 1, width * n_terms).astype(np.float32), columns, np.arange(width + 1) * n_terms),
            (width, N_FEATURES + 1),
        )
        W.sum_duplicates()
        levels.append(children)
        packed.append(PackedLevel.pack(W, children, N_FEATURES, 1.0, 1))
        above = width
    tree = LabelTree(tuple(levels), random.permutation(n_labels).astype(np.int32), n_labels)
    model = prepared(ramify.XRLinear(threads=1), n_labels, "sparse", N_FEATURES)
    model.trees_ = [LinearTree(tree, packed, [ScoreTransform.parse("l3-hinge")] * 3, N_FEATURES)]
    queries = [
        csr_from_parts(np.full(N_TERMS, 0.16, np.float32),
                       np.sort(random.choice(N_FEATURES, N_TERMS, replace=False)).astype(np.int32),
                       np.array([0, N_TERMS]), (1, N_FEATURES))
        for _ in range(200)
    ]  # fmt: skip
    return model, queries


class Identity:
    """An encoder that returns the dense features of samples."""

    dim = DIM

    def encode(self, samples: Any, threads: int) -> np.ndarray:
        """Return the features."""
        return samples.features.dense


def lightdxml(n_labels: int, random: np.random.Generator) -> tuple[Any, list[Any]]:
    """Return a `LightDXML` with random label embeddings and classifiers, and queries."""
    topics = random.normal(size=(1000, DIM)).astype(np.float32)
    embeddings = topics[random.integers(0, 1000, n_labels)] + 0.7 * random.normal(size=(n_labels, DIM)).astype(
        np.float32
    )
    queries = topics[random.integers(0, 1000, 400)] + 0.7 * random.normal(size=(400, DIM)).astype(np.float32)
    model = prepared(ramify.LightDXML(threads=1), n_labels, "dense", DIM)
    ids = np.arange(n_labels, dtype=np.int32)
    model.label_index_ = LabelIndex.build(
        embeddings, ids, np.ones(n_labels, np.int64), AnnConfig(rescore=False), k=300, queries=queries[200:], seed=0,
        threads=1,
    )  # fmt: skip
    model.encoder_, model.beta_, model.reranker_, model.calibrator_ = Identity(), 0.5, None, None
    model.by_row_ = model.blends_by_row
    model.classifiers_ = embeddings / 4, np.full(n_labels, -8, np.float32)
    return model, [query[None] for query in queries[:200]]


def trained_kinds() -> dict[str, Callable[[], Any]]:
    """Every kind of model, small enough to be trained in a minute."""
    common: dict[str, Any] = {"threads": 1, "verbose": 0}
    training = ramify.TrainingConfig(epochs=2)
    names: dict[str, Any] = {"labels": "catalogue", **common}
    return {
        "OneVsAll": lambda: ramify.OneVsAll(**common),
        "XRLinear": lambda: ramify.XRLinear(**common),
        "Elias": lambda: ramify.Elias(stage1=training, stage2=training, **common),
        "Elias, sparse ranker": lambda: ramify.Elias(stage1=training, stage2=training, ranker="sparse", **common),
        "LightDXML": lambda: ramify.LightDXML(training=training, **common),
        "LightDXML, re-ranker": lambda: ramify.LightDXML(training=training, reranker=True, **common),
        "Astec": lambda: ramify.Astec(training=training, surrogate=training, **common),
        "XTransformer": lambda: ramify.XTransformer(encoder=ramify.BagEncoder(), training=training, **common),
        "XRTransformer": lambda: ramify.XRTransformer(encoder=ramify.BagEncoder(), training=training, **common),
        "NeuralOneVsAll": lambda: ramify.NeuralOneVsAll(training=training, **common),
        "KNN": lambda: ramify.KNN(**common),
        "LabelMatcher": lambda: ramify.LabelMatcher(**names),
        "ZestXML": lambda: ramify.ZestXML(**names),
        "Hybrid": lambda: ramify.Hybrid((ramify.XRLinear(**common), ramify.KNN(**common)), n_folds=2, **common),
        "Ensemble": lambda: ramify.Ensemble((ramify.XRLinear(**common), ramify.KNN(**common)), **common),
    }


def print_trained(directory: Path, n_rows: int, kinds: Sequence[str] | None) -> None:
    """Print time and exactness of each kind of model on texts, with random sets of ten allowed labels."""
    train, test = (ramify.read(directory / f"{name}.jsonl.xz") for name in ("trn", "tst"))
    texts, labels = train.inputs[:n_rows], train.labels()[:n_rows]
    lines = (directory / "labels.txt").read_text(encoding="utf-8").splitlines()
    catalogue = {i: line for i, line in enumerate(lines) if line}
    queries = [[text] for text in test.inputs[:200]]
    for name, make in trained_kinds().items():
        if kinds is not None and name not in kinds:
            continue
        model = make().fit(texts, labels, label_catalogue=catalogue)
        random = np.random.default_rng(0)
        ids = np.sort(random.choice(model.n_labels, 10, replace=False))
        some = [model.labels_[int(i)] for i in ids]
        allow = model.label_filter(allow=some)
        model.predict_topk(queries[0], 10, allow=allow)
        without, filtered = [], []
        for _ in range(3):  # alternating: the machine may have other work
            without.append(timed(model, queries))
            filtered.append(timed(model, queries, allow=allow))
        alone = [model.label_filter(allow=[label]) for label in some]
        exact = 0
        for query in queries[:20]:
            found = model.predict_topk(query, 10, allow=allow)
            own = [model.predict_topk(query, 1, allow=one).scores[0, 0] for one in alone]
            exact += np.allclose(np.sort(own)[::-1], found.scores[0], rtol=1e-4, atol=1e-7)
        row = [name, f"{model.n_labels:,}", f"{min(without):.0f}", f"{min(filtered):.0f}", f"{exact} of 20"]
        print("| " + " | ".join(row) + " |", flush=True)


def timed(model: Any, queries: list[Any], **options: Any) -> float:
    """Median CPU time of a query for ten labels, in µs."""
    times = []
    for query in queries:
        start = time.process_time()
        model.predict_topk(query, 10, **options)
        times.append(time.process_time() - start)
    return 1e6 * float(np.median(times))


def exact_scores(model: Any, query: Any, ids: np.ndarray) -> np.ndarray:
    """Scores of labels, each computed alone: an `XRLinear` without a beam, a `LightDXML` with one label allowed."""
    if isinstance(model, ramify.XRLinear):
        selected = sparse.csr_matrix((np.ones(len(ids), np.int8), (np.zeros(len(ids), int), ids)), (1, model.n_labels))
        return np.asarray(model.predict_selected(query, selected)[0, ids].todense()).ravel()
    return np.array([model.predict_topk(query, 1, allow=[int(i)]).scores[0, 0] for i in ids])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=1_000_000)
    parser.add_argument("--models", nargs="+", help="with --data kinds of models; otherwise XRLinear, LightDXML")
    parser.add_argument("--data", type=Path, help="directory of records, to train every kind of model on")
    parser.add_argument("--rows", type=int, default=10_000, help="training rows with --data")
    args = parser.parse_args()
    print_machine()
    if args.data is not None:
        print_trained(args.data, args.rows, args.models)
        return
    table = []
    for name in args.models or ("XRLinear", "LightDXML"):
        random = np.random.default_rng(0)
        model, queries = {"XRLinear": xr_linear, "LightDXML": lightdxml}[name](args.labels, random)
        row = [name, f"{timed(model, queries):.0f}"]
        for n_allowed in (10, 1000):
            ids = random.choice(args.labels, n_allowed, replace=False)
            start = time.perf_counter()
            allow = model.label_filter(allow=ids.tolist())
            model.predict_topk(queries[0], 10, allow=allow)
            preparation = time.perf_counter() - start
            row += [f"{timed(model, queries, allow=allow):.0f}", f"{1000 * preparation:.1f}"]
            wrong = 0
            for query in queries[:20]:
                found = model.predict_topk(query, 10, allow=allow)
                scores = exact_scores(model, query, ids) if n_allowed == 10 or name == "XRLinear" else None
                if scores is not None:
                    wrong += not np.allclose(np.sort(scores)[::-1][:10], found.scores[0], rtol=1e-4, atol=1e-7)
            row.append(f"{20 - wrong} of 20" if n_allowed == 10 or name == "XRLinear" else "–")
        table.append(row)
    header = ["model", "no filter, µs", "10 allowed, µs", "first request, ms", "exact",
              "1,000 allowed, µs", "first request, ms", "exact"]  # fmt: skip
    print_table(header, table)


if __name__ == "__main__":
    main()
