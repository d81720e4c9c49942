"""Hyper-parameters as dataclass fields, each declared once with its default, range and documentation.

`get_params`, the command line, the manifest of a saved model and the repr are derived from the fields.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
import sys
import tomllib
import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field
from typing import Any, Literal, Self, Union


def param(
    default: Any = MISSING,
    doc: str = "",
    *,
    factory: Any = MISSING,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    positional: bool = False,
) -> Any:
    """Declare a parameter: default, documentation and range (`low` and `high` inclusive, `above` exclusive).

    At most one parameter of a class is `positional`: it may be passed without its name.
    """
    metadata = {"doc": doc, "low": low, "high": high, "above": above}
    if factory is not MISSING:
        return field(default_factory=factory, metadata=metadata, kw_only=not positional)
    return field(default=default, metadata=metadata, kw_only=not positional)


@dataclass(frozen=True)
class ParamInfo:
    """A parameter as shown by the command line and the documentation."""

    path: str
    type_name: str
    default: Any
    doc: str


@dataclass(kw_only=True, eq=False, repr=False)
class Config:
    """Base class of everything that has parameters. Subclasses are keyword-only dataclasses."""

    def __post_init__(self) -> None:
        self.check_params()

    # ---- validation ----

    def check_params(self) -> None:
        """Raise `ValueError` for the first parameter of the wrong type or out of range."""
        declared = _declared(type(self))
        hints, plain_types = declared.hints, declared.plain_types
        for f in declared.fields:
            value = getattr(self, f.name)
            if type(value) in plain_types[f.name]:
                _check_range(self, f, value)
                continue
            if (
                type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
            ):  # NumPy scalars, as from a grid search
                value = value.item()
                setattr(self, f.name, value)
            elif isinstance(value, os.PathLike):
                value = os.fspath(value)
                value = value if _fits(value, hints[f.name]) else _component_from_str(value, hints[f.name])
                setattr(self, f.name, value)
            elif isinstance(value, list):
                value = coerce(value, hints[f.name])
                setattr(self, f.name, value)
            elif isinstance(value, str) and not _fits(value, hints[f.name]):
                value = _component_from_str(value, hints[f.name])
                setattr(self, f.name, value)
            if not _fits(value, hints[f.name]):
                name = f"{type(self).__name__}.{f.name}"
                raise ValueError(f"{name} must be {type_name(hints[f.name])}; got {value!r}")
            _check_range(self, f, value)

    # ---- scikit-learn API ----

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; with `deep` also those of nested components, as ``component__name``."""
        params: dict[str, Any] = {}
        for f in _declared(type(self)).fields:
            value = getattr(self, f.name)
            params[f.name] = value
            if deep and isinstance(value, Config):
                params.update({f"{f.name}__{k}": v for k, v in value.get_params().items()})
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, nested ones as ``component__name`` or ``component.name``; on an error none is set."""
        before = {f.name: getattr(self, f.name) for f in _declared(type(self)).fields}
        try:
            self._set_all({path.replace("__", "."): value for path, value in params.items()})
            self.check_params()
        except Exception:
            for name, value in before.items():
                setattr(self, name, value)
            raise
        return self

    def _set_all(self, values: dict[str, Any]) -> None:
        """Set parameters by dotted path; whatever their order, a component is set before its own parameters."""
        nested: dict[str, dict[str, Any]] = {}
        for path, value in values.items():
            name, _, rest = path.partition(".")
            self._require(name)
            if rest:
                nested.setdefault(name, {})[rest] = value
            else:
                self._set(name, value)
        for name, own in nested.items():
            self._set_nested(name, own, may_replace=name not in values)

    def _shared(self) -> set[str]:
        """Return the names of parameters that are not its own, but are set in all of its parts."""
        return set()

    def _set(self, name: str, value: Any) -> None:
        """Set one parameter of this object."""
        setattr(self, name, coerce(value, _declared(type(self)).hints[name]))

    def _set_nested(self, name: str, values: dict[str, Any], may_replace: bool) -> None:
        """Set parameters of a component; they may choose another type of component that has them."""
        types, component = _config_types(_declared(type(self)).hints[name]), getattr(self, name)
        own = {path.partition(".")[0] for path in values}
        if isinstance(component, Config) and (
            not may_replace or own <= {*_declared(type(component)).names, *component._shared()}
        ):
            component = component.clone()
        else:
            fitting = [t for t in types if own <= set(_declared(t).names)] if may_replace else []
            if fitting:  # an optional component is created when one of its parameters is set
                direct = {
                    path: coerce(v, _declared(fitting[0]).hints[path]) for path, v in values.items() if "." not in path
                }
                component = fitting[0](**direct)
                values = {path: v for path, v in values.items() if "." in path}
            elif component is None and types:
                component = types[0]()
            elif isinstance(component, Config):
                component = component.clone()
            else:
                path = f"{name}.{next(iter(values))}"
                raise ValueError(
                    f"{type(self).__name__}.{name} has no parameters of its own, so {path!r} cannot be set"
                )
        component._set_all(values)
        component.check_params()
        setattr(self, name, component)

    @classmethod
    def _require(cls, name: str) -> None:
        names = _declared(cls).names
        if name in names:
            return
        nested = [info.path for info in cls.describe() if info.path.endswith(f".{name}")]
        near = nested[:3] or difflib.get_close_matches(name, names, n=1)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise ValueError(f"{cls.__name__} has no parameter {name!r}.{hint} Parameters: {', '.join(names)}.")

    def clone(self) -> Self:
        """Return a new, unfitted object with the same parameters."""
        values = {f.name: getattr(self, f.name) for f in _declared(type(self)).fields}
        return type(self)(**{k: v.clone() if isinstance(v, Config) else v for k, v in values.items()})

    def __repr__(self) -> str:
        changed = []
        for f in _declared(type(self)).fields:
            value = getattr(self, f.name)
            default = f.default if f.default_factory is MISSING else f.default_factory()
            same = (
                value.to_dict() == default.to_dict()
                if isinstance(value, Config) and isinstance(default, Config)
                else value == default
            )
            if not same:
                changed.append(f"{f.name}={value!r}")
        return f"{type(self).__name__}({', '.join(changed)})"

    # ---- serialization and documentation ----

    def to_dict(self) -> dict[str, Any]:
        """Nested parameters as plain values for JSON and TOML."""
        return {f.name: _plain(getattr(self, f.name)) for f in _declared(type(self)).fields}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Build an object from the result of `to_dict`. An unknown name is an error."""
        if not isinstance(values, dict):
            raise ValueError(f"the parameters of {cls.__name__} are names with values; got {values!r}")
        hints, plain_types = _declared(cls).hints, _declared(cls).plain_types
        for name in values:
            cls._require(name)
        return cls(**{n: v if type(v) in plain_types[n] else coerce(v, hints[n]) for n, v in values.items()})

    @classmethod
    def describe(cls, prefix: str = "", defaults: Self | None = None) -> Iterator[ParamInfo]:
        """Yield every parameter with its dotted path, nested ones included; `defaults` overrides those of the class."""
        hints = _declared(cls).hints
        for f in _declared(cls).fields:
            default = f.default_factory() if f.default_factory is not MISSING else f.default
            if defaults is not None:
                default = getattr(defaults, f.name)
            path = f"{prefix}{f.name}"
            nested = _config_types(hints[f.name])
            if nested and isinstance(default, Config):
                yield from type(default).describe(f"{path}.", default)
            else:
                yield ParamInfo(path, type_name(hints[f.name]), default, f.metadata.get("doc", ""))


