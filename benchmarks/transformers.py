"""Encoders beside TF-IDF: frozen, fine-tuned down the label tree, and in ensembles; encoding speed.

    python benchmarks/transformers.py RECORDS/tibkat-gnd --encoder MODEL --max-length 64 --field lang=en --rows 3000
    python benchmarks/transformers.py RECORDS/tibkat-gnd --encoder MODEL --speed --peer PYTHON
    python benchmarks/transformers.py RECORDS/tibkat-gnd --encoder MODEL --pecos PYTHON --train-rows 5000 --rows 2000

A directory holds records ({trn,tst}.jsonl.xz with text and labels). PYTHON is an interpreter with
sentence-transformers, or with libpecos and the transformers version it needs: both libraries then train on the same
samples and features, with trees of the same settings, and are measured by the same metric code.
"""

from __future__ import annotations

import argparse
import json
import lzma
from pathlib import Path

from common import alternate, print_machine, print_table, run_child
from elias import MEASURE
from xrlinear import COLUMNS, LOAD

TUNED = (
    "ramify.XRTransformer(encoder=ramify.TransformerEncoder(path, max_length={max_length}, n_windows={n_windows}), "
    "training=ramify.TrainingConfig(max_samples={max_samples}, batch_size=64, dropout=0.1, learning_rate=0.002), "
    "min_match_clusters=256)"
)
MODELS = ["ramify.XRLinear()", "ramify.XRTransformer(encoder=encoder)", TUNED]

ENSEMBLE = (
    MEASURE.split("encoder = ramify.BagEncoder()")[0]
    + """
members = [ramify.load(path) for path in sys.argv[3].split()]
def measure(combine, chosen):
    model = ramify.Ensemble.of([members[i] for i in chosen], combine=combine)
    result = ramify.evaluate(model.predict_topk(X_test, k=100), Y_test, Y)
    return [f"{combine} of {' and '.join(str(i + 1) for i in chosen)}", *(result[name] for name in sys.argv[4].split())]
last = tuple(range(len(members)))[-2:]
choices = dict.fromkeys([last, tuple(range(len(members)))])
done(rows=[measure(combine, chosen) for chosen in choices for combine in ("mean", "softmax")])
"""
)

ENCODE_RAMIFY = (
    LOAD
    + """
import ramify
from ramify.nn.encoders.transformer import Transformer
texts = json.load(open(base))
encoder = Transformer.open(ramify.TransformerEncoder(sys.argv[2], frozen=True, max_length=int(sys.argv[3])))
encoder.encode_tokens(encoder.tokens(texts[:64]), 2)
cpu, wall = time.process_time(), time.time()
encoder.encode_tokens(encoder.tokens(texts), 2)
done(cpu=len(texts) / (time.process_time() - cpu), wall=len(texts) / (time.time() - wall))
"""
)
ENCODE_PEER = """
import json, sys, time
import torch
from sentence_transformers import SentenceTransformer
torch.set_num_threads(2)
texts = json.load(open(sys.argv[1]))
model = SentenceTransformer(sys.argv[2], device="cpu")
model.max_seq_length = int(sys.argv[3])
model.encode(texts[:64])
cpu, wall = time.process_time(), time.time()
model.encode(texts, batch_size=32, show_progress_bar=False)
print(json.dumps(dict(cpu=len(texts) / (time.process_time() - cpu), wall=len(texts) / (time.time() - wall))))
"""

