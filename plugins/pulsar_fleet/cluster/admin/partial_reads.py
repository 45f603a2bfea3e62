"""Read many resources of a cluster, and note those that were deleted, are unreadable or hidden from our role."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from typing import TypeVar

from pulsar_fleet.cluster.admin.read_problems import Area, Note, Problem
from pulsar_fleet.cluster.errors import FleetError, NotAllowed, NotFound, Unavailable

Read = TypeVar("Read")

_UNANSWERED = 16
"""After so many consecutive calls without an answer the cluster is unreachable, not its resources unreadable."""


class PartialReads:
    """Awaits calls and keeps a note for each that returned nothing."""

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
        """The answer; None, and a note, if the resource was deleted or cannot be read.

        :param is_gone: checks whether a resource that was not answered was deleted: what is still listed is unreadable.
        :param not_offered: failures that mean that this cluster does not run the feature.
        :param area: the area that is hidden from a role that may not read this resource.
        :raises Unavailable: the cluster no longer answers.
        """
        try:
            answer = await call
        except not_offered as error:
            self.note(resource, Problem.NOT_OFFERED, str(error))
            return None
        except FleetError as error:
            if area is not None and isinstance(error, NotAllowed):
                self.hide(area, str(error))
                return None
            self._count(error)
            may_be_gone = isinstance(error, NotFound) or (isinstance(error, Unavailable) and is_gone is not None)
            gone = may_be_gone and (is_gone is None or await is_gone())
            self.note(resource, Problem.DELETED if gone else Problem.UNREADABLE, str(error))
            return None
        self._unanswered = 0
        if answer is None and (is_gone is None or await is_gone()):
            self.note(resource, Problem.DELETED, "It was deleted before it was read.")
        elif answer is None:
            self.note(resource, Problem.UNREADABLE, "The cluster lists it, and answers that it does not exist.")
        return answer

    def note(self, resource: str, problem: Problem, detail: str) -> None:
        """Note that a resource is not in the snapshot, and why."""
        self._notes.append(Note(resource, problem.value, detail))

    def hide(self, area: Area, detail: str) -> None:
        """Note once that our role may not read an area."""
        if area not in self._hidden:
            self._hidden.add(area)
            self.note(area.value, Problem.HIDDEN, detail)

    def take_notes(self) -> list[Note]:
        """The notes since the last call of this method, sorted by resource."""
        taken, self._notes = self._notes, []
        return sorted(taken, key=lambda note: (note.resource, note.detail))

    def _count(self, error: FleetError) -> None:
        if not isinstance(error, Unavailable) or error.status is not None:
            self._unanswered = 0
            return
        self._unanswered += 1
        if self._unanswered >= _UNANSWERED:
            raise error


Result = TypeVar("Result")


async def in_order(jobs: AsyncIterable[Callable[[], Awaitable[Result]]], at_once: int) -> AsyncGenerator[Result, None]:
    """The results of jobs in the order of the jobs; at most `at_once` jobs run or wait for the caller.

    The first failure, or the caller's end of the iteration, cancels the running jobs.
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
