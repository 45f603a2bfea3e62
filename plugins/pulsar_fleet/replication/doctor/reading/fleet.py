"""Read everything about the replicators of a fleet: lists, replicators, the topics on the target (client)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import FleetError, NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.statistics import Cursor, cursors_in_stats, replicator_cursor
from pulsar_fleet.links.fleet import Fleet
from pulsar_fleet.links.partition_stats import LINK_SECONDS, internal_stats_documents, stats_documents
from pulsar_fleet.preflight.schema_probe import probe_schema
from pulsar_fleet.preflight.schema_rules import SchemaFit, check_schema, same_schema
from pulsar_fleet.replication.doctor.facts import (
    ClusterFacts,
    FleetFacts,
    MissingSchema,
    NamespaceFacts,
    Reading,
    ReplicatorFacts,
    TargetTopic,
    Unread,
)
from pulsar_fleet.replication.doctor.reading.clusters import locate_peers, read_cluster, try_credentials
from pulsar_fleet.replication.doctor.reading.namespaces import (
    list_persistent,
    list_selected,
    read_namespaces,
    read_topics,
    with_affinity,
)
from pulsar_fleet.replication.doctor.request import Request
from pulsar_fleet.snapshot.model import SchemaState
from pulsar_fleet.snapshot.resources import is_terminated, schema_state
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

_JUDGED = {SchemaFit.COMPATIBLE: True, SchemaFit.INCOMPATIBLE: False}


async def read_targets(
    admins: Mapping[str, AdminClient], rows: Sequence[ReplicatorFacts], unread: list[Unread]
) -> dict[tuple[str, TopicName], TargetTopic]:
    """The topics on the targets of these replicators: up to five calls for each. Loads them."""

    async def read(row: ReplicatorFacts) -> TargetTopic:
        try:
            return await _read(admins[row.source], admins[row.target], row)
        except FleetError as error:
            about = frozenset({str(row.namespace)})
            unread.append(Unread(cluster=row.target, resource=f"topic {row.topic}", reason=str(error), about=about))
            return TargetTopic()

    chosen = [row for row in rows if row.target in admins]
    answers = await asyncio.gather(*map(read, chosen))
    return {(row.target, row.topic): answer for row, answer in zip(chosen, answers, strict=True)}


async def _read(source: AdminClient, target: AdminClient, row: ReplicatorFacts) -> TargetTopic:
    try:
        info = await target.internal_info(row.topic, answered_retry_seconds=0)
    except FleetError as error:
        # Of a topic that does not exist the broker answers 404 or 500 (observed).
        return TargetTopic(exists=False if isinstance(error, NotFound) or await _is_absent(target, row.topic) else None)
    if is_terminated(info):
        return TargetTopic(exists=True, terminated=True)
    there = await _with_statistics(target, row.topic, TargetTopic(exists=True))
    connected = row.last is not None and row.last.connected
    return await _with_schemas(source, target, row.topic, there) if connected else there


async def _is_absent(target: AdminClient, topic: TopicName) -> bool:
    return topic not in await list_persistent(target, topic.namespace)


async def _with_statistics(target: AdminClient, topic: TopicName, there: TargetTopic) -> TargetTopic:
    try:
        stats = await target.stats(topic)
    except FleetError:
        return there
    received = float(stats.get("msgRateIn") or 0), float(stats.get("msgThroughputIn") or 0)
    return replace(there, stored_bytes=int(stats.get("backlogSize") or 0), received=received)


async def _with_schemas(source: AdminClient, target: AdminClient, topic: TopicName, there: TargetTopic) -> TargetTopic:
    ours, theirs = await asyncio.gather(_schemas(source, topic.parent), _schemas(target, topic.parent))
    known, missing, strategy = list(theirs), list[MissingSchema](), ""
    for schema in ours:
        if any(same_schema(schema, version) for version in known):
            continue
        if missing:
            # A broker compares a schema with those that it has, and not with the ones that come before this one.
            accepted = _JUDGED.get(check_schema(strategy, schema, known))
        else:
            accepted, strategy = await _ask(target, schema)
        body: JsonObject = {"type": schema.type, "schema": schema.schema, "properties": dict(schema.properties)}
        missing.append(MissingSchema(version=schema.version, body=body, accepted=accepted))
        known.append(schema)
    return replace(there, missing=tuple(missing), strategy=strategy)


async def _ask(target: AdminClient, schema: SchemaState) -> tuple[bool | None, str]:
    try:
        answer = await probe_schema(target, schema)
    except FleetError:
        return None, ""
    return answer.compatible, answer.strategy


async def _schemas(admin: AdminClient, topic: TopicName) -> list[SchemaState]:
    return [schema_state(topic, version) for version in await admin.schemas(topic)]


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


async def read_fleet(fleet: Fleet, connections: Sequence[ClusterConnection], request: Request) -> FleetFacts:
    """The facts about the selected namespaces on all clusters that answer; no message is read.

    **Loads every topic of a namespace that replicates**, on the clusters that send, because the broker has statistics
    of loaded topics only; and an unloaded topic replicates nothing.

    Calls for each cluster: 7, one for each peer, tenant and namespace; for each namespace of a tenant that allows
    another cluster 2, one for its bookie affinity where bookies have groups, one for each partitioned topic and one
    pass over `__change_events`; one for each topic of a namespace that sends. For each replicator that is not idle and
    connected up to 18 more, on both clusters together.

    :raises Unavailable: a cluster stopped answering while it was read.
    """
    admins, unread = fleet.clusters, list[Unread]()
    clusters = await _clusters(fleet, connections, unread)
    namespaces = await _namespaces(admins, clusters, request, unread)
    rows, subscriptions = await _replicators(admins, namespaces, request)
    listed = {name for facts in namespaces.values() for name in facts.targets}
    by_name = {name: admin.connection for name, admin in admins.items()}
    located = [locate_peers(clusters[name], clusters, listed, by_name) for name in admins]
    clusters |= {facts.name: facts for facts in await asyncio.gather(*located)}
    clusters |= await _with_refusals(admins, clusters, rows)
    failing = [row for row in rows if _needs_details(row, namespaces)]
    if len(failing) > request.most_details:
        left = f"topics on the targets of {len(failing) - request.most_details:,} replicators that do not work"
        reason = f"only {request.most_details:,} of them are read; select fewer namespaces"
        about = frozenset(str(row.namespace) for row in failing[request.most_details :])
        unread.append(Unread(cluster=failing[-1].target, resource=left, reason=reason, about=about))
    targets = await read_targets(admins, failing[: request.most_details], unread)
    return FleetFacts(
        clusters=clusters,
        namespaces=namespaces,
        replicators=tuple(rows),
        targets=targets,
        subscriptions=subscriptions,
        unread=tuple(unread),
        calls={name: admin.calls for name, admin in admins.items()},
    )


async def _clusters(
    fleet: Fleet, connections: Sequence[ClusterConnection], unread: list[Unread]
) -> dict[str, ClusterFacts]:
    """The clusters that answer, and the others by the name that a connection or a peer gives them."""
    read = await asyncio.gather(*(read_cluster(admin, unread) for admin in fleet.clusters.values()))
    clusters = {facts.name: facts for facts in read}
    for connection in connections:
        if reason := fleet.behind.get(connection.name):
            name = _name_of(connection, read)
            clusters[name] = ClusterFacts(name=name, connection=connection.argument, outage=reason)
    return clusters


def _name_of(connection: ClusterConnection, read: Iterable[ClusterFacts]) -> str:
    """The name of a cluster that does not answer, by its connection or by the data that its peers have."""
    if connection.cluster_name:
        return connection.cluster_name
    known = {*connection.admin_urls, connection.service_url} - {None}
    peers = (peer for facts in read for peer in (facts.peers or {}).values())
    return next((peer.name for peer in peers if known.intersection(peer.addresses)), connection.name)


async def _namespaces(
    admins: Mapping[str, AdminClient], clusters: Mapping[str, ClusterFacts], request: Request, unread: list[Unread]
) -> dict[tuple[str, NamespaceName], NamespaceFacts]:
    names = await list_selected(admins, request.selection, unread)
    documents = await asyncio.gather(*(read_namespaces(admin, own, names, unread) for own, admin in admins.items()))
    every = {(facts.cluster, name): facts for read in documents for name, facts in read.items()}
    linked = {name for (own, name), facts in every.items() if _names_others(facts, own)}
    chosen = {key: facts for key, facts in every.items() if key[1] in linked}

    async def with_topics(own: str) -> list[NamespaceFacts]:
        async with TopicPolicyReader(admins[own], None) as reader:
            mine = [facts for (cluster, _), facts in chosen.items() if cluster == own]
            if clusters[own].has_bookie_groups:
                mine = await asyncio.gather(*(with_affinity(admins[own], facts, unread) for facts in mine))
            return list(await asyncio.gather(*(read_topics(admins[own], facts, reader, unread) for facts in mine)))

    read = await asyncio.gather(*map(with_topics, admins))
    return {(facts.cluster, facts.name): facts for group in read for facts in group}


def _names_others(facts: NamespaceFacts, own: str) -> bool:
    """Whether the namespace replicates, or a topic of it may, by a list of its own."""
    return bool({*facts.clusters, *facts.allowed_clusters, *(facts.tenant_clusters or ())} - {own})


async def _replicators(
    admins: Mapping[str, AdminClient], namespaces: Mapping[tuple[str, NamespaceName], NamespaceFacts], request: Request
) -> tuple[list[ReplicatorFacts], dict[tuple[str, TopicName], dict[str, float | None]]]:
    async def read(own: str) -> tuple[list[ReplicatorFacts], dict[TopicName, dict[str, float | None]]]:
        mine = [facts for (cluster, _), facts in namespaces.items() if cluster == own]
        return await read_replicators(admins[own], mine, request.reading_seconds)

    answers = dict(zip(admins, await asyncio.gather(*map(read, admins)), strict=True))
    subscriptions = {
        (own, topic): names for own, (_, replicated) in answers.items() for topic, names in replicated.items()
    }
    return [row for rows, _ in answers.values() for row in rows], subscriptions


async def _with_refusals(
    admins: Mapping[str, AdminClient], clusters: Mapping[str, ClusterFacts], rows: Iterable[ReplicatorFacts]
) -> dict[str, ClusterFacts]:
    """Whether the targets accept the stored credentials, where a replicator is not connected."""
    pairs = {(row.source, row.target) for row in rows if row.expected and not (row.last and row.last.connected)}
    tried: dict[str, ClusterFacts] = {}
    for source, target in sorted(pairs):
        facts = tried.get(source, clusters[source])
        peer = (facts.peers or {}).get(target)
        if peer is None or not peer.plugin or target not in admins or not clusters[target].demands_credentials():
            continue
        try:
            refusal = await try_credentials(admins[source], target, admins[target].connection)
        except FleetError:
            continue
        tried[source] = replace(facts, peers={**(facts.peers or {}), target: replace(peer, refusal=refusal)})
    return tried


def _needs_details(row: ReplicatorFacts, namespaces: Mapping[tuple[str, NamespaceName], NamespaceFacts]) -> bool:
    """Whether the topic on the target may tell why the replicator does not work: only where the target serves it."""
    there = namespaces.get((row.target, row.namespace))
    if not row.expected or row.error or there is None or not there.exists or there.topics is None:
        return False
    return row.last is None or not row.last.connected or (row.last.backlog > 0 and not row.moved)
