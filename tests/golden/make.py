"""Writes the golden models: one small model directory of each kind, with what it answers.

    python tests/golden/make.py

They are opened by all later versions (tests/test_golden.py). Run it only for a new format version or a new kind of
model, and keep the directories of earlier versions.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np

import ramify
from ramify import TrainingConfig
from ramify.io.store import FORMAT_VERSION

HERE = Path(__file__).parent
TEXTS = ["red fox runs", "brown hen lays eggs", "red hen sleeps", "grey whale swims", "brown fox", "whale eggs"] * 4
LABELS = [["fox", "red"], ["hen", "egg"], ["hen", "red"], ["whale"], ["fox"], ["whale", "egg"]] * 4
NAMES = {"fox": "fox", "hen": {"name": "hen (bird)", "synonyms": ["chicken"]}, "whale": "whale", "zebra": "zebra"}
NAMED = ("label-matcher", "zest-xml", "hybrid")
QUERIES = ["a red fox", "hen eggs", "grey whale", "nothing known", ""]
TRAINING = TrainingConfig(epochs=2, min_steps=8)
COMMON = {"threads": 1, "verbose": 0}
MODELS = {
    "popular": lambda: ramify.Popular(**COMMON),
    "xr-linear": lambda: ramify.XRLinear(tree=ramify.TreeConfig(max_leaf_size=2), **COMMON),
    "one-vs-all": lambda: ramify.OneVsAll(**COMMON),
    "neural-one-vs-all": lambda: ramify.NeuralOneVsAll(
        encoder=ramify.BagEncoder(dim=8), training=TRAINING, **COMMON
    ),
    "elias": lambda: ramify.Elias(
        encoder=ramify.BagEncoder(dim=8), stage1=TRAINING, stage2=TRAINING, ranker="sparse", **COMMON
    ),
    "xr-transformer": lambda: ramify.XRTransformer(encoder=ramify.BagEncoder(dim=8), training=TRAINING, **COMMON),
    "x-transformer": lambda: ramify.XTransformer(encoder=ramify.BagEncoder(dim=8), training=TRAINING, **COMMON),
    "lightdxml": lambda: ramify.LightDXML(encoder=ramify.BagEncoder(dim=8), training=TRAINING, **COMMON),
    "lightdxml-hnsw": lambda: ramify.LightDXML(
        encoder=ramify.BagEncoder(dim=8), training=TRAINING, index=ramify.AnnConfig(method="hnsw", M=2), **COMMON
    ),
    "astec": lambda: ramify.Astec(
        encoder=ramify.BagEncoder(dim=8), training=TRAINING, surrogate=TRAINING,
        index=ramify.AnnConfig(method="ivf"), **COMMON,
    ),
    "knn": lambda: ramify.KNN(keep_texts=True, **COMMON),
    "label-matcher": lambda: ramify.LabelMatcher(n_trees=4, labels="catalogue", **COMMON),
    "zest-xml": lambda: ramify.ZestXML(labels="catalogue", **COMMON),
    "hybrid": lambda: ramify.Hybrid(
        (ramify.XRLinear(**COMMON), ramify.KNN(**COMMON), ramify.LabelMatcher(n_trees=4, **COMMON)),
        n_trees=4, n_folds=2, **COMMON,
    ),
    "ensemble": lambda: ramify.Ensemble((ramify.XRLinear(**COMMON), ramify.OneVsAll(**COMMON)), **COMMON),
}  # fmt: skip


def main() -> None:
    """Train and save the models of the present format version."""
    directory = HERE / f"v{FORMAT_VERSION}"
    for name in sys.argv[1:] or MODELS:
        model = MODELS[name]().fit(TEXTS, LABELS, label_catalogue=NAMES if name in NAMED else None)
        shutil.rmtree(directory / name, ignore_errors=True)
        model.save(directory / name)
        ranking = model.predict_topk(QUERIES, k=3)
        labels = [[label for label, _ in row] for row in ranking.labels()]
        scores = [[None if np.isneginf(s) else round(float(s), 6) for s in row] for row in ranking.scores]
        (directory / f"{name}.json").write_text(json.dumps({"labels": labels, "scores": scores}) + "\n")


if __name__ == "__main__":
    main()
