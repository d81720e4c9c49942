"""Requests at a rate: each is sent when it is due, whatever the answers to others take.

wrk sends the next request of a connection after the answer, so that a service that stalls gets fewer requests, and the
stall counts once. Here the moments at which requests are due are those of a Poisson process, and latency is counted
from them. A request takes about 30 µs of one core, so that a few thousand in a second leave the machine to the service.
"""

from __future__ import annotations

import random
import re
import select
import socket
import time
from array import array
from typing import Any
from urllib.parse import urlsplit

_MAX_CONNECTIONS = 3000
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.I)


class Connection:
    """A connection that waits for at most one answer."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due = 0.0
        self._data = b""

    def send(self, request: bytes, due: float) -> None:
        """Send a request that was due at a moment."""
        self.due = due
        self.socket.sendall(request)

    def read(self) -> int:
        """Read what has arrived; returns the status of the answer, or 0 while it is not whole."""
        part = self.socket.recv(1 << 18)
        if not part:
            raise ConnectionError("the service has closed a connection")
        self._data += part
        end = self._data.find(b"\r\n\r\n")
        found = _LENGTH.search(self._data, 0, end) if end >= 0 else None
        if found is None or len(self._data) < end + 4 + int(found[1]):
            return 0
        status, self._data = int(self._data[9:12]), b""
        return status


def paced_load(url: str, bodies: list[bytes], kind: str, rate: float, seconds: float, seed: int = 0) -> dict[str, Any]:
    """Send requests at a mean rate over connections that stay open.

    Returns how many were sent, the rate of all answers, the median and the 99th percentile of the latency of those with
    status 200 in milliseconds, how many had another status, and the rate at which requests were sent: less than what
    was asked for if the service had not answered so many requests, or the sender did not get the time.
    """
    parts = urlsplit(url)
    address = (parts.hostname or "127.0.0.1", parts.port or 80)
    head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: {kind}\r\n"
    requests = [f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
    generator = random.Random(seed)
    poll, connections = select.epoll(), {}

    def connect() -> Connection:
        made = Connection(address)
        connections[made.socket.fileno()] = made
        poll.register(made.socket, select.EPOLLIN)
        return made

    free = [connect() for _ in range(16)]
    latencies, refused, n_sent = array("d"), 0, 0
    start = now = time.perf_counter()
    due, end = start, start + seconds
    while now < end or len(free) < len(connections):
        while due <= now < end and (free or len(connections) < _MAX_CONNECTIONS):
            connection = free.pop() if free else connect()
            connection.send(requests[n_sent % len(requests)], due)
            n_sent += 1
            due += generator.expovariate(rate)
        wait = max(0.0, min(due, end) - time.perf_counter()) if now < end else 10.0
        for descriptor, _ in poll.poll(wait):
            connection = connections[descriptor]
            status = connection.read()
            if status == 200:
                latencies.append(time.perf_counter() - connection.due)
            refused += status not in (0, 200)
            if status:
                free.append(connection)
        now = time.perf_counter()
    elapsed = time.perf_counter() - start
    for connection in free:
        connection.socket.close()
    poll.close()
    ordered = sorted(latencies) or [float("nan")]
    return {
        "n": n_sent, "rate": (len(latencies) + refused) / elapsed, "refused": refused, "errors": "",
        "p50": 1000 * ordered[len(ordered) // 2], "p99": 1000 * ordered[int(0.99 * len(ordered))],
        "offered": n_sent / seconds,
    }  # fmt: skip
