"""Which partitions blue has closed for good, by `internal-info`: the only document that is true on every version."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.migration.gates.brokers import CHECK_PERIOD
from pulsar_fleet.migration.moves import Move

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
