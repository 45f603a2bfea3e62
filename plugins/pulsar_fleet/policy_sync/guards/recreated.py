"""Whether a resource that lacks values was deleted and created again, by its oldest topic (client).

The admin API tells when a topic was created, but not a namespace or a tenant. A namespace is deleted with all its
topics, also `__change_events`, and a tenant after all its namespaces (measured, 4.2.4): so one topic that existed when
the values were last observed proves that nothing was created again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.clock_skew import ClockSkew
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.merge.identity import identity_at
from pulsar_fleet.policy_sync.merge.provenance import UNKNOWN, Span, span_of
from pulsar_fleet.policy_sync.merge.view import Identity, Item

log = logging.getLogger(__name__)

_MOST_TOPICS = 10
_MOST_NAMESPACES = 10


async def read_identity(admin: AdminClient, item: Item, at: float, clock: ClockSkew) -> Identity:
    """Whether a resource is the one that existed at a time; what cannot be read proves nothing.

    Calls: one for a topic, up to 11 for a namespace, up to 111 for a tenant; it stops at the first proof.

    :param at: in seconds since 1970 by our clock.
    """
    if at <= UNKNOWN:
        return Identity.UNKNOWN
    kind, name = item
    try:
        if kind in (Resource.TOPIC, Resource.TOPIC_POLICY):
            return await _topic(admin, TopicName.parse(name), at, clock)
        namespaces = (NamespaceName.parse(name),) if kind is Resource.NAMESPACE else await admin.namespaces(name)
        for namespace in namespaces[:_MOST_NAMESPACES]:
            if await _has_older_topic(admin, namespace, at, clock):
                return Identity.SAME
    except FleetError as error:
        log.info("whether %s %s was created again on %s is unknown: %s", kind, name, admin.connection.name, error)
    return Identity.UNKNOWN


async def _has_older_topic(admin: AdminClient, namespace: NamespaceName, at: float, clock: ClockSkew) -> bool:
    topics = await admin.topics(namespace, system=True)
    # The topic of the policies is the oldest one in most namespaces.
    persistent = sorted((topic for topic in topics if topic.persistent), key=lambda topic: (not topic.is_system, topic))
    for topic in persistent[:_MOST_TOPICS]:
        if await _topic(admin, topic, at, clock) is Identity.SAME:
            return True
    return False


async def _topic(admin: AdminClient, topic: TopicName, at: float, clock: ClockSkew) -> Identity:
    try:
        info = await admin.internal_info(topic, answered_retry_seconds=0)
    except FleetError:
        return Identity.UNKNOWN
    return identity_at(list(_created(info, clock)), at)


def _created(info: JsonObject, clock: ClockSkew) -> Iterable[Span]:
    """When the topic, or each partition, was created, by our clock."""
    for part in (info, *(info.get("partitions") or {}).values()):
        if text := part.get("creationDate"):
            created = datetime.fromisoformat(text)
            if created.tzinfo is not None:
                yield span_of(int(created.timestamp() * 1000), clock, 0.0)
