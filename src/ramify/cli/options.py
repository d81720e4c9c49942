"""Options that several commands share, and settings of models."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ramify import datasets
from ramify.base.errors import DataError
from ramify.io.dataset import Dataset
from ramify.io.formats import FORMATS, read, read_label_names
from ramify.io.records import RecordOptions
from ramify.models.base import Model


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Options that say how files are read."""
    group = parser.add_argument_group("reading")
    group.add_argument("--format", choices=FORMATS, help="format of the files (default: found by name and content)")
    group.add_argument(
        "--fields", metavar="A,B", help="text fields to read (default: 'text', or else every field with a string)"
    )
    group.add_argument(
        "--label-sep", default=";", metavar="S", help="separator of labels in TSV and CSV cells (default: ;)"
    )
    group.add_argument("--encoding", default="utf-8", help="encoding of text files (default: utf-8)")
    group.add_argument("--label-names", metavar="FILE", help="names for numbered labels, one a line")
    group.add_argument(
        "--skip-bad", action="store_true", help="leave bad lines out and count them, instead of stopping"
    )


def record_options(args: argparse.Namespace) -> RecordOptions:
    """How records are read."""
    return RecordOptions(tuple(args.fields.split(",")) if args.fields else None, args.label_sep, args.encoding)


def is_built_in(name: str) -> bool:
    """Whether a file name stands for a built-in data set, such as ``pydoc`` or ``pydoc:train``."""
    return name.partition(":")[0] in datasets.names() and not Path(name).exists()


def read_data(name: str, args: argparse.Namespace) -> Dataset:
    """Read a file, a pipe, - for standard input, or a built-in data set."""
    if is_built_in(name):
        stem, _, part = name.partition(":")
        data = datasets.load(stem)
        return data.split(part) if part else data
    options = record_options(args)
    with regular_file(name) as path:
        data = read(
            path,
            format=args.format,
            fields=options.fields,
            label_sep=options.label_sep,
            encoding=options.encoding,
            label_names=read_label_names(args.label_names) if args.label_names else None,
            skip_bad=args.skip_bad,
            threads=getattr(args, "threads", None),
            verbose=0 if getattr(args, "quiet", False) else 1,
        )
    return dataclasses.replace(data, name=Path(name).name)


@contextlib.contextmanager
def regular_file(name: str) -> Iterator[str]:
    """A name that can be opened twice, to look at the format and to read: what comes through a pipe is kept first."""
    if name != "-" and not Path(name).is_fifo():
        yield name
        return
    with tempfile.NamedTemporaryFile(prefix="ramify-") as kept:
        with open(0 if name == "-" else name, "rb", closefd=name != "-") as source:
            shutil.copyfileobj(source, kept)
        kept.flush()
        yield kept.name


def configured_model(cls: type[Model], config: str | None, settings: list[str]) -> Model:
    """Make a model from a TOML file and from ``a.b=c`` settings, which win."""
    values: dict[str, Any] = {}
    if config is not None:
        values.update(_flat(_read_toml(config)))
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path.strip():
            raise ValueError(f"--set takes name=value; got {setting!r}")
        values[path.strip()] = parse_value(text.strip())
    return cls().set_params(**values)


def parse_value(text: str) -> Any:
    """Read a value as TOML would, or else as a plain string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _read_toml(path: str) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise DataError(f"{path}: {os.strerror(error.errno or 0)}") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise DataError(f"{path}: not valid TOML: {error}") from error


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted names."""
    values: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            values.update(_flat(value, f"{prefix}{key}."))
        else:
            values[f"{prefix}{key}"] = value
    return values
