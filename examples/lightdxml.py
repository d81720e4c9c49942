"""Train LightDXML on your own texts, and see what its classifiers and its search each bring; Astec stands beside it.

Replace `ramify.datasets.load("pydoc")` by `ramify.read("train.jsonl")` and the rest stays. Needs faiss:
`pip install 'ramify[deep]'`.
"""

from __future__ import annotations

import ramify
from ramify.nn.trainer import TrainingConfig


def main() -> None:
    data = ramify.datasets.load("pydoc")
    train, test = data.split("train"), data.split("test")

    # A narrow encoder and few passes, so that this takes seconds; the defaults take their time.
    encoder, training = ramify.BagEncoder(width=64), TrainingConfig(epochs=4)
    models = {
        "LightDXML": ramify.LightDXML(encoder=encoder, training=training, relabel_every=2),
        "Astec": ramify.Astec(encoder=encoder, training=training, surrogate=training),
    }
    for name, model in models.items():
        model.fit(train.texts, train.labels())
        print(f"\n{name}")
        print(ramify.evaluate(model.predict_topk(test.texts, k=10), test.labels(), train.labels()))

    # How near labels are found, and what held-out points say of each weight of the classifier against the similarity.
    light = models["LightDXML"]
    for title, rows in light.report().items():
        print(f"\n{title}")
        for row in rows:
            print("  " + "  ".join(cell.rjust(10) for cell in row))

    light.save("demo/lightdxml")
    print(ramify.load("demo/lightdxml").predict_topk(["sort a list in place"], k=3).labels())


if __name__ == "__main__":
    main()
