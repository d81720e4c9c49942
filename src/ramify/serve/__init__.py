"""The HTTP service: ``ramify serve MODEL``, or `create_app` for an ASGI server (extra `serve`)."""

from __future__ import annotations

try:
    from ramify.serve.app import create_app
    from ramify.serve.run import run
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] in ("fastapi", "starlette", "uvicorn", "pydantic"):
        raise ImportError("serving needs FastAPI and uvicorn: pip install 'ramify[serve]'") from error
    raise
from ramify.serve.settings import Settings

__all__ = ["Settings", "create_app", "run"]
