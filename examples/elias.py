"""Train Elias on your own texts: word vectors and a graph from clusters to labels, learned together; then look at it.

Replace `ramify.datasets.load("pydoc")` by `ramify.read("train.jsonl")` and the rest stays.
"""

from __future__ import annotations

import ramify
from ramify.nn.trainer import TrainingConfig


def main() -> None:
    data = ramify.datasets.load("pydoc")
    train, test = data.split("train"), data.split("test")

    # A narrow encoder and few passes, so that this takes seconds; the defaults take their time.
    model = ramify.Elias(
        encoder=ramify.BagEncoder(width=64),
        first=TrainingConfig(epochs=3),
        second=TrainingConfig(epochs=2, rate=0.005, encoder_rate=0.003),
        ranker="sparse",
    ).fit(train.texts, train.labels())
    print(ramify.evaluate(model.predict_topk(test.texts, k=10), test.labels(), train.labels()), end="\n\n")
    print(f"{model.shortlist_recall(test.texts, test.labels()):.1f} % of the true labels are on the shortlists\n")

    # What was learned: how strong the edges are, and on how many clusters frequent and rare labels hang.
    for title, rows in model.index_report().tables().items():
        print(title)
        for row in rows:
            print("  " + "  ".join(cell.rjust(12) for cell in row))

    # Most edges can go.
    before = len(model.members_[0].graph.labels)
    model.prune(top=200).save("demo/elias")
    print(f"\n{len(model.members_[0].graph.labels):,} of {before:,} edges are left")
    print(ramify.load("demo/elias").predict_topk(["sort a list in place"], k=3).labels())


if __name__ == "__main__":
    main()
