"""The clients and backlog of topics, one call for each, with a partition that the broker leaves out never missed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.states import Note, Problem
from pulsar_fleet.migration.facts import PartitionFacts

LINK_SECONDS = 5.0
"""A topic that was loaded by being asked opens its replication links a moment later (observed: 0.25 s)."""


async def read_partitions(
    admin: AdminClient, topics: Mapping[TopicName, int], links: Mapping[TopicName, Collection[str]]
) -> tuple[tuple[PartitionFacts, ...], tuple[Note, ...]]:
    """What each partition tells, in the order of the topics, and a note for each that cannot be read. Loads the topics.

    :param topics: topic → partition count, 0 for a plain topic.
    :param links: topic → clusters to which it should have a link; waited for up to 5 s.
    """
    found = await _read_all(admin, topics)
    loop = asyncio.get_running_loop()
    end = loop.time() + LINK_SECONDS
    while any(links.values()) and loop.time() < end:
        open_ = {
            topic.parent for topic, one in found.items() if isinstance(one, PartitionFacts) and _unlinked(one, links)
        }
        if not open_:
            break
        await asyncio.sleep(0.5)
        found |= await _read_all(admin, {topic: count for topic, count in topics.items() if topic in open_})
    facts = tuple(one for one in found.values() if isinstance(one, PartitionFacts))
    return facts, tuple(one for one in found.values() if isinstance(one, Note))


async def _read_all(admin: AdminClient, topics: Mapping[TopicName, int]) -> dict[TopicName, PartitionFacts | Note]:
    answers = await asyncio.gather(*(_read(admin, topic, count) for topic, count in topics.items()))
    return {topic: one for answer in answers for topic, one in answer.items()}


async def _read(admin: AdminClient, topic: TopicName, count: int) -> dict[TopicName, PartitionFacts | Note]:
    wanted = topic.partitions(count)
    told = await _together(admin, topic) if count > 1 else {}
    # Partitions that cannot be loaded are left out of the sum in silence: each is asked by itself.
    missing = [one for one in wanted if one not in told]
    alone = await asyncio.gather(*(_one(admin, one) for one in missing))
    found = {**told, **dict(zip(missing, alone, strict=True))}
    return {one: found[one] for one in wanted}


async def _together(admin: AdminClient, topic: TopicName) -> dict[TopicName, PartitionFacts | Note]:
    try:
        answer: JsonObject = await admin.get(
            f"/{topic.path}/partitioned-stats", perPartition=True, getPreciseBacklog=True
        )
    except FleetError:
        return {}
    parts = {TopicName.parse(name): stats for name, stats in (answer.get("partitions") or {}).items()}
    return {name: PartitionFacts.from_stats(name, stats) for name, stats in parts.items()}


async def _one(admin: AdminClient, topic: TopicName) -> PartitionFacts | Note:
    try:
        return PartitionFacts.from_stats(topic, await admin.stats(topic))
    except FleetError as error:
        return Note(str(topic), Problem.UNREADABLE, str(error))


def _unlinked(facts: PartitionFacts, links: Mapping[TopicName, Collection[str]]) -> bool:
    return not all(facts.replication_connected.get(one) for one in links.get(facts.topic.parent, ()))
