"""Where the CPU time of an answer goes: each layer alone on one thread, and what is left of the service's own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import ramify
from ramify.serve.served import LoadedModel
from ramify.serve.settings import Settings
from ramify.serve.suggest_request import parse_suggest
from ramify.serve.suggestions import SuggestJob

BATCH = 8
"""Texts that a worker ranks together at the peak."""


def layers(path: str, texts: list[str], bodies: list[bytes], user: float, system: float) -> list[list[str]]:
    """Rows of layer and CPU µs of an answer.

    Parameters
    ----------
    bodies : the requests of the texts
    user, system : CPU µs of an answer that the service took at the peak, in its own code and in the kernel
    """
    settings, loaded = Settings(), LoadedModel("model", Path(path))
    model = loaded.model
    batches = [texts[i : i + BATCH] for i in range(0, len(texts), BATCH)]
    jobs = [SuggestJob(loaded, parse_suggest(body, settings)) for body in bodies]
    rows = jobs[0].rank(texts)
    features = getattr(model, "features_", None)

    def measure(work: Callable[[], object]) -> float:
        """CPU µs of a text: the best of three."""
        found = []
        for _ in range(3):
            start = time.thread_time()
            work()
            found.append(time.thread_time() - start)
        return 1e6 * min(found) / len(texts)

    parse = measure(lambda: [parse_suggest(body, settings) for body in bodies])
    transform = 0.0 if features is None else measure(lambda: [features.transform(batch) for batch in batches])
    ranked = measure(lambda: [model.predict_topk(batch, 10) for batch in batches])
    alone = measure(lambda: [model.predict_topk([text], 10) for text in texts])
    finish = measure(lambda: [job.finish([row]) for job, row in zip(jobs, rows, strict=True)])
    found = {
        "decode and check the request": parse,
        f"features, batches of {BATCH}": transform,
        f"search, batches of {BATCH}": ranked - transform,
        "write the JSON of ten labels": finish,
        "event loop, connections, queue, locks, caches shared by threads": user - parse - ranked - finish,
        "system calls": system,
        "service at the peak": user + system,
        "for comparison: predict_topk of one text": alone,
    }
    return [[layer, f"{cpu:.0f}"] for layer, cpu in found.items()]


def describe(path: str) -> str:
    """Model, features and number of labels, in a line."""
    model = ramify.load(path)
    return f"{model!r}, {model.n_labels:,} labels, features {getattr(model, 'features_', None)!r}"
