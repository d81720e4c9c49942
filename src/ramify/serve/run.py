"""Run the service with uvicorn: one process, or several that share the mapped model."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uvicorn

from ramify.serve.app import create_app
from ramify.serve.logs import configure_logs
from ramify.serve.settings import Settings

_VARIABLE = "RAMIFY_SERVE_OPTIONS"


def run(
    models: Mapping[str, str | os.PathLike[str]],
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    socket: str | None = None,
    workers: int = 1,
    log_level: str = "warning",
) -> None:
    """Serve models until the process is told to end; it then finishes what it has.

    Parameters
    ----------
    models : model directories by name
    host, port : address; `socket`, the path of a Unix socket, takes its place
    workers : processes; the arrays of the models are mapped, so that they are in memory once
    log_level : "info" logs every request, without its texts
    """
    options: dict[str, Any] = {
        "host": host, "port": port, "uds": socket, "log_config": None, "access_log": False, "server_header": False,
        "timeout_keep_alive": 30, "timeout_graceful_shutdown": 30, "lifespan": "on", "ws": "none",
    }  # fmt: skip
    if workers == 1:
        configure_logs(log_level)
        uvicorn.run(create_app(models, settings), **options)
        return
    paths = {name: os.fspath(Path(path).resolve()) for name, path in models.items()}
    facts = {"models": paths, "settings": dataclasses.asdict(settings), "log_level": log_level}
    os.environ[_VARIABLE] = json.dumps(facts)  # the processes are started anew, and make their application themselves
    uvicorn.run("ramify.serve.run:app_of_worker", factory=True, workers=workers, **options)


def app_of_worker() -> Any:
    """Application of one of several processes, from the options that `run` has left in the environment."""
    facts = json.loads(os.environ[_VARIABLE])
    configure_logs(facts["log_level"])
    values = facts["settings"]
    return create_app(facts["models"], Settings(**{**values, "cors": tuple(values["cors"])}))
