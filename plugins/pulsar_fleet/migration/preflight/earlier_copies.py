"""Read what subscriptions have not read on blue, and green lacks: its copy began later, or it has removed its begin."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.admin.read_problems import Note, Problem
from pulsar_fleet.cluster.errors import FleetError, NotFound
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics.topic_statistics import TopicStats
from pulsar_fleet.messages.copies import Copies
from pulsar_fleet.messages.intervals import Intervals
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.ranges import EARLIEST
from pulsar_fleet.messages.subscription_cursors import replicated_up_to, subscription_cursors
from pulsar_fleet.verification.bounds.copy_search import oldest_copy

_LOOKED_AT = 64
"""Entries that may have come from other clusters, or be markers: the replicator to green sends neither."""


async def read_uncopied(
    blue: AdminClient, green: AdminClient, linked: Sequence[TopicStats]
) -> tuple[dict[TopicName, dict[str, int]], tuple[Note, ...]]:
    """Partition → subscription → unread entries that green lacks, and a note for each that could not be read.

    Calls: two for each partition with a backlog, one or more for the first of green's entries, and up to 64 of blue's.

    :param linked: the partitions that blue replicated to green before the run.
    """
    attempts, lacking = PartialReads(), dict[TopicName, dict[str, int]]()
    waiting = [stats for stats in linked if any(one.backlog for one in stats.subscriptions.values())]
    for stats, found in zip(
        waiting, await asyncio.gather(*(_attempt(blue, green, stats) for stats in waiting)), strict=True
    ):
        if isinstance(found, FleetError):
            attempts.note(str(stats.topic), Problem.UNREADABLE, str(found))
        elif found:
            lacking[stats.topic] = dict(found)
    return lacking, tuple(attempts.take_notes())


async def _attempt(blue: AdminClient, green: AdminClient, stats: TopicStats) -> Mapping[str, int] | FleetError:
    try:
        return await _uncopied(blue, green, stats)
    except FleetError as error:
        return error


async def _uncopied(blue: AdminClient, green: AdminClient, stats: TopicStats) -> Mapping[str, int]:
    names = await blue.cluster_name(), await green.cluster_name()
    internal = await blue.internal_stats(stats.topic)
    entries = Ledgers.of(internal)
    cursors = subscription_cursors(entries, stats, internal)
    begin = await _begin(blue, green, stats.topic, entries, names)
    confirmed = replicated_up_to(entries, internal, names[1])
    # What the replicator has not sent yet will come, unless it has no cursor: then it begins with the next message.
    begin = min(begin, len(entries) if confirmed is None else confirmed)
    before = Intervals.of([(0, begin)])
    lacking = {name: cursor.unread.minus(cursor.unread.minus(before)) for name, cursor in cursors.items()}
    found = {name: len(unread) for name, unread in lacking.items() if unread}
    if not found:
        return {}
    copies = Copies(blue, blue, stats.topic, entries, entries)
    looked_at = sorted({number for unread in lacking.values() for number in unread.head(_LOOKED_AT)})[:_LOOKED_AT]
    originals = await asyncio.gather(*(copies.is_original(number) for number in looked_at))
    return found if any(originals) or max(found.values()) > len(looked_at) else {}


async def _begin(
    blue: AdminClient, green: AdminClient, topic: TopicName, entries: Ledgers, names: tuple[str, str]
) -> int:
    """The number of blue's first entries that are older than the oldest copy on green; all of them without a copy."""
    try:
        target = Ledgers.of(await green.internal_stats(topic))
    except NotFound:
        return len(entries)
    copies = Copies(blue, green, topic, entries, target, only_from=names[0])
    _, oldest = await oldest_copy(copies, names, EARLIEST, len(target))
    return len(entries) if oldest is None else max(entries.index_after(oldest) - 1, 0)
