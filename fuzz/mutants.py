"""Mutates model directories, with knowledge of their structure, and opens and queries what results.

    python fuzz/mutants.py DIRECTORY [--mutants N] [--seed S] [--memory MB]

A mutant either answers or is refused with a `ModelFormatError`. Anything else, including a crash, a hang or an
allocation beyond the limit, is a finding: the seed that is printed makes it again. Arrays are rewritten with hashes,
sizes and headers mended, so that only checks of the content can refuse them.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import io
import json
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ramify

MANIFEST = "manifest.json"
QUERIES = ["a red fox", "hen eggs whale " * 60, "", "zzz", "red red brown grey"]
INTEGERS = [
    0,
    1,
    -1,
    2,
    7,
    255,
    256,
    65535,
    2**31 - 1,
    2**31,
    2**32,
    2**32 + 1,
    2**62,
    2**63 - 1,
    2**63,
    2**70,
    -(2**31),
]
VALUES: list[Any] = [*INTEGERS, 0.5, -0.0, 1e300, "", "x" * 300, "../../etc/passwd", None, True, [], {}, [[]], {"a": 1}]
FLOATS = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, 3e38, -3e38, 1e20, -1.0, 2.0**-149]
DTYPES = ["<f4", "<f8", "<i4", "<i8", "<u8", "|u1", "|i1", ">f4", ">i8", "<f2", "<U4", "|b1", "<c8"]
Random = np.random.Generator


class Directory:
    """A model directory in memory: its manifest, and the bytes of its files."""

    def __init__(self, path: Path) -> None:
        self.manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text())
        self.files = {name: (path / name).read_bytes() for name in self.manifest["files"]}

    def array(self, name: str) -> Any:
        """Return an array."""
        return np.load(io.BytesIO(self.files[name])).copy()

    def set_array(self, name: str, array: Any) -> None:
        """Replace an array; the manifest follows."""
        out = io.BytesIO()
        np.lib.format.write_array(out, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
        self.files[name] = out.getvalue()
        self.mend(name)

    def mend(self, name: str) -> None:
        """Make the manifest agree with a file."""
        content = self.files[name]
        entry = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        try:
            array = np.load(io.BytesIO(content))
            entry |= {"dtype": array.dtype.str, "shape": list(array.shape)}
        except Exception:
            pass
        self.manifest["files"][name] = {**self.manifest["files"].get(name, {}), **entry}

    def write(self, path: Path) -> None:
        """Write the directory."""
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        for name, content in self.files.items():
            (path / name).write_bytes(content)
        (path / MANIFEST).write_text(json.dumps(self.manifest))


def pick(random: Random, items: Any) -> Any:
    """Choose an item at random."""
    items = list(items)
    return items[int(random.integers(len(items)))]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all values within nested dicts and lists."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        found += leaves(part, (*path, key))
    return found


# ---- mutations ----


def change_entries(model: Directory, random: Random) -> None:
    """Replace some entries of an array by boundary values or by those of other entries."""
    name = pick(random, model.files)
    array = model.array(name)
    flat = array.reshape(-1)
    if not flat.size:
        return
    for _ in range(int(random.integers(1, 5))):
        at = int(random.integers(flat.size))
        if array.dtype.kind == "f":
            value = pick(random, FLOATS)
        elif random.random() < 0.5:
            value = int(flat[int(random.integers(flat.size))]) + int(random.integers(-2, 3))
        else:
            value = pick(random, INTEGERS)
        info = np.iinfo(array.dtype) if array.dtype.kind in "iu" else None
        flat[at] = value if info is None else min(max(int(value), info.min), info.max)
    model.set_array(name, array)


def flip_bits(model: Directory, random: Random) -> None:
    """Flip bits of the data of an array."""
    name = pick(random, model.files)
    content = bytearray(model.files[name])
    start = 0 if random.random() < 0.1 else min(128, len(content) - 1)
    for _ in range(int(random.integers(1, 9))):
        content[int(random.integers(start, len(content)))] ^= 1 << int(random.integers(8))
    model.files[name] = bytes(content)
    model.mend(name)


def reshape_array(model: Directory, random: Random) -> None:
    """Cut, repeat, shuffle or reshape an array."""
    name = pick(random, model.files)
    array = model.array(name)
    n = len(array) if array.ndim else 0
    kind = int(random.integers(7))
    if kind == 0:
        array = array[: int(random.integers(n + 1))]
    elif kind == 1:
        array = np.concatenate([array, array])
    elif kind == 2:
        array = array[random.permutation(n)]
    elif kind == 3:
        array = array[::-1]
    elif kind == 4:
        array = array.reshape(-1) if array.ndim > 1 else array[:, None]
    elif kind == 5:
        array = array.T if array.ndim > 1 else array[None, :]
    else:
        array = np.full_like(array, array.reshape(-1)[0] if array.size else 0)
    model.set_array(name, array)


def change_dtype(model: Directory, random: Random) -> None:
    """Store an array with another type or byte order."""
    name = pick(random, model.files)
    with np.errstate(all="ignore"):
        model.set_array(name, model.array(name).astype(pick(random, DTYPES)))


def swap_files(model: Directory, random: Random) -> None:
    """Exchange two arrays."""
    a, b = pick(random, model.files), pick(random, model.files)
    model.files[a], model.files[b] = model.files[b], model.files[a]
    model.mend(a)
    model.mend(b)


def change_manifest(model: Directory, random: Random) -> None:
    """Replace, delete or move a value of the manifest."""
    paths = [path for path in leaves(model.manifest) if path[0] in ("params", "state", "kind", "files")]
    path = pick(random, [p for p in paths if p[0] != "files"] if random.random() < 0.9 else paths)
    owner = model.manifest
    for key in path[:-1]:
        owner = owner[key]
    kind = random.random()
    if kind < 0.1 and isinstance(owner, dict):
        del owner[path[-1]]
    elif kind < 0.2 and isinstance(owner, dict):
        owner[pick(random, ["x", "attn_implementation", "n", "kind"])] = pick(random, VALUES)
    else:
        owner[path[-1]] = pick(random, VALUES)


def cut_file(model: Directory, random: Random) -> None:
    """Cut a file, with or without telling the manifest."""
    name = pick(random, model.files)
    model.files[name] = model.files[name][: int(random.integers(len(model.files[name])))]
    if random.random() < 0.5:
        model.mend(name)


MUTATIONS: list[tuple[Callable[[Directory, Random], None], float]] = [
    (change_entries, 0.35),
    (flip_bits, 0.2),
    (reshape_array, 0.15),
    (change_manifest, 0.2),
    (change_dtype, 0.04),
    (swap_files, 0.04),
    (cut_file, 0.02),
]


def mutate(model: Directory, random: Random) -> str:
    """Apply one to three mutations; return their names."""
    functions, weights = zip(*MUTATIONS, strict=True)
    names = []
    for _ in range(int(random.choice([1, 1, 1, 2, 3]))):
        mutation = functions[int(random.choice(len(functions), p=weights))]
        try:
            mutation(model, random)
            names.append(mutation.__name__)
        except Exception:
            continue  # the mutation does not apply to this array
    return ", ".join(names)


def query(path: Path, random: Random) -> bool:
    """Open a mutant and ask it; True if it answered."""
    model = ramify.load(path, verify=bool(random.integers(2)))
    model.threads = 1
    inputs: Any = QUERIES
    if model.input_kind_ == "fields":
        inputs = [{"title": text} for text in QUERIES]
    elif model.input_kind_ in ("sparse", "dense"):
        return True
    ranking = model.predict_topk(inputs, k=int(random.choice([1, 3, 100])))
    ranking.labels()
    return True


def run(source: Path, n: int, seed: int, memory: int) -> int:
    """Try n mutants; return the number of findings."""
    faulthandler.enable()
    query(source, np.random.default_rng(0))  # imports everything before the limit of memory
    if memory:
        used = int(next(s for s in open("/proc/self/status") if s.startswith("VmData")).split()[1]) << 10  # noqa: SIM115, PTH123
        resource.setrlimit(resource.RLIMIT_DATA, (used + (memory << 20), resource.RLIM_INFINITY))
    answered, refused, findings = 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for i in range(n):
            random = np.random.default_rng([seed, i])
            model = Directory(source)
            names = mutate(model, random)
            model.write(Path(folder) / "mutant")
            print(f"\r{source.name} seed {seed} mutant {i}: {names:60}", end="", file=sys.stderr, flush=True)
            signal.alarm(60)  # a hang ends the process
            try:
                answered += query(Path(folder) / "mutant", random)
            except ramify.ModelFormatError:
                refused += 1
            except BaseException as error:
                findings += 1
                print(f"\nFINDING {source.name} seed {seed} mutant {i} ({names}): {type(error).__name__}: {error}")
                if isinstance(error, KeyboardInterrupt):
                    raise
            finally:
                signal.alarm(0)
    print(f"\n{source.name}: {answered} answered, {refused} refused, {findings} findings")
    return findings


def main() -> int:
    """Run from the command line; the exit code says whether there were findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--mutants", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory", type=int, default=256, help="megabytes beyond what the library itself needs")
    options = parser.parse_args()
    return 1 if run(options.directory, options.mutants, options.seed, options.memory) else 0


if __name__ == "__main__":
    sys.exit(main())
