"""Read replicators: once, and twice where they are not idle and connected (client). Loads the topics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError, NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.statistics.cursors import Cursor, cursors_in_stats
from pulsar_fleet.cluster.statistics.system_cursors import replicator_cursor
from pulsar_fleet.links.partition_stats import LINK_SECONDS, internal_stats_documents, stats_documents
from pulsar_fleet.replication.doctor.facts import NamespaceFacts
from pulsar_fleet.replication.doctor.replicators import Reading, ReplicatorFacts

_REPEAT_SECONDS = 1.0
Documents = Mapping[TopicName, JsonObject | FleetError]


async def read_replicators(
    admin: AdminClient, namespaces: Iterable[NamespaceFacts], reading_seconds: float
) -> tuple[list[ReplicatorFacts], dict[TopicName, dict[str, float | None]]]:
    """The replicators of a cluster, and the replicated subscriptions of topics and partitions, see `FleetFacts`.

    Calls: one for each topic; four more for one with a replicator that has a backlog or no connection, eight if it is
    connected and sends nothing, and up to five while it connects, which takes a moment after the topic was loaded.
    """
    targets = {
        partition: namespace.targets_of(topic)
        for namespace in namespaces
        for topic, count in (namespace.topics or {}).items()
        for partition in topic.partitions(count)
        if namespace.targets
    }
    documents = await stats_documents(admin, targets)
    rows = _rows(targets, documents, await admin.cluster_name())
    loop = asyncio.get_running_loop()
    end = loop.time() + LINK_SECONDS
    while loop.time() < end and (unlinked := [row for row in rows if _is_unlinked(row)]):
        await asyncio.sleep(_REPEAT_SECONDS)
        rows = _again(rows, await stats_documents(admin, _topics(unlinked)), _first)
    active = [row for row in rows if row.expected and not _is_idle(row)]
    read = await _twice(admin, active, reading_seconds)
    # A broker that is busy may confirm nothing for some seconds: what stands still is read a third time.
    stalled = [row for row in read.values() if row.moved == 0 and row.last and row.last.connected]
    read |= await _twice(admin, stalled, reading_seconds)
    subscriptions = {topic: _replicated(document) for topic, document in documents.items()}
    return [read.get(_key(row), row) for row in rows], {topic: names for topic, names in subscriptions.items() if names}


def _rows(targets: Mapping[TopicName, Sequence[str]], documents: Documents, own: str) -> list[ReplicatorFacts]:
    rows = []
    for topic, names in targets.items():
        document = documents[topic]
        if isinstance(document, NotFound):
            # Brokers create a partition on first use, and delete an inactive topic.
            continue
        if isinstance(document, FleetError):
            rows += [ReplicatorFacts(source=own, target=name, topic=topic, error=str(document)) for name in names]
            continue
        links: JsonObject = document.get("replication") or {}
        for name in {**dict.fromkeys(names), **links}:
            row = ReplicatorFacts(source=own, target=name, topic=topic, expected=name in names)
            rows.append(_first(row, document))
    return rows


def _first(row: ReplicatorFacts, document: JsonObject) -> ReplicatorFacts:
    reading = _reading(row, document)
    return replace(row, first=reading, last=reading)


def _later(row: ReplicatorFacts, document: JsonObject) -> ReplicatorFacts:
    return replace(row, last=_reading(row, document))


def _reading(row: ReplicatorFacts, document: JsonObject) -> Reading | None:
    link = (document.get("replication") or {}).get(row.target)
    return None if link is None else Reading.of(link)


def _again(
    rows: Sequence[ReplicatorFacts],
    documents: Documents,
    update: Callable[[ReplicatorFacts, JsonObject], ReplicatorFacts],
) -> list[ReplicatorFacts]:
    """The rows with newer answers, where there are some."""
    updated = []
    for row in rows:
        document = documents.get(row.topic)
        updated.append(row if document is None or isinstance(document, FleetError) else update(row, document))
    return updated


async def _twice(
    admin: AdminClient, rows: Sequence[ReplicatorFacts], seconds: float
) -> dict[tuple[TopicName, str], ReplicatorFacts]:
    """The rows with two readings of their cursors, and a later reading of their statistics."""
    if not rows:
        return {}
    loop = asyncio.get_running_loop()
    began = loop.time()
    before = await internal_stats_documents(admin, _topics(rows))
    statistics = await stats_documents(admin, _topics(rows))
    await asyncio.sleep(seconds)
    elapsed = loop.time() - began
    now = await internal_stats_documents(admin, _topics(rows))
    first = _again(rows, statistics, _first)
    last = _again(first, await stats_documents(admin, _topics(rows)), _later)
    return {_key(row): replace(row, cursors=_cursors(row, before, now), seconds=elapsed) for row in last}


def _cursors(row: ReplicatorFacts, *readings: Documents) -> tuple[Cursor | None, ...]:
    documents = [documents.get(row.topic) for documents in readings]
    read = [document for document in documents if document is not None and not isinstance(document, FleetError)]
    if len(read) < len(documents):
        return ()
    return tuple(cursors_in_stats(document).get(replicator_cursor(row.target)) for document in read)


def _replicated(document: JsonObject | FleetError) -> dict[str, float | None]:
    if isinstance(document, FleetError):
        return {}
    subscriptions: JsonObject = document.get("subscriptions") or {}
    return {name: _since_moved(part) for name, part in sorted(subscriptions.items()) if part.get("isReplicated")}


def _since_moved(subscription: JsonObject) -> float | None:
    moved = int(subscription.get("lastMarkDeleteAdvancedTimestamp") or 0)
    return max(0.0, time.time() - moved / 1000) if moved else None


def _is_unlinked(row: ReplicatorFacts) -> bool:
    return row.expected and not row.error and not (row.last and row.last.connected)


def _is_idle(row: ReplicatorFacts) -> bool:
    return bool(row.error) or bool(row.last and row.last.connected and not row.last.backlog)


def _topics(rows: Iterable[ReplicatorFacts]) -> tuple[TopicName, ...]:
    return tuple(dict.fromkeys(row.topic for row in rows))


def _key(row: ReplicatorFacts) -> tuple[TopicName, str]:
    return row.topic, row.target
