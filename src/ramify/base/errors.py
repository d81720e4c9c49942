"""Everything that Ramify raises on purpose."""

from __future__ import annotations


class RamifyError(Exception):
    """Base of all errors of this library."""


class DataError(RamifyError, ValueError):
    """Input that cannot be used; the message names the place and the reason."""


class ModelFormatError(RamifyError, ValueError):
    """A model directory that is damaged, foreign or too new."""


class NotFittedError(RamifyError, ValueError, AttributeError):
    """A model was asked for an answer before it was trained."""
