"""Read which partitions of blue have values that only readers of a compacted topic get."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.partial_reads import PartialReads
from pulsar_fleet.cluster.admin.read_problems import Note, Problem
from pulsar_fleet.cluster.errors import FleetError, NotFound
from pulsar_fleet.cluster.names import Position, TopicName
from pulsar_fleet.links.partition_stats import internal_stats_documents
from pulsar_fleet.messages.clients.compacted import first_compacted
from pulsar_fleet.migration.stats.compaction import CompactedView, compacted_view
from pulsar_fleet.verification.bounds.compaction import compacted_entries


async def read_compacted(
    blue: AdminClient, partitions: Sequence[TopicName], compacting: Collection[TopicName]
) -> tuple[dict[TopicName, CompactedView], tuple[Note, ...]]:
    """The compacted views with values, and a note for each that could not be read. Loads the topics.

    Calls: one for each topic; a reader for each partition with a compacted ledger.

    :param compacting: topics that brokers compact by themselves.
    """
    attempts, views = PartialReads(), dict[TopicName, CompactedView]()
    read = await internal_stats_documents(blue, partitions)
    documents = {topic: document for topic, document in read.items() if not isinstance(document, FleetError)}
    compacted = [topic for topic, document in documents.items() if compacted_entries(document)]
    begins = await _begins(blue, compacted)
    for topic, answer in {**read, **begins}.items():
        if isinstance(answer, FleetError) and not isinstance(answer, NotFound):
            attempts.note(str(topic), Problem.UNREADABLE, str(answer))
    positions = {topic: begin for topic, begin in begins.items() if not isinstance(begin, FleetError)}
    for topic, document in documents.items():
        if view := compacted_view(document, positions.get(topic), compacting=topic.parent in compacting):
            views[topic] = view
    return views, tuple(attempts.take_notes())


async def _begins(
    blue: AdminClient, compacted: Sequence[TopicName]
) -> Mapping[TopicName, Position | FleetError | None]:
    try:
        return await asyncio.to_thread(first_compacted, blue.connection, compacted)
    except FleetError as error:
        return dict.fromkeys(compacted, error)
