"""Ask a broker whether topics would accept schemas, without registering any."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.error_map import SCHEMA_CHECK_FAILED, SCHEMA_REFUSALS
from pulsar_fleet.cluster.admin.verbs import ADMIN
from pulsar_fleet.cluster.document import Document
from pulsar_fleet.cluster.errors import FleetError, InvalidRequest
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.snapshot.model import SchemaState, Snapshot

log = logging.getLogger(__name__)

_STRATEGY = re.compile(rf"{SCHEMA_CHECK_FAILED} with strategy (\w+)")


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
            f"{ADMIN}{topic.schema_path}/compatibility",
            body={"type": schema.type, "schema": schema.schema, "properties": dict(schema.properties)},
        )
    except InvalidRequest as error:
        # A broker answers 500 instead of "incompatible" when its checker fails on the schema, or for another type.
        if not any(part in str(error) for part in SCHEMA_REFUSALS):
            raise
        strategy = _STRATEGY.search(str(error))
        return SchemaAnswer(schema.topic, schema.version, False, strategy[1] if strategy else "")
    result = admin.http.document(answer)
    return SchemaAnswer(
        schema.topic,
        schema.version,
        bool(result.get("compatibility", result.get("isCompatibility"))),
        str(result["schemaCompatibilityStrategy"]),
    )


async def probe_schemas(admin: AdminClient, source: Snapshot, target: Snapshot) -> tuple[SchemaAnswer, ...]:
    """Ask the target's broker about the newest version of each topic with different schemas; one call per topic.

    A topic for which the broker fails has no answer.
    """
    ours, theirs = _newest(source), _newest(target)
    schemas = [
        schema
        for topic, schema in sorted(ours.items())
        if topic in theirs and (schema.type, schema.schema) != (theirs[topic].type, theirs[topic].schema)
    ]
    answers = await asyncio.gather(*(_probe(admin, schema) for schema in schemas))
    return tuple(answer for answer in answers if answer is not None)


async def _probe(admin: AdminClient, schema: SchemaState) -> SchemaAnswer | None:
    try:
        return await probe_schema(admin, schema)
    except FleetError as error:
        if error.status is None:
            raise
        log.warning("%s", error)
        return None


def _newest(snapshot: Snapshot) -> dict[str, SchemaState]:
    return {row.topic: row for row in sorted(snapshot.schemas, key=lambda schema: schema.version)}
