"""Make a forecast: the topics of the selected namespaces, each read on both clusters and counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, NotFound, PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.messages.cursor_setting import CursorPosition
from pulsar_fleet.messages.positions import Intervals
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor
from pulsar_fleet.replication.failover.forecast import (
    CountedEntries,
    Forecast,
    Lost,
    SubscriptionForecast,
    TopicForecast,
)
from pulsar_fleet.replication.failover.read import Cluster, TooMany, TopicReader, read_topic
from pulsar_fleet.replication.failover.topic_copy import ClusterTopic, ListedEntry, Place, TopicCopy
from pulsar_fleet.replication.replicated_namespaces import Sent, read_lists
from pulsar_fleet.snapshot.resources import read_migrated_to, read_partition_counts


def forecast_topic(topic: str, on_from: ClusterTopic, on_to: ClusterTopic, copy: TopicCopy) -> TopicForecast:
    """The forecast of one topic, for every durable subscription on `from`."""
    counter = Counter(on_from, on_to, copy)
    links = on_from.stats.links if on_from.stats else {}
    sent_to = sorted(name for name, link in links.items() if link.outbound)
    return TopicForecast(
        topic=topic,
        entries_from=on_from.ledgers,
        entries_to=on_to.ledgers,
        load=on_to.load,
        unreplicated=None if on_from.replicated is None else len(on_from.ledgers) - on_from.replicated,
        sent_to=tuple(sent_to),
        silent=tuple(name for name in sent_to if not links[name].inbound),
        exists_on_to=on_to.exists,
        subscriptions=tuple(counter.forecast(name) for name in sorted(on_from.cursors)),
    )


def unknown_topic(topic: str, on_to: ClusterTopic, reason: str) -> TopicForecast:
    """What is known of a topic where only `to` can be read: which subscriptions it has."""
    subscriptions = (
        replace(_facts(name, None, cursor), delivered_on_to=on_to.delivered(name), unknown=reason)
        for name, cursor in sorted(on_to.cursors.items())
    )
    return TopicForecast(topic=topic, entries_to=on_to.ledgers, load=on_to.load, subscriptions=tuple(subscriptions))


class Counter:
    """Counts for the subscriptions of one topic."""

    def __init__(self, on_from: ClusterTopic, on_to: ClusterTopic, copy: TopicCopy) -> None:
        self._from, self._to, self._copy = on_from, on_to, copy
        self._shared = copy.first_shared()
        self._last_of_third = copy.last_of_third()

    def position(self, name: str) -> CursorPosition:
        """Where a subscription is on `to` if it delivers there exactly what it has not acknowledged on `from`, and what
        `from` does not have yet."""
        end = len(self._to.ledgers)
        _, first = self._delivered(self._from.cursors[name].unread, Intervals.of([(0, end)]))
        unread = Intervals.of((number, number + 1) for number, _ in first)
        begin = end if unread.first is None else unread.first
        return CursorPosition(begin, Intervals.of([(begin, end)]).minus(unread))

    def forecast(self, name: str) -> SubscriptionForecast:
        """What it gets on `to` as its cursor is there now, and what it loses."""
        here, there = self._from.cursors[name], self._to.cursors.get(name)
        unread = there.unread if there else Intervals()
        redelivered, first = self._delivered(here.unread, unread)
        forecast = replace(
            _facts(name, here, there),
            redelivered=CountedEntries.of(redelivered),
            first=CountedEntries.of(first),
            lost=self._lost(here.unread, None if there is None else unread),
            delivered=self._from.delivered(name),
            delivered_on_to=self._to.delivered(name),
        )
        if there is not None or not self._to.exists:
            return forecast
        begin = self._create_at(here.unread)
        redelivered, _ = self._delivered(here.unread, Intervals.of([(begin, len(self._to.ledgers))]))
        return replace(forecast, create_at=begin, redelivered_if_created=CountedEntries.of(redelivered).messages)

    def _delivered(
        self, unread_here: Intervals, unread_there: Intervals
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """What `to` will deliver: what was acknowledged on `from`, and what was not, as (entry number, messages)."""
        redelivered: list[tuple[int, int]] = []
        first: list[tuple[int, int]] = []
        for entry, partner in self._copy.unread(Place.TO, unread_there):
            repeated = self._was_removed(entry) if partner is None else partner not in unread_here
            (redelivered if repeated else first).append((entry.number, entry.messages))
        return redelivered, first

    def _was_removed(self, entry: ListedEntry) -> bool:
        """Whether `from` had this entry of `to` and removed it, as it does when all subscriptions acknowledged it.

        It removes the oldest first. Otherwise it does not have the entry yet, or the entry is not replicated.
        """
        if entry.origin in self._shared:
            return entry.number < self._shared[entry.origin]
        return bool(entry.origin) or entry.number < (self._to.replicated or 0)

    def _lost(self, unread_here: Intervals, unread_there: Intervals | None) -> Lost:
        skipped: list[tuple[int, int]] = []
        unreplicated: list[tuple[int, int]] = []
        absent = 0
        # What came to `from` after its cursors were read may have come to `to` too.
        settled = self._from.settled
        for entry, partner in self._copy.unread(Place.FROM, unread_here):
            if entry.number not in settled:
                break
            if partner is not None:
                if unread_there is None or partner not in unread_there:
                    skipped.append((partner, entry.messages))
            elif self._may_come(entry):
                unreplicated.append((entry.number, entry.messages))
            else:
                absent += entry.messages
        never = CountedEntries.of(skipped)
        return Lost(
            skipped=CountedEntries() if unread_there is None else never,
            uncreated=never if unread_there is None else CountedEntries(),
            unreplicated=CountedEntries.of(unreplicated),
            absent=absent,
        )

    def _may_come(self, entry: ListedEntry) -> bool:
        """Whether `to` will still get this entry of `from`: from there, or from the third cluster that wrote it."""
        if entry.origin:
            return entry.number > self._last_of_third.get(entry.origin, entry.number)
        return entry.number >= (self._from.replicated or 0)

    def _create_at(self, unread_here: Intervals) -> int:
        """The first entry of `to` that is unread on `from`, or that `from` does not have yet."""
        partners = self._copy.partners[Place.TO]
        for entry in self._copy.entries[Place.TO]:
            partner = partners.get(entry.number)
            if partner in unread_here if partner is not None else not self._was_removed(entry):
                return entry.number
        return len(self._to.ledgers)


def _facts(name: str, here: SubscriptionCursor | None, there: SubscriptionCursor | None) -> SubscriptionForecast:
    return SubscriptionForecast(
        subscription=name,
        replicated=here.replicated if here else None,
        replicated_on_to=there.replicated if there else None,
        mark_delete=str(here.cursor.mark_delete) if here else None,
        mark_delete_on_to=str(there.cursor.mark_delete) if there else None,
        properties=dict(here.properties) if here else {},
        consumers=here.consumers if here else 0,
        consumers_on_to=there.consumers if there else 0,
    )


TOPICS_AT_ONCE = 8


async def forecast_with_both(origin: ClusterConnection, target: ClusterConnection, selection: Selection) -> Forecast:
    """The forecast where both clusters answer; a topic that cannot be read is unknown, with the reason.

    :raises PreconditionFailed: a migration ended all selected namespaces on one of them.
    """
    async with both_clusters(origin, target) as (here, there, reader):
        selected, unread = await _selected(here.admin, selection, there.name)
        sent, migrated = await _without_migrated((here.admin, there.admin), selected)
        partitions = await persistent_partitions(here.admin, sent)
        slots = asyncio.Semaphore(TOPICS_AT_ONCE)

        async def forecast(topic: TopicName) -> TopicForecast:
            async with slots:
                return await _forecast(reader, topic)

        topics = await asyncio.gather(*map(forecast, partitions))
        return _forecast_of(here.name, there.name, selection, topics, unread=(*unread, *migrated))


async def forecast_target_alone(origin: str, target: ClusterConnection, selection: Selection, reason: str) -> Forecast:
    """What `target` alone can say: which subscriptions it has. What is redelivered is unknown.

    :param origin: how the cluster that does not answer is called; `reason`: its error.
    """
    async with AdminClient(target) as admin:
        namespaces = await _namespaces(admin, selection)
        partitions = await persistent_partitions(admin, dict.fromkeys(namespaces, ()))
        topics = []
        for topic in partitions:
            try:
                topics.append(unknown_topic(str(topic), await read_topic(admin, topic, origin), _UNREADABLE))
            except FleetError as error:
                topics.append(TopicForecast(topic=str(topic), unknown=str(error)))
        return _forecast_of(origin, await admin.cluster_name(), selection, topics, reason)


_BY_NAME = "Name the namespace itself: then all its topics are counted"
_NO_FAILOVER = (
    "Its applications move by that migration, and not by a failover: finish it, or take the namespace out of the "
    "selection."
)
_UNREADABLE = "the cluster that the application leaves does not answer"


@asynccontextmanager
async def both_clusters(
    origin: ClusterConnection, target: ClusterConnection
) -> AsyncIterator[tuple[Cluster, Cluster, TopicReader]]:
    """Both clusters and a reader of their topics, open while the block runs."""
    # Imports protobuf and numpy, which the rest of the command line does not need.
    from pulsar_fleet.messages.engines.engines import Engines

    async with AdminClient(origin) as origin_admin, AdminClient(target) as target_admin:
        with Engines(origin) as origin_engine, Engines(target) as target_engine:
            here = Cluster(await origin_admin.cluster_name(), origin_admin, origin_engine)
            there = Cluster(await target_admin.cluster_name(), target_admin, target_engine)
            yield here, there, TopicReader({Place.FROM: here, Place.TO: there})


async def _forecast(reader: TopicReader, topic: TopicName) -> TopicForecast:
    try:
        on_from, on_to = await reader.topics(topic)
        copy = await reader.copy(topic, on_from, on_to)
    except (FleetError, TooMany) as error:
        return TopicForecast(topic=str(topic), unknown=str(error))
    return forecast_topic(str(topic), on_from, on_to, copy)


async def _selected(admin: AdminClient, selection: Selection, target: str) -> tuple[Sent, tuple[str, ...]]:
    """The named namespaces with all topics, of the others what is sent to `target`; and what is unknown, as texts."""
    names = await _namespaces(admin, selection)
    others = [name for name in names if name not in selection.namespaces]
    lists = await read_lists(admin, others, [target])
    named = {name: tuple[TopicName, ...]() for name in names if name in selection.namespaces}
    unknown = (f"{text.rstrip('.')}. {_BY_NAME}" for text in lists.unknown(target))
    return {**lists.sent_to(target), **named}, tuple(unknown)


async def _without_migrated(clusters: Sequence[AdminClient], sent: Sent) -> tuple[Sent, tuple[str, ...]]:
    """Without the namespaces that a migration ended: their topics do not load. And what is unknown, as texts."""
    migrated: dict[NamespaceName, str] = {}
    for admin in clusters:
        for name in sent.keys() - migrated.keys():
            if text := await read_migrated_to(admin, name, await admin.namespace(name) or {}):
                migrated[name] = f"{text}. {_NO_FAILOVER}"
    if migrated and len(migrated) == len(sent):
        raise PreconditionFailed(f"{next(iter(migrated.values()))} Nothing has been changed.")
    return {name: topics for name, topics in sent.items() if name not in migrated}, tuple(migrated.values())


async def _namespaces(admin: AdminClient, selection: Selection) -> list[NamespaceName]:
    """The selected namespaces; `NotFound` for an absent name."""
    named = selection.named_tenants
    tenants = await admin.tenants() if named is None else sorted(named)
    documents = await asyncio.gather(*map(admin.tenant, tenants)) if named is not None else tenants
    existing = [tenant for tenant, document in zip(tenants, documents, strict=True) if document is not None]
    present = [name for names in await asyncio.gather(*map(admin.namespaces, existing)) for name in names]
    if absent := selection.absent(existing, present):
        raise NotFound(f"{admin.connection.name} has no {listed(absent)}: correct the selection.")
    return [name for name in present if selection.has(name)]


async def persistent_partitions(admin: AdminClient, sent: Sent) -> list[TopicName]:
    """The persistent topics, plain ones and partitions that exist."""
    groups = await asyncio.gather(*(_partitions_of(admin, name, topics) for name, topics in sent.items()))
    return [partition for group in groups for partition in group]


async def _partitions_of(
    admin: AdminClient, namespace: NamespaceName, topics: Collection[TopicName]
) -> list[TopicName]:
    existing = set(await admin.topics(namespace))
    counts = await read_partition_counts(admin, namespace)
    partitions = (
        partition
        for topic, count in sorted(counts.items())
        if not topics or topic in topics
        for partition in topic.partitions(count)
    )
    return [partition for partition in partitions if partition.persistent and partition in existing]


def _forecast_of(
    origin: str,
    target: str,
    selection: Selection,
    topics: Sequence[TopicForecast],
    unreachable: str = "",
    unread: tuple[str, ...] = (),
) -> Forecast:
    return Forecast(
        origin=origin,
        target=target,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        selection=selection.texts(),
        topics=tuple(topics),
        origin_unreachable=unreachable,
        unread=unread,
    )
