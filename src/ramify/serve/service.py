"""`Service`: models, worker threads and counters behind all routes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ramify.serve.bodies import Receive, read_body
from ramify.serve.label_search import LabelSearch
from ramify.serve.metrics import Metrics
from ramify.serve.problems import Problem
from ramify.serve.served import LoadedModel, ModelRegistry
from ramify.serve.settings import Settings
from ramify.serve.suggest_request import SuggestRequest, parse_suggest
from ramify.serve.suggestions import SuggestJob
from ramify.serve.work import Waiting, WorkQueue

Scope = MutableMapping[str, Any]
LARGE = 1 << 17
"""Bytes of a request from which on it is parsed outside of the event loop."""


class Service:
    """What answers requests; `running` starts and ends its threads."""

    def __init__(self, models: dict[str, Path], settings: Settings) -> None:
        self.settings = settings
        self.models = ModelRegistry(models)
        self.work = WorkQueue(settings)
        self.metrics = Metrics()
        self.is_ready = False
        self._searches: dict[str, tuple[LoadedModel, LabelSearch]] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the worker threads and look at the model directories; at the end, finish what is queued."""
        self.work.start()
        watcher = asyncio.create_task(self._watch()) if self.settings.reload_every else None
        self.is_ready = True
        try:
            yield
        finally:
            self.is_ready = False
            if watcher is not None:
                watcher.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watcher
            await self.work.close()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.settings.reload_every)
            await asyncio.to_thread(self.models.reload)

    async def suggest(self, scope: Scope, receive: Receive) -> bytes:
        """``POST /v1/suggest``."""
        check_type(scope, b"application/json")
        body = await self.body(scope, receive)
        waiting = self.begin_suggest(scope, body)
        if waiting is None:
            job = await asyncio.to_thread(lambda: self._job(parse_suggest(body, self.settings)))
            waiting = self.work.put(job, client_of(scope), scope=scope)
        return await waiting

    def begin_suggest(self, scope: Scope, body: bytes) -> Waiting | None:
        """Queue a request that was read; None if its job takes too long to make for the event loop."""
        check_type(scope, b"application/json")
        if len(body) >= LARGE:
            return None
        client = client_of(scope)
        self.work.check(client)
        request = parse_suggest(body, self.settings)
        if request.allow is not None or request.deny is not None:  # the first filter makes an index of all names
            return None
        return self.work.put(self._job(request), client, scope=scope)

    def _job(self, request: SuggestRequest) -> SuggestJob:
        return SuggestJob(self.models.get(request.model), request)

    async def body(self, scope: Scope, receive: Receive) -> bytes:
        """Body of a request, within the limits."""
        return await read_body(scope, receive, self.settings.max_body, self.settings.read_timeout)

    async def search(self, loaded: LoadedModel) -> LabelSearch:
        """Search in the labels of a model, made on first use."""
        known = self._searches.get(loaded.name)
        if known is None or known[0] is not loaded:
            known = self._searches[loaded.name] = loaded, await asyncio.to_thread(LabelSearch, loaded)
        return known[1]


def client_of(scope: Scope) -> str:
    """Address of a client; all clients of a Unix socket are one."""
    client = scope.get("client")
    return client[0] if client else ""


def check_type(scope: Scope, wanted: bytes) -> None:
    """Refuse a body that says to be of another type."""
    for name, value in scope["headers"]:
        if name == b"content-type":
            given = value.partition(b";")[0].strip().lower()
            if given != wanted:
                raise Problem(415, f"the content type must be {wanted.decode()}")
            return
    raise Problem(415, f"the request has no content type; it must be {wanted.decode()}")
