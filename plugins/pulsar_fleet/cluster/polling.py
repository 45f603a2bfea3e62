"""Wait until something is done, for callers without a scheduler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from pulsar_fleet.cluster.errors import PreconditionFailed, Unavailable
from pulsar_fleet.cluster.text import duration

POLL_SECONDS = 5.0
"""The time between two polls, and the shortest: Airflow can mark a task that resumes sooner as failed."""


async def wait_until(
    poll: Callable[[], Awaitable[tuple[bool, str]]],
    *,
    seconds: float,
    poll_seconds: float,
    progress: Callable[[str], None],
    missed: str,
) -> str:
    """Poll until it is done; a cluster that does not answer is polled on. Returns the last line of progress.

    :param poll: returns whether it is done, and a line of progress.
    :param progress: receives a line after each poll.
    :param missed: what is not done after `seconds`, as a clause of the error.
    :raises PreconditionFailed: it is not done after `seconds`; the message ends with the last line.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            done, line = await poll()
        except Unavailable as error:
            # A broker may restart: keep polling until the end.
            done, line = False, str(error)
        if done:
            return line
        if time.monotonic() > end:
            raise PreconditionFailed(f"After {duration(seconds)} {missed}: {line}")
        progress(line)
        await asyncio.sleep(poll_seconds)
