"""How many messages came after an entry: those that subscriptions with consumers get from both sides."""

from __future__ import annotations

import asyncio

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.position import Position
from pulsar_fleet.reading.source_positions import Ledgers

_BATCH = "x-pulsar-num-batch-message"


async def messages_after(admin: AdminClient, topic: TopicName, end: Position | None) -> int:
    """Messages behind `end` of a partition that stands still, one call for each entry; all of them with None."""
    numbers = Ledgers.of(await admin.internal_stats(topic))
    begin = numbers.behind(end) if end else 0
    counts = await asyncio.gather(*(_messages(admin, topic, numbers.at(one)) for one in range(begin, len(numbers))))
    return sum(counts)


async def _messages(admin: AdminClient, topic: TopicName, entry: Position) -> int:
    return int((await admin.entry_properties(topic, entry)).get(_BATCH, 1))
