"""Run the service with uvicorn: one process, or several that share the mapped model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from socket import SO_REUSEADDR, SO_REUSEPORT, SOCK_STREAM, SOL_SOCKET, getaddrinfo
from socket import socket as Socket
from typing import Any

import uvicorn

from ramify.serve.app import create_app
from ramify.serve.logs import configure_logs
from ramify.serve.protocol import http_protocol
from ramify.serve.settings import Settings
from ramify.serve.workers import run_workers


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
    app = create_app(models, settings)
    options: dict[str, Any] = {
        "host": host, "port": port, "uds": socket, "log_config": None, "access_log": False, "server_header": False,
        "timeout_keep_alive": 30, "timeout_graceful_shutdown": 30, "lifespan": "on", "ws": "none",
        "http": http_protocol(settings.read_timeout, app.state.shortcut),
        "forwarded_allow_ips": "*" if socket else None,  # who may use the socket is a proxy of this machine
    }  # fmt: skip
    configure_logs(log_level)
    config = uvicorn.Config(app, **options)
    if workers == 1:
        uvicorn.Server(config).run()
        return
    sockets = [config.bind_socket()] * workers if socket else _sockets(host, port, workers)
    run_workers(workers, lambda i: uvicorn.Server(config).run(sockets=[sockets[i]]))


def _sockets(host: str, port: int, n: int) -> list[Socket]:
    """One socket for each process, all at the same address: the system divides the connections among them.

    From a single socket the process that is awake would take all of them.
    """
    family, kind, _, _, address = getaddrinfo(host, port, type=SOCK_STREAM)[0]
    sockets = []
    for _ in range(n):
        made = Socket(family, kind)
        made.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        made.setsockopt(SOL_SOCKET, SO_REUSEPORT, 1)
        made.bind(address)
        made.set_inheritable(True)
        address = made.getsockname()
        sockets.append(made)
    return sockets
