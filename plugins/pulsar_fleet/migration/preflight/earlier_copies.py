"""Read what green lacks of what blue replicates to it already: its copy began later, or it has removed its begin."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.admin.read_problems import Note
from pulsar_fleet.cluster.errors import NotFound, PreconditionFailed
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics.topic_statistics import TopicStats
from pulsar_fleet.messages.copies import Copies
from pulsar_fleet.messages.intervals import Intervals
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.ranges import EARLIEST
from pulsar_fleet.messages.subscription_cursors import replicated_up_to, subscription_cursors
from pulsar_fleet.migration.stats.facts import Uncopied
from pulsar_fleet.verification.bounds.continuation import Unprovable
from pulsar_fleet.verification.bounds.copy_search import oldest_copy

_SEARCHED = 1_000
_LOOKED_AT = 64
"""Entries that may have come from other clusters, or be markers: the replicator to green sends neither."""


async def read_uncopied(
    blue: AdminClient, green: AdminClient, linked: Sequence[TopicStats]
) -> tuple[dict[TopicName, Uncopied], tuple[Note, ...]]:
    """What green lacks, by partition, and a note for each partition that could not be read.

    Loads the topics on green. Calls for each partition: three where green begins with blue's first entry; else more of
    green's entries, 32 at once and 1,000 at most, and up to 64 of blue's.

    :param linked: the partitions that blue replicated to green before the run.
    """
    attempts = PartialReads()
    found = await asyncio.gather(*(attempts.read(str(stats.topic), _uncopied(blue, green, stats)) for stats in linked))
    lacking = {stats.topic: one for stats, one in zip(linked, found, strict=True) if one and one.entries}
    return lacking, tuple(attempts.take_notes())


async def _uncopied(blue: AdminClient, green: AdminClient, stats: TopicStats) -> Uncopied:
    names = await blue.cluster_name(), await green.cluster_name()
    internal = await blue.internal_stats(stats.topic)
    entries = Ledgers.of(internal)
    cursors = subscription_cursors(entries, stats, internal)
    begin = await _begin(blue, green, stats.topic, entries, names)
    confirmed = replicated_up_to(entries, internal, names[1])
    # What the replicator has not sent yet will come, unless it has no cursor: then it begins with the next message.
    begin = min(begin, len(entries) if confirmed is None else confirmed)
    originals = Copies(blue, blue, stats.topic, entries, entries)
    looked_at = range(max(begin - _LOOKED_AT, 0), begin)
    published = await asyncio.gather(*(originals.is_original(number) for number in looked_at))
    if begin == len(looked_at) and not any(published):
        return Uncopied(0, {})
    after = Intervals.of([(begin, len(entries))])
    unread = {name: len(cursor.unread.minus(after)) for name, cursor in cursors.items()}
    return Uncopied(begin, {name: count for name, count in unread.items() if count})


async def _begin(
    blue: AdminClient, green: AdminClient, topic: TopicName, entries: Ledgers, names: tuple[str, str]
) -> int:
    """The number of blue's first entries that are older than the oldest copy on green; all of them without a copy."""
    try:
        target = Ledgers.of(await green.internal_stats(topic))
    except NotFound:
        return len(entries)
    copies = Copies(blue, green, topic, entries, target, only_from=names[0])
    try:
        _, oldest = await oldest_copy(copies, names, EARLIEST, len(target), most=_SEARCHED)
    except Unprovable as error:
        raise PreconditionFailed(
            f"what {names[1]} lacks of it is unknown: none of its first {_SEARCHED:,} entries there is a copy of "
            f"{names[0]}'s"
        ) from error
    return len(entries) if oldest is None else max(entries.index_after(oldest) - 1, 0)
