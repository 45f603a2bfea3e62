"""From options to ranges: which topics there are, and where their bounds lie now."""

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
    """The ranges of each task, with the ends as they are now; loads the topics.

    :raises FleetError: `NotFound` for a topic that is not there, and what else the broker says.
    """
    async with AdminClient(connection) as admin:
        topics = await _topics(admin, options)
        room = asyncio.Semaphore(TOPICS_AT_ONCE)

        async def bounded(topic: TopicName) -> TopicBounds:
            async with room:
                return await _bounds(admin, topic, options)

        bounds = await asyncio.gather(*(bounded(topic) for topic in topics))
    engine = EngineName.ENTRY if options.by_entry else EngineName.CLIENT
    size = options.entries_per_task
    ranges = [
        each
        for number, found in enumerate(bounds)
        for each in cut(found, pair=number, publish_time=True, entries_per_range=size, engine=engine)
    ]
    return group(ranges, entries_per_task=size)


async def _topics(admin: AdminClient, options: TopicOptions) -> Sequence[TopicName]:
    if options.within is None:
        found = await asyncio.gather(*(admin.partition_metadata(topic) for topic in options.topics))
        pairs = zip(options.topics, found, strict=True)
        return list(dict.fromkeys(part for topic, each in pairs for part in topic.partitions(each.partitions)))
    wanted = re.compile(options.pattern)
    listed = [topic for topic in await admin.topics(options.within) if topic.persistent and not topic.is_system]
    chosen = [topic for topic in listed if wanted.fullmatch(topic.parent.local)]
    if not chosen:
        raise NotFound(f"No topic of {options.within} matches {options.pattern!r}; it has {len(listed)} topics.")
    return chosen


async def _bounds(admin: AdminClient, topic: TopicName, options: TopicOptions) -> TopicBounds:
    whole = TopicBounds.whole(str(topic), await admin.internal_stats(topic))
    begin = await _before(admin, topic, whole, options.start, -TIME_MARGIN_MS) if options.start is not None else 0
    if options.end is None:
        return replace(whole, begin=begin)
    end = await _before(admin, topic, whole, options.end, TIME_MARGIN_MS)
    # A message id as the end is the last that is read.
    end += isinstance(options.end, Position) and end < len(whole.ledgers) and whole.ledgers.at(end) == options.end
    return replace(whole, begin=min(begin, end), end=end)


async def _before(admin: AdminClient, topic: TopicName, whole: TopicBounds, bound: Bound, margin: int) -> int:
    """How many entries lie before it."""
    if isinstance(bound, Position):
        return whole.ledgers.behind(Position(bound.ledger, bound.entry - 1))
    return await count_before(admin, topic, whole.ledgers, bound + margin)
