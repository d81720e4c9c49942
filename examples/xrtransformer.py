"""A pretrained encoder beside TF-IDF: frozen, and fine-tuned down the label tree; then an ensemble.

    python examples/xrtransformer.py PATH [N_SAMPLES]

PATH is the directory of a Hugging Face model (config.json, tokenizer.json, model.safetensors) or its name on the hub.
N_SAMPLES limits the training samples; fine-tuning on all of them takes minutes on a CPU. Replace
`ramify.datasets.load("pydoc")` by `ramify.read("train.jsonl")`; the rest stays the same. Needs torch and transformers:
`pip install 'ramify[deep]'`.
"""

from __future__ import annotations

import sys

import ramify


def main(path: str, n_samples: int | None = None) -> None:
    data = ramify.datasets.load("pydoc")
    train, test = data.split("train"), data.split("test")
    texts, labels = train.texts[:n_samples], train.labels()[:n_samples]
    test_texts, test_labels = test.texts[:n_samples], test.labels()[:n_samples]

    # Frozen: each text is encoded once, and its embedding is cached for the next training.
    frozen = ramify.XRTransformer(encoder=ramify.TransformerEncoder(path, frozen=True, max_length=32))
    # Fine-tuned: at most 1,000 samples for each level of the tree.
    tuned = ramify.XRTransformer(
        encoder=ramify.TransformerEncoder(path, max_length=32),
        training=ramify.TrainingConfig(max_samples=1000, min_steps=1, batch_size=64, dropout=0.1, learning_rate=0.002),
    )
    trained = []
    for name, model in {"words only": ramify.XRLinear(), "frozen": frozen, "fine-tuned": tuned}.items():
        trained.append(model.fit(texts, labels))
        print(name, ramify.evaluate(model.predict_topk(test_texts, k=10), test_labels, labels), sep="\n")

    ensemble = ramify.Ensemble.of(trained, combine="mean")
    print("ensemble", ramify.evaluate(ensemble.predict_topk(test_texts, k=10), test_labels, labels), sep="\n")
    ensemble.save("demo/ensemble")
    print(ramify.load("demo/ensemble").predict_topk(["sort a list in place"], k=3).labels())


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    main(sys.argv[1], *map(int, sys.argv[2:]))
