"""Train a label tree on your own texts, look at it, rank labels, and use a taxonomy of your own instead.

Replace `ramify.datasets.load("pydoc")` by `ramify.read("train.jsonl")` and the rest stays.
"""

from __future__ import annotations

import json

import ramify
from ramify.index.kmeans import TreeConfig


def main() -> None:
    data = ramify.datasets.load("pydoc")
    train, test = data.split("train"), data.split("test")

    # The defaults are a good choice for most data; three trees are more accurate and take three times as long.
    model = ramify.XRLinear(n_trees=1).fit(train.texts, train.labels())
    ranking = model.predict_topk(test.texts, k=10)
    print(ramify.evaluate(ranking, test.labels(), train.labels()), end="\n\n")

    # What the tree looks like: the labels that stand for its largest nodes.
    tree = model.export_tree(n_named=3)
    for node in sorted(tree["children"], key=lambda node: -node["n_labels"])[:5]:
        print(node["n_labels"], "labels such as", ", ".join(node["representative"]))
    print(f"\nThe whole tree as JSON: {len(json.dumps(tree)):,} characters\n")

    # Scores of some labels only, for a re-ranker or a user's short list.
    wanted = ranking.top(3).to_csr()
    wanted.data[:] = 1
    print("three labels of the first text:", model.predict_selected(test.texts, wanted)[0].data)

    # A taxonomy of your own in place of the learned tree: the path of each label.
    paths = {label: str(label).split(".")[:1] for label in model.labels_}
    own = ramify.XRLinear().fit(train.texts, train.labels(), tree=paths)
    print("with a tree of my own:", ramify.evaluate(own.predict_topk(test.texts, k=10), test.labels())["P@1"])

    # The settings of the papers, and parts of them changed.
    small = ramify.XRLinear.pecos(tree=TreeConfig(method="halves", branching=8, max_leaf=50, max_depth=None))
    small.fit(train.texts, train.labels()).save("demo/pecos")
    print(ramify.load("demo/pecos").predict_topk(["sort a list in place"], k=3).labels())


if __name__ == "__main__":
    main()
