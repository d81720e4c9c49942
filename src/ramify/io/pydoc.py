"""A real data set that every machine has: the docstrings of Python's standard library and of Ramify's own dependencies.

A point is a function, class or method. Its text is the summary and the description; its labels are the parameters that
it takes, what it returns, what it names under See Also, and its module. Labels have a true long tail: about half of
them stand at a single point.
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
# Modules that open windows, print, call into the system, are replaced by others (pdb by test runners), or are not part
# of the documented library.
_LEFT_OUT = {"antigravity", "this", "idlelib", "lib2to3", "test", "turtle", "turtledemo", "ensurepip", "pydoc_data",
             "__main__", "tkinter", "msilib", "distutils", "crypt", "pdb"}  # fmt: skip
# What other libraries put something of their own in place of when they are imported (torch does).
_REPLACED = {"inspect.getfile"}
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
    """Read the docstrings of this Python; the same versions give the same data."""
    rows: dict[str, tuple[str, list[str]]] = {}
    seen_texts: set[str] = set()
    seen_items: dict[int, Any] = {}  # holds the objects, so that no later one can have the same id
    for module in _modules():
        for name, item in _items(module):
            if id(item) in seen_items:  # re-exported: its first name is its shortest
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
        indicator_from_lists([[vocabulary.numbers[x] for x in row] for row in label_lists], len(vocabulary)),
        vocabulary,
        texts=[rows[name][0] for name in names],
        ids=names,
        splits={"train": np.flatnonzero(~test), "test": np.flatnonzero(test)},
        name="pydoc",
    )


def _bucket(name: str) -> int:
    """A number from 0 to 9 that depends on the name alone."""
    return hashlib.blake2b(name.encode(), digest_size=8).digest()[0] % 10


def _modules() -> list[ModuleType]:
    """Documented modules, those nearest the top first; those that cannot be imported quietly are left out.

    All are imported before the first is read: some change others when they are imported.
    """
    names = [n for n in sorted(sys.stdlib_module_names) if not n.startswith("_") and n not in _LEFT_OUT]
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
    said = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            warnings.simplefilter("ignore")
            module = importlib.import_module(name)
    except (Exception, SystemExit):  # whatever a module does when its system or its options are missing
        return None
    return None if said.getvalue() else module


def _items(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Public functions, classes and methods of a module, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in sorted(dir(module)):
            # Hooks are made to be replaced: what stands there depends on who was here before.
            item = None if name.startswith("_") or name.endswith("hook") else getattr(module, name, None)
            if inspect.ismodule(item) or not callable(item) or not _belongs(item, module):
                continue
            if f"{module.__name__}.{name}" in _REPLACED:
                continue
            yield f"{module.__name__}.{name}", item
            if inspect.isclass(item):
                for key in sorted(vars(item)):
                    method = None if key.startswith("_") else inspect.getattr_static(item, key)
                    if inspect.isroutine(method) or isinstance(method, classmethod | staticmethod):
                        yield f"{module.__name__}.{name}.{key}", getattr(item, key, method)


def _belongs(item: Any, module: ModuleType) -> bool:
    """Whether the object was defined in the module's package, not imported from elsewhere."""
    home = getattr(item, "__module__", None) or module.__name__
    return isinstance(home, str) and home.partition(".")[0].lstrip("_") == module.__name__.partition(".")[0]


def _parse(doc: str) -> tuple[str, list[str]]:
    """Text and labels of a docstring: prose before the first section, and what the sections name."""
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
    """Description without signatures, field lists and examples."""
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
    # A printed set has another order in every process.
    return re.sub(r"\{('\w+'(?:, '\w+')+)\}", lambda m: "{" + ", ".join(sorted(m[1].split(", "))) + "}", text)


def _section_items(body: list[str]) -> Iterator[tuple[str, str]]:
    """Heads of a section's items: the lines that are not indented."""
    for line in body:
        if line and not line[0].isspace() and (match := _ITEM.match(line)):
            yield match[1], match[2] or ""


def _names(head: str) -> list[str]:
    return [n for n in (part.strip().lstrip("*") for part in head.split(",")) if n.isidentifier()]


def _returned(name: str, kind: str) -> list[str]:
    """Names and type of a returned value."""
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
