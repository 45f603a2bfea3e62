"""Read many resources of a cluster, with a note for each that was not read, and why: it is unknown, not absent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from pulsar_fleet.cluster.errors import FleetError, NotAllowed, NotFound, Unavailable


class Problem(StrEnum):
    """Why a resource is not in a snapshot."""

    DELETED = "deleted"
    """It was deleted between listing and reading: no problem."""
    UNREADABLE = "unreadable"
    """It exists and could not be read: the snapshot is incomplete."""
    NOT_OFFERED = "not offered"
    """The cluster does not run the feature, so there are no such resources: no problem."""
    HIDDEN = "hidden"
    """Our role may not read it: it may exist or not, and nothing is concluded from that."""


class Area(StrEnum):
    """Resources that a role may read or set only together; the `resource` of a `Note` about a hidden area."""

    TENANTS = "list of tenants"
    CLUSTERS = "cluster data"
    BROKERS = "broker configuration"
    RESOURCE_GROUPS = "resource groups"
    BOOKIE_AFFINITY = "bookie affinity of namespaces"
    ISOLATION = "isolation policies and failure domains"
    CLIENTS = "connected clients"


# No tenant has a space in its name, so that these name no tenant.
BROKERS = "list of brokers"
CLUSTERS = "list of clusters"
FUNCTIONS = "functions of every namespace"
PACKAGES = "packages of every namespace"
NAMESPACES_OF = "namespaces of "
PARTITIONED_TOPICS_OF = "partitioned topics of "
SCHEMAS_OF = "schemas of "
SUBSCRIPTIONS_OF = "subscriptions of "
SUBSCRIPTION_PROPERTIES_OF = "subscription properties of "
SCALABLE_TOPICS_OF = "scalable topics of "
TOPIC_POLICIES_OF = "topic policies of "
NO_SERVICE_URL = "has no broker service URL"


@dataclass(frozen=True, slots=True)
class Note:
    """A resource that is not in the snapshot, and why.

    :param resource: a name, a kind such as `BROKERS`, or a part of a resource, such as `SCHEMAS_OF` and a topic.
    """

    resource: str
    problem: str
    detail: str

    @property
    def concerns_brokers(self) -> bool:
        """Whether settings of the brokers were not read: no procedure copies them."""
        return self.resource == BROKERS or self.resource.startswith("broker ")


DELETE_AGAIN = (
    # Brokers of 5.0.0-M1 delete a namespace that has only scalable topics, whose messages have no namespace then.
    "read the cluster again when the deletion has ended. If it does not end, and the namespace has no scalable topics "
    "(Pulsar 5.0), delete it there again, without force: brokers refuse that while it has other topics"
)
_MOST_NAMED = 5
NOT_SERVED = "in clusters list"
"""Part of the answer of a cluster that a namespace does not name."""
_REMEDIES = (
    (
        NOT_SERVED,
        "if this cluster is to serve it, add its name to the namespace's allowed clusters, or to its replication "
        "clusters on brokers without these; else leave it out of the selection",
    ),
    (
        "may not do this",
        "give the role of this connection the right, for a tenant by its adminRoles, or use the token of a superuser",
    ),
    ("cannot log in to each other", "follow that sentence, then read the cluster again"),
    (NO_SERVICE_URL, "follow that sentence, then read the cluster again"),
    ("Namespace is deleted", DELETE_AGAIN),
    ("cannot be addressed over HTTP", "recreate it under another name, or leave it out of the selection"),
)
"""Part of the detail of a note → what to do."""


_ANY_OTHER = "correct the cause that the broker names, which its log may describe, or leave it out of the selection"


def remedy_for(note: Note, otherwise: str = _ANY_OTHER) -> str:
    """What to do about an unreadable resource, in a sentence without a full stop; `otherwise` for any other cause."""
    return next((remedy for part, remedy in _REMEDIES if part in note.detail), otherwise)


def unread_text(cluster: str, notes: Sequence[Note]) -> str:
    """What could not be read on a cluster and what to do, by name, as one paragraph."""
    rest = len(notes) - _MOST_NAMED
    named = " ".join(f"{note.resource}: {note.detail} Do: {remedy_for(note)}." for note in notes[:_MOST_NAMED])
    more = f" {rest:,} more are in the table 'notes' of the snapshot." if rest > 0 else ""
    return f"{len(notes):,} of the resources of {cluster} could not be read: {named}{more}"


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
