"""The built-in data set `pydoc`: docstrings of Python's standard library, NumPy, SciPy and scikit-learn.

A sample is a function, class or method. Its text is the summary and the description; its labels are its parameters,
its return values, its See Also entries and its module. The labels are long-tailed: about half of them have a single
sample.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import io
import itertools
import pkgutil
import re
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from ramify.base.sparse import indicator_from_lists
from ramify.io.dataset import Dataset
from ramify.io.labels import LabelVocabulary

PACKAGES = ("numpy", "scipy", "sklearn")
# Modules that open windows, print, call the system, are replaced at run time (pdb by test runners), or are not part of
# the documented library.
_EXCLUDED = {"antigravity", "this", "idlelib", "lib2to3", "test", "turtle", "turtledemo", "ensurepip", "pydoc_data",
             "__main__", "tkinter", "msilib", "distutils", "crypt", "pdb"}  # fmt: skip
# Functions that other libraries replace on import: torch and Ray.
_PATCHED = {"inspect.getfile", "inspect.isgenerator"}
_PRIVATE_PART = re.compile(
    r"(^|\.)(_|tests?(\.|$)|conftest|setup$|f2py|externals|testing|distutils|compat|estimator_checks)"
)
_GENERATED = re.compile(r"\.(lapack|blas|cython_\w+)$")  # hundreds of wrappers with one docstring
_RULES = ("---", "===", "~~~")
_UNDERLINE = re.compile(r"^\s*[-=~]{3,}\s*$")
_ITEM = re.compile(r"^([*\w][\w\s,.*]*?)\s*(?::\s*(.*))?$")
_REFERENCE = re.compile(r"[A-Za-z_][\w.]*")
_MIN_WORDS, _MIN_LABELS = 5, 2


def load_pydoc() -> Dataset:
    """Collect the docstrings of this installation; the same versions give the same data."""
    rows: dict[str, tuple[str, list[str]]] = {}
    seen_texts: set[str] = set()
    seen_items: dict[int, Any] = {}  # keeps the objects alive, so that ids stay unique
    for module in _modules():
        for name, item in _items(module):
            if id(item) in seen_items:  # re-exported: the first name is the shortest
                continue
            seen_items[id(item)] = item
            doc = getattr(item, "__doc__", None)
            text, labels = _parse(inspect.cleandoc(doc)) if isinstance(doc, str) else ("", [])
            if len(text.split()) < _MIN_WORDS or text in seen_texts:
                continue
            if not any(label.startswith("param:") for label in labels):
                labels += [f"param:{n}" for n in _signature_names(item)]
            labels.append(f"module:{module.__name__}")
            if len(set(labels)) < _MIN_LABELS:
                continue
            seen_texts.add(text)
            rows[name] = (text, labels)
    names = sorted(rows)
    label_lists = [rows[name][1] for name in names]
    vocabulary = LabelVocabulary.of(label_lists)
    test = np.fromiter((_bucket(name) < 2 for name in names), bool, count=len(names))
    return Dataset(
        indicator_from_lists([[vocabulary.ids[x] for x in row] for row in label_lists], len(vocabulary)),
        vocabulary,
        texts=[rows[name][0] for name in names],
        ids=names,
        splits={"train": np.flatnonzero(~test), "test": np.flatnonzero(test)},
        name="pydoc",
    )


def _bucket(name: str) -> int:
    """Hash of a name, 0 to 9."""
    return hashlib.blake2b(name.encode(), digest_size=8).digest()[0] % 10


def _modules() -> list[ModuleType]:
    """Documented modules, top-level ones first, without those that fail to import or print when imported.

    All are imported before the first is read, because some modify others on import.
    """
    names = [n for n in sorted(sys.stdlib_module_names) if not n.startswith("_") and n not in _EXCLUDED]
    for package in (*names, *PACKAGES):
        module = _import_quietly(package)
        paths = getattr(module, "__path__", None)
        if paths is not None:
            names.append(package)
            names.extend(_submodules(package, paths))
    modules = [_import_quietly(name) for name in sorted(set(names), key=lambda n: (n.count("."), n))]
    return [module for module in modules if module is not None]


def _submodules(package: str, paths: Any) -> Iterator[str]:
    for info in pkgutil.iter_modules(paths, f"{package}."):
        if _PRIVATE_PART.search(info.name.removeprefix(f"{package}.")) or _GENERATED.search(info.name):
            continue
        yield info.name
        if info.ispkg:
            module = _import_quietly(info.name)
            yield from _submodules(info.name, getattr(module, "__path__", ()))


def _import_quietly(name: str) -> ModuleType | None:
    if name in sys.modules:
        return sys.modules[name]
    output = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            warnings.simplefilter("ignore")
            module = importlib.import_module(name)
    except (Exception, SystemExit):  # a module may raise anything on an unsupported platform
        return None
    return None if output.getvalue() else module


def _items(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Public functions, classes and methods of a module, sorted by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in sorted(dir(module)):
            # Hooks may have been replaced by code that ran before.
            item = None if name.startswith("_") or name.endswith("hook") else getattr(module, name, None)
            if inspect.ismodule(item) or not callable(item) or not _belongs(item, module):
                continue
            if f"{module.__name__}.{name}" in _PATCHED:
                continue
            yield f"{module.__name__}.{name}", item
            if inspect.isclass(item):
                for key in sorted(vars(item)):
                    method = None if key.startswith("_") else inspect.getattr_static(item, key)
                    if inspect.isroutine(method) or isinstance(method, classmethod | staticmethod):
                        yield f"{module.__name__}.{name}.{key}", getattr(item, key, method)


def _belongs(item: Any, module: ModuleType) -> bool:
    """Whether the object was defined in the module's package rather than imported."""
    home = getattr(item, "__module__", None) or module.__name__
    return isinstance(home, str) and home.partition(".")[0].lstrip("_") == module.__name__.partition(".")[0]


