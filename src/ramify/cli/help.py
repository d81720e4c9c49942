"""Examples and parameters in the help of the commands."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from ramify.base.config import Config, component_types
from ramify.models.base import Model

EXAMPLES = {
    "ramify": [
        "ramify train xr-linear train.jsonl --out model/ --dev dev.jsonl",
        "ramify evaluate model/ test.jsonl",
        "ramify predict model/ input.jsonl --k 10 --out output.jsonl",
        "ramify COMMAND --help",
    ],
    "train": [
        "ramify train xr-linear train.jsonl --out model/ --dev dev.jsonl",
        "ramify train xr-linear train.tsv.gz --out model/ --set n_trees=3 --set tree.max_leaf_size=50",
        "ramify train xr-linear train.jsonl --out model/ --preset pecos",
        "ramify train xr-linear train.jsonl --out model/ --labels vocabulary.tsv --calibrate dev.jsonl",
        "ramify train xr-linear train.jsonl --dry-run",
        "ramify train xr-transformer train.jsonl --out model/ --set encoder=path/or/hub-name --set encoder.frozen=true",
        "ramify train xr-linear 'train-*.jsonl.xz' --out model/ --engine pool --work-dir work/",
        "ramify train xr-linear --help",
    ],
    "predict": [
        'echo \'{"text": "solve a linear system"}\' | ramify predict model/ --k 5',
        "ramify predict model/ input.jsonl --k 10 --out output.tsv",
        "ramify predict model/ titles.txt --text",
        "ramify predict model/ 'test-*.jsonl.xz' --engine ray --work-dir work/ --out out/",
        "ramify predict model/ input.jsonl --rule maximize-f1 --names en",
    ],
    "evaluate": [
        "ramify evaluate model/ test.jsonl --deciles",
        "ramify evaluate first/ second/ test.jsonl --table markdown",
        "ramify evaluate predictions.jsonl test.jsonl --train train.jsonl",
        "ramify evaluate model/ test.jsonl --propensity 0.6,2.6",
        "ramify evaluate model/ test.jsonl --annif --limit 20",
        "ramify evaluate model/ test.jsonl --report report.html --against other/",
    ],
    "report": [
        "ramify predict model/ test.jsonl --k 100 --probabilities --out predictions.jsonl",
        "ramify report predictions.jsonl test.jsonl --model model/ --probabilities --out report.html",
    ],
    "calibrate": [
        "ramify calibrate model/ dev.jsonl",
        "ramify calibrate model/ dev.jsonl --rule target-precision=0.7 --out precise/",
    ],
    "compare": ["ramify compare model/ other/ test.jsonl"],
    "explain": [
        'ramify explain model/ "Return the sum of an array of numbers."',
        'ramify explain model/ "Return the sum of an array of numbers." --label module:array --without array',
    ],
    "labels": [
        "ramify labels model/ --set vocabulary.tsv",
        "ramify labels model/ --find whale --language en",
    ],
    "inspect": [
        "ramify inspect model/ --verify",
        "ramify inspect model/ --data test.jsonl",
        "ramify inspect m --arrays",
    ],
    "export-encoder": ["ramify export-encoder model/ --int8 --data dev.jsonl --out small/"],
    "data": ["ramify data stats train.jsonl test.jsonl", "ramify data convert corpus.tsv corpus.jsonl.xz"],
    "stats": ["ramify data stats train.jsonl test.jsonl"],
    "convert": ["ramify data convert corpus.tsv corpus.jsonl.xz", "ramify data convert train.jsonl train.parquet"],
    "tune": [
        "ramify tune xr-linear train.jsonl --budget 20m --out tuned.toml",
        "ramify train xr-linear train.jsonl --config tuned.toml --out model/",
    ],
    "new": ["ramify new xr-linear > model.toml", "ramify train xr-linear train.jsonl --config model.toml --out model/"],
    "card": ["ramify card model/ > README.md", "ramify card model/ --data test.jsonl"],
    "combine": ["ramify combine first/ second/ --out both/ --weights 1,2"],
    "serve": [
        "ramify serve model/",
        "ramify serve model/ english=other/ --host 0.0.0.0 --port 8080 --token-file token.txt",
        "ramify serve model/ --workers 4",
    ],
    "completion": [
        "ramify completion bash >> ~/.bashrc",
        "ramify completion fish > ~/.config/fish/completions/ramify.fish",
    ],
}
"""Examples of each command."""


def examples(command: str) -> str:
    """Text of the examples of a command, for the end of its help."""
    return "\n".join(["examples:", *(f"  {line}" for line in EXAMPLES[command])])


def add_command(
    parent: Any, name: str, help: str, run: Callable[[argparse.Namespace], None], **options: Any
) -> argparse.ArgumentParser:
    """Add a command with its examples."""
    sub: argparse.ArgumentParser = parent.add_parser(
        name,
        help=help,
        description=help,
        epilog=examples(name),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        **options,
    )
    sub.set_defaults(run=run, parser=sub)
    return sub


def alternatives(cls: type[Model]) -> Iterator[tuple[str, type[Config]]]:
    """Other types that a component of a model may have, such as a transformer in place of a bag of words."""
    for field in dataclasses.fields(cls):
        default = getattr(cls(), field.name)
        for other in component_types(cls, field.name):
            if isinstance(default, Config) and other is not type(default):
                yield field.name, other
