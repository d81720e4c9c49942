"""The HTTP service: ``ramify serve MODEL``, or `create_app` for an ASGI server (extra `serve`)."""

from __future__ import annotations

from ramify.base.extras import needed_for

with needed_for("serving", "FastAPI and uvicorn", "serve"):
    from ramify.serve.app import create_app
    from ramify.serve.run import run
from ramify.serve.settings import Settings

__all__ = ["Settings", "create_app", "run"]
