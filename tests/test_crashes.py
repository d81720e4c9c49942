"""A process that ends at any of its writing system calls leaves the old model or the new one, whole.

A small library, which the tests compile and preload, counts the calls that change files and ends the process at the
n-th of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from golden.make import MODELS

from ramify.io.store import FORMAT_VERSION

COUNTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
static long left = -1, seen = 0;
void crash_after(long n) { left = n; seen = 0; }
long crash_calls(void) { return seen; }
static void count(void) {
    if (left < 0) return;
    ++seen;
    if (left-- == 0) _exit(77);
}
#define WRAP(type, name, params, args) \
    type name params { static type (*real) params; if (!real) real = dlsym(RTLD_NEXT, #name); \
    count(); return real args; }
WRAP(ssize_t, write, (int f, const void* p, size_t n), (f, p, n))
WRAP(int, fsync, (int f), (f))
WRAP(int, rename, (const char* a, const char* b), (a, b))
WRAP(int, renameat2, (int a, const char* b, int c, const char* d, unsigned e), (a, b, c, d, e))
WRAP(int, mkdir, (const char* p, mode_t m), (p, m))
WRAP(int, rmdir, (const char* p), (p))
WRAP(int, unlink, (const char* p), (p))
WRAP(int, unlinkat, (int d, const char* p, int f), (d, p, f))
WRAP(int, ftruncate, (int f, off_t n), (f, n))
static int open_mode(int flags, va_list args) { return flags & O_CREAT ? va_arg(args, int) : 0; }
#define OPEN(name) int name(const char* p, int flags, ...) { \
    static int (*real)(const char*, int, ...); if (!real) real = dlsym(RTLD_NEXT, #name); \
    va_list args; va_start(args, flags); int mode = open_mode(flags, args); va_end(args); \
    if (flags & O_CREAT) count(); return real(p, flags, mode); }
OPEN(open)
OPEN(open64)
"""

# The parent forks a child for each n, which saves and ends at its n-th writing call; the parent looks at what is left.
SCRIPT = """
import ctypes, os, shutil, sys
from pathlib import Path
import ramify
from ramify.io.store import Store
from ramify.nn.checkpoint import load_checkpoint, save_checkpoint
import numpy as np

QUERIES = ["a red fox", "hen eggs", ""]
libc, path, what = ctypes.CDLL(None), sys.argv[1], sys.argv[2]
X, step = QUERIES, int(sys.argv[3])
if what != "checkpoint":
    models = {name: ramify.load(Path(sys.argv[4]) / what) for name in "ab"}
    models["a"].verbose, models["b"].verbose = 0, 1  # tells them apart

def save(name):
    if what != "checkpoint":
        models[name].save(path)
    else:
        save_checkpoint(Path(path), "key", {"arrays": {"a": np.full(3, ord(name))}}, {"name": name})

def state():
    if not os.path.exists(path):
        return None
    if what != "checkpoint":
        model = ramify.load(path, verify=True)
        assert model.predict_topk(X, 1).ids.shape == (len(X), 1)
        return "ab"[model.verbose]
    return load_checkpoint(Path(path), "key").values["name"]

for start in (None, "a"):
    n, seen = 0, set()
    while True:
        if start is None and os.path.exists(path):
            shutil.rmtree(path)
        if start is not None:
            save(start)
        child = os.fork()
        if child == 0:
            libc.crash_after(ctypes.c_long(n))
            save("b")
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 77), code
        found = state()
        assert found in (start, "b"), found
        seen.add(found)
        if code == 0:
            break
        n += step
    assert seen == {start, "b"}, seen
    assert n > 10, n
    save("b")
    assert state() == "b"
    assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)], os.listdir(os.path.dirname(path))
    print(n, "calls")
"""


@pytest.fixture(scope="module")
def counter(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler on Linux")
    folder = tmp_path_factory.mktemp("counter")
    (folder / "counter.c").write_text(COUNTER)
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(folder / "counter.so"), str(folder / "counter.c"), "-ldl"]
    subprocess.run(command, check=True)
    return folder / "counter.so"


@pytest.mark.parametrize("what", ["checkpoint", *sorted(MODELS)])
def test_a_crash_at_any_write_leaves_a_whole_model(tmp_path, counter, what):
    """At every write of a checkpoint and of a linear model, at some of those of the other kinds: they save alike."""
    if what.startswith(("lightdxml", "astec")):
        pytest.importorskip("faiss")
    step = 1 if what in ("checkpoint", "xr-linear") else 7
    golden = Path(__file__).parent / "golden" / f"v{FORMAT_VERSION}"
    environment = {**os.environ, "LD_PRELOAD": str(counter), "RAMIFY_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "folder" / "m"), what, str(step), str(golden)]
    (tmp_path / "folder").mkdir()
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
