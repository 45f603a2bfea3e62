"""From options to ranges: the matching topics and their current bounds."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.text import counted
from pulsar_fleet.messages.datasource.options import Bound, TopicOptions
from pulsar_fleet.messages.positions import TIME_MARGIN_MS, Ledgers, count_before
from pulsar_fleet.messages.ranges import EngineName, Range, TopicBounds, cut, group

log = logging.getLogger(__name__)

TOPICS_AT_ONCE = 16


async def plan(connection: ClusterConnection, options: TopicOptions) -> list[list[Range]]:
    """The ranges of each task, up to the current ends. **Loads the topics.**

    :raises FleetError: `NotFound` for a topic or partition that does not exist, `Conflict` for a message id that is not
        stored, or another error by the broker's answer.
    """
    async with AdminClient(connection) as admin:
        topics = await _topics(admin, options)
        slots = asyncio.Semaphore(TOPICS_AT_ONCE)

        async def bounded(topic: TopicName, partitions: int) -> TopicBounds:
            async with slots:
                return await _bounds(admin, topic, partitions, options)

        bounds = await asyncio.gather(*(bounded(topic, partitions) for topic, partitions in topics.items()))
    engine = EngineName.ENTRY if options.by_entry else EngineName.MESSAGE
    size = options.entries_per_task
    ranges = [
        entry_range
        for number, topic_bounds in enumerate(bounds)
        for entry_range in cut(topic_bounds, pair=number, publish_time=True, entries_per_range=size, engine=engine)
    ]
    return group(ranges, entries_per_task=size)


async def _topics(admin: AdminClient, options: TopicOptions) -> Mapping[TopicName, int]:
    """What is read, in order → the partitions of its partitioned topic; 0 for a topic that was named by itself."""
    asked, alone = options.topics, tuple[TopicName, ...]()
    if options.namespace is not None:
        regex = re.compile(options.pattern)
        listed = [topic for topic in await admin.topics(options.namespace) if topic.persistent and not topic.is_system]
        # A list of topics lacks partitions that do not exist, so they are asked for by their partitioned topic. A
        # partition whose topic does not exist, as old replicators leave it, is a topic of its own.
        partitioned = await admin.partitioned_topics(options.namespace)
        asked = tuple(topic for topic in partitioned if not topic.is_system and regex.fullmatch(topic.local))
        others = (topic for topic in listed if topic.parent not in partitioned)
        alone = tuple(topic for topic in others if regex.fullmatch(topic.parent.local))
        if not asked and not alone:
            raise NotFound(f"No topic of {options.namespace} matches {options.pattern!r}; it has {len(listed)} topics.")
    counts = [metadata.partitions for metadata in await asyncio.gather(*map(admin.partition_metadata, asked))]
    topics = dict(zip(asked, counts, strict=True)) | dict.fromkeys(alone, 0)
    return {part: count for topic, count in sorted(topics.items()) for part in topic.partitions(count)}


async def _bounds(admin: AdminClient, topic: TopicName, partitions: int, options: TopicOptions) -> TopicBounds:
    try:
        stats = await admin.internal_stats(topic)
    except NotFound as error:
        if not partitions:
            raise
        message = f"{topic} does not exist, but {topic.parent} has {counted(partitions, 'partition')}"
        if options.fail_on_data_loss:
            raise NotFound(
                f"{message}: create it (pulsar-admin topics create-missed-partitions {topic.parent}), or set "
                "fail_on_data_loss=false to read it as empty.",
                cluster=error.cluster,
                status=error.status,
            ) from error
        log.warning("%s: it is read as empty.", message)
        return TopicBounds(str(topic), Ledgers(()), 0, 0)
    whole = TopicBounds.whole(str(topic), stats)
    _check_stored(topic, whole.ledgers, stats, options)
    begin = await _before(admin, topic, whole, options.start, -TIME_MARGIN_MS) if options.start is not None else 0
    if options.end is None:
        return replace(whole, begin=begin)
    end = await _before(admin, topic, whole, options.end, TIME_MARGIN_MS)
    # A message id as the end is included.
    end += isinstance(options.end, Position) and end < len(whole.ledgers) and whole.ledgers.at(end) == options.end
    return replace(whole, begin=min(begin, end), end=end)


def _check_stored(topic: TopicName, ledgers: Ledgers, stats: JsonObject, options: TopicOptions) -> None:
    """Refuse message ids whose entry is not stored, or log them where `fail_on_data_loss` is off.

    The start may also be the place after the last entry of a ledger, or of one without entries: nothing is left out.
    """
    ends = {Position(ledger, entries) for ledger, entries in ledgers.runs}
    begins = {Position(ledger["ledgerId"], 0) for ledger in stats["ledgers"]}
    for name, position in (("start", options.start), ("end", options.end)):
        if not isinstance(position, Position) or (name == "start" and position in ends | begins):
            continue
        number = ledgers.index_after(Position(position.ledger, position.entry - 1))
        following = ledgers.at(number) if number < len(ledgers) else None
        if following == position:
            continue
        if not len(ledgers):
            stored = "it stores none"
        elif following is None:
            stored = f"the newest one is {ledgers.at(number - 1)}"
        else:
            stored = f"the {'next' if number else 'oldest'} one is {following}"
        message = f"{topic} stores no entry {position}, the option {name}; {stored}"
        if options.fail_on_data_loss:
            raise Conflict(
                f"{message}. It was removed, or never existed: set {name} to a stored one, or fail_on_data_loss=false "
                "to read what is stored."
            )
        log.warning("%s: only what is stored is read.", message)


async def _before(admin: AdminClient, topic: TopicName, whole: TopicBounds, bound: Bound, margin: int) -> int:
    """The number of entries before a bound."""
    if isinstance(bound, Position):
        return whole.ledgers.index_after(Position(bound.ledger, bound.entry - 1))
    return await count_before(admin, topic, whole.ledgers, bound + margin)
