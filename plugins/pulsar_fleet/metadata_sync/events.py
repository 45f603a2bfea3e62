"""The event of PIP-136: a resource as a cluster had it at a time, and which of two events counts (pure)."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Self

from pulsar_fleet.agreement.merge import TieBreak
from pulsar_fleet.cluster.errors import FleetError, Rejected
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName


class EventType(StrEnum):
    """What happened to the resource. A snapshot says `Modified` of each, with its original time."""

    CREATED = "Created"
    MODIFIED = "Modified"
    DELETED = "Deleted"


class ResourceType(StrEnum):
    """Kinds of resources; `Topics` is ours, for their policies."""

    TENANTS = "Tenants"
    NAMESPACES = "Namespaces"
    TOPICS = "Topics"


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """When a resource was changed, in ms since 1970, and on which cluster: two events with the same are one."""

    update_time: int
    source_cluster: str

    def newer_than(self, other: Stamp | None, tie_break: TieBreak) -> bool:
        """Whether it counts over another one; at the same time the cluster's name decides."""
        if other is None or self.update_time != other.update_time:
            return other is None or self.update_time > other.update_time
        if self.source_cluster == other.source_cluster:
            return False
        smaller = self.source_cluster < other.source_cluster
        return smaller if tie_break is TieBreak.SMALLER else not smaller


SCHEMA: JsonObject = {
    "type": "record",
    "name": "MetadataChangeEvent",
    "namespace": "pulsar_fleet",
    "fields": [
        {"name": "type", "type": {"type": "enum", "name": "EventType", "symbols": [one.value for one in EventType]}},
        {
            "name": "resource",
            "type": {"type": "enum", "name": "ResourceType", "symbols": [one.value for one in ResourceType]},
        },
        {"name": "resourceName", "type": "string"},
        {"name": "data", "type": ["null", "bytes"], "default": None},
        {"name": "sourceCluster", "type": "string"},
        {"name": "updateTime", "type": "long"},
    ],
}
"""The Avro schema that the event topic is registered with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataChangeEvent:
    """One event.

    :param data: the resource in fields that mean the same on every cluster, secrets sealed; None when it was deleted.
    """

    type: EventType
    resource: ResourceType
    resource_name: str
    data: Json
    source_cluster: str
    update_time: int

    @property
    def key(self) -> str:
        """Of the message: a compaction keeps the last event of each resource."""
        return f"{self.resource.value}/{self.resource_name}"

    @property
    def stamp(self) -> Stamp:
        """What its order depends on, wherever and however often it arrives."""
        return Stamp(self.update_time, self.source_cluster)

    def encode(self) -> bytes:
        """The content of its message, by `SCHEMA`; the same for equal events."""
        import fastavro

        out = io.BytesIO()
        data = None if self.data is None else json.dumps(self.data, sort_keys=True).encode()
        record = {
            "type": self.type.value,
            "resource": self.resource.value,
            "resourceName": self.resource_name,
            "data": data,
            "sourceCluster": self.source_cluster,
            "updateTime": self.update_time,
        }
        fastavro.schemaless_writer(out, _parsed(), record)
        return out.getvalue()

    @classmethod
    def decode(cls, content: bytes) -> Self:
        """Read what `encode` wrote; anything else is `Rejected` with a sentence for the dead-letter topic."""
        import fastavro

        try:
            found: Any = fastavro.schemaless_reader(io.BytesIO(content), _parsed(), None)
            data = None if found["data"] is None else json.loads(found["data"])
        except (ValueError, EOFError, IndexError, TypeError, OverflowError, StopIteration) as error:
            raise Rejected(f"The event is no MetadataChangeEvent ({type(error).__name__}: {error}).") from error
        return cls(
            type=EventType(found["type"]),
            resource=ResourceType(found["resource"]),
            resource_name=found["resourceName"],
            data=data,
            source_cluster=found["sourceCluster"],
            update_time=found["updateTime"],
        )


def reason_to_refuse(event: MetadataChangeEvent) -> str:
    """Why an event cannot be meant, for the dead-letter topic; empty when it can."""
    try:
        _parse_name(event)
    except FleetError as error:
        return str(error)
    if event.type is EventType.DELETED:
        return "" if event.data is None else f"{event.key} is deleted, and its event holds data all the same."
    if not isinstance(event.data, dict):
        return f"{event.key} has no fields: {event.data!r}."
    if not event.source_cluster:
        return f"{event.key} does not say which cluster it comes from."
    return ""


def to_apply(event: MetadataChangeEvent, known: Mapping[str, Stamp], tie_break: TieBreak) -> bool:
    """Whether an event counts over what is known of its resource: stale events and ones that came before do not.

    :param known: key → the stamp of what was applied, or changed on this cluster, last.
    """
    return event.stamp.newer_than(known.get(event.key), tie_break)


def _parse_name(event: MetadataChangeEvent) -> None:
    match event.resource:
        case ResourceType.TENANTS:
            NamespaceName.parse(f"{event.resource_name}/any")
        case ResourceType.NAMESPACES:
            NamespaceName.parse(event.resource_name)
        case ResourceType.TOPICS:
            TopicName.parse(event.resource_name)


@cache
def _parsed() -> Any:
    import fastavro

    return fastavro.parse_schema(SCHEMA)
