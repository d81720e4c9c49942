"""The native parallel loop: results independent of the number of threads, exceptions, Ctrl-C, fork."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from ramify import _core
from ramify.base.threads import resolve_threads

pytestmark = pytest.mark.native


@pytest.mark.parametrize("threads", [1, 2, 7, 64])
@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_every_block_runs_once(n, threads):
    assert _core.parallel_probe(list(range(n)), 0.0, threads) == [2 * i for i in range(n)]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_exceptions_keep_their_message(threads):
    with pytest.raises(ValueError, match="block 500 is negative"):
        _core.parallel_probe([1] * 500 + [-1] + [1] * 500, 0.0, threads)
    assert _core.parallel_probe([3], 0.0, threads) == [6]


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_interrupts_native_code(threads):
    code = f"""
import sys
from ramify import _core
print("ready", flush=True)
try:
    _core.parallel_probe([1] * 6000, 0.01, {threads})
except KeyboardInterrupt:
    print("interrupted", flush=True); sys.exit(7)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (7, "interrupted\n")
    assert time.monotonic() - started < 15  # running to the end would take 30 s or more


def test_concurrent_calls_from_python_threads():
    results = {}

    def work(i):
        results[i] = _core.parallel_probe(list(range(i, i + 200)), 0.0001, 3)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert all(results[i] == [2 * x for x in range(i, i + 200)] for i in range(8))


def test_gil_is_released():
    seen = []
    done = threading.Event()

    def count():
        while not done.is_set():
            seen.append(1)
            time.sleep(0.005)

    counter = threading.Thread(target=count)
    counter.start()
    before = len(seen)
    _core.parallel_probe([1] * 100, 0.01, 1)
    after = len(seen)
    done.set()
    counter.join()
    assert after - before > 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_works_after_fork():
    code = """
import os, sys
from ramify import _core
assert _core.parallel_probe([1, 2, 3], 0.001, 4) == [2, 4, 6]
child = os.fork()
if child == 0:
    os._exit(0 if _core.parallel_probe([1, 2, 3], 0.001, 4) == [2, 4, 6] else 1)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_resolve_threads(monkeypatch):
    monkeypatch.setenv("RAMIFY_THREADS", "3")
    assert resolve_threads() == 3
    assert resolve_threads(2) == 2
    monkeypatch.setenv("RAMIFY_THREADS", "many")
    with pytest.raises(ValueError, match="RAMIFY_THREADS"):
        resolve_threads()
    monkeypatch.delenv("RAMIFY_THREADS")
    assert resolve_threads() >= 1
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="threads"):
            resolve_threads(wrong)


def test_every_instruction_set_gives_identical_results():
    """The same computation in processes restricted to different instruction sets."""
    code = """
import hashlib, sys
import numpy as np
from scipy import sparse
from ramify import _core
from ramify.base.ranking import Ranking
from ramify.features import Tfidf
from ramify.metrics import evaluate
rng = np.random.default_rng(0)
letters = list("abcDEF_09 .,-äöüßÉλЖ中\\U0001F600\\u00a0\\n")
texts = ["".join(rng.choice(letters, size=n)) for n in [0, 1, 63, 64, 65, 127, 128, 129, 500] * 20]
digest = hashlib.sha256()
for analyzer in ("word", "char_wb"):
    X = Tfidf(analyzer=analyzer, ngram_range=(1, 2), sublinear_tf=True).fit_transform(texts)
    for part in (X.indptr, X.indices, X.data):
        digest.update(np.ascontiguousarray(part).tobytes())
ids = np.argsort(rng.random((500, 80)), axis=1)[:, :37].astype(np.int32)
truth = sparse.random(500, 80, 0.2, format="csr", random_state=1)
result = evaluate(Ranking(ids, np.zeros(ids.shape), 80), truth, truth, ks=[1, 5, 37])
digest.update(repr(sorted(result.to_dict().items())).encode())
print(_core.isa(), digest.hexdigest())
"""
    results = {}
    for isa in ("baseline", "avx2", "avx512"):
        environment = {**os.environ, "RAMIFY_ISA": isa}
        out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        chosen, digest = out.stdout.split()
        results[chosen] = digest
    assert "baseline" in results
    assert len(set(results.values())) == 1, results
