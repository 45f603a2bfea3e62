from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial

import pytest

from pulsar_fleet.cluster.admin.partial_reads import PartialReads, Problem, in_order
from pulsar_fleet.cluster.errors import FleetError, NotFound, Unavailable

Job = Callable[[], Awaitable[int]]


async def jobs(*delays: float) -> AsyncIterator[Job]:
    for number, delay in enumerate(delays):
        yield partial(asyncio.sleep, delay, number)


async def test_results_come_in_the_order_of_the_jobs() -> None:
    assert [result async for result in in_order(jobs(0.02, 0, 0.01, 0), 3)] == [0, 1, 2, 3]


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

    assert max([result async for result in in_order(many(), 4)]) == 4


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


async def gone() -> bool:
    return True


async def listed() -> bool:
    return False


async def fail(error: FleetError) -> None:
    raise error


@pytest.mark.parametrize("error", [NotFound("404"), Unavailable("500", status=500)])
async def test_what_is_still_listed_is_unreadable_and_never_deleted(error: FleetError) -> None:
    for is_gone, problem in ((gone, Problem.DELETED), (listed, Problem.UNREADABLE)):
        reads = PartialReads()
        assert await reads.read("acme/orders", fail(error), is_gone=is_gone) is None
        assert [note.problem for note in reads.take_notes()] == [problem]


async def test_a_resource_that_is_listed_and_answered_as_missing_is_unreadable() -> None:
    reads = PartialReads()
    assert await reads.read("acme/orders", asyncio.sleep(0, None), is_gone=listed) is None
    ((note),) = reads.take_notes()
    assert (note.problem, note.detail) == (
        Problem.UNREADABLE,
        "The cluster lists it, and answers that it does not exist.",
    )
