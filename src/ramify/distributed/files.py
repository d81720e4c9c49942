"""Data files: which ones, and the stages that read them."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ramify.base.errors import DataError
from ramify.distributed.scheduler import Run
from ramify.distributed.task import Task
from ramify.io.formats import detect_format
from ramify.io.npz import has_dense_features

OVERHEAD = 200 << 20
"""Bytes of a worker that has loaded the library."""
READ_OPTIONS = ("format", "fields", "label_sep", "label_field", "encoding", "skip_bad")
"""Options of `ramify.read` that data files may be read with."""
FIT_OPTIONS = ("tree", "label_features", "negatives", "sample_weight", "relevance", "label_catalogue")
"""Options of `XRLinear.fit` that only one process has; weights of labels are read from the files."""


def find_files(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Paths of data files, given as a pattern or as a list; raises `DataError` if there are none."""
    given = [files] if isinstance(files, str | os.PathLike) else list(files)
    paths: list[str] = []
    for path in given:
        name = os.fspath(path)
        found = [name] if Path(name).exists() else sorted(glob.glob(name))  # noqa: PTH207 - a pattern may be absolute
        if not found:
            raise DataError(f"{name}: no such file")
        paths += found
    if not paths:
        raise DataError("there are no files to read")
    return [str(Path(path).resolve()) for path in paths]


def check_read_options(options: dict[str, Any]) -> None:
    """Raise for an unknown option."""
    for name in options:
        if name in FIT_OPTIONS:
            raise TypeError(f"{name} is an option of fit, in one process; training on files does not support it")
        if name not in READ_OPTIONS:
            raise TypeError(f"unexpected option {name!r}; options of reading: {', '.join(READ_OPTIONS)}")


def read_files(run: Run, paths: list[str], params: dict[str, Any]) -> list[Task]:
    """Read data files, each by one task; the content of a file names it, not its path."""
    for path in paths:
        if (params["options"].get("format") or detect_format(path)) == "npz" and has_dense_features(path):
            raise DataError(
                f"{path}: its features are dense, and tasks work on texts and sparse features only; read the files "
                "with ramify.read, then call fit or predict"
            )
    status = [Path(path).stat() for path in paths]
    digests = [
        Task(
            f"hashing {Path(path).name}",
            "data_tasks:digest",
            {"path": path, "size": found.st_size, "mtime": found.st_mtime_ns},
            paths=[path],
            cost=found.st_size,
        )
        for path, found in zip(paths, status, strict=True)
    ]
    run.run("hashing files", digests)
    tasks = [
        Task(
            f"reading {Path(path).name}",
            "data_tasks:read_file",
            {"sha256": run.result(digest)["sha256"], **params},
            paths=[path],
            cost=found.st_size,
            memory=OVERHEAD + 10 * found.st_size,
        )
        for path, found, digest in zip(paths, status, digests, strict=True)
    ]
    return run.run("reading files", tasks)
