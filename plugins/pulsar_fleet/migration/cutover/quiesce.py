"""Wait until what writers had under way is stored: publishes in flight when a topic is closed fence it for ever."""

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

SETTLED_SECONDS = 15.0
_POLL_SECONDS = 0.2
_LOG_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Intake:
    """What one partition takes in.

    :param added: entries stored since it was loaded.
    :param pending: entries on their way to the bookies.
    :param at: when that was seen, seconds of any clock.
    """

    added: int
    pending: int
    at: float

    @classmethod
    def of(cls, internal_stats: JsonObject, at: float) -> Intake:
        """Read `internalStats`."""
        return cls(int(internal_stats["entriesAddedCounter"]), int(internal_stats["pendingAddEntriesCount"]), at)


def is_settled(before: Intake, now: Intake) -> bool:
    """Nothing is on its way, and no more came between two looks than writers that are held to 1 message/s may send.

    The count alone is 0 now and then while writers write, and what a broker has read from a connection before the
    throttle reached it arrives all at once.
    """
    return now.pending == 0 and now.added - before.added <= 1 + now.at - before.at


async def wait_settled(
    admin: AdminClient, partitions: Sequence[TopicName], seconds: float = SETTLED_SECONDS
) -> Mapping[TopicName, Intake]:
    """Wait until each of these partitions was seen settled; returns those that were not within `seconds`.

    Writers must be held. Calls: two for each topic, and one more for each look at those that are not settled.
    """
    loop = asyncio.get_running_loop()
    logged = began = loop.time()
    waiting = await _look(admin, partitions)
    while waiting and loop.time() < began + seconds:
        await asyncio.sleep(_POLL_SECONDS)
        now = await _look(admin, tuple(waiting))
        waiting = {topic: one for topic, one in now.items() if not is_settled(waiting[topic], one)}
        if waiting and loop.time() > logged + _LOG_SECONDS:
            logged = loop.time()
            log.info("still under way after %.0f s: %s", logged - began, text_of(waiting))
    return waiting


def text_of(unsettled: Mapping[TopicName, Intake]) -> str:
    """`2 partitions take entries, 7 of them pending, most at persistent://…`."""
    worst = max(unsettled, key=lambda topic: unsettled[topic].pending)
    pending = sum(one.pending for one in unsettled.values())
    return f"{len(unsettled):,} partitions take entries, {pending:,} of them pending, most at {worst}"


async def _look(admin: AdminClient, partitions: Sequence[TopicName]) -> dict[TopicName, Intake]:
    loop = asyncio.get_running_loop()
    at = loop.time()
    found = await required_internal_stats(admin, partitions)
    return {topic: Intake.of(stats, at) for topic, stats in found.items()}
