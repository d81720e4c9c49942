"""The queue: what waits goes together, load is counted in texts, nobody suffers for another one's request."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field

import pytest
from serving import run

from ramify.base.errors import DataError
from ramify.serve.problems import Problem
from ramify.serve.settings import Settings
from ramify.serve.work import WorkQueue, give_up


@dataclass
class Doubling:
    """Doubles numbers; waits for an event where one is given."""

    documents: list[int]
    key: str = "a"
    wait: threading.Event | None = None
    seen: list[list[int]] = field(default_factory=list)

    def rank(self, documents):
        if self.wait is not None:
            assert self.wait.wait(30)
        self.seen.append(list(documents))
        if 13 in documents:
            raise DataError("13 is no good number")
        if 0 in documents:
            raise ZeroDivisionError
        return [2 * number for number in documents]

    def finish(self, result):
        return str(result).encode()


def in_queue(use, **settings):
    """Run a coroutine function with a queue of one thread."""

    async def main():
        queue = WorkQueue(Settings(threads=1, **settings))
        queue.start()
        try:
            return await use(queue)
        finally:
            await queue.close()

    return run(main())


async def occupied(queue):
    """Occupy the only thread; returns the event that frees it."""
    event = threading.Event()
    task = asyncio.create_task(queue.submit(Doubling([1], "blocker", event), "blocker"))
    while not queue.texts:
        await asyncio.sleep(0)
    while queue._arrived or queue._queue.qsize():
        await asyncio.sleep(0.001)
    return event, task


def test_what_waits_is_ranked_together_and_answered_by_request():
    async def use(queue):
        event, blocker = await occupied(queue)
        seen = []
        jobs = [Doubling([10 * i + 1, 10 * i + 2], "a" if i != 2 else "b", seen=seen) for i in range(4)]
        tasks = [asyncio.create_task(queue.submit(job, "me")) for job in jobs]
        await asyncio.sleep(0.01)
        assert queue.texts == 9
        event.set()
        answers = await asyncio.gather(*tasks)
        await blocker
        assert queue.texts == 0
        assert queue._clients == {}
        return answers, seen

    answers, seen = in_queue(use)
    assert answers == [b"[2, 4]", b"[22, 24]", b"[42, 44]", b"[62, 64]"]
    assert seen == [[1, 2, 11, 12, 31, 32], [21, 22]]


def test_batches_end_at_their_limit():
    async def use(queue):
        event, blocker = await occupied(queue)
        seen = []
        tasks = [asyncio.create_task(queue.submit(Doubling([i, i], seen=seen), "me")) for i in range(1, 6)]
        await asyncio.sleep(0.01)
        event.set()
        await asyncio.gather(blocker, *tasks)
        return seen

    assert in_queue(use, max_batch=4) == [[1, 1, 2, 2], [3, 3, 4, 4], [5, 5]]


def test_workers_that_are_free_divide_what_waits():
    """Two workers, and six requests that came while the event loop was busy: none takes all of them."""

    async def main():
        queue, seen = WorkQueue(Settings(threads=2)), []
        queue._loop = asyncio.get_running_loop()
        tasks = [queue.put(Doubling([i], seen=seen), "me") for i in range(1, 7)]
        queue._n_free = 1  # whichever thread comes first finds another one that is free
        queue.start()
        answers = await asyncio.gather(*tasks)
        await queue.close()
        return answers, seen

    answers, seen = run(main())
    assert answers == [f"[{2 * i}]".encode() for i in range(1, 7)]
    assert max(map(len, seen)) <= 3
    assert sorted(number for batch in seen for number in batch) == [1, 2, 3, 4, 5, 6]


def test_one_bad_request_does_not_spoil_the_others():
    async def use(queue):
        event, blocker = await occupied(queue)
        tasks = [asyncio.create_task(queue.submit(Doubling([n]), "me")) for n in (1, 13, 2, 0)]
        await asyncio.sleep(0.01)
        event.set()
        await blocker
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, bad, second, failed = in_queue(use)
    assert (first, second) == (b"[2]", b"[4]")
    assert isinstance(bad, Problem)
    assert (bad.status, bad.detail) == (422, "13 is no good number")
    assert failed.status == 500
    assert "division" not in failed.detail


def test_a_full_queue_sheds_and_recovers():
    async def use(queue):
        event, blocker = await occupied(queue)
        waiting = [asyncio.create_task(queue.submit(Doubling([1] * 3), f"client {i}")) for i in range(3)]
        await asyncio.sleep(0.01)
        with pytest.raises(Problem) as refused:
            await queue.submit(Doubling([1]), "late")
        assert refused.value.status == 503
        assert refused.value.headers["retry-after"] == "1"
        annif = asyncio.create_task(queue.submit(Doubling([5]), "late", is_annif=True))  # which may wait longer
        event.set()
        await asyncio.gather(blocker, *waiting)
        assert await annif == b"[10]"
        assert await queue.submit(Doubling([1]), "late") == b"[2]"

    in_queue(use, max_queue=10, annif_queue=20)


def test_a_client_beyond_its_part_is_told_so_and_others_are_served():
    async def use(queue):
        event, blocker = await occupied(queue)
        waiting = [asyncio.create_task(queue.submit(Doubling([1] * 4), "greedy"))]
        await asyncio.sleep(0.01)
        with pytest.raises(Problem) as refused:
            await queue.submit(Doubling([1] * 5), "greedy")
        assert refused.value.status == 429
        assert "part of 6" in refused.value.detail
        waiting.append(asyncio.create_task(queue.submit(Doubling([1] * 3), "modest")))
        await asyncio.sleep(0.01)
        event.set()
        await asyncio.gather(blocker, *waiting)

    in_queue(use, max_queue=12)


def test_an_idle_service_takes_the_largest_request():
    async def use(queue):
        return await queue.submit(Doubling([1] * 50), "me")

    assert in_queue(use, max_queue=10) == str([2] * 50).encode()


def test_what_has_waited_too_long_is_refused():
    async def use(queue):
        event, blocker = await occupied(queue)
        task = asyncio.create_task(queue.submit(Doubling([1]), "me"))
        patient = asyncio.create_task(queue.submit(Doubling([1]), "me", is_annif=True))
        await asyncio.sleep(0.7)
        event.set()
        await blocker
        with pytest.raises(Problem) as refused:
            await task
        assert refused.value.status == 503
        assert await patient == b"[2]"

    in_queue(use, wait=0.5)


def test_closing_finishes_what_is_queued():
    async def main():
        queue = WorkQueue(Settings(threads=2))
        queue.start()
        tasks = [asyncio.create_task(queue.submit(Doubling([i], str(i % 7)), "me")) for i in range(1, 200)]
        await asyncio.sleep(0)
        await queue.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = run(main())
    assert [a for i, a in enumerate(answers, 1) if i != 13] == [f"[{2 * i}]".encode() for i in range(1, 200) if i != 13]


def test_a_request_that_was_given_up_is_forgotten():
    async def use(queue):
        event, blocker = await occupied(queue)
        task = asyncio.create_task(queue.submit(Doubling([1]), "me"))
        await asyncio.sleep(0.01)
        task.cancel()
        event.set()
        await blocker
        while queue.texts:
            await asyncio.sleep(0.001)
        return await queue.submit(Doubling([2]), "me")

    assert in_queue(use) == b"[4]"


def test_texts_of_clients_that_have_gone_are_not_ranked():
    async def use(queue):
        event, blocker = await occupied(queue)
        gone, seen = {}, []
        tasks = [
            asyncio.create_task(queue.submit(Doubling([n], seen=seen), "me", scope=scope))
            for n, scope in ((5, gone), (6, {}))
        ]
        await asyncio.sleep(0.01)
        give_up(gone)
        with pytest.raises(Problem, match="closed the connection"):
            await tasks[0]
        event.set()
        assert await tasks[1] == b"[12]"
        await blocker
        assert seen == [[6]]
        assert queue.texts == 0
        assert queue._clients == {}

    in_queue(use)


def test_answers_are_sent_while_the_event_loop_only_reads():
    """Under load uvloop reads for seconds before it calls what was scheduled."""

    async def use(queue):
        answers = []
        for i in range(4):
            queue.put(Doubling([i + 1]), "me").on_done(answers.append)
        end = time.monotonic() + 30
        while len(answers) < 4 and time.monotonic() < end:  # without a pause for the event loop
            queue.check("other")
            time.sleep(0.001)
        return answers

    assert sorted(in_queue(use, max_batch=4)) == [b"[2]", b"[4]", b"[6]", b"[8]"]


def test_an_answer_that_cannot_be_sent_does_not_keep_others_from_theirs(caplog):
    async def use(queue):
        def fail(_):
            raise OSError("gone")

        queue.put(Doubling([1]), "me").on_done(fail)
        answer = await queue.submit(Doubling([2]), "me")
        assert queue.texts == 0
        return answer

    assert in_queue(use) == b"[4]"
    assert "not sent" in caplog.text
