"""Ask both sides how the partitions of moved namespaces are, by brokers' lists and one by one; errors become facts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.errors import Conflict, FleetError, Missing, Transient
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.migration.observation import Absence, PartitionState, read_loaded

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
    except Transient:
        return Listed(silent=(entry,))
    states: dict[TopicName, PartitionState] = {}
    answered, silent = [entry], []
    # One after the other: a list may be tens of MB.
    for broker in brokers:
        try:
            states |= read_loaded(broker, await admin.loaded_topics(broker), wanted, at)
            answered.append(broker)
        except Transient:
            silent.append(broker)
    return Listed(states, tuple(answered), tuple(silent))


async def ask(admin: AdminClient, topics: Collection[TopicName], at: float) -> dict[TopicName, PartitionState]:
    """Ask each partition by itself: one call each."""
    found = await asyncio.gather(*(_ask(admin, topic, at) for topic in topics))
    return dict(zip(topics, found, strict=True))


async def _ask(admin: AdminClient, topic: TopicName, at: float) -> PartitionState:
    try:
        return PartitionState.of(topic, await admin.stats(topic), at=at, close=True)
    except Conflict:
        absence = Absence.UNLOADED
    except Missing:
        absence = Absence.GONE
    except Transient:
        absence = Absence.SILENT
    except FleetError as error:
        log.warning("%s: %s", topic, error)
        absence = Absence.UNSEEN
    return PartitionState(at=at, close=True, absence=absence)
