"""Heads of requests that have been parsed: clients send the same bytes again, which need not be parsed again."""

from __future__ import annotations

from ramify.serve.service import Scope

_MAX_HEADS = 4096
_MAX_BYTES = 1024
"""Bytes of a head that is kept: all heads together take a few megabytes."""


class KnownHeads:
    """Request lines with headers, as bytes, and what the parser of the server has made of them.

    A head is added only if its request arrived in one piece, between two others, with a body of known length, and on a
    connection that stays open. The parser makes the same of the same bytes each time, so that nothing is read in a
    second way.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Scope, int]] = {}

    def find(self, data: bytes) -> tuple[Scope, bytes] | None:
        """Scope and body of a whole request, if its head is known; None for everything else."""
        end = data.find(b"\r\n\r\n", 0, _MAX_BYTES) + 4
        found = self._known.get(data[:end])
        if found is None or end + found[1] != len(data):
            return None
        return found[0], data[end:]

    def add(self, data: bytes, scope: Scope, body: bytes) -> None:
        """Keep the head of a request that was answered; the oldest one leaves where there are too many."""
        end = len(data) - len(body)
        head, headers = data[:end], scope["headers"]
        # The length says where the next request begins; of two the parser refuses the request.
        is_plain = [value for name, value in headers if name == b"content-length"] == [b"%d" % len(body)] and not any(
            name in (b"expect", b"upgrade", b"transfer-encoding") for name, _ in headers
        )
        if not (is_plain and 4 < end <= _MAX_BYTES and data.find(b"\r\n\r\n") == end - 4 and data.endswith(body)):
            return
        if len(self._known) >= _MAX_HEADS:
            del self._known[next(iter(self._known))]
        self._known[head] = dict(scope), len(body)
