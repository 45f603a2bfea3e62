"""Make a forecast: the topics of the selected namespaces, each read on both clusters and counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.cluster.text import listed
from pulsar_fleet.replication.failover.count import forecast_topic, unknown_topic
from pulsar_fleet.replication.failover.forecast import Forecast, TopicForecast
from pulsar_fleet.replication.failover.read import Cluster, TooMany, TopicReader, read_topic
from pulsar_fleet.replication.failover.topic_copy import Place
from pulsar_fleet.replication.replicated_namespaces import Sent, read_lists
from pulsar_fleet.snapshot.resources import read_migrated_to, read_partition_counts

TOPICS_AT_ONCE = 8
_PROBE_SECONDS = 5.0


async def cluster_names(origin: ClusterConnection, target: ClusterConnection) -> tuple[str, str]:
    """The names of both clusters: one call for each.

    The cluster that applications leave may not answer; then its name is that of its connection.

    :raises Unavailable: `target` does not answer.
    """
    async with AdminClient(origin, retry_seconds=_PROBE_SECONDS) as here, AdminClient(target) as there:
        second = await there.cluster_name()
        try:
            return await here.cluster_name(), second
        except Unavailable:
            return origin.cluster_name or origin.name, second


async def forecast_with_both(origin: ClusterConnection, target: ClusterConnection, selection: Selection) -> Forecast:
    """The forecast where both clusters answer; a topic that cannot be read is unknown, with the reason.

    :raises PreconditionFailed: a migration ended all selected namespaces on one of them.
    """
    async with both_clusters(origin, target) as (here, there, reader):
        selected, unread = await _selected(here.admin, selection, there.name)
        sent, migrated = await _without_migrated((here.admin, there.admin), selected)
        partitions = await _partitions(here.admin, sent)
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
        partitions = await _partitions(admin, dict.fromkeys(namespaces, ()))
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


async def _partitions(admin: AdminClient, sent: Sent) -> list[TopicName]:
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
