"""Packages that are not required: what to install where one of them is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed_for(purpose: str, packages: str, extra: str | None = None, *, otherwise: str = "") -> Iterator[None]:
    """Context of an import of optional packages: where it fails, an ImportError says what to install.

    A failure inside of this library itself is raised as it is.

    Parameters
    ----------
    purpose : what needs the packages, such as "writing Parquet"
    packages : their names, such as "pyarrow"
    extra : the extra of this library that brings them (default: none, they are installed by their name)
    otherwise : what works without them, if anything does
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "ramify":
            raise
        install = f"'ramify[{extra}]'" if extra else packages
        message = f"{purpose} needs {packages}: pip install {install}"
        raise ImportError(f"{message}; {otherwise}" if otherwise else message) from error
