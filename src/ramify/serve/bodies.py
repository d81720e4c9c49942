"""What clients send: bodies within limits, JSON without surprises."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ramify.serve.problems import Problem

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_MAX_DROPPED = 64 << 20
"""Bytes of a body that is too large up to which a client may send it all and use the connection again."""
_UNWANTED = re.compile("[\x00-\x08\x0e-\x1f\ud800-\udfff]")
"""Characters that no text has: controls other than white space, and halves of surrogate pairs."""


async def read_body(scope: MutableMapping[str, Any], receive: Receive, limit: int, timeout: float) -> bytes:
    """Read the body of a request of at most `limit` bytes; the client has `timeout` seconds to send it."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > limit:
            # The client reads the answer only if the connection stays open until it has sent all: the server drops it.
            raise _too_large(limit, closes=int(value) > _MAX_DROPPED)
    try:
        async with asyncio.timeout(timeout):
            message = await receive()
            body: bytes = message.get("body", b"")
            if message["type"] == "http.disconnect":
                raise _disconnected()
            if message.get("more_body"):
                body = await _read_rest(body, receive, limit)
    except TimeoutError:
        detail = f"the request was not sent within {timeout:g} seconds"
        raise Problem(408, detail, {"connection": "close"}) from None
    if len(body) > limit:
        raise _too_large(limit)
    return body


async def _read_rest(body: bytes, receive: Receive, limit: int) -> bytes:
    parts, size, more = [body], len(body), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _disconnected()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise _too_large(limit)
        more = message.get("more_body", False)
    return b"".join(parts)


def _disconnected() -> Problem:
    return Problem(400, "the client has closed the connection")


def _too_large(limit: int, *, closes: bool = True) -> Problem:
    detail = f"the request has more than {limit:,} bytes; send fewer or shorter texts"
    return Problem(413, detail, {"connection": "close"} if closes else {})


def decode_json(body: bytes) -> Any:
    """Decode JSON as UTF-8; duplicate keys, NaN, and values that are nested too deeply are refused."""
    try:
        return _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise Problem(400, f"the request is not UTF-8: byte {error.start} is {body[error.start]:#04x}") from None
    except RecursionError:
        raise Problem(400, "the request has too many nested lists or objects") from None
    except ValueError as error:
        raise Problem(400, f"the request is not valid JSON: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {shown(twice)} occurs twice")
    return result


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)  # as slow to make as to use


def check_characters(text: str, what: str) -> None:
    """Refuse characters that no text has, and say where they are."""
    found = _UNWANTED.search(text)
    if found is not None:
        code = ord(found[0])
        kind = "a lone surrogate" if code >= 0xD800 else "NUL" if code == 0 else "a control character"
        raise Problem(422, f"{what} has {kind} (U+{code:04X}) at character {found.start()}; remove it")


def without_unwanted(text: str) -> str:
    """Replace the characters that `check_characters` refuses by spaces."""
    return _UNWANTED.sub(" ", text)


def shown(value: Any) -> str:
    """Return a value as JSON in ASCII, shortened, for messages."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
