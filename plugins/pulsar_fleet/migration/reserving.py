"""Keep on green what an idle subscription will need: without it, green removes what nobody there has left to read."""

from __future__ import annotations

import asyncio

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.migration.standing import standings
from pulsar_fleet.reading.source_positions import Ledgers
from pulsar_fleet.reading.unread import EntryNumbers


async def reserve(blue: AdminClient, green: AdminClient, topic: TopicName) -> tuple[str, ...]:
    """Create on green, at the earliest position, the idle subscriptions with a backlog that it lacks; their names.

    Call it before the first entry is replicated; the switch moves them to their places. Again creates nothing.
    """
    stats, held, there = await asyncio.gather(
        blue.stats(topic, precise=False), blue.internal_stats(topic), green.stats(topic, precise=False)
    )
    numbers = EntryNumbers(Ledgers.of(held))
    created = []
    for name, one in standings(numbers, stats, held).items():
        if one.consumers == 0 and one.unread(len(numbers)) and name not in there["subscriptions"]:
            await green.create_subscription(topic, name)
            created.append(name)
    return tuple(created)
