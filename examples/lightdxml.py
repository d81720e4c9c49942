"""Train LightDXML and Astec on your own texts, and compare what classifiers and cosine similarity contribute.

Replace `ramify.datasets.load("pydoc")` by `ramify.read("train.jsonl")`; the rest stays the same. Needs faiss:
`pip install 'ramify[ann]'`.
"""

from __future__ import annotations

import ramify


def main() -> None:
    data = ramify.datasets.load("pydoc")
    train, test = data.split("train"), data.split("test")

    # A small encoder and few epochs, so that this takes seconds; the defaults are more accurate.
    encoder, training = ramify.BagEncoder(dim=64), ramify.TrainingConfig(epochs=4, min_steps=1, batch_size=64)
    models = {
        "LightDXML": ramify.LightDXML(encoder=encoder, training=training, refresh_every=2),
        "Astec": ramify.Astec(encoder=encoder, training=training, surrogate=training),
    }
    for name, model in models.items():
        model.fit(train.texts, train.labels())
        print(f"\n{name}")
        print(ramify.evaluate(model.predict_topk(test.texts, k=10), test.labels(), train.labels()))

    # The recall of the ANN index, and validation metrics by the weight of the classifier and by epoch.
    light = models["LightDXML"]
    for title, rows in light.report().items():
        print(f"\n{title}")
        for row in rows:
            print("  " + "  ".join(cell.rjust(10) for cell in row))

    light.save("demo/lightdxml")
    print(ramify.load("demo/lightdxml").predict_topk(["sort a list in place"], k=3).labels())


if __name__ == "__main__":
    main()
