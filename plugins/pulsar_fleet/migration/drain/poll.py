"""Ask both sides how the partitions of moved namespaces are, by brokers' lists and one by one; errors become facts."""

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
from pulsar_fleet.cluster.topic_statistics import TopicStats
from pulsar_fleet.migration.stats.partition_state import Absence, PartitionState, read_loaded
from pulsar_fleet.migration.stats.read import stats_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listed:
    """What the brokers of a cluster list as loaded.

    :param answered: brokers that did, as `host:port`; `silent` those that did not.
    """

    states: Mapping[TopicName, PartitionState] = field(default_factory=dict)
    answered: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()


async def list_loaded(admin: AdminClient, wanted: Mapping[NamespaceName, frozenset[TopicName]], at: float) -> Listed:
    """One call per broker, whatever the number of topics; the brokers renew their lists once a minute."""
    entry = urlsplit(admin.connection.admin_url).netloc
    try:
        brokers = await admin.brokers()
    except Unavailable:
        return Listed(silent=(entry,))
    states: dict[TopicName, PartitionState] = {}
    answered, silent = [entry], []
    # One after the other: a list may be tens of MB.
    for broker in brokers:
        try:
            states |= read_loaded(broker, await admin.loaded_topics(broker), wanted, at)
            answered.append(broker)
        except Unavailable:
            silent.append(broker)
    return Listed(states, tuple(answered), tuple(silent))


async def ask(
    admin: AdminClient, topics: Collection[TopicName], at: float, *, together: bool
) -> dict[TopicName, PartitionState]:
    """Ask each partition: a call for each topic, one more for each partition that does not answer with the others.

    :param together: see `stats_of`.
    """
    found = await stats_of(admin, topics, together=together)
    return {topic: _state(topic, stats, at) for topic, stats in found.items()}


def _state(topic: TopicName, found: TopicStats | FleetError, at: float) -> PartitionState:
    match found:
        case Conflict():
            absence = Absence.UNLOADED
        case NotFound():
            absence = Absence.GONE
        case Unavailable():
            absence = Absence.SILENT
        case FleetError():
            log.warning("%s: %s", topic, found)
            absence = Absence.UNSEEN
        case _:
            return PartitionState.of(found, at=at, close=True)
    return PartitionState(at=at, close=True, absence=absence)


PROBED = 5
"""Topics probed at a time: each takes a client's time-out."""
_SECONDS = 8


async def closed_topics(blue: ClusterConnection, topics: Collection[TopicName]) -> frozenset[TopicName]:
    """Those of the first few topics into which a producer does not come within 8 s; nothing is written."""
    asked = list(topics)[:PROBED]
    found = await asyncio.gather(*(asyncio.to_thread(_is_closed, blue, topic) for topic in asked))
    return frozenset(topic for topic, closed in zip(asked, found, strict=True) if closed)


def _is_closed(blue: ClusterConnection, topic: TopicName) -> bool:
    import pulsar

    client = open_client(blue, _SECONDS)
    try:
        client.create_producer(str(topic)).close()
    except (pulsar.Timeout, pulsar.ServiceUnitNotReady):
        return True
    except pulsar.PulsarException:
        # Refused for another reason, such as its schema: somebody answered, so the topic is not fenced.
        return False
    finally:
        client.close()
    return False
