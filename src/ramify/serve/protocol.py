"""HTTP connections whose clients must send their requests in time, and wait for the answers; uvicorn does not care."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ramify.serve.problems import Problem
from ramify.serve.work import give_up


def timed_protocol(seconds: float) -> type[HttpToolsProtocol]:
    """Return a protocol that closes connections whose headers do not arrive within some seconds.

    The time of bodies is limited where they are read (`bodies.read_body`), that of idle connections by uvicorn. A
    client that leaves takes its texts out of the queue.
    """

    class TimedProtocol(HttpToolsProtocol):
        _timer: asyncio.TimerHandle | None = None
        _in_headers = True

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._timer = self.loop.call_later(seconds, self._refuse)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            if self.cycle is not None and not self.cycle.response_complete:
                give_up(self.cycle.scope)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            # Most requests arrive whole, and need no timer.
            if self._in_headers and self._timer is None and not self.transport.is_closing():
                self._timer = self.loop.call_later(seconds, self._refuse)

        def on_message_begin(self) -> None:
            self._in_headers = True
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._in_headers = False
            self._stop_timer()
            super().on_headers_complete()

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _refuse(self) -> None:
            self._timer = None
            if self.transport.is_closing():
                return
            problem = Problem(408, f"the request was not sent within {seconds:g} seconds", {"connection": "close"})
            lines: list[Any] = [b"HTTP/1.1 408 Request Timeout"]
            lines += [name + b": " + value for name, value in problem.raw_headers()]
            self.transport.write(b"\r\n".join([*lines, b"", problem.body()]))
            self.transport.close()

    return TimedProtocol
