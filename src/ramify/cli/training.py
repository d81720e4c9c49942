"""What ``ramify train`` does around `fit`: checks before the work, options of `fit`."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from ramify.base.errors import DataError
from ramify.base.types import FloatArray
from ramify.cli.output import print_message
from ramify.io.catalogue import LabelCatalogue
from ramify.io.dataset import Dataset
from ramify.io.files import BadLines, read_lines
from ramify.io.store import StoreWriter
from ramify.models.base import Model
from ramify.nn.ranks import current_ranks

MIN_FREE = 32 << 20
"""Free bytes that a save needs at least."""
PROCESS = 150 << 20
"""Bytes of a process that has loaded Ramify and its libraries, and no data."""


def check_output(path: str) -> None:
    """Raise before the work if a model cannot be saved to a path."""
    StoreWriter(path)  # checks the path, writes nothing
    parent = Path(path).resolve().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise DataError(f"{path} cannot be written: {parent} is not a directory with write permission")


def check_space(path: str, data: Dataset) -> None:
    """Raise before the work if the disk is nearly full: a model takes about a quarter of the data or more."""
    parent = Path(path).resolve().parent
    while not parent.exists():
        parent = parent.parent
    needed, free = max(MIN_FREE, _bytes_of(data) // 4), shutil.disk_usage(parent).free
    if free < needed:
        raise DataError(f"{path}: {free / 1e6:,.0f} MB are free, but the model may need {needed / 1e6:,.0f} MB")


def _bytes_of(data: Dataset) -> int:
    if data.texts is not None:
        return sum(len(t) if isinstance(t, str) else sum(map(len, t.values())) for t in data.texts)
    X: Any = data.X
    return int(X.nbytes if isinstance(X, np.ndarray) else X.data.nbytes + X.indices.nbytes)


def parse_bytes(text: str) -> int:
    """Number of bytes of a text such as 8G, 500M, 1.5G or 8000000000; G, M and K are powers of 1000."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)B?", text.strip().upper())
    size = 0 if found is None else int(float(found[1]) * 1000 ** ("", "K", "M", "G", "T").index(found[2]))
    if size <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of memory, such as 8G or 500M")
    return size


def training_memory(model: Model, data: Dataset, catalogue: LabelCatalogue | None) -> int:
    """Estimated bytes of the process while it trains: the data, the libraries, and what `fit` takes above them."""
    labels = data.Y if data.X is not None else data.labels()
    return PROCESS + _bytes_of(data) + model.estimate_memory(data.inputs, labels, label_catalogue=catalogue)


def check_memory(model: Model, data: Dataset, catalogue: LabelCatalogue | None, limit: int) -> None:
    """Raise before the work if training is estimated to take more memory than allowed."""
    needed = training_memory(model, data, catalogue)
    if needed > limit:
        raise DataError(
            f"training {model.kind} on {data.name} takes about {needed / 1e6:,.0f} MB of memory, but --memory-limit "
            f"allows {limit / 1e6:,.0f} MB; raise it, or train on fewer samples or with fewer --threads"
        )


def check_train_options(model: Model, args: argparse.Namespace) -> None:
    """Raise for options that the model does not take, or that need others."""
    takes = inspect.signature(model.fit).parameters
    for option, name in (("--label-features", "label_features"), ("--tree", "tree")):
        if getattr(args, name) and name not in takes:
            raise ValueError(f"{model.kind} takes no {option}; it is for models with label trees, such as xr-linear")
    if args.seeds > 1 and not args.dev:
        raise ValueError("--seeds compares several trainings on a data file; name it with --dev")
    if current_ranks().size > 1 and (args.seeds > 1 or args.dry_run or not hasattr(model, "default_epochs")):
        raise ValueError(
            "torchrun divides one training of a model with an encoder, such as elias, among processes; run "
            f"{'--seeds' if args.seeds > 1 else '--dry-run' if args.dry_run else model.kind} without it"
        )
    if not args.out and not args.dry_run:
        raise ValueError("--out DIR is required, except with --dry-run")


def fit_options(args: argparse.Namespace, data: Dataset) -> dict[str, Any]:
    """Options of `fit` from the files of ``--label-features`` and ``--tree``, both keyed by label."""
    options: dict[str, Any] = {}
    if args.label_features:
        texts = _for_labels(read_by_label(args.label_features, "text"), data)
        options["label_features"] = texts
        _tell_coverage(args.label_features, texts, data)
    if args.tree:
        options["tree"] = _for_labels(read_by_label(args.tree, "path"), data)
    return options


