"""A pretrained encoder beside TF-IDF: frozen, and fine-tuned down the label tree; then both together.

    python examples/xrtransformer.py FOLDER

FOLDER holds a Hugging Face model (config.json, tokenizer.json, model.safetensors); a name on the hub will do as well.
Replace `ramify.datasets.load("pydoc")` by `ramify.read("train.jsonl")` and the rest stays.
"""

from __future__ import annotations

import sys

import ramify
from ramify.nn.trainer import TrainingConfig


def main(model: str) -> None:
    data = ramify.datasets.load("pydoc")
    train, test = data.split("train"), data.split("test")

    # Frozen: every text is read once, and the vectors are kept for the next training.
    frozen = ramify.XRTransformer(encoder=ramify.TransformerEncoder(model, frozen=True, max_len=32))
    # Fine-tuned: a small budget of points for each level of the tree. This takes many minutes on a processor.
    tuned = ramify.XRTransformer(
        encoder=ramify.TransformerEncoder(model, max_len=32),
        training=TrainingConfig(examples=1000, batch_size=64, dropout=0.1, rate=0.002),
    )
    trained = []
    for name, candidate in {"words alone": ramify.XRLinear(), "frozen": frozen, "fine-tuned": tuned}.items():
        trained.append(candidate.fit(train.texts, train.labels()))
        print(name, ramify.evaluate(candidate.predict_topk(test.texts, k=10), test.labels(), train.labels()), sep="\n")

    together = ramify.Ensemble.of(trained, combine="mean")
    print(ramify.evaluate(together.predict_topk(test.texts, k=10), test.labels(), train.labels()))
    together.save("demo/together")
    print(ramify.load("demo/together").predict_topk(["sort a list in place"], k=3).labels())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
