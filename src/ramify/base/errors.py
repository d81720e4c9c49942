"""Exceptions raised by Ramify."""

from __future__ import annotations


class RamifyError(Exception):
    """Base class of all exceptions of this library."""


class DataError(RamifyError, ValueError):
    """Invalid input; the message gives the location and the reason."""


class ModelFormatError(RamifyError, ValueError):
    """A model directory that is damaged, of an unsupported format version, or not written by Ramify."""


class NotFittedError(RamifyError, ValueError, AttributeError):
    """A model or a feature extractor is used before `fit`."""


class NotCalibratedError(RamifyError, ValueError):
    """Probabilities are asked of a model that has not been calibrated."""
