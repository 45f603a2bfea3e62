"""Read the partitions of moved namespaces, from brokers' lists and individually; errors become states."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, FleetError, NotFound, Unavailable
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics import TopicStats
from pulsar_fleet.links.partition_stats import stats_of
from pulsar_fleet.messages.protocol import frames as wire
from pulsar_fleet.messages.protocol import pulsar_api_pb2 as api
from pulsar_fleet.messages.protocol.connection import WireConnection
from pulsar_fleet.messages.protocol.lookup import Brokers
from pulsar_fleet.migration.drain.state import Entrance
from pulsar_fleet.migration.facts import Absence, PartitionState, read_loaded
from pulsar_fleet.migration.unread_brokers import brokers_to_ask

log = logging.getLogger(__name__)

MAX_PROBES = 5
"""Topics probed at a time: a fenced one takes a thread for 8 s."""
_PROBE_SECONDS = 8.0
_AGAIN_SECONDS = 1.0


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


async def probe_producers(
    blue: ClusterConnection, topics: Collection[TopicName], seconds: float = _PROBE_SECONDS
) -> dict[TopicName, Entrance]:
    """Whether the first few topics let a new producer in; nothing is written.

    :param seconds: how long a topic must refuse it: one that is moved to another broker is fenced for a moment.
    """
    probed = list(topics)[:MAX_PROBES]
    entrances = await asyncio.gather(*(asyncio.to_thread(_probe, blue, topic, seconds) for topic in probed))
    return dict(zip(probed, entrances, strict=True))


def _probe(blue: ClusterConnection, topic: TopicName, seconds: float) -> Entrance:
    """Ask the broker that serves the topic, whose answer is exact.

    The client library has one time-out for a fenced topic, for refused credentials, and for a broker of this cluster
    or of the one that it redirects to that does not answer.
    """
    brokers, end = Brokers(blue, timeout_seconds=_PROBE_SECONDS), time.monotonic() + seconds
    try:
        while (entrance := _enter(brokers.serving(str(topic)), topic)) is Entrance.FENCED and time.monotonic() < end:
            time.sleep(_AGAIN_SECONDS)
    except FleetError as error:
        log.warning("%s: whether it is fenced is not known: %s", topic, error)
        return Entrance.UNKNOWN
    finally:
        brokers.close()
    return entrance


def _enter(broker: WireConnection, topic: TopicName) -> Entrance:
    """The broker checks for a fence before anything else of the topic but its schema; it closes the producer with the
    connection.
    """
    broker.send(wire.create_producer(broker.next_id(), broker.next_id(), str(topic)))
    frame = broker.next_frame(_PROBE_SECONDS)
    answer = broker.command(frame) if frame else api.BaseCommand()
    code, reason = answer.error.error, answer.error.message
    if answer.type in (api.PRODUCER_SUCCESS, api.TOPIC_MIGRATED) or code == api.TOPIC_TERMINATED:
        return Entrance.OPEN
    # The broker has the same code for a topic that it does not serve.
    if code == api.SERVICE_NOT_READY and b"TopicFenced" in reason:
        return Entrance.FENCED
    log.warning("%s: whether it is fenced is not known: %s", topic, reason.decode(errors="replace") or "no answer")
    return Entrance.UNKNOWN