def coerce(value: Any, hint: Any) -> Any:
    """Convert a value from JSON, TOML or the command line to the type of a parameter, if that loses nothing."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if _fits(value, hint):
        return value
    options = _options(hint)
    for option in options:
        origin, args = typing.get_origin(option), typing.get_args(option)
        if isinstance(option, type) and issubclass(option, Config) and isinstance(value, dict):
            only = len(_config_types(hint)) == 1  # of several component types, take the one with these parameters
            if only or set(value) <= set(_declared(option).names):
                return option.from_dict(value)
        if origin is tuple and isinstance(value, list | tuple):
            item = [args[0]] * len(value) if len(args) == 2 and args[1] is Ellipsis else list(args)
            if len(item) == len(value):
                candidate = tuple(coerce(v, h) for v, h in zip(value, item, strict=True))
                if _fits(candidate, option):
                    return candidate
        if option is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if option is type(None) and isinstance(value, str) and value.lower() in ("none", "null"):
            return None
        if option is bool and isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
    return _component_from_str(value, hint) if isinstance(value, str) else value  # `check_params` reports what is wrong


def _component_from_str(value: str, hint: Any) -> Any:
    """Build the component whose positional parameter accepts the string; return the string if there is none."""
    for option in _config_types(hint):
        first = next((f for f in _declared(option).fields if not f.kw_only), None)
        if first is not None and _fits(value, _declared(option).hints[first.name]):
            return option(**{first.name: value})
    return value


def type_name(hint: Any) -> str:
    """Readable name of a type."""
    options = _options(hint)
    if len(options) > 1:
        return " or ".join(type_name(o) for o in options)
    hint = options[0]
    if typing.get_origin(hint) is Literal:
        return " or ".join(repr(a) for a in typing.get_args(hint))
    if hint is type(None):
        return "None"
    if hint is Ellipsis:
        return "..."
    name, args = getattr(hint, "__name__", str(hint)), typing.get_args(hint)
    return f"{name}[{', '.join(type_name(arg) for arg in args)}]" if args else name


@dataclass(frozen=True)
class _Declared:
    """What a class declares, which is asked for every parameter of every component, also when a model is opened."""

    fields: tuple[dataclasses.Field[Any], ...]
    names: dict[str, None]
    hints: dict[str, Any]
    plain_types: dict[str, frozenset[Any]]
    """Of each parameter, types all of whose values fit it; not float, which has NaN."""


_declared_by: dict[type[Config], _Declared] = {}


def _declared(cls: type[Config]) -> _Declared:
    found = _declared_by.get(cls)
    if found is None:
        fields, hints = dataclasses.fields(cls), typing.get_type_hints(cls)
        plain = {name: frozenset(o for o in _options(hint) if _is_plain(o)) for name, hint in hints.items()}
        found = _declared_by[cls] = _Declared(fields, dict.fromkeys(f.name for f in fields), hints, plain)
    return found


def _is_plain(hint: Any) -> bool:
    return isinstance(hint, type) and not typing.get_args(hint) and hint is not float


@functools.cache
def _options(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)


@functools.cache
def _origin(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(hint), typing.get_args(hint)


def _config_types(hint: Any) -> list[type[Config]]:
    return [o for o in _options(hint) if isinstance(o, type) and issubclass(o, Config)]


def component_types(cls: type[Config], name: str) -> list[type[Config]]:
    """Types that a component may have."""
    return _config_types(_declared(cls).hints[name])


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    options = _options(hint)
    if len(options) > 1:
        return any(_fits(value, o) for o in options)
    hint = options[0]
    origin, args = _origin(hint)
    if origin is Literal:
        return any(value == a and type(value) is type(a) for a in args)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if len(args) == 2 and args[1] is Ellipsis:
            return all(_fits(v, args[0]) for v in value)
        return len(value) == len(args) and all(_fits(v, a) for v, a in zip(value, args, strict=True))
    if origin is dict:
        return isinstance(value, dict) and all(_fits(k, args[0]) and _fits(v, args[1]) for k, v in value.items())
    if origin is list:
        return isinstance(value, list) and all(_fits(v, args[0]) for v in value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is float:
        is_int = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
        return is_int or (isinstance(value, float) and value == value)
    return isinstance(value, hint)


def _check_range(owner: Config, f: dataclasses.Field[Any], value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    low, high, above = f.metadata.get("low"), f.metadata.get("high"), f.metadata.get("above")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        expected = "fit in 64 bits"
    elif low is not None and value < low:
        expected = f"be at least {low}"
    elif high is not None and value > high:
        expected = f"be at most {high}"
    elif above is not None and value <= above:
        expected = f"be above {above}"
    else:
        return
    raise ValueError(f"{type(owner).__name__}.{f.name} must {expected}; got {value!r}")


def _plain(value: Any) -> Any:
    if isinstance(value, Config):
        return value.to_dict()
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


def parse_value(text: str) -> Any:
    """Parse a value as TOML, or else as a plain string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
