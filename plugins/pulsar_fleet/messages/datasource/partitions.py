"""From options to ranges: the matching topics and their current bounds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.messages.datasource.options import Bound, TopicOptions
from pulsar_fleet.messages.positions import TIME_MARGIN_MS, count_before
from pulsar_fleet.messages.ranges import EngineName, Range, TopicBounds, cut, group

TOPICS_AT_ONCE = 16


async def plan(connection: ClusterConnection, options: TopicOptions) -> list[list[Range]]:
    """The ranges of each task, up to the current ends. **Loads the topics.**

    :raises FleetError: `NotFound` for a topic that does not exist, or another error by the broker's answer.
    """
    async with AdminClient(connection) as admin:
        topics = await _topics(admin, options)
        slots = asyncio.Semaphore(TOPICS_AT_ONCE)

        async def bounded(topic: TopicName) -> TopicBounds:
            async with slots:
                return await _bounds(admin, topic, options)

        bounds = await asyncio.gather(*(bounded(topic) for topic in topics))
    engine = EngineName.ENTRY if options.by_entry else EngineName.MESSAGE
    size = options.entries_per_task
    ranges = [
        entry_range
        for number, topic_bounds in enumerate(bounds)
        for entry_range in cut(topic_bounds, pair=number, publish_time=True, entries_per_range=size, engine=engine)
    ]
    return group(ranges, entries_per_task=size)


async def _topics(admin: AdminClient, options: TopicOptions) -> Sequence[TopicName]:
    if options.namespace is None:
        metadata = await asyncio.gather(*(admin.partition_metadata(topic) for topic in options.topics))
        pairs = zip(options.topics, metadata, strict=True)
        return list(
            dict.fromkeys(part for topic, partitioned in pairs for part in topic.partitions(partitioned.partitions))
        )
    regex = re.compile(options.pattern)
    listed = [topic for topic in await admin.topics(options.namespace) if topic.persistent and not topic.is_system]
    matching = [topic for topic in listed if regex.fullmatch(topic.parent.local)]
    if not matching:
        raise NotFound(f"No topic of {options.namespace} matches {options.pattern!r}; it has {len(listed)} topics.")
    return matching


async def _bounds(admin: AdminClient, topic: TopicName, options: TopicOptions) -> TopicBounds:
    whole = TopicBounds.whole(str(topic), await admin.internal_stats(topic))
    begin = await _before(admin, topic, whole, options.start, -TIME_MARGIN_MS) if options.start is not None else 0
    if options.end is None:
        return replace(whole, begin=begin)
    end = await _before(admin, topic, whole, options.end, TIME_MARGIN_MS)
    # A message id as the end is included.
    end += isinstance(options.end, Position) and end < len(whole.ledgers) and whole.ledgers.at(end) == options.end
    return replace(whole, begin=min(begin, end), end=end)


async def _before(admin: AdminClient, topic: TopicName, whole: TopicBounds, bound: Bound, margin: int) -> int:
    """The number of entries before a bound."""
    if isinstance(bound, Position):
        return whole.ledgers.index_after(Position(bound.ledger, bound.entry - 1))
    return await count_before(admin, topic, whole.ledgers, bound + margin)
