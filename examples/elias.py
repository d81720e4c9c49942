"""Train Elias on your own texts: an encoder and a label graph, learned together; then inspect and prune the graph.

Replace `ramify.datasets.load("pydoc")` by `ramify.read("train.jsonl")`; the rest stays the same.
"""

from __future__ import annotations

import ramify


def main() -> None:
    data = ramify.datasets.load("pydoc")
    train, test = data.split("train"), data.split("test")

    # A small encoder and few epochs, so that this takes seconds; the defaults are more accurate.
    model = ramify.Elias(
        encoder=ramify.BagEncoder(dim=64),
        stage1=ramify.TrainingConfig(epochs=3, min_steps=1, batch_size=64),
        stage2=ramify.TrainingConfig(epochs=2, min_steps=1, batch_size=64, encoder_learning_rate=0.004),
        shortlist_size=400,
        train_shortlist_size=200,
        ranker="sparse",
    ).fit(train.texts, train.labels())
    print(ramify.evaluate(model.predict_topk(test.texts, k=10), test.labels(), train.labels()), end="\n\n")
    print(f"{model.shortlist_recall(test.texts, test.labels()):.1f} % of the true labels are on the shortlists\n")

    # What was learned: how strong the edges are, and how many clusters frequent and rare labels are connected to.
    for title, rows in model.index_report().tables().items():
        print(title)
        for row in rows:
            print("  " + "  ".join(cell.rjust(12) for cell in row))

    # Most edges can be removed.
    model.prune(fraction=0.2).save("demo/elias")
    pruned = ramify.load("demo/elias")
    print(f"\n{pruned.index_report().n_edges:,} edges are left")
    print(pruned.predict_topk(["sort a list in place"], k=3).labels())


if __name__ == "__main__":
    main()
