"""Mutations of model directories, with knowledge of their structure.

Arrays are rewritten with hashes, sizes and headers mended, so that only checks of the content can refuse them.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np

MANIFEST = "manifest.json"
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
    """A model directory in memory: its manifest, and the bytes of its files; `others` give it foreign files."""

    def __init__(self, path: Path, others: list[Directory] | None = None) -> None:
        self.text = (path / MANIFEST).read_text()  # of the manifest
        self.manifest: dict[str, Any] = json.loads(self.text)
        self.files = {name: (path / name).read_bytes() for name in self.manifest["files"]}
        self.others = others or []
        self.raw_manifest: bytes | None = None  # in place of the manifest

    def copy(self) -> Self:
        """Return a directory to mutate."""
        other = object.__new__(type(self))
        other.text, other.manifest, other.files = self.text, json.loads(self.text), dict(self.files)
        other.others, other.raw_manifest = self.others, None
        return other

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

    def write(self, path: Path, present: dict[str, bytes] | None = None) -> None:
        """Write the directory. `present` are the files that are there already; it is brought up to date."""
        if not present:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
        written: dict[str, bytes] = {} if present is None else present
        manifest = self.raw_manifest if self.raw_manifest is not None else json.dumps(self.manifest).encode()
        for name, content in [*self.files.items(), (MANIFEST, manifest)]:
            if written.get(name) is content:
                continue
            (path / name).unlink(missing_ok=True)  # a model may have the old file mapped
            (path / name).write_bytes(content)
            written[name] = content


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


def overflow_boundaries(model: Directory, random: Random) -> None:
    """Put two entries into an array of 64-bit integers whose differences to their neighbors wrap around."""
    name = pick(random, [name for name in model.files if "<i8" in model.files[name][:128].decode("latin-1")])
    array = model.array(name)
    flat = array.reshape(-1)
    at = int(random.integers(1, flat.size - 1))
    flat[at : at + 2] = 2**63 - 1, -int(random.integers(1, 9))
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
        owner[pick(random, ["x", "attn_implementation", "n", "kind"])] = copy.deepcopy(pick(random, VALUES))
    else:  # a copy: the next mutation may change it
        owner[path[-1]] = copy.deepcopy(pick(random, VALUES))


def cut_file(model: Directory, random: Random) -> None:
    """Cut a file, with or without telling the manifest."""
    name = pick(random, model.files)
    model.files[name] = model.files[name][: int(random.integers(len(model.files[name])))]
    if random.random() < 0.5:
        model.mend(name)


def damage_manifest(model: Directory, random: Random) -> None:
    """Change bytes of the manifest's text, or cut it."""
    content = bytearray(json.dumps(model.manifest).encode())
    if random.random() < 0.3:
        del content[int(random.integers(len(content))) :]
    for _ in range(int(random.integers(0, 4))):
        if content:
            content[int(random.integers(len(content)))] = int(random.integers(256))
    model.raw_manifest = bytes(content)


def take_foreign(model: Directory, random: Random) -> None:
    """Take a file, or the state, of another model."""
    other = pick(random, model.others)
    if random.random() < 0.1:
        model.manifest["state"] = json.loads(other.text)["state"]
        return
    common = sorted(set(model.files) & set(other.files))
    name = pick(random, common if common and random.random() < 0.7 else model.files)
    model.files[name] = other.files[name if name in other.files else pick(random, other.files)]
    model.mend(name)


MUTATIONS: list[tuple[Callable[[Directory, Random], None], float]] = [
    (change_entries, 0.33),
    (overflow_boundaries, 0.02),
    (flip_bits, 0.17),
    (reshape_array, 0.14),
    (change_manifest, 0.2),
    (change_dtype, 0.04),
    (swap_files, 0.03),
    (take_foreign, 0.04),
    (cut_file, 0.02),
    (damage_manifest, 0.01),
]


BOUNDARIES = np.cumsum([weight for _, weight in MUTATIONS])[:-1]


def mutate(model: Directory, random: Random) -> str:
    """Apply one to three mutations; return their names."""
    names = []
    for _ in range((1, 1, 1, 2, 3)[int(random.integers(5))]):
        mutation = MUTATIONS[int(np.searchsorted(BOUNDARIES, random.random(), side="right"))][0]
        try:
            mutation(model, random)
            names.append(mutation.__name__)
        except Exception:
            continue  # the mutation does not apply to this array
    return ", ".join(names)
