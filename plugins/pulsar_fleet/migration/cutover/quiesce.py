"""Wait until throttled producers' publishes are stored: a publish in flight at the termination fences the topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.migration.stats.read import required_internal_stats

log = logging.getLogger(__name__)

QUIESCE_TIMEOUT_SECONDS = 15.0
_POLL_SECONDS = 0.2
_LOG_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PendingWrites:
    """The writes of one partition at one time.

    :param added: entries stored since it was loaded.
    :param pending: entries on their way to the bookies.
    :param at: seconds of any clock.
    """

    added: int
    pending: int
    at: float

    @classmethod
    def of(cls, internal_stats: JsonObject, at: float) -> PendingWrites:
        """Read `internalStats`."""
        return cls(int(internal_stats["entriesAddedCounter"]), int(internal_stats["pendingAddEntriesCount"]), at)


def is_quiesced(before: PendingWrites, now: PendingWrites) -> bool:
    """Nothing is pending, and no more was added between two reads than producers throttled to 1 message/s send.

    The pending count alone is 0 now and then while producers publish, and what a broker has read from a connection
    before the throttle reached it arrives all at once.
    """
    return now.pending == 0 and now.added - before.added <= 1 + now.at - before.at


async def wait_quiesced(admin: AdminClient, partitions: Sequence[TopicName]) -> Mapping[TopicName, PendingWrites]:
    """Wait until each of these partitions was quiesced once; returns those that were not within 15 s.

    Producers must be throttled. Calls: two for each topic, and one more for each read of those not quiesced.
    """
    loop = asyncio.get_running_loop()
    logged = began = loop.time()
    waiting = await _read(admin, partitions)
    while waiting and loop.time() < began + QUIESCE_TIMEOUT_SECONDS:
        await asyncio.sleep(_POLL_SECONDS)
        now = await _read(admin, tuple(waiting))
        waiting = {topic: writes for topic, writes in now.items() if not is_quiesced(waiting[topic], writes)}
        if waiting and loop.time() > logged + _LOG_SECONDS:
            logged = loop.time()
            log.info("publishes still in flight after %.0f s: %s", logged - began, pending_text(waiting))
    return waiting


def pending_text(waiting: Mapping[TopicName, PendingWrites]) -> str:
    """`2 partitions store entries, 7 of them pending, most on persistent://…`."""
    worst = max(waiting, key=lambda topic: waiting[topic].pending)
    pending = sum(writes.pending for writes in waiting.values())
    return f"{len(waiting):,} partitions store entries, {pending:,} of them pending, most on {worst}"


async def _read(admin: AdminClient, partitions: Sequence[TopicName]) -> dict[TopicName, PendingWrites]:
    at = asyncio.get_running_loop().time()
    documents = await required_internal_stats(admin, partitions)
    return {topic: PendingWrites.of(stats, at) for topic, stats in documents.items()}
