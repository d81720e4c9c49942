"""Batching without patience: a free worker takes everything that waits, and nothing waits for company.

The event loop puts jobs into a queue; worker threads take them. What waits when a worker becomes free, up to a number
of texts, is answered together where it asks for the same: an idle service answers at once, a busy one in batches.
Load is counted in texts, not in requests.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable, Mapping, MutableMapping
from typing import Any, Protocol

from ramify.base.errors import DataError
from ramify.base.threads import resolve_threads
from ramify.serve.problems import Problem, busy
from ramify.serve.settings import Settings

log = logging.getLogger("ramify.serve")
WAITING = "ramify.waiting"
"""Key of a request's ASGI scope: what it waits for."""
LEFT = 499
"""Status of requests whose client has closed the connection; nobody gets it."""


class Job(Protocol):
    """Texts of one request. Jobs with the same key are ranked together."""

    documents: list[Any]

    @property
    def key(self) -> Hashable:
        """Model and options."""

    def rank(self, documents: list[Any]) -> Any:
        """Rank documents of one or several jobs; the result is sliced by rows."""

    def finish(self, result: Any) -> bytes:
        """Answer of this job, from its rows of the result."""


class Waiting:
    """The answer that a request waits for.

    It calls back at once, where a future of asyncio asks the event loop to do so: under load uvloop reads tens of
    thousands of requests before it calls anything.
    """

    __slots__ = ("_call", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._call: Callable[[bytes | Problem], None] | None = None

    def on_done(self, call: Callable[[bytes | Problem], None]) -> None:
        """Set what is called with the answer, in the event loop."""
        self._call = call

    def resolve(self, answer: bytes | Problem) -> None:
        """Give the answer; only the first one counts."""
        if not self.is_done:
            self.is_done = True
            if self._call is not None:
                self._call(answer)

    def __await__(self) -> Generator[Any, None, bytes]:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def pass_on(answer: bytes | Problem) -> None:
            if future.done():
                return
            if isinstance(answer, Problem):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self.on_done(pass_on)
        try:
            return (yield from future.__await__())
        finally:
            self.is_done = True  # also if the request was cancelled: its texts need not be ranked


class _Entry:
    __slots__ = ("client", "deadline", "job", "size", "waiting")

    def __init__(self, job: Any, size: int, client: str, deadline: float, waiting: Waiting) -> None:
        self.job, self.size, self.client, self.deadline, self.waiting = job, size, client, deadline, waiting


class WorkQueue:
    """Worker threads and their queue. Everything but the work itself happens in the event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._queue: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._arrived: list[_Entry] = []
        self._answered: deque[list[tuple[_Entry, bytes | Problem]]] = deque()
        self._is_delivering = False
        self._threads: list[threading.Thread] = []
        self._clients: dict[str, int] = {}
        self._lock, self._n_free = threading.Lock(), 0
        self.texts = 0
        """Texts that wait or are worked on."""
        self.n_batches = self.n_ranked = 0

    # ---- in the event loop ----

    def start(self) -> None:
        """Start the threads."""
        self._loop = asyncio.get_running_loop()
        for i in range(resolve_threads(self._settings.threads)):
            thread = threading.Thread(target=self._work, name=f"ramify-worker-{i}", daemon=True)
            thread.start()
            self._threads.append(thread)

    async def close(self) -> None:
        """Finish what is queued, and end the threads."""
        self._release()
        await asyncio.to_thread(self._end_threads)

    def _end_threads(self) -> None:
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    async def submit(self, job: Job, client: str, **options: Any) -> bytes:
        """Queue a job and wait for its answer, as `put` says."""
        return await self.put(job, client, **options)

    def put(
        self, job: Job, client: str, *, is_annif: bool = False, scope: MutableMapping[str, Any] | None = None
    ) -> Waiting:
        """Queue a job; returns what waits for its answer. Raises `Problem` if there is too much to do.

        With the scope of the request, `give_up` ends the waiting.
        """
        size = len(job.documents)
        self._admit(size, client, self._settings.annif_queue if is_annif else self._settings.max_queue)
        wait = self._settings.annif_wait if is_annif else self._settings.wait
        waiting = Waiting()
        if scope is not None:
            scope[WAITING] = waiting
        entry = _Entry(job, size, client, time.monotonic() + wait, waiting)
        self.texts += size
        self._clients[client] = self._clients.get(client, 0) + size
        # What the event loop reads at once goes to the workers at once: the first text would else wake a worker, which
        # then fights with the event loop for the interpreter.
        if not self._arrived:
            self._loop.call_soon(self._release)
        self._arrived.append(entry)
        if len(self._arrived) >= self._settings.max_batch:
            self._release()  # the event loop may read many more before it calls
        return waiting

    def _release(self) -> None:
        arrived, self._arrived = self._arrived, []
        for entry in arrived:
            self._queue.put(entry)

    def check(self, client: str, *, is_annif: bool = False) -> None:
        """Refuse a request while there is no room for a single text of this client: before the work of reading it."""
        self._admit(1, client, self._settings.annif_queue if is_annif else self._settings.max_queue)

    @property
    def is_crowded(self) -> bool:
        """Whether more texts wait than the next batches take."""
        return self.texts > self._settings.max_batch * (1 + len(self._threads))

    def _admit(self, size: int, client: str, limit: int) -> None:
        if self._answered:
            self._deliver()  # what has been answered makes room
        if self.texts == 0:
            return  # an idle service takes what a request may have
        held = self._clients.get(client, 0)
        if held and self.texts + size > limit // 2 and held + size > (part := self._part(limit)):
            detail = f"this client has more texts in the queue than its part of {part:,}; wait for answers before more"
            raise Problem(429, detail, {"retry-after": "1"})
        if self.texts + size > limit:
            raise busy()

    def _part(self, limit: int) -> int:
        """Texts that each client may have in a queue that is half full; a single one leaves room for a second."""
        n = len(self._clients)
        return limit // n if n > 1 else limit * 3 // 4

    def _deliver(self) -> None:
        """Send the answers that the workers have made."""
        if self._is_delivering:
            return  # an answer was sent, and its client's next request is being read
        self._is_delivering = True
        try:
            while self._answered:
                self._resolve(self._answered.popleft())
        finally:
            self._is_delivering = False

    def _resolve(self, answers: list[tuple[_Entry, bytes | Problem]]) -> None:
        for entry, answer in answers:
            self.texts -= entry.size
            left = self._clients[entry.client] - entry.size
            if left:
                self._clients[entry.client] = left
            else:
                del self._clients[entry.client]
            try:
                entry.waiting.resolve(answer)
            except Exception as error:  # the others get their answers
                log.error("not sent", exc_info=error)

    # ---- in the worker threads ----

    def _work(self) -> None:
        while (entry := self._take()) is not None:
            entries, size = [entry], entry.size
            # Workers that are free at the same time divide what waits.
            part = -(-(1 + self._queue.qsize()) // (1 + self._n_free))
            while size < self._settings.max_batch and len(entries) < part:
                try:
                    entry = self._queue.get_nowait()
                except queue.Empty:
                    break
                if entry is None:
                    self._queue.put(None)
                    break
                entries.append(entry)
                size += entry.size
            self._answer(entries)

    def _take(self) -> _Entry | None:
        with self._lock:
            self._n_free += 1
        entry = self._queue.get()
        with self._lock:
            self._n_free -= 1
        return entry

    def _answer(self, entries: list[_Entry]) -> None:
        now = time.monotonic()
        groups: dict[Hashable, list[_Entry]] = {}
        late: list[tuple[_Entry, bytes | Problem]] = []
        for entry in entries:
            if entry.waiting.is_done:  # nobody waits for the answer
                late.append((entry, b""))
            elif now > entry.deadline:
                late.append((entry, busy(self._settings.wait)))
            else:
                groups.setdefault(entry.job.key, []).append(entry)
        if late:
            self._hand_over(late)
        for group in groups.values():
            self._hand_over(self._answer_group(group))

    def _hand_over(self, answers: list[tuple[_Entry, bytes | Problem]]) -> None:
        self._answered.append(answers)
        self._loop.call_soon_threadsafe(self._deliver)

    def _answer_group(self, group: list[_Entry]) -> list[tuple[_Entry, bytes | Problem]]:
        first = group[0].job
        documents = first.documents if len(group) == 1 else [text for entry in group for text in entry.job.documents]
        try:
            result = first.rank(documents)
        except Exception as error:
            if len(group) > 1:  # one of them is at fault; the others get their answers
                return [answer for entry in group for answer in self._answer_group([entry])]
            return [(group[0], _problem(error))]
        self.n_batches += 1
        self.n_ranked += len(documents)
        answers, row = [], 0
        for entry in group:
            answers.append((entry, _attempt(entry.job.finish, result[row : row + entry.size])))
            row += entry.size
        return answers


def give_up(scope: Mapping[str, Any]) -> None:
    """End the waiting of a request whose client has gone: its texts are not ranked any more."""
    waiting = scope.get(WAITING)
    if waiting is not None and not waiting.is_done:
        waiting.resolve(Problem(LEFT, "the client has closed the connection", title="Client Closed Request"))


def _attempt(finish: Callable[[Any], bytes], rows: Any) -> bytes | Problem:
    try:
        return finish(rows)
    except Exception as error:
        return _problem(error)


def _problem(error: Exception) -> Problem:
    if isinstance(error, Problem):
        return error
    if isinstance(error, DataError):
        return Problem(422, str(error))
    if isinstance(error, MemoryError):
        return busy()
    log.error("failed", exc_info=error)
    return Problem(500, "the service failed to answer; its log says why")