PECOS_DATA = (
    MEASURE.split("encoder = ramify.BagEncoder()")[0]
    + """
from ramify.io.labels import align_labels, encode_labels
features = ramify.Tfidf(sublinear_tf=True)
directory = sys.argv[3]
sp.save_npz(f"{directory}/X.trn.npz", features.fit_transform(X))
sp.save_npz(f"{directory}/X.tst.npz", features.transform(X_test))
Y, vocabulary = encode_labels(Y, len(X))
known, n = align_labels(Y_test, vocabulary)
sp.save_npz(f"{directory}/Y.trn.npz", Y); sp.save_npz(f"{directory}/Y.tst.npz", known[:, :n])
json.dump({"trn": X, "tst": X_test}, open(f"{directory}/texts.json", "w"))
done()
"""
)
FINE_TUNE_RAMIFY = (
    LOAD
    + """
import torch, transformers  # imported here, so that importing is not measured
import ramify
texts = json.load(open(f"{base}/texts.json"))
options = json.loads(sys.argv[2])
training = ramify.TrainingConfig(max_samples=options["max_samples"], batch_size=options["batch"], dropout=0.1,
                                 learning_rate=0.002, validation_size=0)
model = ramify.XRTransformer(
    encoder=ramify.TransformerEncoder(options["encoder"], max_length=options["max_length"]), training=training,
    features=ramify.Tfidf(sublinear_tf=True), max_match_clusters=options["clusters"],
    threads=options["threads"], verbose=0)
Y = matrix("Y.trn")
before, cpu, wall = peak(), time.process_time(), time.time()
model.fit(texts["trn"], Y)
cpu, wall, memory = time.process_time() - cpu, time.time() - wall, peak() - before
result = ramify.evaluate(model.predict_topk(texts["tst"], 100), matrix("Y.tst"), Y)
done(cpu=cpu, wall=wall, memory=memory, **{name: result[name] for name in sys.argv[3].split()})
"""
)
FINE_TUNE_PECOS = (
    LOAD
    + """
import torch
from pecos.xmc.xtransformer.model import XTransformer
from pecos.xmc.xtransformer.module import MLProblemWithText
texts = json.load(open(f"{base}/texts.json"))
options = json.loads(sys.argv[2])
torch.set_num_threads(options["threads"])
X, Y = matrix("X.trn").astype(np.float32), matrix("Y.trn").astype(np.float32)
params = XTransformer.TrainParams.from_dict({
    "preliminary_indexer_params": dict(nr_splits=16, max_leaf_size=16),
    "refined_indexer_params": dict(nr_splits=16, max_leaf_size=100),
    "matcher_params_chain": dict(
        model_shortcut=options["encoder"], negative_sampling="tfn+man", learning_rate=1e-4,
        batch_size=options["batch"], max_steps=-(-options["max_samples"] // options["batch"]),
        batch_gen_workers=1, save_steps=10**9, logging_steps=10**9),
    "max_match_clusters": options["clusters"]}, recursive=True)
predict = XTransformer.PredParams.from_dict(
    {"matcher_params_chain": dict(truncate_length=options["max_length"], only_topk=20)}, recursive=True)
before, cpu, wall = peak(), time.process_time(), time.time()
model = XTransformer.train(
    MLProblemWithText(texts["trn"], Y, X_feat=X), train_params=params, pred_params=predict, beam_size=20)
cpu, wall, memory = time.process_time() - cpu, time.time() - wall, peak() - before
found = model.predict(texts["tst"], matrix("X.tst").astype(np.float32), only_topk=100, beam_size=20, batch_size=32)
sp.save_npz(f"{base}/found.npz", sp.csr_matrix(found))
done(cpu=cpu, wall=wall, memory=memory)
"""
)
EVALUATE_PECOS = (
    LOAD
    + """
import ramify
found, Y_test, Y = matrix("found"), matrix("Y.tst"), matrix("Y.trn")
ids = np.full((found.shape[0], 100), -1, np.int32); scores = np.full(ids.shape, -np.inf, np.float32)
for i in range(len(ids)):
    a, b = found.indptr[i], found.indptr[i + 1]
    best = np.argsort(-found.data[a:b], kind="stable")[:100]
    ids[i, : len(best)], scores[i, : len(best)] = found.indices[a:b][best], found.data[a:b][best]
result = ramify.evaluate(ramify.Ranking(ids, scores, Y.shape[1]), Y_test, Y)
done(**{name: result[name] for name in sys.argv[2].split()})
"""
)


def data_settings(args: argparse.Namespace) -> str:
    """Samples and encoder of a measurement, as JSON."""
    options = ("field", "without", "rows", "train_rows", "encoder", "max_length", "n_windows")
    return json.dumps({"texts": True, "pruning": False, **{name: getattr(args, name) for name in options}})


def beside_pecos(args: argparse.Namespace) -> None:
    """Fine-tune the same encoder on the same samples with Ramify and with PECOS."""
    settings = data_settings(args)
    directory = args.work / "pecos-xt"
    directory.mkdir(parents=True, exist_ok=True)
    run_child(PECOS_DATA, args.data[0], settings, directory)
    names = ("encoder", "max_samples", "max_length", "batch", "clusters", "threads")
    training = json.dumps({name: getattr(args, name) for name in names})
    found = {"Ramify": run_child(FINE_TUNE_RAMIFY, directory, training, " ".join(COLUMNS))}
    print(found, flush=True)
    theirs = run_child(FINE_TUNE_PECOS, directory, training, python=args.pecos)
    found["PECOS"] = {**theirs, **run_child(EVALUATE_PECOS, directory, " ".join(COLUMNS))}
    costs = ("cpu", "wall", "memory")
    rows = [[name, *(f"{r[c]:.2f}" for c in COLUMNS), *(f"{r[c]:.0f}" for c in costs)] for name, r in found.items()]
    ratios = [f"{found['PECOS'][c] / found['Ramify'][c]:.2f} ×" for c in costs]
    print_table(["", *COLUMNS, "train CPU s", "wall s", "peak MB"], [*rows, ["ratio", *[""] * len(COLUMNS), *ratios]])


