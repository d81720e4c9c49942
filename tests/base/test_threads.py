"""Threads of Python code: results in order, errors, and no thread that outlives its call."""

from __future__ import annotations

import threading

import pytest

from ramify.base.threads import ordered_map


@pytest.mark.parametrize("threads", [1, 2, 9])
@pytest.mark.parametrize("n", [0, 1, 40])
def test_results_keep_the_order_of_the_items(threads, n):
    assert list(ordered_map(lambda i: i * i, list(range(n)), threads)) == [i * i for i in range(n)]


@pytest.mark.parametrize("threads", [1, 3])
def test_errors_end_the_work(threads):
    before, started = threading.active_count(), []

    def work(i):
        started.append(i)
        return 1 // (i - 2)

    with pytest.raises(ZeroDivisionError):
        list(ordered_map(work, list(range(100_000)), threads))
    assert len(started) < 100_000
    assert threading.active_count() == before
