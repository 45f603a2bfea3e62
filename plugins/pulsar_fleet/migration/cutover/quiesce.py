"""How far producers are throttled, and when their publishes are stored: one in flight fences the topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.cluster.runs.overrides import QUIESCED_RATE, byte_throttle
from pulsar_fleet.cluster.versions import UNTHROTTLES_AT_ONCE
from pulsar_fleet.links.partition_stats import required_internal_stats

_WAIT_SECONDS = 5.0
_PARTITIONS_PER_SECOND = 200
"""With more partitions the cut-over takes longer (`tests/bench/test_pause_by_size.py`)."""


async def throttle_rate(blue: AdminClient, partitions: Sequence[TopicName]) -> JsonObject:
    """The publish rate for a namespace whose producers write to these partitions.

    Brokers that end a producer's wait when the rate is lifted get the strictest one. Others let it wait for the time
    that they computed before: with one byte per second that is as many seconds as its last entry has bytes, and its
    client closes the connection before. They get a rate at which an entry of usual size is a wait of some seconds.

    Calls: one, and for brokers of the second kind the statistics of the partitions.
    """
    if UNTHROTTLES_AT_ONCE.holds(await blue.version()):
        return QUIESCED_RATE
    documents = await required_internal_stats(blue, partitions)
    return rate_for(filter(None, map(_entry_bytes, documents.values())), len(partitions))


def rate_for(entry_bytes: Iterable[float], partitions: int) -> JsonObject:
    """The rate at which the smallest of these usual entries is a wait of 5 s, or longer with many partitions."""
    smallest = min(entry_bytes, default=0.0)
    return byte_throttle(max(1, int(smallest / (_WAIT_SECONDS + partitions / _PARTITIONS_PER_SECOND))))


def _entry_bytes(internal_stats: JsonObject) -> float:
    """The mean size of the stored entries; 0 if there is none."""
    entries = int(internal_stats["numberOfEntries"])
    return int(internal_stats["totalSize"]) / entries if entries else 0.0


log = logging.getLogger(__name__)

QUIESCE_TIMEOUT_SECONDS = 15.0
_POLL_SECONDS = 0.2
_LOG_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PendingWrites:
    """The writes of one partition at one time.

    :param added: entries stored since it was loaded.
    :param pending: entries on their way to the bookies.
    :param last: the last stored entry.
    """

    added: int
    pending: int
    last: Position

    @classmethod
    def of(cls, internal_stats: JsonObject) -> PendingWrites:
        """Read `internalStats`."""
        return cls(
            int(internal_stats["entriesAddedCounter"]),
            int(internal_stats["pendingAddEntriesCount"]),
            Position.parse(internal_stats["lastConfirmedEntry"]),
        )


@dataclass(frozen=True, slots=True)
class QuiesceResult:
    """What waiting for the writes of partitions ended with.

    :param ends: quiesced partition → its last entry then; one behind it entered later.
    :param waiting: the writes of those that were not quiesced in time.
    """

    ends: Mapping[TopicName, Position]
    waiting: Mapping[TopicName, PendingWrites]


def is_quiesced(before: PendingWrites, now: PendingWrites) -> bool:
    """Nothing is pending, and nothing was added between two reads.

    The pending count alone is 0 now and then while producers publish, and what a broker has read from a connection
    before the throttle reached it arrives all at once.
    """
    return now.pending == 0 and now.added == before.added


async def wait_quiesced(
    admin: AdminClient, partitions: Sequence[TopicName], seconds: float = QUIESCE_TIMEOUT_SECONDS
) -> QuiesceResult:
    """Wait until each of these partitions was quiesced once, at most `seconds`.

    Producers must be throttled. Calls: two for each topic, and one more for each read of those not quiesced.
    """
    loop = asyncio.get_running_loop()
    logged = began = loop.time()
    ends: dict[TopicName, Position] = {}
    waiting = await _read(admin, partitions)
    while waiting and loop.time() < began + seconds:
        await asyncio.sleep(_POLL_SECONDS)
        now = await _read(admin, tuple(waiting))
        ends |= {topic: writes.last for topic, writes in now.items() if is_quiesced(waiting[topic], writes)}
        waiting = {topic: writes for topic, writes in now.items() if topic not in ends}
        if waiting and loop.time() > logged + _LOG_SECONDS:
            logged = loop.time()
            log.info("publishes still in flight after %.0f s: %s", logged - began, pending_text(waiting))
    return QuiesceResult(ends, waiting)


def pending_text(waiting: Mapping[TopicName, PendingWrites]) -> str:
    """`2 partitions store entries, 7 of them pending, most on persistent://…`."""
    worst = max(waiting, key=lambda topic: waiting[topic].pending)
    pending = sum(writes.pending for writes in waiting.values())
    return f"{len(waiting):,} partitions store entries, {pending:,} of them pending, most on {worst}"


async def _read(admin: AdminClient, partitions: Sequence[TopicName]) -> dict[TopicName, PendingWrites]:
    documents = await required_internal_stats(admin, partitions)
    return {topic: PendingWrites.of(stats) for topic, stats in documents.items()}
