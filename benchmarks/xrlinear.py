"""XR-Linear beside PECOS and omikuji: training, queries, batches, size, loading, memory and accuracy; scaling.

    python benchmarks/xrlinear.py --data MATRICES/tibkat-gnd --pecos PYTHON --omikuji PYTHON
    python benchmarks/xrlinear.py --seeds 5 --data MATRICES/tibkat-gnd --pecos PYTHON
    python benchmarks/xrlinear.py --quality MATRICES/eurlex-57k MATRICES/tibkat-gnd
    python benchmarks/xrlinear.py --scaling 10000 100000 1000000

A directory of MATRICES holds {X,Y}.{trn,tst}.npz and trn.svm, the training data as XMC text; PYTHON is an interpreter
with libpecos, or with omikuji. All libraries train on the same data and are measured by the same metric code; each
phase runs in its own process.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
from pathlib import Path

from common import alternate, print_table, run_child

LOAD = """
import json, os, resource, sys, time
import numpy as np, scipy.sparse as sp
base = sys.argv[1]
THREADS = int(os.environ["OMP_NUM_THREADS"])
def matrix(name): return sp.csr_matrix(sp.load_npz(f"{base}/{name}.npz"))
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
def size(path): return sum(os.path.getsize(os.path.join(a, f)) for a, _, fs in os.walk(path) for f in fs) / 1e6
def done(**values): print(json.dumps(values))
def per_query(one, rows):
    for row in rows[:20]: one(row)
    medians = []
    for _ in range(3):
        taken = []
        for row in rows:
            start = time.perf_counter_ns(); one(row); taken.append(time.perf_counter_ns() - start)
        medians.append(np.median(taken) / 1e3)
    return float(np.median(medians))
"""

TRAIN_RAMIFY = (
    LOAD
    + """
import ramify
ramify.XRLinear  # imported here, so that importing is not measured
X, Y = matrix("X.trn"), matrix("Y.trn")
model = eval(sys.argv[3], {"ramify": ramify})
model.clone().fit(X[:50], Y[:50])
before = peak(); cpu = time.process_time(); wall = time.time()
model.fit(X, Y)
cpu, wall = time.process_time() - cpu, time.time() - wall
memory = peak() - before
model.save(sys.argv[2])
done(cpu=cpu, wall=wall, memory=memory, size=size(sys.argv[2]))
"""
)

TRAIN_PECOS = (
    LOAD
    + """
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
X, Y = matrix("X.trn"), matrix("Y.trn").tocsc()
before = peak(); cpu = time.process_time(); wall = time.time()
vectors = LabelEmbeddingFactory.create(Y, X, method="pifa", threads=THREADS)
seed = int(sys.argv[3]) if len(sys.argv) > 3 else 0
chain = Indexer.gen(vectors, indexer_type="hierarchicalkmeans", nr_splits=16, max_leaf_size=100, seed=seed,
                    threads=THREADS)
model = XLinearModel.train(X, Y, C=chain, nr_splits=16, negative_sampling_scheme="tfn", threshold=0.1, threads=THREADS,
                           beam_size=10, only_topk=20)
cpu, wall = time.process_time() - cpu, time.time() - wall
memory = peak() - before
import shutil; shutil.rmtree(sys.argv[2], ignore_errors=True)
model.save(sys.argv[2])
done(cpu=cpu, wall=wall, memory=memory, size=size(sys.argv[2]))
"""
)

TRAIN_OMIKUJI = (
    LOAD
    + """
import shutil
import omikuji
from omikuji._libomikuji import ffi, lib  # reads the data apart from training
settings = omikuji.Model.default_hyper_param()
settings.n_trees, settings.cluster_balanced, settings.cluster_k, settings.max_depth = 1, False, 100, 3  # Bonsai
pool = omikuji._ThreadPoolHandle(THREADS)
path = ffi.new("char[]", f"{base}/trn.svm".encode())
data = ffi.gc(lib.load_omikuji_data_set(path, pool.ptr), lib.free_omikuji_data_set)
before = peak(); cpu = time.process_time(); wall = time.time()
model = omikuji.Model(lib.train_omikuji_model(data, settings, pool.ptr))
cpu, wall = time.process_time() - cpu, time.time() - wall
memory = peak() - before
shutil.rmtree(sys.argv[2], ignore_errors=True)
model.save(sys.argv[2])
done(cpu=cpu, wall=wall, memory=memory, size=size(sys.argv[2]))
"""
)

PREDICT_OMIKUJI = (
    LOAD
    + """
