"""``ramify new``: a commented TOML file of all parameters of a model, for ``ramify train --config``."""

from __future__ import annotations

import argparse
import json
import textwrap
from pathlib import Path
from typing import Any

from ramify.base.config import Config
from ramify.cli.help import add_command
from ramify.cli.options import presets
from ramify.models import REGISTRY, model_class
from ramify.models.base import Model


def add_new(parent: Any) -> None:
    """Add the command."""
    sub = add_command(parent, "new", "Write a commented TOML file of the parameters of a model.", write_new)
    sub.add_argument("model", choices=list(REGISTRY), metavar="MODEL", help=f"one of: {', '.join(REGISTRY)}")
    sub.add_argument("--preset", metavar="NAME", help="settings of a paper, for xr-linear")
    sub.add_argument("--out", metavar="FILE", help="file to write (default: standard output)")


def write_new(args: argparse.Namespace) -> None:
    """Write the file, or print it."""
    cls = model_class(args.model)
    if args.preset is not None and args.preset not in presets(cls):
        raise ValueError(f"{args.model} has no preset {args.preset!r}; available: {', '.join(presets(cls)) or 'none'}")
    model = cls() if args.preset is None else getattr(cls, args.preset)()
    text = toml_of(model)
    if args.out is None:
        print(text, end="")
        return
    if Path(args.out).exists():
        raise ValueError(f"{args.out} exists; choose another name or delete it")
    Path(args.out).write_text(text, encoding="utf-8")


def toml_of(model: Model, changed: dict[str, Any] | None = None) -> str:
    """Parameters of a model as TOML: those in `changed`, or that differ from the defaults, are set, others comments."""
    defaults = flat_params(type(model)())
    own = flat_params(model)
    if changed is None:
        is_default = {path: path in defaults and _toml(defaults[path]) == _toml(value) for path, value in own.items()}
        changed = {path: value for path, value in own.items() if not is_default[path]}
    lines = [f"# Parameters of {model.kind}, for: ramify train {model.kind} train.jsonl --config FILE --out DIR", ""]
    for info in type(model).describe(defaults=model):
        value = own.get(info.path, info.default)
        lines += textwrap.wrap(f"{info.doc} ({info.type_name})", 110, initial_indent="# ", subsequent_indent="#   ")
        shown = _toml(changed.get(info.path, value))
        if shown is None:  # TOML has no null; a string stands for it
            lines.append(f'{info.path} = "none"' if info.path in changed else f"# {info.path} =")
        else:
            lines.append(f"{'' if info.path in changed else '# '}{info.path} = {shown}")
    return "\n".join(lines) + "\n"


def flat_params(component: Config, prefix: str = "") -> dict[str, Any]:
    """Parameters by dotted path."""
    values: dict[str, Any] = {}
    for name, value in component.get_params(deep=False).items():
        if isinstance(value, Config):
            values.update(flat_params(value, f"{prefix}{name}."))
        else:
            values[f"{prefix}{name}"] = value
    return values


def _toml(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items() if v is not None)
        return f"{{ {inner} }}"
    if isinstance(value, tuple | list):
        parts = [_toml(v) for v in value]
        return f"[{', '.join(p for p in parts if p is not None)}]"
    return json.dumps(value) if not isinstance(value, Config) else _toml(value.to_dict())
