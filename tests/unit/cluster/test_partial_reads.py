from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial

import pytest

from pulsar_fleet.cluster.admin.partial_reads import in_order

Job = Callable[[], Awaitable[int]]


async def jobs(*delays: float) -> AsyncIterator[Job]:
    for number, delay in enumerate(delays):
        yield partial(asyncio.sleep, delay, number)


async def test_results_come_in_the_order_of_the_jobs() -> None:
    assert [one async for one in in_order(jobs(0.02, 0, 0.01, 0), 3)] == [0, 1, 2, 3]


async def test_no_more_jobs_are_started_than_asked_for() -> None:
    running, most = 0, 0

    async def job() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return most

    async def many() -> AsyncIterator[Job]:
        for _ in range(20):
            yield job

    assert max([one async for one in in_order(many(), 4)]) == 4


async def test_a_failure_ends_it_and_cancels_what_still_runs() -> None:
    cancelled = asyncio.Event()

    async def fail() -> int:
        raise ValueError("no")

    async def wait() -> int:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return 0

    async def given() -> AsyncIterator[Job]:
        for job in (fail, wait, wait):
            yield job

    async with aclosing(in_order(given(), 2)) as results:
        with pytest.raises(ValueError, match="no"):
            await anext(results)
    assert cancelled.is_set()
