"""Wait until something is done, or all of several are, or until what was written is read back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pulsar_fleet.cluster.errors import PreconditionFailed, Unavailable
from pulsar_fleet.cluster.text import duration

POLL_SECONDS = 5.0
"""The time between two polls, and the shortest: Airflow can mark a task that resumes sooner as failed."""

Result = TypeVar("Result")

REPEAT_SECONDS = 600.0
"""A line of a wait that does not change is shown again so long after it was shown."""


class ShownLines:
    """Which lines of a wait a person or a log sees: each that has changed, and one that stays every ten minutes.

    :param seconds: between two lines, also if they differ.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._line, self._shown = "", -REPEAT_SECONDS

    def is_due(self, line: str) -> bool:
        """Whether to show it now; then it counts as shown."""
        now = time.monotonic()
        due = now - self._shown >= (REPEAT_SECONDS if line == self._line else self._seconds)
        if due:
            self._line, self._shown = line, now
        return due


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


async def all_ended(*running: Awaitable[Result]) -> list[Result]:
    """Wait until all of them have ended, then raise the first error: none goes on behind the caller's back."""
    results = await asyncio.gather(*running, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


KEPT_SECONDS = 10.0
_READ_AGAIN_SECONDS = 0.05


async def is_kept(read: Callable[[], Awaitable[bool]]) -> bool:
    """Whether what was just written is read back within 10 s: another broker may answer, with what it still remembers.

    :param read: whether an answer has what was written.
    """
    end = time.monotonic() + KEPT_SECONDS
    while not (kept := await read()) and time.monotonic() < end:
        await asyncio.sleep(_READ_AGAIN_SECONDS)
    return kept
