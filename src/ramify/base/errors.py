"""Exceptions raised by Ramify."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


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
