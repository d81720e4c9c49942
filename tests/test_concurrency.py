"""Models used by several threads at once, and by forked processes; `make tsan` runs this under ThreadSanitizer."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from golden.make import LABELS, MODELS, TEXTS

import ramify

pytestmark = pytest.mark.threads
THREADS = 3
"""Native threads of each call; several calls run at once."""
MANY = [f"{text} {i % 7}" for i, text in enumerate(TEXTS * 12)]
"""Enough texts for several blocks of every parallel loop."""


@pytest.fixture(scope="module", params=sorted(MODELS))
def model(request):
    if request.param.startswith(("lightdxml", "astec")):
        pytest.importorskip("faiss")
    return MODELS[request.param]().set_params(threads=THREADS).fit(MANY, LABELS * 12)


def in_threads(work, n=4):
    """Run work(i) in n threads that start together; their results."""
    start = threading.Barrier(n)

    def run(i):
        start.wait()
        return work(i)

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(run, range(n)))


def same(a, b):
    return np.array_equal(a.ids, b.ids) and np.array_equal(a.scores, b.scores)


def test_concurrent_predictions_of_one_model(model):
    expected = model.predict_topk(MANY, k=3)

    def predict(i):
        return [model.predict_topk(MANY, k=3), model.predict_topk(MANY[i : i + 1], k=3)]

    for i, (many, one) in enumerate(in_threads(predict)):
        assert same(many, expected)
        assert np.array_equal(one.ids[0], expected.ids[i])


def test_an_opened_model_whose_first_batches_come_at_once(model, tmp_path):
    """What a model makes when it is first needed, such as the order of its weights for batches, is made by several."""
    expected = model.predict_topk(MANY, k=3)
    model.save(tmp_path / "model")
    opened = ramify.load(tmp_path / "model")
    opened.threads = THREADS
    assert all(same(found, expected) for found in in_threads(lambda _: opened.predict_topk(MANY, k=3)))


def test_concurrent_fits(model):
    expected = model.predict_topk(MANY, k=3)
    fitted = in_threads(lambda _: model.clone().fit(MANY, LABELS * 12), 3)
    for other in fitted:
        assert same(other.predict_topk(MANY, k=3), expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_other_threads_predict(model):
    """The child has only the thread that forked; it must not wait for what the others held."""
    expected, stop = model.predict_topk(MANY, k=3), threading.Event()

    def predict_until_stopped():
        while not stop.is_set():
            model.predict_topk(MANY, k=3)

    others = [threading.Thread(target=predict_until_stopped) for _ in range(2)]
    for other in others:
        other.start()
    try:
        for _ in range(3):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
                child = os.fork()
            if child == 0:
                signal.alarm(60)  # ends a child that hangs
                if "TSAN_OPTIONS" in os.environ:  # ThreadSanitizer cannot follow threads of such a child
                    model.threads, os.environ["RAMIFY_THREADS"] = 1, "1"
                os._exit(0 if same(model.predict_topk(MANY, k=3), expected) else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        for other in others:
            other.join()


def test_concurrent_searches_evaluations_and_readers(tmp_path):
    """The native code behind more than one model: ANN search, metrics, XMC files."""
    random = np.random.default_rng(0)
    vectors = random.standard_normal((600, 16)).astype(np.float32)
    index = ramify.AnnIndex.build(vectors, ramify.AnnConfig(method="ivf"), k=5, threads=THREADS)
    ids, products = index.search(vectors, 5, threads=THREADS)
    truth = [[int(i % 9), int(i % 5)] for i in range(600)]
    ranking = ramify.Popular(verbose=0).fit(vectors, truth).predict_topk(vectors, k=5)
    expected = ramify.evaluate(ranking, truth).to_dict()
    lines = [f"{i % 9},{i % 5} {i % 11}:1.5 {11 + i % 7}:2" for i in range(600)]
    (tmp_path / "data.txt").write_text("\n".join(["600 20 10", *lines]) + "\n")

    def work(_):
        found = index.search(vectors, 5, threads=THREADS)
        return found, ramify.evaluate(ranking, truth).to_dict(), ramify.read(tmp_path / "data.txt").X.sum()

    for found, report, total in in_threads(work):
        assert np.array_equal(found[0], ids)
        assert np.array_equal(found[1], products)
        assert report == expected
        assert total == 600 * 3.5