import omikuji
X = matrix("X.tst")
start = time.perf_counter(); model = omikuji.Model.load(sys.argv[2]); loading = time.perf_counter() - start
model.init_prediction_thread_pool(THREADS)
rows = [list(zip(X[i].indices.tolist(), X[i].data.tolist())) for i in range(X.shape[0])]
one = per_query(lambda row: model.predict(row, beam_size=10, top_k=10), rows[:1000])
figures = {}
for k in (10, 100):
    cpu = time.process_time()
    for row in rows[:3000]: model.predict(row, beam_size=10, top_k=k)
    figures[f"batch{k}"] = (time.process_time() - cpu) / min(3000, len(rows)) * 1e6
top = np.full((X.shape[0], 100), -1, np.int32)
for i, row in enumerate(rows):
    found = [label for label, _ in model.predict(row, beam_size=10, top_k=100)]
    top[i, : len(found)] = found
np.save(sys.argv[2] + ".top.npy", top)
done(load=loading * 1e3, one=one, **figures)
"""
)

PREDICT_RAMIFY = (
    LOAD
    + """
import ramify
ramify.XRLinear
X = matrix("X.tst")
loading = []
for _ in range(5):
    start = time.perf_counter(); model = ramify.load(sys.argv[2]); loading.append(time.perf_counter() - start)
rows = [X[i] for i in range(min(1000, X.shape[0]))]
model.threads = THREADS
model.predict_topk(X[:200], k=10)
figures = {}
for k in (10, 100):
    batch = []
    for _ in range(3):
        cpu = time.process_time(); model.predict_topk(X, k=k); batch.append(time.process_time() - cpu)
    figures[f"batch{k}"] = float(np.median(batch)) / X.shape[0] * 1e6
np.save(sys.argv[2] + ".top.npy", model.predict_topk(X, k=100).ids)
model.threads = 1
one = per_query(lambda row: model.predict_topk(row, k=10), rows)
done(load=float(np.median(loading) * 1e3), one=one, **figures)
"""
)

PREDICT_PECOS = (
    LOAD
    + """
from pecos.xmc.xlinear.model import XLinearModel
X = matrix("X.tst")
rows = [X[i] for i in range(min(1000, X.shape[0]))]
results = {}
for mode in ("BINARY_SEARCH_CHUNKED", "HASH_CHUNKED"):
    start = time.perf_counter(); model = XLinearModel.load(sys.argv[2], is_predict_only=True, weight_matrix_type=mode)
    loading = time.perf_counter() - start
    model.predict(X[:200], only_topk=10, beam_size=10, threads=THREADS)
    results[mode] = [loading * 1e3]
    for k in (10, 100):
        batch = []
        for _ in range(3):
            cpu = time.process_time(); model.predict(X, only_topk=k, beam_size=10, threads=THREADS)
            batch.append((time.process_time() - cpu) / X.shape[0] * 1e6)
        results[mode].append(float(np.median(batch)))
    results[mode].append(per_query(lambda row: model.predict(row, only_topk=10, beam_size=10, threads=1), rows))
P = model.predict(X, only_topk=100, beam_size=10, threads=THREADS)
top = np.full((X.shape[0], 100), -1, np.int32)
for i in range(X.shape[0]):
    a, b = P.indptr[i], P.indptr[i + 1]
    order = np.argsort(-P.data[a:b], kind="stable")[:100]
    top[i, : len(order)] = P.indices[a:b][order]
