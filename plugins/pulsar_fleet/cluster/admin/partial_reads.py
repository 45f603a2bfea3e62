"""Reading many resources of a cluster, of which some are gone, out of reach or not for us: noted, never absent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from typing import TypeVar

from pulsar_fleet.cluster.admin.read_problems import Area, Note, Problem
from pulsar_fleet.cluster.errors import FleetError, NotAllowed, NotFound, Unavailable

Read = TypeVar("Read")

_UNANSWERED = 16
"""After so many calls in a row without any answer the cluster is gone, and not its resources."""


class PartialReads:
    """Awaits calls and keeps a note of each that gave nothing."""

    def __init__(self) -> None:
        self._notes: list[Note] = []
        self._hidden: set[Area] = set()
        self._unanswered = 0

    async def read(
        self,
        resource: str,
        call: Awaitable[Read],
        *,
        is_gone: Callable[[], Awaitable[bool]] | None = None,
        not_offered: tuple[type[FleetError], ...] = (),
        area: Area | None = None,
    ) -> Read | None:
        """The answer; None and a note if the resource is gone or cannot be read.

        :param is_gone: tells after a passing failure whether the resource is gone, where the broker's answer does not.
        :param not_offered: failures by which this cluster says that it does not run what was asked for.
        :param area: what is hidden as a whole from a role that may not read this.
        :raises Transient: the cluster no longer answers at all.
        """
        try:
            answer = await call
        except not_offered as error:
            self.note(resource, Problem.NOT_OFFERED, str(error))
            return None
        except NotFound as error:
            self.note(resource, Problem.VANISHED, str(error))
            return None
        except FleetError as error:
            if area is not None and isinstance(error, NotAllowed):
                self.hide(area, str(error))
                return None
            self._count(error)
            gone = isinstance(error, Unavailable) and is_gone is not None and await is_gone()
            self.note(resource, Problem.VANISHED if gone else Problem.UNREADABLE, str(error))
            return None
        self._unanswered = 0
        if answer is None:
            self.note(resource, Problem.VANISHED, "It was gone when it was read.")
        return answer

    def note(self, resource: str, problem: Problem, detail: str) -> None:
        """Note that something is not in the snapshot."""
        self._notes.append(Note(resource, problem.value, detail))

    def hide(self, area: Area, detail: str) -> None:
        """Note once that our role may not see something as a whole."""
        if area not in self._hidden:
            self._hidden.add(area)
            self.note(area.value, Problem.HIDDEN, detail)

    def take_notes(self) -> list[Note]:
        """The notes since the last time this was called, by resource."""
        taken, self._notes = self._notes, []
        return sorted(taken, key=lambda one: (one.resource, one.detail))

    def _count(self, error: FleetError) -> None:
        if not isinstance(error, Unavailable) or error.status is not None:
            self._unanswered = 0
            return
        self._unanswered += 1
        if self._unanswered >= _UNANSWERED:
            raise error


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