def _for_labels(values: dict[Any, Any], data: Dataset) -> dict[Any, Any]:
    """Key values by the labels of the data: a label that is not a text there, such as 7, was read as one."""
    names = {str(label): label for label in data.label_names if not isinstance(label, str)}
    known = data.label_names.ids
    return {label if label in known else names.get(label, label): value for label, value in values.items()}


def _tell_coverage(path: str, texts: dict[Any, Any], data: Dataset) -> None:
    """Say how many labels of the data have no text; an error if none has one."""
    used = np.unique(data.Y.indices) if data.X is None else np.arange(data.n_labels)  # each column is a label
    names = list(data.label_names)
    missing = [names[i] for i in used if not texts.get(names[i])]
    if len(missing) == len(used):
        example = next(iter(texts), None)
        raise DataError(
            f"{path} has a text for none of the {len(used):,} labels of {data.name}: "
            + (f"it has labels such as {example!r}, the data {names[used[0]]!r}" if texts else "it is empty")
        )
    if missing:
        print_message(
            f"warning: {path} has no text for {len(missing):,} of {len(used):,} labels, such as {missing[0]!r}: they "
            "are clustered without label features"
        )


def read_by_label(path: str, field: str) -> dict[Any, Any]:
    """Read values keyed by label: JSON Lines with ``label`` and a field, or lines ``label<TAB>value``.

    A ``path`` is a list of names from the root down; in a TSV file they are separated by ``/``.
    """
    values: dict[Any, Any] = {}
    for number, line in read_lines(path, "utf-8", BadLines(path, skip=False)):
        if not line.strip():
            continue
        if line.lstrip().startswith("{"):
            try:
                entry = json.loads(line)
                label, value = entry["label"], entry[field]
            except (ValueError, KeyError) as error:
                raise DataError(f"{path}:{number}: expected an object with label and {field}: {error!r}") from None
        else:
            label, tab, text = line.partition("\t")
            if not tab:
                raise DataError(f"{path}:{number}: no tab between label and {field}")
            value = text.strip("/").split("/") if field == "path" else text
        if label in values:
            raise DataError(f"{path}:{number}: the label {label!r} occurs twice")
        values[label] = value
    return values


def fit_model(model: Model, data: Dataset, options: dict[str, Any], catalogue: LabelCatalogue | None = None) -> None:
    """Fit with the weights of the data file, if the model uses them; each column of a label matrix is a label."""
    options = dict(options)
    has_columns = data.X is not None
    if data.relevance is not None and model.uses_relevance:
        options["relevance"] = data.relevance if has_columns else data.encoded_relevance()
    if (weights := sample_weights(model, data)) is not None:
        options["sample_weight"] = weights
    if not has_columns:
        model.fit(data.inputs, data.labels(), label_catalogue=catalogue, **options)
        return
    for name in ("label_features", "tree"):
        if isinstance(options.get(name), dict):  # their keys are labels, but those of an indicator are its columns
            ids = data.label_names.ids
            options[name] = {ids[label]: value for label, value in options[name].items() if label in ids}
    model.fit(data.inputs, data.Y, **options)
    model.labels_ = data.label_names
    model.set_catalogue(catalogue)


def sample_weights(model: Model, data: Dataset) -> FloatArray | None:
    """Weights (n,) of the samples; a model that takes no weights of labels gets their mean for each sample."""
    if data.relevance is None or model.uses_relevance:
        return data.sample_weight
    print_message(
        f"{model.kind} takes no weights of labels: the weight of a sample of {data.name} is the mean of its weights"
    )
    mean = data.mean_relevance()
    return mean if data.sample_weight is None else mean * data.sample_weight


def fit_calibrated(
    model: Model, data: Dataset, options: dict[str, Any], catalogue: LabelCatalogue | None = None
) -> None:
    """Fit and calibrate without further data."""
    if (data.relevance is not None and model.uses_relevance) or options:
        raise DataError(
            "--calibrate auto uses neither weights of labels nor --label-features or --tree; name a file of "
            "held-out rows: --calibrate dev.jsonl"
        )
    weights = sample_weights(model, data)
    model.fit_calibrated(data.inputs, data.labels(), sample_weight=weights, label_catalogue=catalogue)