np.save(sys.argv[2] + ".top.npy", top)
loading, batch10, batch100, one = (min(r[i] for r in results.values()) for i in range(4))
done(load=loading, batch10=batch10, batch100=batch100, one=one)
"""
)

COLUMNS = ("P@1", "P@3", "P@5", "PSP@5", "nDCG@5", "R@10", "R@100")


def metrics(data: str, top: Path) -> dict[str, float]:
    """Metrics of both libraries by the same code."""
    import numpy as np
    from scipy import sparse

    import ramify

    Y, Y_test = (sparse.csr_matrix(sparse.load_npz(f"{data}/Y.{part}.npz")) for part in ("trn", "tst"))
    ids = np.load(top)
    scores = -np.arange(ids.shape[1], dtype=np.float32) + np.zeros(ids.shape, np.float32)
    result = ramify.evaluate(ramify.Ranking(ids, scores, Y.shape[1]), Y_test, Y)
    return {name: result[name] for name in COLUMNS}


RAMIFY_MODELS = ("XRLinear.pecos()", "XRLinear()")


def beside_peers(data: str, peers: dict[str, str], work: Path, runs: int) -> None:
    """Train and query all libraries, alternating, on the same data."""
    train_jobs, predict_jobs = {}, {}
    for model in RAMIFY_MODELS:
        expression = f"ramify.{model[:-1]}threads={os.environ['OMP_NUM_THREADS']})"
        path = work / model[:-2]
        train_jobs[model] = functools.partial(run_child, TRAIN_RAMIFY, data, path, expression)
        predict_jobs[model] = functools.partial(run_child, PREDICT_RAMIFY, data, path)
    codes = {"PECOS": (TRAIN_PECOS, PREDICT_PECOS), "omikuji Bonsai": (TRAIN_OMIKUJI, PREDICT_OMIKUJI)}
    for name, python in peers.items():
        train_code, predict_code = codes[name]
        train_jobs[name] = functools.partial(run_child, train_code, data, work / name, python=python)
        predict_jobs[name] = functools.partial(run_child, predict_code, data, work / name, python=python)
    train, predict = alternate(train_jobs, runs), alternate(predict_jobs, runs)
    rows = []
    for title, table, key in (
        ("training, CPU s", train, "cpu"),
        ("training, wall s", train, "wall"),
        ("training, peak MB above the input", train, "memory"),
        ("model, MB", train, "size"),
        ("loading, ms", predict, "load"),
        ("one query, k=10, µs median, one thread, through Python", predict, "one"),
        ("batch, k=10, CPU µs/row", predict, "batch10"),
        ("batch, k=100, CPU µs/row", predict, "batch100"),
    ):
        rows.append([title, *(f"{table[name][key]:.1f}" for name in train_jobs)])
    print_table([Path(data).name, *train_jobs], rows)
    paths = {model: work / model[:-2] for model in RAMIFY_MODELS} | {name: work / name for name in peers}
    quality = {name: metrics(data, Path(f"{path}.top.npy")) for name, path in paths.items()}
    print_table([Path(data).name, *COLUMNS], [[name, *(f"{q[c]:.2f}" for c in COLUMNS)] for name, q in quality.items()])


def over_seeds(data: str, pecos: str, work: Path, n_seeds: int) -> None:
    """Mean and standard deviation of the accuracy over seeds, with the settings of PECOS."""
    found: dict[str, list[list[float]]] = {"XRLinear.pecos()": [], "PECOS": []}
    for seed in range(n_seeds):
        ours, theirs = work / "seed-ramify", work / "seed-pecos"
        run_child(TRAIN_RAMIFY, data, ours, f"ramify.XRLinear.pecos(seed={seed})")
        run_child(PREDICT_RAMIFY, data, ours)
        run_child(TRAIN_PECOS, data, theirs, seed, python=pecos)
        run_child(PREDICT_PECOS, data, theirs, python=pecos)
        for name, path in (("XRLinear.pecos()", ours), ("PECOS", theirs)):
            found[name].append(list(metrics(data, Path(f"{path}.top.npy")).values()))
    rows = []
    for name, values in found.items():
        columns = list(zip(*values, strict=True))
        rows.append([name, *(f"{statistics.mean(c):.2f} ± {statistics.stdev(c):.2f}" for c in columns)])
    print_table([f"{Path(data).name}, {n_seeds} seeds", *COLUMNS], rows)


QUALITY = (
    LOAD
    + """
