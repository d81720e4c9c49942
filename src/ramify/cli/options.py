"""Options shared by several commands: reading data, loading and configuring models."""

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
from ramify.base.config import parse_value
from ramify.base.errors import DataError
from ramify.cli.output import print_message, report_skipped
from ramify.io.dataset import Dataset
from ramify.io.formats import FORMATS, read, read_label_names
from ramify.io.records import RecordOptions
from ramify.models import load
from ramify.models.base import Model


def add_catalogue_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for the names of the labels."""
    parser.add_argument("--labels", metavar="FILE", help="label catalogue: TSV, CSV, JSON Lines or SKOS")


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for reading data files."""
    group = parser.add_argument_group("data files")
    group.add_argument("--format", choices=FORMATS, help="format of the files (default: detected)")
    group.add_argument(
        "--fields",
        metavar="A,B",
        help="text fields to read (default: 'text' if present, else every field with a string)",
    )
    group.add_argument(
        "--label-sep", default=";", metavar="S", help="separator of labels in TSV and CSV cells (default: ;)"
    )
    group.add_argument(
        "--label-field", default="labels", metavar="NAME", help="field or column of the labels (default: labels)"
    )
    group.add_argument("--encoding", default="utf-8", help="encoding of text files (default: utf-8)")
    group.add_argument("--label-names", metavar="FILE", help="label names, one per line, for files with label ids")
    group.add_argument(
        "--skip-bad", action="store_true", help="skip and count bad lines instead of stopping at the first"
    )


def record_options(args: argparse.Namespace) -> RecordOptions:
    """Options of the record readers."""
    fields = tuple(args.fields.split(",")) if args.fields else None
    return RecordOptions(fields, args.label_sep, args.encoding, args.label_field)


def is_built_in(name: str) -> bool:
    """Whether a name is a built-in data set, such as ``pydoc`` or ``pydoc:train``, and not a file."""
    return name.partition(":")[0] in datasets.names() and not Path(name).exists()


def read_data(name: str, args: argparse.Namespace) -> Dataset:
    """Read a file, a pipe, - for standard input, or a built-in data set; reports skipped lines."""
    if is_built_in(name):
        key, _, split = name.partition(":")
        data = datasets.load(key)
        return data.split(split) if split else data
    options = record_options(args)
    with regular_file(name) as path:
        data = read(
            path,
            format=args.format,
            fields=options.fields,
            label_sep=options.label_sep,
            label_field=options.label_field,
            encoding=options.encoding,
            label_names=read_label_names(args.label_names) if args.label_names else None,
            skip_bad=args.skip_bad,
            threads=getattr(args, "threads", None),
            verbose=0 if getattr(args, "quiet", False) else 1,
        )
    data = dataclasses.replace(data, name=Path(name).name)
    report_skipped(data.name, data.n_skipped, data.skipped)
    return data


def read_labelled_data(name: str, args: argparse.Namespace) -> Dataset:
    """Read data that need labels; an error if no row has one, most likely because they are called otherwise."""
    data = read_data(name, args)
    if len(data) and data.Y.nnz == 0:
        hint = ""
        if data.texts is not None:
            hint = f": labels are read from the field {record_options(args).label_field!r}; --label-field names another"
        elif data.n_labels == 0:
            hint = ": features in an X….npz have their labels in a Y….npz next to it"
        raise DataError(f"no row of {data.name} has a label{hint}")
    return data


@contextlib.contextmanager
def regular_file(name: str) -> Iterator[str]:
    """Path that can be opened twice, to detect the format and to read; a pipe is copied to a temporary file."""
    if name != "-" and not Path(name).is_fifo():
        yield name
        return
    with tempfile.NamedTemporaryFile(prefix="ramify-") as copy:
        with open(0 if name == "-" else name, "rb", closefd=name != "-") as source:
            shutil.copyfileobj(source, copy)
        copy.flush()
        yield copy.name


def load_model(args: argparse.Namespace) -> Model:
    """Load the model of a command, with its number of threads and without the progress bars of the model."""
    return load(args.model).set_params(threads=args.threads, verbose=0)


def presets(cls: type[Model]) -> list[str]:
    """Names of the presets of a model, such as ``pecos``: class methods that return settings of a paper."""
    return [name for name in ("pecos", "parabel", "bonsai", "dismec") if hasattr(cls, name)]


def configured_model(cls: type[Model], config: str | None, settings: list[str], preset: str | None = None) -> Model:
    """Build a model from a preset, a TOML file and ``a.b=c`` settings; the later take precedence."""
    if preset is not None and preset not in presets(cls):
        raise ValueError(f"{cls.kind} has no preset {preset!r}; available: {', '.join(presets(cls)) or 'none'}")
    model = cls() if preset is None else getattr(cls, preset)()
    values: dict[str, Any] = {}
    if config is not None:
        values.update(_flatten(_read_toml(config)))
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path.strip():
            raise ValueError(f"--set expects name=value; got {setting!r}")
        values[path.strip()] = parse_value(text.strip())
    before = type(getattr(model, "features", None)).__name__
    model.set_params(**values)
    features = getattr(model, "features", None)
    if before == "Concat" and type(features).__name__ == "Tfidf" and "features" not in values:
        print_message(f"features: {features!r} in place of words beside stems, since you set what the terms are")
    return model


def _read_toml(path: str) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise DataError(f"{path}: {os.strerror(error.errno or 0)}") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise DataError(f"{path}: not valid TOML: {error}") from error


def _flatten(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested tables to dotted names."""
    values: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict) and value:
            values.update(_flatten(value, f"{prefix}{key}."))
        else:
            values[f"{prefix}{key}"] = value
    return values