def _parse(doc: str) -> tuple[str, list[str]]:
    """Split a docstring into text, the prose before the first section, and labels from the sections."""
    lines = doc.splitlines()
    sections = [
        i - 1
        for i, line in enumerate(lines)
        if i and line[:3] in _RULES and lines[i - 1].strip() and _UNDERLINE.match(line)
    ]
    prose = lines[: sections[0]] if sections else lines
    labels: list[str] = []
    for start, end in itertools.pairwise([*sections, len(lines)]):
        title, body = lines[start].strip().lower(), lines[start + 2 : end]
        if title in ("parameters", "other parameters"):
            labels += [f"param:{n}" for name, _ in _section_items(body) for n in _names(name)]
        elif title in ("returns", "yields"):
            labels += [f"returns:{t}" for name, kind in _section_items(body) for t in _returned(name, kind)]
        elif title == "see also":
            labels += [f"see:{n}" for n in _see_also(body)]
    return _prose(prose), labels


def _prose(lines: list[str]) -> str:
    """Join the lines of a description without signatures, field lists and examples."""
    kept = []
    for line in lines:
        stripped = line.strip()
        if stripped.startswith((">>>", ".. ", ":param", ":return", ":type", ":rtype", "@param")):
            if stripped.startswith(">>>"):
                break
            continue
        kept.append(stripped)
    while kept and (not kept[0] or re.match(r"^[\w.]+\(.*(\)|,)(\s*->.*)?$", kept[0])):
        kept.pop(0)
    text = " ".join(" ".join(kept).split())
    # The order of a printed set differs between processes.
    return re.sub(r"\{('\w+'(?:, '\w+')+)\}", lambda m: "{" + ", ".join(sorted(m[1].split(", "))) + "}", text)


def _section_items(body: list[str]) -> Iterator[tuple[str, str]]:
    """Name and type of the items of a section: its lines that are not indented."""
    for line in body:
        if line and not line[0].isspace() and (match := _ITEM.match(line)):
            yield match[1], match[2] or ""


def _names(head: str) -> list[str]:
    return [n for n in (part.strip().lstrip("*") for part in head.split(",")) if n.isidentifier()]


def _returned(name: str, kind: str) -> list[str]:
    """Names and type of a return value."""
    text = (kind or name).split(",")[0].split(" of ")[0].strip().strip("`").lower()
    return [*(_names(name) if kind else []), *([text] if re.fullmatch(r"[\w.]+( [\w.]+)?", text) else [])]


def _see_also(body: list[str]) -> list[str]:
    names: list[str] = []
    for line in body:
        if not line or line[0].isspace():
            continue
        head = re.sub(r":[a-z]+:`~?([\w.]+)`", r"\1", line).partition(" :")[0].rstrip(":")
        names += [part.strip() for part in head.split(",") if _REFERENCE.fullmatch(part.strip())]
    return names


def _signature_names(item: Any) -> list[str]:
    try:
        parameters = inspect.signature(item).parameters
    except (ValueError, TypeError, NameError, AttributeError):  # C functions without a signature
        return []
    return [n for n in parameters if n not in ("self", "cls", "args", "kwargs", "kwds") and not n.startswith("_")]
