"""HTTP connections: clients must send their requests in time, and wait for the answers; a shortcut for busy routes."""

from __future__ import annotations

import asyncio
import re
import select
from typing import Any, ClassVar, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ramify.serve.gate import SECURITY_HEADERS
from ramify.serve.known_heads import KnownHeads
from ramify.serve.problems import Problem
from ramify.serve.service import Scope
from ramify.serve.shortcut import Shortcut, response_head
from ramify.serve.work import give_up

_MANY = 100
"""Connections from which on it is worth looking whether a client has left before its request is read."""
_MAX_HEAD = 1 << 16
"""Bytes of a request line with headers; the parser itself has no limit."""
_LAST_MOMENT = 0.5
"""Seconds after the end was asked for in which idle connections still take a request that is on its way."""
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
_HANGUP = getattr(select, "POLLRDHUP", 0)  # Linux only


class HttpProtocol(HttpToolsProtocol):
    """A protocol of uvicorn that closes connections whose headers do not arrive within some seconds.

    The time of bodies is limited where they are read (`bodies.read_body`), that of idle connections by uvicorn. A
    client that leaves takes its texts out of the queue. Requests that arrive in one piece take the shortcut, if there
    is one for their path; what uvicorn would do for them it does when it is asked later. If the head of a request is
    known from another one, not even uvicorn's parser reads it.

    uvicorn makes an object for each connection; what all of them share is set by `http_protocol`.
    """

    seconds: ClassVar[float]
    shortcut: ClassVar[Shortcut]
    heads: ClassVar[KnownHeads]

    _timer: asyncio.TimerHandle | None = None
    _in_headers = True
    _in_message = False
    _is_parsing = False
    _head_size = 0
    _chunk: bytes | None = None  # what is being parsed, if a message begins with it
    _unstarted: tuple[RequestResponseCycle, Any] | None = None
    _unparsed: Scope | None = None  # the request that is being answered, if it was not parsed
    _is_ending = False
    _held = b""  # sent by a client that does not wait for its answer
    _idle_since: float | None = None
    _idle_timer: asyncio.TimerHandle | None = None

    # ---- requests in time ----

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the headers of the first request."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.seconds, self._refuse)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop what the client waited for."""
        self._stop_timer()
        self._held = b""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._unparsed is not None:
            give_up(self._unparsed)
        elif self.cycle is not None and not self._is_idle:
            give_up(self.cycle.scope)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read requests, or begin to wait for the rest of one."""
        if self._unparsed is not None:
            self._held += data
            self.flow.pause_reading()
            return
        is_crowded = self.shortcut.is_crowded or len(self.connections) > _MANY
        if is_crowded and _has_left(self.transport):
            self.transport.abort()
            return
        self._idle_since = None
        is_free = not self._in_message and self._is_idle
        if is_free and self._answer_unparsed(data):
            return
        sent = data
        if not self._in_message:
            self._head_size = 0
            # Java's client asks for HTTP/2 with each first request; the parser would not read the body of such a one.
            data = _without_upgrade(data)
        self._chunk = data if is_free and data is sent else None  # a head that was changed is not kept
        self._is_parsing = True
        super().data_received(data)
        self._is_parsing = False
        if self._unstarted is not None:  # the rest of the request is yet to come
            self._start_application()
        if not self._in_headers or self.transport.is_closing():
            return
        self._head_size += len(data)
        if self._head_size > _MAX_HEAD:
            self._end(Problem(431, f"the request line and headers have more than {_MAX_HEAD:,} bytes"))
        elif self._timer is None:  # most requests arrive whole, and need none
            self._timer = self.loop.call_later(self.seconds, self._refuse)

    def on_message_begin(self) -> None:
        """Note that headers follow."""
        self._in_headers = self._in_message = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Note that the headers have arrived in time."""
        self._in_headers = False
        self._stop_timer()
        super().on_headers_complete()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self) -> None:
        self._timer = None
        self._end(Problem(408, f"the request was not sent within {self.seconds:g} seconds"))

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request; uvicorn calls it."""
        self._end(Problem(400, "this is not a request of HTTP/1.1 that can be read; check its first line and headers"))

    def _end(self, problem: Problem) -> None:
        """Refuse a request that was not read, and close the connection."""
        if not self.transport.is_closing():
            headers = [*problem.raw_headers(), *SECURITY_HEADERS, (b"connection", b"close")]
            self.transport.write(response_head(problem.status, headers) + b"\r\n" + problem.body())
            self.transport.close()

    # ---- idle connections ----

    def on_response_complete(self) -> None:
        """Begin to wait for the next request, with one timer for a connection; uvicorn makes one an answer."""
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        if self._in_message:  # the rest of the request is dropped, but not waited for without end
            self._timer = self.loop.call_later(self.seconds, self.transport.close)
        else:
            self._begin_to_idle()

    def _begin_to_idle(self) -> None:
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._close_if_idle)

    def _close_if_idle(self) -> None:
        self._idle_timer = None
        if self._idle_since is None:
            return  # the next answer makes another timer
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0.001:
            self._idle_timer = self.loop.call_later(left, self._close_if_idle)
        else:
            self.timeout_keep_alive_handler()

    # ---- the shortcut ----

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.keep_alive &= not self._is_ending
        # A client that does not read its answers is left to uvicorn, which waits for it.
        if self._is_parsing and not self.flow.write_paused and self.shortcut.is_for(cast(Scope, cycle.scope)):
            self._unstarted = cycle, app
        else:
            super()._start_asgi_task(cycle, app)

    def on_message_complete(self) -> None:
        """Answer a request that has arrived whole by the shortcut, if it can."""
        super().on_message_complete()
        self._in_message = False
        if self.cycle.response_complete:  # it was answered before it had arrived
            self._stop_timer()
            self._begin_to_idle()
        chunk, self._chunk = self._chunk, None  # further messages of it do not begin with it
        if self._unstarted is None:
            return
        cycle, body = self._unstarted[0], bytes(self._unstarted[0].body)

        def respond(head: bytes, body: bytes, keeps: bool) -> None:
            if not (cycle.disconnected or self.transport.is_closing()):
                cycle.keep_alive &= keeps
                cycle.response_started = cycle.response_complete = True
                self._write(head, body, cycle.keep_alive)

        if self.shortcut.answer(cast(Scope, cycle.scope), body, respond):
            self._unstarted = None
            if chunk is not None and cycle.keep_alive:
                self.heads.add(chunk, cast(Scope, cycle.scope), body)
        else:
            self._start_application()

    def _start_application(self) -> None:
        assert self._unstarted is not None
        cycle, app = self._unstarted
        self._unstarted = None
        super()._start_asgi_task(cycle, app)

    def _answer_unparsed(self, data: bytes) -> bool:
        """Begin to answer a whole request whose head is known; false if the parser must read it."""
        found = self.heads.find(data)
        if found is None or self.flow.write_paused:
            return False
        scope = {**found[0], "client": self.client}
        self._unparsed = scope
        self._stop_timer()
        self._in_headers = False
        if self.shortcut.answer(scope, found[1], self._respond_unparsed):
            return True
        self._unparsed = None
        return False

    def _respond_unparsed(self, head: bytes, body: bytes, keeps: bool) -> None:
        self._unparsed = None
        if self.transport.is_closing():
            return
        self._write(head, body, keeps and not self._is_ending)
        held, self._held = self._held, b""
        if held:
            self.data_received(held)

    def shutdown(self) -> None:
        """Close the connection, after the answer that it waits for and those to requests that are on their way.

        A client that has sent a request while an idle connection was closed could not know whether it was answered.
        """
        self._is_ending = True
        if not self._is_idle:
            super().shutdown()
        elif self._unparsed is None:
            self.loop.call_later(_LAST_MOMENT, self._close_if_unused)

    @property
    def _is_idle(self) -> bool:
        """Whether no request that was parsed waits for its answer."""
        return self.cycle is None or self.cycle.response_complete

    def _close_if_unused(self) -> None:
        if self._unparsed is None and self._is_idle and not self._in_message:
            self.transport.close()

    def _write(self, head: bytes, body: bytes, keeps: bool) -> None:
        defaults = b"".join([name + b": " + value + b"\r\n" for name, value in self.server_state.default_headers])
        end = b"\r\n" if keeps else b"connection: close\r\n\r\n"
        self.transport.write(b"".join((head, defaults, end, body)))
        if not keeps:
            self.transport.close()
        self.on_response_complete()


def http_protocol(seconds: float, shortcut: Shortcut) -> type[HttpProtocol]:
    """Return the protocol with its settings."""
    shared = {"seconds": seconds, "shortcut": shortcut, "heads": KnownHeads()}
    return type("HttpProtocol", (HttpProtocol,), shared)


def _without_upgrade(data: bytes) -> bytes:
    """Request without the wish for another protocol, which a server may ignore."""
    end = data.find(b"\r\n\r\n")
    if end < 0 or _UPGRADE.search(data, 0, end) is None:
        return data
    return _UPGRADE.sub(b"", data[:end]) + data[end:]


def _has_left(transport: asyncio.Transport) -> bool:
    """Whether the client has closed the connection, which the event loop learns only after it has read all requests."""
    socket = transport.get_extra_info("socket")
    if socket is None or not _HANGUP:
        return False
    poll = select.poll()
    poll.register(socket.fileno(), _HANGUP)
    return bool(poll.poll(0))
