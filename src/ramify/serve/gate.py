"""The outermost layer: access, headers, counters and logs of every request; the shortest way to the busiest routes."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ramify.serve.bodies import Receive
from ramify.serve.problems import Problem
from ramify.serve.service import Scope, Service

log = logging.getLogger("ramify.serve")
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Handler = Callable[[Scope, Receive], Awaitable[bytes]]

GUARDED = ("/v1", "/metrics")
"""What needs the token; health, documentation and the files of the page do not."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
JSON_HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), *SECURITY_HEADERS]


class Gate:
    """ASGI middleware around the application.

    `handlers` answer a method and path directly, without the router and its layers, which take longer than the rest of
    the request; the application documents them.
    """

    def __init__(self, app: App, service: Service, handlers: dict[tuple[str, str], Handler]) -> None:
        self._app, self._service, self._handlers = app, service, handlers
        self._access = Access(service.settings.token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        if scope["method"] == "HEAD":  # the answer to GET, of which the server leaves out the body
            scope = {**scope, "method": "GET"}
        path: str = scope["path"]
        status, route = 500, "other"
        try:
            self._access.check(scope)
            handler = self._handlers.get((scope["method"], path))
            if handler is not None:
                route = path
                body = await handler(scope, receive)
                status = 200
                length = (b"content-length", b"%d" % len(body))
                await send({"type": "http.response.start", "status": 200, "headers": [length, *JSON_HEADERS]})
                await send({"type": "http.response.body", "body": body})
            else:
                status, route = await self._forward(scope, receive, send)
        except Problem as problem:
            status = problem.status
            headers = [*problem.raw_headers(), *SECURITY_HEADERS]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": problem.body()})
        finally:
            record(self._service, scope, route, status, start)

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> tuple[int, str]:
        """Pass a request on to the application; returns the status and the route that it has found."""
        status = 500

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(h for h in SECURITY_HEADERS if h[0] not in given)]
            await send(message)

        await self._app(scope, receive, send_with_headers)
        return status, getattr(scope.get("route"), "path", "other")


class Access:
    """The token that clients must send; None: no access control."""

    def __init__(self, token: str | None) -> None:
        self._token = None if token is None else token.encode()

    def check(self, scope: Scope) -> None:
        """Refuse a request without the token."""
        if self._token is None or not scope["path"].startswith(GUARDED):
            return
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, token = given.partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token):
            raise Problem(
                401, "this service needs a token: send Authorization: Bearer TOKEN", {"www-authenticate": "Bearer"}
            )


def record(service: Service, scope: Scope, route: str, status: int, start: float) -> None:
    """Count and log an answer to a request that began at `start`, of `time.perf_counter`."""
    seconds = time.perf_counter() - start
    service.metrics.count(route, status, seconds)
    if log.isEnabledFor(logging.INFO):
        facts = {"method": scope["method"], "route": route, "status": status, "ms": round(1000 * seconds, 2)}
        log.info("request", extra={"facts": facts})
