"""Ask a broker whether topics would take schemas: nothing is registered by it."""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict, dataclass
from typing import Self
from urllib.parse import quote

from pulsar_fleet.cluster.admin.client import ADMIN, AdminClient
from pulsar_fleet.cluster.admin.http import SCHEMA_REFUSED
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.snapshot.model import SchemaState, Snapshot

_STRATEGY = re.compile(rf"{SCHEMA_REFUSED} with strategy (\w+)")


@dataclass(frozen=True, slots=True)
class SchemaAnswer:
    """What a broker said about one version of a schema, and under which strategy."""

    topic: str
    version: int
    compatible: bool
    strategy: str

    def to_json(self) -> JsonObject:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: JsonObject) -> Self:
        """Read what `to_json` wrote."""
        return cls(**found)


async def ask_compatibility(admin: AdminClient, schema: SchemaState) -> SchemaAnswer:
    """Whether the cluster's topic of the same name would take this version of another cluster.

    :raises Missing: it has no such topic.
    """
    topic = TopicName.parse(schema.topic)
    try:
        answer = await admin.http.call(
            "POST",
            f"{ADMIN}/schemas/{topic.namespace.path}/{quote(topic.local, safe='')}/compatibility",
            body={"type": schema.type, "schema": schema.schema, "properties": dict(schema.properties)},
        )
    except InvalidRequest as error:
        # A broker answers 500 instead of "no" to a schema that its checker stumbles over.
        if (strategy := _STRATEGY.search(str(error))) is None:
            raise
        return SchemaAnswer(schema.topic, schema.version, False, strategy[1])
    found = admin.http.document(answer)
    return SchemaAnswer(
        schema.topic,
        schema.version,
        bool(found.get("compatibility", found.get("isCompatibility"))),
        str(found["schemaCompatibilityStrategy"]),
    )


async def ask_about_schemas(admin: AdminClient, source: Snapshot, target: Snapshot) -> tuple[SchemaAnswer, ...]:
    """Ask the target's broker about the newest version of each topic whose schemas differ; one call per topic."""
    ours, theirs = _newest(source), _newest(target)
    asked = [
        schema
        for topic, schema in sorted(ours.items())
        if topic in theirs and (schema.type, schema.schema) != (theirs[topic].type, theirs[topic].schema)
    ]
    return tuple(await asyncio.gather(*(ask_compatibility(admin, schema) for schema in asked)))


def _newest(snapshot: Snapshot) -> dict[str, SchemaState]:
    return {one.topic: one for one in sorted(snapshot.schemas, key=lambda schema: schema.version)}
