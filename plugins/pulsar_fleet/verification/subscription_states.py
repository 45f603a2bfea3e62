"""The subscriptions of one topic on one cluster, from what its broker says; no subscription is made or moved."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.position import Position
from pulsar_fleet.cluster.resources import by_name
from pulsar_fleet.reading.source_positions import Ledgers
from pulsar_fleet.reading.unread import Intervals, unread_entries
from pulsar_fleet.verification.subscription_verdict import UNKNOWN_TYPE, SubscriptionState

_OF_THE_BROKER = frozenset({"__compaction"})


async def read_subscriptions(
    admin: AdminClient, topic: TopicName, numbers: Ledgers, *, end: int
) -> dict[str, SubscriptionState]:
    """Every durable subscription of applications, by name; cursors of replication, compaction and readers are none.

    :param end: entries from this number on are left out, since they came after the bounds were frozen.
    :raises FleetError: the broker does not answer, or in a form that we do not know. **Loads the topic.**
    """
    stats, unread = await asyncio.gather(admin.stats(topic, precise=False), read_unread(admin, topic, numbers, end=end))
    return {
        name: _state(found, unread[name])
        for name, found in stats["subscriptions"].items()
        if found["isDurable"] and name not in _OF_THE_BROKER and name in unread
    }


async def read_unread(admin: AdminClient, topic: TopicName, numbers: Ledgers, *, end: int) -> Mapping[str, Intervals]:
    """The unread entries of every cursor, by the subscription's name; the broker's own cursors are among them."""
    cursors = by_name((await admin.internal_stats(topic))["cursors"])
    return {name: _unread(cursor, numbers, end) for name, cursor in cursors.items()}


def _unread(cursor: JsonObject, numbers: Ledgers, end: int) -> Intervals:
    mark_delete = Position.parse(cursor["markDeletePosition"])
    return unread_entries(numbers, mark_delete, cursor["individuallyDeletedMessages"], end=end)


def _state(found: JsonObject, unread: Intervals) -> SubscriptionState:
    return SubscriptionState(
        unread=unread,
        type=str(found.get("type") or UNKNOWN_TYPE),
        replicated=bool(found.get("isReplicated")),
        properties=dict(found.get("subscriptionProperties") or {}),
    )
