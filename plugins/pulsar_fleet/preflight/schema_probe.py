"""Ask a broker whether topics would accept schemas, without registering any."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import ADMIN, AdminClient
from pulsar_fleet.cluster.admin.http import SCHEMA_REFUSED
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.planning.changes.topics import schema_path
from pulsar_fleet.snapshot.model import SchemaState, Snapshot

_STRATEGY = re.compile(rf"{SCHEMA_REFUSED} with strategy (\w+)")


@dataclass(frozen=True, slots=True)
class SchemaAnswer(Document):
    """A broker's answer about one version of a schema, and the strategy that it applied."""

    topic: str
    version: int
    compatible: bool
    strategy: str


async def probe_schema(admin: AdminClient, schema: SchemaState) -> SchemaAnswer:
    """Whether the cluster's topic of the same name would accept this version of another cluster.

    :raises NotFound: the cluster has no such topic.
    """
    topic = TopicName.parse(schema.topic)
    try:
        answer = await admin.http.call(
            "POST",
            f"{ADMIN}{schema_path(topic)}/compatibility",
            body={"type": schema.type, "schema": schema.schema, "properties": dict(schema.properties)},
        )
    except InvalidRequest as error:
        # A broker answers 500 instead of "incompatible" when its checker fails on the schema.
        if (strategy := _STRATEGY.search(str(error))) is None:
            raise
        return SchemaAnswer(schema.topic, schema.version, False, strategy[1])
    result = admin.http.document(answer)
    return SchemaAnswer(
        schema.topic,
        schema.version,
        bool(result.get("compatibility", result.get("isCompatibility"))),
        str(result["schemaCompatibilityStrategy"]),
    )


async def probe_schemas(admin: AdminClient, source: Snapshot, target: Snapshot) -> tuple[SchemaAnswer, ...]:
    """Ask the target's broker about the newest version of each topic with different schemas; one call per topic."""
    ours, theirs = _newest(source), _newest(target)
    schemas = [
        schema
        for topic, schema in sorted(ours.items())
        if topic in theirs and (schema.type, schema.schema) != (theirs[topic].type, theirs[topic].schema)
    ]
    return tuple(await asyncio.gather(*(probe_schema(admin, schema) for schema in schemas)))


def _newest(snapshot: Snapshot) -> dict[str, SchemaState]:
    return {row.topic: row for row in sorted(snapshot.schemas, key=lambda schema: schema.version)}
