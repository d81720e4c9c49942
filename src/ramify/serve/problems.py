"""Answers to requests that cannot be served: `application/problem+json` (RFC 9457), in words."""

from __future__ import annotations

import json
from functools import lru_cache
from http import HTTPStatus

PROBLEM_TYPE = "application/problem+json"


class Problem(Exception):
    """A request that is refused: the status, and a sentence that says what to do."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None, title: str = "") -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers or {}
        self.title = title or HTTPStatus(status).phrase

    def body(self) -> bytes:
        """The answer as JSON."""
        return _body(self.title, self.status, self.detail)

    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of the answer."""
        headers = {"content-type": PROBLEM_TYPE, "content-length": str(len(self.body())), **self.headers}
        return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


@lru_cache(maxsize=64)  # a service with too much to do says the same thousands of times in a second
def _body(title: str, status: int, detail: str) -> bytes:
    return json.dumps({"type": "about:blank", "title": title, "status": status, "detail": detail}).encode()


def busy(seconds: float = 1) -> Problem:
    """The queue is full."""
    detail = "the service has more texts to work on than it can take; try again later"
    return Problem(503, detail, {"retry-after": str(max(1, round(seconds)))})
