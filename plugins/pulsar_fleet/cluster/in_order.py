"""Bounded concurrency that keeps the order: results come as their jobs were given, some jobs ahead."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from typing import TypeVar

Result = TypeVar("Result")


async def in_order(jobs: AsyncIterable[Callable[[], Awaitable[Result]]], at_once: int) -> AsyncGenerator[Result, None]:
    """The jobs' results in the order of the jobs; at most `at_once` run or wait to be taken.

    The first failure ends it: what still runs is cancelled. The same happens when the caller stops asking.
    """
    running: deque[asyncio.Future[Result]] = deque()
    try:
        async for job in jobs:
            running.append(asyncio.ensure_future(job()))
            if len(running) >= at_once:
                yield await running.popleft()
        while running:
            yield await running.popleft()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
