"""Read the subscriptions of a shadow topic and of its source, in the source's entry numbers; nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.statistics.topic_statistics import TopicStats
from pulsar_fleet.messages.intervals import Intervals
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.subscription_cursors import SubscriptionCursor, subscription_cursors
from pulsar_fleet.read_only.forwarding.plan import listed_entries
from pulsar_fleet.read_only.forwarding.topics import Link


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCursors:
    """The subscriptions of one link, by name.

    :param ledgers: of the source.
    :param listed: entries of the source that the shadow topic lists.
    """

    ledgers: Ledgers
    listed: Intervals
    shadow: Mapping[str, SubscriptionCursor]
    owner: Mapping[str, SubscriptionCursor]


async def read_link(admin: AdminClient, link: Link) -> LinkCursors:
    """Read both sides: four calls, which load the topics.

    The shadow topic is read first: what its subscriptions have acknowledged is in the source's list of ledgers then.
    Its cursors are read before their properties: a subscription that was recreated between the two calls lacks the
    property, so its new position is never read as that of the old one.
    """
    shadow_internal = await admin.internal_stats(link.shadow)
    shadow_stats = TopicStats.of(link.shadow, await admin.stats(link.shadow, precise=False))
    internal, stats = await asyncio.gather(admin.internal_stats(link.source), admin.stats(link.source, precise=False))
    ledgers = Ledgers.of(internal)
    return LinkCursors(
        ledgers=ledgers,
        listed=listed_entries(ledgers, Ledgers.of(shadow_internal)),
        shadow=subscription_cursors(ledgers, shadow_stats, shadow_internal),
        owner=subscription_cursors(ledgers, TopicStats.of(link.source, stats), internal),
    )


async def read_owner(admin: AdminClient, link: Link, name: str, ledgers: Ledgers) -> SubscriptionCursor | None:
    """One subscription of the source again, in the entry numbers of an earlier read: two calls."""
    internal, stats = await asyncio.gather(admin.internal_stats(link.source), admin.stats(link.source, precise=False))
    return subscription_cursors(ledgers, TopicStats.of(link.source, stats), internal).get(name)
