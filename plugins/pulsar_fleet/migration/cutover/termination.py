"""Which partitions blue has closed for good, by `internal-info`: the only document that is true on every version."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.migration.cutover.redirect import set_flag
from pulsar_fleet.migration.model import Move

CHECK_PERIOD = "clusterMigrationCheckDurationSeconds"

_AT_FIRST = 2
_POLL_SECONDS = 0.1


async def open_partitions(blue: AdminClient, move: Move) -> tuple[TopicName, ...]:
    """Partitions that are not handed over yet; one call per topic, whatever its number of partitions."""
    return _partitions_of(await _ask(blue, list(move.topics), move))


async def wait_terminated(blue: AdminClient, move: Move, seconds: float) -> tuple[TopicName, ...]:
    """Wait until every partition is handed over; returns those that are not after `seconds`.

    Two topics are asked in turn until they are closed, then all others at once: the brokers close theirs together, and
    writers wait for the answer.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    waiting, at_once = list(move.topics), _AT_FIRST
    while waiting and loop.time() < end:
        asked, rest = waiting[:at_once], waiting[at_once:]
        still = list(await _ask(blue, asked, move))
        waiting, at_once = rest + still, _AT_FIRST if still else len(rest)
        if still:
            await asyncio.sleep(_POLL_SECONDS)
    return _partitions_of(await _ask(blue, waiting, move)) if waiting else ()


async def check_periods(blue: AdminClient) -> dict[str, float]:
    """Broker → seconds between two looks at the flag; 0 means that it never looks."""
    brokers = await blue.brokers()
    found = await asyncio.gather(*(blue.runtime_configuration(broker) for broker in brokers))
    return {broker: float(settings.get(CHECK_PERIOD) or 0) for broker, settings in zip(brokers, found, strict=True)}


Open = dict[TopicName, tuple[TopicName, ...]]


async def _ask(blue: AdminClient, topics: Sequence[TopicName], move: Move) -> Open:
    """Topic → its partitions that are still open, without topics that have none."""
    documents = await asyncio.gather(*(blue.internal_info(topic) for topic in topics))
    found = {
        topic: tuple(
            partition
            for partition, info in _each(topic, document, move.topics[topic]).items()
            if (info.get("properties") or {}).get("migrated") != "true"
        )
        for topic, document in zip(topics, documents, strict=True)
    }
    return {topic: partitions for topic, partitions in found.items() if partitions}


def _each(topic: TopicName, document: JsonObject, count: int) -> dict[TopicName, JsonObject]:
    if not count:
        return {topic: document}
    inner = document.get("partitions") or {}
    return {partition: inner.get(str(partition)) or {} for partition in topic.partitions(count)}


def _partitions_of(found: Open) -> tuple[TopicName, ...]:
    return tuple(partition for partitions in found.values() for partition in partitions)


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