def quality(args: argparse.Namespace) -> None:
    """Train and measure each model on each data set, then ensembles of them."""
    settings = data_settings(args)
    rows = []
    for path in args.data:
        saved = []
        for number, model in enumerate(args.models):
            expression = model
            for name in ("max_length", "n_windows", "max_samples"):
                expression = expression.replace(f"{{{name}}}", str(getattr(args, name)))
            saved.append(args.work / f"transformers-{number}")
            r = run_child(MEASURE, path, settings, expression, saved[-1], " ".join(COLUMNS))
            costs = [f"{r[c]:.0f}" for c in ("cpu", "wall", "memory", "size")]
            rows.append([Path(path).name, expression, *(f"{x:.2f}" for x in r["rows"][0][1:-1]), *costs])
            print(" ".join(rows[-1]), flush=True)
        if len(saved) > 1:
            r = run_child(ENSEMBLE, path, settings, " ".join(map(str, saved)), " ".join(COLUMNS))
            rows += [[Path(path).name, name, *(f"{x:.2f}" for x in found), *[""] * 4] for name, *found in r["rows"]]
    print_table(["data", "model", *COLUMNS, "train CPU s", "wall s", "peak MB", "MB"], rows)


def speed(args: argparse.Namespace) -> None:
    """Texts encoded per CPU second by Ramify and by sentence-transformers, alternating."""
    with lzma.open(f"{args.data[0]}/tst.jsonl.xz", "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for _, line in zip(range(args.texts), lines, strict=False)]
    args.work.mkdir(parents=True, exist_ok=True)
    path = args.work / "texts.json"
    path.write_text(json.dumps(texts))
    found = alternate(
        {
            "Ramify": lambda: run_child(ENCODE_RAMIFY, path, args.encoder, args.max_length),
            "sentence-transformers": lambda: run_child(
                ENCODE_PEER, path, args.encoder, args.max_length, python=args.peer
            ),
        },
        args.runs,
    )
    rows = [[name, f"{r['cpu']:.1f}", f"{r['wall']:.1f}"] for name, r in found.items()]
    ratios = [found["Ramify"][key] / found["sentence-transformers"][key] for key in ("cpu", "wall")]
    print_table(["", "texts per CPU second", "texts per second"], [*rows, ["ratio", *(f"{x:.2f}" for x in ratios)]])


def main() -> None:
    """Run the selected benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", help="directories of records")
    parser.add_argument("--encoder", required=True, help="directory of a transformer")
    parser.add_argument(
        "--models", nargs="*", default=MODELS, help="expressions; `encoder` is frozen, `path` its directory"
    )
    parser.add_argument("--field", help="use only records with this value of a field, as in lang=en")
    parser.add_argument("--without", type=int, nargs="*", default=[], help="label ids to exclude")
    parser.add_argument("--rows", type=int, default=10**9, help="maximum number of test samples")
    parser.add_argument("--train-rows", type=int, default=10**9, help="maximum number of training samples")
    parser.add_argument("--max-samples", type=int, default=10_000, help="samples for fine-tuning each level")
    parser.add_argument("--max-length", type=int, default=64, help="tokens per window")
    parser.add_argument("--n-windows", type=int, default=1, help="windows per text")
    parser.add_argument("--pecos", help="interpreter with libpecos: compare fine-tuning with it")
    parser.add_argument("--batch", type=int, default=32, help="batch size, for --pecos")
    parser.add_argument(
        "--clusters", type=int, default=32768, help="nodes of the largest level to fine-tune on, for --pecos"
    )
    parser.add_argument("--threads", type=int, default=2, help="threads of each library, for --pecos")
    parser.add_argument("--speed", action="store_true", help="measure encoding speed")
    parser.add_argument("--peer", help="interpreter with sentence-transformers, for --speed")
    parser.add_argument("--texts", type=int, default=1000, help="number of texts, for --speed")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("demo/benchmark"))
    args = parser.parse_args()
    print_machine()
    if args.speed:
        speed(args)
    elif args.pecos:
        beside_pecos(args)
    else:
        quality(args)


if __name__ == "__main__":
    main()
