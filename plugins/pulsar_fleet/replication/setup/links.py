"""Start links at the chosen position, where topics store nothing yet, and confirm that each one is connected and sends.

A run that was interrupted has created topics and copied nothing: it must be able to go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError, PlanOutdated
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.cluster.statistics import Cursor, TopicStats, cursors_in_stats, replicator_cursor
from pulsar_fleet.links.cluster_lists import copy_from
from pulsar_fleet.links.partition_stats import internal_stats_documents, required_internal_stats, stats_of
from pulsar_fleet.replication.clusters import Clusters
from pulsar_fleet.replication.setup.plan import ReplicationPlan
from pulsar_fleet.replication.topology import Link
from pulsar_fleet.snapshot.resources import read_clusters_in_effect, read_partition_counts

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


async def never_used(admin: AdminClient, topics: Mapping[TopicName, int]) -> frozenset[str]:
    """Those of these topics that hold no message, and have no producer and no subscription; it loads them.

    What cannot be read is not among them. A topic with a subscription may have had messages that were read: the broker
    deletes their ledgers, and looks as before the first message when it loads the topic again (observed, 4.2.4).
    Calls: two for each topic.

    :param topics: topic → partition count, 0 for a plain topic.
    """
    partitions = [partition for topic, count in topics.items() for partition in topic.partitions(count)]
    # First the clients: one that connects later and publishes is seen in the ledgers.
    statistics = await stats_of(admin, partitions)
    ledgers = await internal_stats_documents(admin, partitions)
    return frozenset(
        str(topic)
        for topic, count in topics.items()
        if all(_is_unused(statistics[one], ledgers[one]) for one in topic.partitions(count))
    )


async def stored_bytes(admin: AdminClient, topics: Mapping[TopicName, int]) -> dict[str, int]:
    """Topic → bytes of its largest partition; without those that could not be read. One call for each partition.

    :param topics: topic → partition count, 0 for a plain topic.
    """
    statistics = await stats_of(admin, [part for topic, count in topics.items() for part in topic.partitions(count)])
    parts = {topic: [statistics[part] for part in topic.partitions(count)] for topic, count in topics.items()}
    read = {topic: [one for one in stats if isinstance(one, TopicStats)] for topic, stats in parts.items()}
    return {
        str(topic): max((one.stored_bytes for one in read[topic]), default=0)
        for topic, stats in parts.items()
        if len(read[topic]) == len(stats)
    }


async def require_unused(clusters: Clusters, stored: ReplicationPlan) -> None:
    """Return if the topics that the plan found empty still are; a link that began has filled its topics.

    :raises PlanOutdated: one has been used since, as while the plan waited for its approval.
    """
    for namespace, links in stored.new_links.items():
        name = NamespaceName.parse(namespace)
        relied = {cluster: _inside(name, topics) for cluster, topics in stored.unused.items()}
        # Of a run about topics: others of them may have the link already, by the list of their namespace.
        topics = _inside(name, stored.topics) & frozenset().union(*relied.values())
        if not any(relied.values()) or await _any_began(clusters, name, topics, links):
            continue
        unused = {cluster: await _still_unused(clusters.admins[cluster], name, relied[cluster]) for cluster in relied}
        for link in links:
            before = {*relied.get(link.source, ()), *relied.get(link.target, ())}
            now = {*unused.get(link.source, ()), *unused.get(link.target, ())}
            if used := sorted(before - now):
                raise PlanOutdated(
                    f"{used[0]} was empty on {link.source} or {link.target} when this run was planned, and is used on "
                    "both now: a copied history could be stored twice. Start a new run. No link of "
                    f"{namespace} has been started."
                )


def _inside(namespace: NamespaceName, topics: Collection[str]) -> frozenset[str]:
    return frozenset(topic for topic in topics if TopicName.parse(topic).namespace == namespace)


async def _any_began(
    clusters: Clusters, namespace: NamespaceName, topics: Collection[str], links: Sequence[Link]
) -> bool:
    """Whether a list has a new link already: that of the namespace, or in a run about topics one of theirs."""
    for link in links:
        admin = clusters.admins[link.source]
        lists = [await read_clusters_in_effect(admin, TopicName.parse(topic)) for topic in topics]
        if not topics:
            lists.append((await admin.namespace(namespace) or {}).get("replication_clusters") or [])
        if any(link.target in listed for listed in lists):
            return True
    return False


async def _still_unused(admin: AdminClient, namespace: NamespaceName, topics: Collection[str]) -> frozenset[str]:
    counts = await read_partition_counts(admin, namespace) if topics else {}
    return await never_used(admin, {topic: count for topic, count in counts.items() if str(topic) in topics})


def _is_unused(stats: TopicStats | FleetError, ledgers: JsonObject | FleetError) -> bool:
    if isinstance(stats, FleetError) or isinstance(ledgers, FleetError):
        return False
    used = stats.producers or stats.subscriptions or stats.inbound or stats.messages_in
    return not used and has_stored_nothing(ledgers)


def has_stored_nothing(internal_stats: JsonObject) -> bool:
    """Whether a topic has one ledger without an entry, and all its cursors before it.

    An answer without these fields says nothing.
    """
    try:
        last = Position.parse(internal_stats["lastConfirmedEntry"])
        own = [int(ledger["ledgerId"]) for ledger in internal_stats["ledgers"]]
        added, kept = int(internal_stats["entriesAddedCounter"]), int(internal_stats["numberOfEntries"])
        cursors = cursors_in_stats(internal_stats)
    except (KeyError, TypeError, ValueError):
        return False
    before_first = Position(own[0], -1) if len(own) == 1 else None
    at_start = all(cursor.mark_delete == last and not cursor.consumed for cursor in cursors.values())
    return last == before_first and added == 0 and kept == 0 and at_start
