"""Train a label tree on your own texts, inspect it, score selected labels, and use a taxonomy of your own.

Replace `ramify.datasets.load("pydoc")` by `ramify.read("train.jsonl")`; the rest stays the same.
"""

from __future__ import annotations

import json

import ramify


def main() -> None:
    data = ramify.datasets.load("pydoc")
    train, test = data.split("train"), data.split("test")

    # The defaults suit most data; `n_trees=3` is more accurate and takes three times as long.
    model = ramify.XRLinear().fit(train.texts, train.labels())
    ranking = model.predict_topk(test.texts, k=10)
    print(ramify.evaluate(ranking, test.labels(), train.labels()), end="\n\n")

    # The largest nodes below the root, with representative labels.
    tree = model.export_tree(n_representatives=3)
    for node in sorted(tree["children"], key=lambda node: -node["n_labels"])[:5]:
        print(node["n_labels"], "labels such as", ", ".join(node["representative"]))
    print(f"\nThe tree as JSON: {len(json.dumps(tree)):,} characters\n")

    # Scores of selected labels only, for example to re-rank the candidates of another system.
    selected = ranking.top(3).to_csr()
    selected.data[:] = 1
    print("three labels of the first text:", model.predict_selected(test.texts, selected)[0].data)

    # A taxonomy of your own instead of the learned tree: the path of each label.
    paths = {label: str(label).split(".")[:1] for label in model.classes_}
    own = ramify.XRLinear().fit(train.texts, train.labels(), tree=paths)
    print("P@1 with a tree of your own:", ramify.evaluate(own.predict_topk(test.texts, k=10), test.labels())["P@1"])

    # The settings of a paper, with another tree.
    tree_config = ramify.TreeConfig(method="balanced-2means", branching=8, max_leaf_size=50, max_depth=None)
    small = ramify.XRLinear.pecos(tree=tree_config)
    small.fit(train.texts, train.labels()).save("demo/pecos")
    print(ramify.load("demo/pecos").predict_topk(["sort a list in place"], k=3).labels())


if __name__ == "__main__":
    main()
