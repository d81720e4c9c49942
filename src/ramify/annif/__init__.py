"""Ramify as a backend of an unmodified Annif: ``ANNIF_CONFIG=ramify.annif.Config`` (extra `annif`).

Annif imports the configuration class that the variable ANNIF_CONFIG names, before it makes a backend; importing this
module adds the backend `ramify` to its registry.
"""

from __future__ import annotations

from typing import Any

try:
    import annif.backend
    from annif.default_config import ProductionConfig
except ModuleNotFoundError as error:
    if error.name == "annif":
        raise ImportError("the Annif backend needs Annif: pip install 'ramify[annif]'") from error
    raise


def _backend() -> Any:
    from ramify.annif.backend import RamifyBackend

    return RamifyBackend


annif.backend._backend_fns["ramify"] = _backend


class Config(ProductionConfig):  # type: ignore[misc]
    """Annif's configuration for production; with it, projects may have ``backend=ramify``."""
