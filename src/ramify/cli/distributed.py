"""``--engine``: training, prediction and evaluation on many files, by many processes or machines."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from ramify.base.errors import DataError
from ramify.cli.output import print_message
from ramify.cli.predictions import Key, open_predictions, prediction_format
from ramify.distributed.prediction import FilePredictions, predict_files
from ramify.distributed.training import fit_files
from ramify.io.catalogue import LabelCatalogue
from ramify.io.files import stem_suffix
from ramify.models.base import Model
from ramify.models.xrlinear import XRLinear


def _engine_options(args: argparse.Namespace) -> dict[str, Any]:
    if not args.work_dir:
        raise ValueError("--engine needs --work-dir DIR, a directory for what is made on the way")
    if args.label_names:
        raise ValueError("--label-names cannot be used with --engine")
    names = ("engine", "work_dir", "workers", "address", "threads")
    reading = ("format", "label_sep", "label_field", "encoding", "skip_bad")
    options = {name: getattr(args, name) for name in (*names, *reading)}
    return {**options, "fields": args.fields.split(",") if args.fields else None}


def _refuse(args: argparse.Namespace, names: tuple[str, ...]) -> None:
    for name in names:
        if getattr(args, name, None):
            raise ValueError(f"--{name.replace('_', '-')} cannot be used with --engine")


def train_files(model: Model, args: argparse.Namespace, catalogue: LabelCatalogue | None) -> None:
    """Train and save a model with ``ramify train --engine``."""
    if not isinstance(model, XRLinear) or type(model) is not XRLinear:
        raise ValueError(f"--engine trains xr-linear; {model.kind} is trained in one process")
    _refuse(args, ("dry_run", "memory_limit", "label_features", "tree", "calibrate", "checkpoints"))
    if args.seeds > 1:
        raise ValueError("--seeds cannot be used with --engine")
    started = time.perf_counter()
    run = fit_files(model, args.file, shared=not args.no_shared_folder, **_engine_options(args))
    seconds = time.perf_counter() - started
    model.set_catalogue(catalogue)
    model.save(args.out)
    if not args.quiet:
        counts = run.counts
        notes = "".join(
            f", {counts[name]:,} {name}" for name in ("reused", "lost", "failed", "damaged") if counts[name]
        )
        size = sum(f.stat().st_size for f in Path(args.out).iterdir())
        print_message(
            f"trained {model.kind} on {model.label_counts_.n_samples:,} samples with {model.n_labels:,} labels in "
            f"{seconds:.1f} s by {counts['run']:,} tasks{notes}; saved to {args.out} ({size / 1e6:.1f} MB)"
        )


def rank_files(args: argparse.Namespace, k: int, probabilities: bool) -> FilePredictions:
    """Rank the samples of the files of a command."""
    _refuse(args, ("no_shared_folder",))
    return predict_files(args.model, args.file, k=k, probabilities=probabilities, **_engine_options(args))


def predict_to_files(args: argparse.Namespace) -> None:
    """``ramify predict --engine``: one output file, or a directory with one for each input file."""
    _refuse(args, ("text", "rule", "threshold", "allow", "deny", "allow_prefix"))
    if args.file == "-" or args.out is None:
        raise ValueError("with --engine, name the input files and --out")
    is_directory = args.out.endswith("/") or Path(args.out).is_dir()
    kind = "jsonl" if is_directory else prediction_format(args.out)
    found = rank_files(args, args.k, args.probabilities)
    outputs = [_output(args.out, path) for path in found.paths] if is_directory else [args.out]
    if len(set(outputs)) < len(outputs):
        raise DataError(f"several input files would be written to the same file in {args.out}; give them other names")
    has_names = found.model.catalogue_ is not None
    for index, out in enumerate(outputs):
        with open_predictions(out, kind, args.names, has_names=has_names) as writer:
            for file, ranking, ids in found.rankings():
                if not is_directory or file == index:
                    keys: list[Key] = [{} if key is None else {"id": key} for key in ids or [None] * len(ranking)]
                    writer.write(ranking, keys)


def _output(directory: str, path: str) -> str:
    name = Path(path).name
    for suffix in (Path(name).suffix if Path(name).suffix in (".gz", ".xz") else "", stem_suffix(name)):
        name = name.removesuffix(suffix)
    return str(Path(directory) / f"{name}.jsonl")
