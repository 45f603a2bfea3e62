"""Read the topic to which a replicator writes, where the replicator does not work (client)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import FleetError, NotFound
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.preflight.schema_probe import probe_schema
from pulsar_fleet.preflight.schema_rules import SchemaFit, check_schema, same_schema
from pulsar_fleet.replication.doctor.facts import Unread
from pulsar_fleet.replication.doctor.reading.namespaces import list_persistent
from pulsar_fleet.replication.doctor.replicators import MissingSchema, ReplicatorFacts, TargetTopic
from pulsar_fleet.snapshot.model import SchemaState
from pulsar_fleet.snapshot.resources import is_terminated, schema_state

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
