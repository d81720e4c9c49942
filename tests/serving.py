"""Data and processes of the tests of the service."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import httpx

TEXTS = [f"{first} {second}" for first in ("whale", "cat", "tree", "house") for second in ("big", "small", "old")]
LABELS = [[f"http://ex.org/{text.split()[0]}", f"http://ex.org/{text.split()[1]}"] for text in TEXTS]
CATALOGUE = {
    "http://ex.org/whale": {"label_en": "whale", "label_de": "Wal", "notation": "599.5", "synonyms": ["cetacean"]},
    "http://ex.org/cat": {"label_en": "<b>cat</b> & 'mouse'", "label_de": "Katze"},
    "http://ex.org/tree": {"label_en": "שלום \u202e 🌳", "label_de": "Baum"},
}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextmanager
def running(*arguments, environment: dict[str, str] | None = None, socket_path=None):
    """Run ``ramify serve`` in a process of its own; yields the process and the address."""
    port = free_port()
    command = [sys.executable, "-m", "ramify", "serve", *map(str, arguments), "--port", str(port)]
    process = subprocess.Popen(
        command, env={**os.environ, "RAMIFY_THREADS": "2", **(environment or {})},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"

    def transport():
        return httpx.HTTPTransport(uds=str(socket_path))

    try:
        for _ in range(600):
            assert process.poll() is None, process.stdout.read()
            try:
                with httpx.Client(transport=transport() if socket_path else None, timeout=20) as client:
                    if client.get(f"{address}/readyz").status_code == 200:
                        break
            except httpx.TransportError:
                time.sleep(0.05)
        yield process, address
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


@contextmanager
def in_thread(app, settings, **options):
    """Serve an application from a thread of this process; yields the address."""
    import uvicorn

    from ramify.serve.protocol import http_protocol

    port = free_port()
    protocol = http_protocol(settings.read_timeout, app.state.shortcut)
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_config=None, access_log=False, http=protocol, **options))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
