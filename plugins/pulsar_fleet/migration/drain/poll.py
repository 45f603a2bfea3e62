"""Read the partitions of moved namespaces, from brokers' lists and individually; errors become states."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, FleetError, NotFound, Unavailable
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics.topic_statistics import TopicStats
from pulsar_fleet.links.partition_stats import stats_of
from pulsar_fleet.migration.stats.partition_state import Absence, PartitionState, read_loaded
from pulsar_fleet.migration.unread_brokers import brokers_to_ask

log = logging.getLogger(__name__)

MAX_PROBES = 5
"""Topics probed at a time: each takes a client's time-out."""
_PROBE_SECONDS = 8


@dataclass(frozen=True, slots=True)
class LoadedPartitions:
    """The partitions that the brokers of a cluster list as loaded.

    :param answered: brokers that answered, as `host:port`; `unreachable` those that did not; `unread` those that are
        accepted as unread, and were not asked.
    """

    states: Mapping[TopicName, PartitionState] = field(default_factory=dict)
    answered: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


async def list_loaded(
    admin: AdminClient,
    partitions: Mapping[NamespaceName, frozenset[TopicName]],
    at: float,
    accepted_as_unread: Collection[str],
) -> LoadedPartitions:
    """One call for each broker, whatever the number of topics; brokers renew their lists once a minute.

    :param accepted_as_unread: brokers that are not asked; partitions that they serve are in no list.
    """
    address = urlsplit(admin.http.admin_url).netloc
    try:
        brokers, unread = await brokers_to_ask(admin, accepted_as_unread)
    except Unavailable:
        return LoadedPartitions(unreachable=(address,))
    states: dict[TopicName, PartitionState] = {}
    answered, unreachable = [address], []
    # One broker at a time: a list may be tens of MB.
    for broker in brokers:
        try:
            states |= read_loaded(broker, await admin.loaded_topics(broker), partitions, at)
            answered.append(broker)
        except Unavailable:
            unreachable.append(broker)
    return LoadedPartitions(states, tuple(answered), tuple(unreachable), unread)


async def read_partitions(
    admin: AdminClient, topics: Collection[TopicName], at: float, *, together: bool
) -> dict[TopicName, PartitionState]:
    """One call for each topic, one more for each partition that does not answer with the others.

    :param together: see `stats_of`.
    """
    results = await stats_of(admin, topics, together=together)
    return {topic: _state(topic, result, at) for topic, result in results.items()}


def _state(topic: TopicName, result: TopicStats | FleetError, at: float) -> PartitionState:
    match result:
        case Conflict():
            absence = Absence.UNLOADED
        case NotFound():
            absence = Absence.GONE
        case Unavailable():
            absence = Absence.UNREACHABLE
        case FleetError():
            log.warning("%s: %s", topic, result)
            absence = Absence.UNLISTED
        case _:
            return PartitionState.of(result, at=at, close=True)
    return PartitionState(at=at, close=True, absence=absence)


async def probe_fenced(blue: ClusterConnection, topics: Collection[TopicName]) -> frozenset[TopicName]:
    """Those of the first few topics that a new producer cannot enter within 8 s; nothing is written."""
    probed = list(topics)[:MAX_PROBES]
    results = await asyncio.gather(*(asyncio.to_thread(_is_fenced, blue, topic) for topic in probed))
    return frozenset(topic for topic, fenced in zip(probed, results, strict=True) if fenced)


def _is_fenced(blue: ClusterConnection, topic: TopicName) -> bool:
    import pulsar

    client = open_client(blue, _PROBE_SECONDS)
    try:
        client.create_producer(str(topic)).close()
    except (pulsar.Timeout, pulsar.ServiceUnitNotReady):
        return True
    except pulsar.PulsarException:
        # Refused for another reason, such as its schema: the broker answered, so the topic is not fenced.
        return False
    finally:
        client.close()
    return False
