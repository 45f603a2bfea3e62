"""Start links at the chosen position, and confirm that each one is connected and sends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics import Cursor, TopicStats, cursors_in_stats, replicator_cursor
from pulsar_fleet.links.cluster_lists import copy_from
from pulsar_fleet.links.partition_stats import required_internal_stats, stats_of
from pulsar_fleet.replication.topology import Link
from pulsar_fleet.snapshot.resources import read_partition_counts

_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedLink(Document):
    """The replication of one topic or partition in one direction.

    :param backlog: entries that are not sent yet.
    :param sends: something was sent since the first reading, or there is nothing to send.
    :param problem: why the statistics could not be read; empty if they were.
    """

    link: Link
    topic: str
    connected: bool
    backlog: int
    sends: bool
    problem: str = ""

    @property
    def works(self) -> bool:
        """Whether it is connected and sends."""
        return self.connected and self.sends

    def text(self) -> str:
        """Why it does not work, with its values."""
        if self.problem:
            state = f"unknown: {self.problem}"
        elif not self.connected:
            state = "not connected"
        else:
            state = f"connected, and sends nothing of its backlog of {self.backlog:,} entries"
        return f"{self.topic} {self.link}: {state}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmedLinks(Document):
    """The links after their start.

    :param links: their number: one for each topic or partition and direction.
    :param broken: those that do not work, at most 20.
    :param calls: admin calls.
    """

    links: int
    broken: tuple[StartedLink, ...]
    calls: int
    seconds: float


async def partitions_of(admin: AdminClient, namespaces: Sequence[str], topics: Sequence[str]) -> tuple[TopicName, ...]:
    """What stores messages in these namespaces: two calls for each, and one for each partitioned topic.

    :param topics: only of these topics; empty: of all.
    """
    counts: dict[TopicName, int] = {}
    for answer in await asyncio.gather(
        *(read_partition_counts(admin, NamespaceName.parse(name)) for name in namespaces)
    ):
        counts |= answer
    return tuple(
        partition
        for topic, count in sorted(counts.items(), key=lambda item: str(item[0]))
        if topic.persistent and (not topics or str(topic) in topics)
        for partition in topic.partitions(count)
    )


async def copy_history(
    admin: AdminClient, partitions: Sequence[TopicName], targets: Sequence[str], since: datetime | None
) -> None:
    """Let new links begin in what is stored; call it immediately before the list is stored.

    Calls: one for each partition and target, two with a time. A second call changes nothing.

    :param since: the publish time of the first message that is replicated; None: the first stored message.
    """
    await asyncio.gather(
        *(copy_from(admin, partition, target, since) for partition in partitions for target in targets)
    )


async def confirm_links(
    admin: AdminClient,
    own: str,
    targets: Sequence[str],
    partitions: Sequence[TopicName],
    *,
    seconds: float,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[StartedLink, ...]:
    """The state of every link of one cluster, when all work or when the time is over. It loads the topics.

    Statistics say `connected` of a replicator that an incompatible schema stops, so what it sends is read too.
    Calls for each round: one for each topic, one more where something is unsent.
    """
    end = time.monotonic() + seconds
    states: dict[tuple[Link, TopicName], StartedLink] = {}
    first: dict[tuple[Link, TopicName], Cursor] = {}
    waiting = list(partitions)
    while True:
        states |= await _read(admin, own, targets, waiting, first)
        waiting = list(dict.fromkeys(topic for (_, topic), state in states.items() if not state.works))
        if progress:
            progress(sum(state.works for state in states.values()), len(states))
        if not waiting or time.monotonic() >= end:
            return tuple(states.values())
        await asyncio.sleep(_POLL_SECONDS)


async def _read(
    admin: AdminClient,
    own: str,
    targets: Sequence[str],
    partitions: Sequence[TopicName],
    first: dict[tuple[Link, TopicName], Cursor],
) -> dict[tuple[Link, TopicName], StartedLink]:
    answers = await stats_of(admin, partitions, precise=False)
    behind = [
        topic
        for topic, stats in answers.items()
        if isinstance(stats, TopicStats) and any(stats.replication_backlog.get(target) for target in targets)
    ]
    internal = await required_internal_stats(admin, behind) if behind else {}
    states = {}
    for topic, stats in answers.items():
        for target in targets:
            link = Link(own, target)
            if isinstance(stats, FleetError):
                states[link, topic] = StartedLink(
                    link=link, topic=str(topic), connected=False, backlog=0, sends=False, problem=str(stats)
                )
                continue
            backlog = stats.replication_backlog.get(target, 0)
            now = cursors_in_stats(internal[topic]).get(replicator_cursor(target)) if backlog else None
            before = first.setdefault((link, topic), now) if now else None
            states[link, topic] = StartedLink(
                link=link,
                topic=str(topic),
                connected=bool(stats.replication_connected.get(target)),
                backlog=backlog,
                sends=not backlog or bool(now and before and now.confirmed_since(before)),
            )
    return states
