"""Settings of the service: limits, times, access."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from ramify.base.errors import DataError

TOKEN_VARIABLE = "RAMIFY_SERVE_TOKEN"


@dataclass(frozen=True)
class Settings:
    """Limits of requests and of the queue; each answer that refuses a request names the limit.

    Attributes
    ----------
    max_body : bytes of a request
    max_text : characters of a text, all its fields together
    max_texts : texts of a request
    max_k : labels of a text
    max_filter : labels in `allow` or `deny`
    max_explained : labels that one request may have explained
    max_words : words that one request may leave out
    max_queue : texts that wait or are worked on; requests beyond get 503, and 429 those of a client beyond its part
    max_batch : texts that a worker takes from the queue at once
    wait : seconds that a request may wait in the queue
    annif_wait, annif_queue : the same for the routes of Annif, whose client takes any error for "no subjects"
    read_timeout : seconds within which a client must have sent its request
    threads : worker threads; None: RAMIFY_THREADS or all cores
    reload_every : seconds between two looks at the model directories; 0: never
    token : clients must send it as ``Authorization: Bearer TOKEN``; None: no access control
    language : what Annif's clients are told of the language of texts and names; None: the first language of the
        catalogue, or "en"
    cors : origins of other pages that may use the service, such as "https://example.org"
    """

    max_body: int = 8 << 20
    max_text: int = 1_000_000
    max_texts: int = 512
    max_k: int = 1000
    max_filter: int = 10_000
    max_explained: int = 20
    max_words: int = 1000
    max_queue: int = 1024
    max_batch: int = 64
    wait: float = 5.0
    annif_wait: float = 60.0
    annif_queue: int = 16_384
    read_timeout: float = 10.0
    threads: int | None = None
    reload_every: float = 1.0
    token: str | None = field(default=None, repr=False)
    language: str | None = None
    cors: tuple[str, ...] = ()


def read_token(path: str | None) -> str | None:
    """Token of a file, or else of the variable RAMIFY_SERVE_TOKEN; None if there is neither."""
    token = os.environ.get(TOKEN_VARIABLE) if path is None else Path(path).read_text(encoding="utf-8").strip()
    if token is not None and (not token or not token.isascii() or not token.isprintable()):
        raise DataError(f"the token of {path or TOKEN_VARIABLE} is empty or has characters that are not ASCII")
    return token