import ramify
X, Y, X_test, Y_test = (matrix(name) for name in ("X.trn", "Y.trn", "X.tst", "Y.tst"))
model = eval(sys.argv[2], {"ramify": ramify})
cpu = time.process_time(); model.fit(X, Y); cpu = time.process_time() - cpu
ranking = model.predict_topk(X_test, k=100)
model.save(sys.argv[3])
model.threads = 1
result = ramify.evaluate(ranking, Y_test, Y)
names = sys.argv[4].split()
one = per_query(lambda row: model.predict_topk(row, k=10), [X_test[i] for i in range(min(500, X_test.shape[0]))])
done(cpu=cpu, size=size(sys.argv[3]), one=one, **{name: result[name] for name in names})
"""
)


def quality(data: list[str], models: list[str], work: Path) -> None:
    """Accuracy and cost of models, given as expressions."""
    rows = []
    for path in data:
        for model in models:
            r = run_child(QUALITY, path, model, work / "model", " ".join(COLUMNS))
            cells = [f"{r[c]:.2f}" for c in COLUMNS]
            short = model.replace("ramify.", "")
            rows.append([Path(path).name, short, *cells, f"{r['cpu']:.0f}", f"{r['size']:.0f}", f"{r['one']:.0f}"])
            print(" ".join(rows[-1]), flush=True)
    print_table(["data", "model", *COLUMNS, "train CPU s", "MB", "one query µs"], rows)


SCALING = (
    LOAD.replace("base = sys.argv[1]", "L = int(sys.argv[1])")
    + """
import ramify
sys.path.insert(0, sys.argv[3])
from synthetic import zipf
X, Y, X_test = zipf(L)
before = peak(); cpu = time.process_time()
model = eval(sys.argv[4], {"ramify": ramify}).fit(X, Y)
cpu = time.process_time() - cpu; memory = peak() - before
model.save(sys.argv[2])
loading = []
for _ in range(5):
    del model  # so that freeing it is not measured
    start = time.perf_counter(); model = ramify.load(sys.argv[2]); loading.append(time.perf_counter() - start)
model.threads = 1
rows = [X_test[i] for i in range(min(500, X_test.shape[0]))]
one = per_query(lambda row: model.predict_topk(row, k=10), rows)
done(n=X.shape[0], d=X.shape[1], nnz=X.nnz, cpu=cpu, memory=memory, size=size(sys.argv[2]), one=one,
     load=float(np.median(loading)) * 1e3)
"""
)


def scaling(sizes: list[int], models: list[str], work: Path) -> None:
    """Cost by number of labels, on synthetic data."""
    here = Path(__file__).parent
    rows = []
    for model in models:
        for n_labels in sizes:
            r = run_child(SCALING, n_labels, work / "model", here, model)
            figures = [f"{r[key]:.0f}" for key in ("cpu", "memory", "size", "load", "one")]
            rows.append([model.replace("ramify.", ""), f"{n_labels:,}", f"{r['n']:,}", *figures])
            print(" ".join(rows[-1]), flush=True)
    header = ["model", "labels", "samples", "training CPU s", "peak MB above the input", "model MB", "loading ms"]
    print_table([*header, "one query µs"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=[], help="directories of matrices for the comparison with peers")
    parser.add_argument("--pecos", help="interpreter with libpecos")
    parser.add_argument("--omikuji", help="interpreter with omikuji")
    parser.add_argument("--seeds", type=int, help="accuracy with the settings of PECOS over this many seeds instead")
    parser.add_argument("--quality", nargs="*", default=[], help="directories of matrices to measure models on")
    parser.add_argument(
        "--models", nargs="*", default=["ramify.XRLinear()", "ramify.XRLinear(n_trees=3)"], help="expressions"
    )
    parser.add_argument("--scaling", nargs="*", type=int, default=[], help="numbers of labels")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("demo/benchmark"))
    parser.add_argument("--threads", type=int, default=2, help="threads of every library in training and in batches")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # for the children, also for those of PECOS
    args.work.mkdir(parents=True, exist_ok=True)
    peers = {name: python for name, python in (("PECOS", args.pecos), ("omikuji Bonsai", args.omikuji)) if python}
    for data in args.data:
        if args.seeds is None:
            beside_peers(data, peers, args.work, args.runs)
        elif args.pecos:
            over_seeds(data, args.pecos, args.work, args.seeds)
        else:
            parser.error("--seeds needs --pecos")
    if args.quality:
        quality(args.quality, args.models, args.work)
    if args.scaling:
        scaling(args.scaling, args.models[:1], args.work)


if __name__ == "__main__":
    main()
