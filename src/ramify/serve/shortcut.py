"""The shortest way to the busiest routes: no tasks, no messages, no layers, which together cost more than the rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus

from ramify.serve.gate import JSON_HEADERS, SECURITY_HEADERS, Access, record
from ramify.serve.problems import Problem
from ramify.serve.service import Scope, Service
from ramify.serve.work import LEFT, Waiting

Begin = Callable[[Scope, bytes], Waiting | None]
"""Queues a request with its body; None if it is not as usual, and the application must answer."""
Respond = Callable[[bytes, bytes, bool], None]
"""Sends a status line with headers, and a body; the last argument tells whether the connection may be kept."""


class Shortcut:
    """Answers requests that have arrived in one piece, as `Gate` does.

    Parameters
    ----------
    begin : what queues the requests to a method and path
    """

    def __init__(self, service: Service, begin: dict[tuple[str, str], Begin]) -> None:
        self._service = service
        self._begin = {} if service.settings.cors else begin  # a layer of its own answers pages of other origins
        self._access = Access(service.settings.token)

    def is_for(self, scope: Scope) -> bool:
        """Whether requests may be answered here; a layer of uvicorn reads the headers of proxies."""
        return (scope["method"], scope["path"]) in self._begin and not any(
            name.startswith(b"x-forwarded") for name, _ in scope["headers"]
        )

    def answer(self, scope: Scope, body: bytes, respond: Respond) -> bool:
        """Begin to answer a request; false if the application must."""
        start, route = time.perf_counter(), scope["path"]
        try:
            self._access.check(scope)
            waiting = self._begin[scope["method"], route](scope, body)
        except Problem as problem:
            self._refuse(problem, scope, start, respond)
            return True
        if waiting is None:
            return False

        def on_done(answer: bytes | Problem) -> None:
            if isinstance(answer, Problem):
                self._refuse(answer, scope, start, respond)
            else:
                respond(_OK % len(answer), answer, True)
                record(self._service, scope, route, 200, start)

        waiting.on_done(on_done)
        return True

    @property
    def is_crowded(self) -> bool:
        """Whether so much waits that it is worth looking whether a client has left."""
        return self._service.work.is_crowded

    def _refuse(self, problem: Problem, scope: Scope, start: float, respond: Respond) -> None:
        if problem.status != LEFT:
            keeps = problem.headers.get("connection") != "close"
            respond(response_head(problem.status, [*problem.raw_headers(), *SECURITY_HEADERS]), problem.body(), keeps)
        record(self._service, scope, scope["path"], problem.status, start)


def response_head(status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Status line and headers, without the empty line after them."""
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode(),
        *(name + b": " + value for name, value in headers),
    ]
    return b"".join(line + b"\r\n" for line in lines)


_OK = response_head(200, JSON_HEADERS).replace(b"%", b"%%") + b"content-length: %d\r\n"
