"""Exceptions raised by Ramify, and the check of integers that are not parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np


class RamifyError(Exception):
    """Base class of all exceptions of this library."""


class DataError(RamifyError, ValueError):
    """Invalid input; the message gives the location and the reason."""


class ModelFormatError(RamifyError, ValueError):
    """A model directory that is damaged, of an unsupported format version, or not written by Ramify."""


class NotCalibratedError(RamifyError, ValueError, AttributeError):
    """Probabilities are asked of a model that has not been calibrated; it has no attribute `predict_proba`."""


if TYPE_CHECKING:

    class NotFittedError(RamifyError, ValueError, AttributeError):
        """A model or a feature extractor is used before `fit`; also scikit-learn's `NotFittedError`."""


def check_integer(value: Any, name: str, low: int = 1, high: int | None = None) -> int:
    """Return an integer from `low` to `high`; raise a `ValueError` for anything else."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if is_integer and low <= value and (high is None or value <= high):
        return int(value)
    wanted = "a positive integer" if low == 1 else f"an integer of at least {low}"
    raise ValueError(
        f"{name} must be {wanted if high is None else f'an integer from {low} to {high:,}'}; got {value!r}"
    )


def not_fitted(estimator: object) -> NotFittedError:
    """Exception for an estimator that is used before `fit`."""
    error: NotFittedError = _not_fitted_error()(f"this {type(estimator).__name__} is not fitted; call fit first")
    return error


def _not_fitted_error() -> Any:
    """`NotFittedError`, made on first use: scikit-learn, its base class, takes a second to import."""
    if "NotFittedError" not in globals():
        from sklearn import exceptions

        doc = "A model or a feature extractor is used before `fit`; also scikit-learn's `NotFittedError`."
        values = {"__doc__": doc, "__module__": __name__}
        globals()["NotFittedError"] = type("NotFittedError", (RamifyError, exceptions.NotFittedError), values)
    return globals()["NotFittedError"]


def __getattr__(name: str) -> Any:
    if name == "NotFittedError":
        return _not_fitted_error()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
