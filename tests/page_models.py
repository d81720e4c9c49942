"""Models that the page of the service shows in tests, with names of every kind."""

from __future__ import annotations

import numpy as np

import ramify

HOSTILE = "<img src=x onerror=\"document.title='hacked'\">"
HEBREW = "ים ‮ומפרשים"
EMOJI = "🦊👩‍🚀 fox & co"
TOPICS = {
    "http://example.org/whale": ("Whales", "whale ocean swim krill song"),
    "http://example.org/ship": (HEBREW, "ship sail ocean harbor mast"),
    "http://example.org/fox": (EMOJI, "fox forest red hunt den"),
    "http://example.org/tree": (
        "Trees </script><script>document.title='hacked'</script>",
        "tree forest leaf root bark",
    ),
    "http://example.org/house": ("Houses", "house roof brick door window"),
    "http://example.org/bread": ("Bread", "bread flour oven yeast crust"),
    HOSTILE: (None, "script browser attack escape quote"),
    "http://example.org/star": ("Stars", "star night telescope orbit light"),
}


def samples(n):
    random = np.random.default_rng(0)
    texts, labels = [], []
    for _ in range(n):
        chosen = sorted(random.choice(len(TOPICS), random.integers(1, 3), replace=False).tolist())
        topics = [list(TOPICS)[i] for i in chosen]
        words = [word for topic in topics for word in random.permutation(TOPICS[topic][1].split())[:3]]
        texts.append(" ".join(["the", *random.permutation(words).tolist(), "and"]))
        labels.append(topics)
    return texts, labels


def save_models(folder):
    """A calibrated linear model with names and a report, an Elias, and a model of text fields."""
    texts, labels = samples(400)
    catalogue = {label: name for label, (name, _) in TOPICS.items() if name is not None}
    tree = ramify.TreeConfig(max_leaf_size=2, branching=2)
    model = ramify.XRLinear(verbose=0, tree=tree).fit(texts[:300], labels[:300], label_catalogue=catalogue)
    model.calibrate(texts[300:], labels[300:]).save(folder / "linear")
    from ramify.report.contents import Subject, make_report

    ranking = model.predict_topk(texts[300:], 8, probabilities=True)
    subject = Subject("linear", ranking, model.label_counts_, model)
    make_report([subject], labels[300:], documents=texts[300:]).save(folder / "linear.report.html")
    training = ramify.TrainingConfig(epochs=2, batch_size=32)
    encoder = ramify.BagEncoder(dim=8)
    elias = ramify.Elias(encoder=encoder, n_clusters=4, stage1=training, stage2=training, verbose=0)
    elias.fit(texts[:300], labels[:300], label_catalogue=catalogue).save(folder / "graph")
    records = [{"title": text, "body": "of it"} for text in texts[:200]]
    ramify.XRLinear(verbose=0).fit(records, labels[:200]).save(folder / "records")
    ramify.Popular().fit(texts[:50], labels[:50]).save(folder / "popular")
    return {name: folder / name for name in ("linear", "graph", "records", "popular")}
