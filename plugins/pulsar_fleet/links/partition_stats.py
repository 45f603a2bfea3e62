"""Read the statistics of topics with one call per topic; also of partitions that the broker's answer leaves out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import Note, Problem
from pulsar_fleet.cluster.errors import FleetError, NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics import TopicStats

LINK_SECONDS = 5.0
"""A topic that the call loaded opens its replication links a moment later (observed: 0.25 s)."""


async def read_partitions(
    admin: AdminClient, topics: Mapping[TopicName, int], links: Mapping[TopicName, Collection[str]]
) -> tuple[tuple[TopicStats, ...], tuple[Note, ...]]:
    """The statistics of each partition, in the order of topics, and a note for each unreadable one. Loads the topics.

    A partition that does not exist has no clients and no messages.

    :param topics: topic → partition count, 0 for a plain topic.
    :param links: topic → clusters to which it should have a link; waits up to 5 s for them.
    """
    answers = await _read_all(admin, topics)
    loop = asyncio.get_running_loop()
    end = loop.time() + LINK_SECONDS
    while any(links.values()) and loop.time() < end:
        statistics = [answer for answer in answers.values() if isinstance(answer, TopicStats)]
        unlinked = {stats.topic.parent for stats in statistics if _is_unlinked(stats, links)}
        if not unlinked:
            break
        await asyncio.sleep(0.5)
        answers |= await _read_all(admin, {topic: count for topic, count in topics.items() if topic in unlinked})
    partitions = tuple(answer for answer in answers.values() if isinstance(answer, TopicStats))
    return partitions, tuple(answer for answer in answers.values() if isinstance(answer, Note))


async def stats_of(
    admin: AdminClient, partitions: Iterable[TopicName], *, precise: bool = True, together: bool = True
) -> dict[TopicName, TopicStats | FleetError]:
    """The `stats` of each partition, or its error. Loads the topics.

    Calls: one for each topic, one more for each partition that the answer leaves out.

    :param together: read all partitions of a topic in one call; such a call waits for a broker that is gone.
    """
    answers = await stats_documents(admin, partitions, precise=precise, together=together)
    return {topic: _typed(topic, answer) for topic, answer in answers.items()}


async def stats_documents(
    admin: AdminClient, partitions: Iterable[TopicName], *, precise: bool = True, together: bool = True
) -> dict[TopicName, JsonObject | FleetError]:
    """As `stats_of`, but the broker's documents unchanged."""
    topics = list(partitions)
    params = {"perPartition": True, "getPreciseBacklog": precise}
    documents = await _of_topics(admin, topics, "partitioned-stats", together=together, **params)
    # The broker leaves out partitions that it cannot load, without an error: read each of them alone.
    missing = [topic for topic in topics if topic not in documents]
    alone = await asyncio.gather(*(_alone(admin.stats(topic, precise=precise)) for topic in missing))
    answers = {**documents, **dict(zip(missing, alone, strict=True))}
    return {topic: answers[topic] for topic in topics}


async def required_stats(
    admin: AdminClient, partitions: Iterable[TopicName], *, precise: bool = True
) -> dict[TopicName, TopicStats]:
    """As `stats_of`, but raises the first error."""
    statistics: dict[TopicName, TopicStats] = {}
    for topic, stats in (await stats_of(admin, partitions, precise=precise)).items():
        if isinstance(stats, FleetError):
            raise stats
        statistics[topic] = stats
    return statistics


async def required_internal_stats(admin: AdminClient, partitions: Iterable[TopicName]) -> dict[TopicName, JsonObject]:
    """As `internal_stats_documents`, but raises the first error."""
    documents: dict[TopicName, JsonObject] = {}
    for topic, document in (await internal_stats_documents(admin, partitions)).items():
        if isinstance(document, FleetError):
            raise document
        documents[topic] = document
    return documents


async def internal_stats_documents(
    admin: AdminClient, partitions: Iterable[TopicName]
) -> dict[TopicName, JsonObject | FleetError]:
    """The `internalStats` of each partition, or its error, with as few calls. Loads the topics."""
    topics = list(partitions)
    documents = await _of_topics(admin, topics, "partitioned-internalStats", together=True)
    missing = [topic for topic in topics if topic not in documents]
    alone = await asyncio.gather(*(_alone(admin.internal_stats(topic)) for topic in missing))
    together: dict[TopicName, JsonObject | FleetError] = {
        topic: documents[topic] for topic in topics if topic in documents
    }
    return {**together, **dict(zip(missing, alone, strict=True))}


async def _read_all(admin: AdminClient, topics: Mapping[TopicName, int]) -> dict[TopicName, TopicStats | Note]:
    partitions = [partition for topic, count in topics.items() for partition in topic.partitions(count)]
    answers = await stats_of(admin, partitions)
    return {topic: _stats_or_note(topic, stats) for topic, stats in answers.items()}


def _stats_or_note(topic: TopicName, stats: TopicStats | FleetError) -> TopicStats | Note:
    if isinstance(stats, NotFound) and topic.partition_index is not None:
        # Brokers create a partition on first use, and delete an inactive one while its topic stays.
        return TopicStats.of(topic, {}, exists=False)
    return Note(str(topic), Problem.UNREADABLE, str(stats)) if isinstance(stats, FleetError) else stats


async def _of_topics(
    admin: AdminClient, partitions: Iterable[TopicName], document: str, *, together: bool, **params: bool
) -> dict[TopicName, JsonObject]:
    """The documents of topics with several requested partitions, one call for each topic."""
    groups: dict[TopicName, list[TopicName]] = {}
    for partition in partitions:
        groups.setdefault(partition.parent, []).append(partition)
    several = [parent for parent, group in groups.items() if together and len(group) > 1]
    documents: dict[TopicName, JsonObject] = {}
    for answer in await asyncio.gather(*(_together(admin, parent, document, **params) for parent in several)):
        documents |= answer
    return documents


async def _together(admin: AdminClient, topic: TopicName, document: str, **params: bool) -> dict[TopicName, JsonObject]:
    try:
        answer: JsonObject = await admin.get(f"/{topic.path}/{document}", **params)
    except FleetError:
        return {}
    return {TopicName.parse(name): stats for name, stats in (answer.get("partitions") or {}).items()}


async def _alone(call: Awaitable[JsonObject]) -> JsonObject | FleetError:
    try:
        return await call
    except FleetError as error:
        return error


def _typed(topic: TopicName, document: JsonObject | FleetError) -> TopicStats | FleetError:
    return document if isinstance(document, FleetError) else TopicStats.of(topic, document)


def _is_unlinked(stats: TopicStats, links: Mapping[TopicName, Collection[str]]) -> bool:
    return stats.exists and not all(
        stats.replication_connected.get(cluster) for cluster in links.get(stats.topic.parent, ())
    )
