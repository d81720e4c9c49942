"""Ramify as a backend of an unmodified Annif: ``ANNIF_CONFIG=ramify.annif.Config`` (extra `annif`).

Annif imports the configuration class that the variable ANNIF_CONFIG names, before it makes a backend; importing this
module adds the backend `ramify` to its registry.
"""

from __future__ import annotations

from typing import Any

from ramify.base.extras import needed_for

with needed_for("the Annif backend", "Annif", "annif"):
    import annif.backend
    from annif.default_config import ProductionConfig


def _backend() -> Any:
    from ramify.annif.backend import RamifyBackend

    return RamifyBackend


annif.backend._backend_fns["ramify"] = _backend


class Config(ProductionConfig):  # type: ignore[misc]
    """Annif's configuration for production; with it, projects may have ``backend=ramify``."""
