"""Encoders beside TF-IDF: frozen, fine-tuned down the tree, and together; and how fast texts become vectors.

    python benchmarks/transformers.py DATA/tibkat-gnd --encoder MODEL --max-len 64 --field lang=en --rows 3000
    python benchmarks/transformers.py DATA/tibkat-gnd --encoder MODEL --speed --peer PYTHON

A folder holds records ({trn,tst}.jsonl.xz with text and labels). PYTHON is an interpreter with sentence-transformers.
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
    "ramify.XRTransformer(encoder=ramify.TransformerEncoder(path, max_len={max_len}), "
    "training=ramify.nn.trainer.TrainingConfig(examples={examples}, batch_size=64, dropout=0.1, rate=0.002))"
)
MODELS = ["ramify.XRLinear()", "ramify.XRTransformer(encoder=encoder)", TUNED]

OURS = (
    LOAD
    + """
import ramify
from ramify.nn.transformer import Transformer
texts = json.load(open(base))
encoder = Transformer.open(ramify.TransformerEncoder(sys.argv[2], frozen=True, max_len=int(sys.argv[3])))
encoder.encode_tokens(encoder.tokens(texts[:64]), 2)
cpu, wall = time.process_time(), time.time()
encoder.encode_tokens(encoder.tokens(texts), 2)
done(cpu=len(texts) / (time.process_time() - cpu), wall=len(texts) / (time.time() - wall))
"""
)
THEIRS = """
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


def quality(args: argparse.Namespace) -> None:
    """Train and measure each model on each folder."""
    options = ("field", "without", "rows", "train_rows", "encoder", "max_len")
    settings = json.dumps({"texts": True, "pruning": False, **{name: getattr(args, name) for name in options}})
    rows = []
    for place in args.data:
        for model in args.models:
            expression = model.replace("{max_len}", str(args.max_len)).replace("{examples}", str(args.examples))
            r = run_child(MEASURE, place, settings, expression, args.work / "transformers", " ".join(COLUMNS))
            costs = [f"{r[c]:.0f}" for c in ("cpu", "wall", "memory", "size")]
            rows.append([Path(place).name, expression, *(f"{x:.2f}" for x in r["rows"][0][1:-1]), *costs])
            print(" ".join(rows[-1]), flush=True)
    print_table(["data", "model", *COLUMNS, "train CPU s", "wall s", "peak MB", "MB"], rows)


def speed(args: argparse.Namespace) -> None:
    """Texts per CPU second, ours and sentence-transformers', in turn."""
    with lzma.open(f"{args.data[0]}/tst.jsonl.xz", "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for _, line in zip(range(args.texts), lines, strict=False)]
    args.work.mkdir(parents=True, exist_ok=True)
    place = args.work / "texts.json"
    place.write_text(json.dumps(texts))
    found = alternate(
        {
            "Ramify": lambda: run_child(OURS, place, args.encoder, args.max_len),
            "sentence-transformers": lambda: run_child(THEIRS, place, args.encoder, args.max_len, python=args.peer),
        },
        args.runs,
    )
    rows = [[name, f"{r['cpu']:.1f}", f"{r['wall']:.1f}"] for name, r in found.items()]
    ratios = [found["Ramify"][key] / found["sentence-transformers"][key] for key in ("cpu", "wall")]
    print_table(["", "texts a CPU second", "texts a second"], [*rows, ["ratio", *(f"{x:.2f}" for x in ratios)]])


def main() -> None:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", help="folders of records")
    parser.add_argument("--encoder", required=True, help="folder of a transformer")
    parser.add_argument(
        "--models", nargs="*", default=MODELS, help="expressions; `encoder` is frozen, `path` its folder"
    )
    parser.add_argument("--field", help="records whose field has this value only, as in lang=en")
    parser.add_argument("--without", type=int, nargs="*", default=[], help="labels to leave out")
    parser.add_argument("--rows", type=int, default=10**9, help="test rows at most")
    parser.add_argument("--train-rows", type=int, default=10**9, help="training rows at most")
    parser.add_argument("--examples", type=int, default=10_000, help="points that fine-tuning sees at each level")
    parser.add_argument("--max-len", type=int, default=64)
    parser.add_argument("--speed", action="store_true", help="measure encoding only")
    parser.add_argument("--peer", help="interpreter with sentence-transformers, for --speed")
    parser.add_argument("--texts", type=int, default=1000, help="texts, for --speed")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("demo/benchmark"))
    args = parser.parse_args()
    print_machine()
    if args.speed:
        speed(args)
    else:
        quality(args)


if __name__ == "__main__":
    main()
