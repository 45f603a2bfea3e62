"""The clients and backlog of topics, one call for each, with a partition that the broker leaves out never missed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.read_problems import Note, Problem
from pulsar_fleet.cluster.errors import FleetError
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.topic_statistics import TopicStats

LINK_SECONDS = 5.0
"""A topic that was loaded by being asked opens its replication links a moment later (observed: 0.25 s)."""


async def read_partitions(
    admin: AdminClient, topics: Mapping[TopicName, int], links: Mapping[TopicName, Collection[str]]
) -> tuple[tuple[TopicStats, ...], tuple[Note, ...]]:
    """What each partition tells, in the order of the topics, and a note for each that cannot be read. Loads the topics.

    :param topics: topic → partition count, 0 for a plain topic.
    :param links: topic → clusters to which it should have a link; waited for up to 5 s.
    """
    found = await _read_all(admin, topics)
    loop = asyncio.get_running_loop()
    end = loop.time() + LINK_SECONDS
    while any(links.values()) and loop.time() < end:
        open_ = {topic.parent for topic, one in found.items() if isinstance(one, TopicStats) and _unlinked(one, links)}
        if not open_:
            break
        await asyncio.sleep(0.5)
        found |= await _read_all(admin, {topic: count for topic, count in topics.items() if topic in open_})
    facts = tuple(one for one in found.values() if isinstance(one, TopicStats))
    return facts, tuple(one for one in found.values() if isinstance(one, Note))


async def stats_of(
    admin: AdminClient, partitions: Iterable[TopicName], *, precise: bool = True, together: bool = True
) -> dict[TopicName, TopicStats | FleetError]:
    """The `stats` of each, or why it has none: a call for each topic, one more for each partition that it leaves out.

    Loads the topics.

    :param together: ask for all partitions of a topic at once. A broker that is gone keeps such a call waiting.
    """
    wanted = list(partitions)
    params = {"perPartition": True, "getPreciseBacklog": precise}
    told = await _of_topics(admin, wanted, "partitioned-stats", together=together, **params)
    # Partitions that cannot be loaded are left out of the sum in silence: each is asked by itself.
    missing = [one for one in wanted if one not in told]
    alone = await asyncio.gather(*(_alone(admin, one, precise=precise) for one in missing))
    answers = {**told, **dict(zip(missing, alone, strict=True))}
    return {topic: _typed(topic, answers[topic]) for topic in wanted}


async def required_stats(
    admin: AdminClient, partitions: Iterable[TopicName], *, precise: bool = True
) -> dict[TopicName, TopicStats]:
    """As `stats_of`; the first that has none is raised."""
    found: dict[TopicName, TopicStats] = {}
    for topic, stats in (await stats_of(admin, partitions, precise=precise)).items():
        if isinstance(stats, FleetError):
            raise stats
        found[topic] = stats
    return found


async def required_internal_stats(admin: AdminClient, partitions: Iterable[TopicName]) -> dict[TopicName, JsonObject]:
    """The `internalStats` of each, by as few calls; the first failure is raised. Loads the topics."""
    wanted = list(partitions)
    told = await _of_topics(admin, wanted, "partitioned-internalStats", together=True)
    missing = [one for one in wanted if one not in told]
    alone = await asyncio.gather(*(admin.internal_stats(one) for one in missing))
    return {**{one: told[one] for one in wanted if one in told}, **dict(zip(missing, alone, strict=True))}


async def _read_all(admin: AdminClient, topics: Mapping[TopicName, int]) -> dict[TopicName, TopicStats | Note]:
    answers = await stats_of(admin, [one for topic, count in topics.items() for one in topic.partitions(count)])
    return {
        topic: Note(str(topic), Problem.UNREADABLE, str(stats)) if isinstance(stats, FleetError) else stats
        for topic, stats in answers.items()
    }


async def _of_topics(
    admin: AdminClient, wanted: Iterable[TopicName], document: str, *, together: bool, **params: bool
) -> dict[TopicName, JsonObject]:
    """What the topics tell of which more than one partition is wanted, one call each."""
    groups: dict[TopicName, list[TopicName]] = {}
    for one in wanted:
        groups.setdefault(one.parent, []).append(one)
    several = [parent for parent, group in groups.items() if together and len(group) > 1]
    told: dict[TopicName, JsonObject] = {}
    for found in await asyncio.gather(*(_together(admin, parent, document, **params) for parent in several)):
        told |= found
    return told


async def _together(admin: AdminClient, topic: TopicName, document: str, **params: bool) -> dict[TopicName, JsonObject]:
    try:
        answer: JsonObject = await admin.get(f"/{topic.path}/{document}", **params)
    except FleetError:
        return {}
    return {TopicName.parse(name): stats for name, stats in (answer.get("partitions") or {}).items()}


async def _alone(admin: AdminClient, topic: TopicName, *, precise: bool) -> JsonObject | FleetError:
    try:
        return await admin.stats(topic, precise=precise)
    except FleetError as error:
        return error


def _typed(topic: TopicName, document: JsonObject | FleetError) -> TopicStats | FleetError:
    return document if isinstance(document, FleetError) else TopicStats.of(topic, document)


def _unlinked(facts: TopicStats, links: Mapping[TopicName, Collection[str]]) -> bool:
    return not all(facts.replication_connected.get(one) for one in links.get(facts.topic.parent, ()))
