"""The event of PIP-136: a resource as a cluster had it, each field with when and where it was written (pure)."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Self

from pulsar_fleet.cluster.errors import FleetError, InvalidRequest
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.policy_sync.events.versions import BEFORE_EVERYTHING, EXISTS, Known, Stamp
from pulsar_fleet.policy_sync.merge.view import Item


class EventType(StrEnum):
    """What happened to the resource last; a snapshot says it again, with its original time."""

    CREATED = "Created"
    MODIFIED = "Modified"
    DELETED = "Deleted"


class ResourceType(StrEnum):
    """Kinds of resources; `Topics` is ours, for their policies."""

    TENANTS = "Tenants"
    NAMESPACES = "Namespaces"
    TOPICS = "Topics"


_KINDS = {
    ResourceType.TENANTS: Resource.TENANT,
    ResourceType.NAMESPACES: Resource.NAMESPACE,
    ResourceType.TOPICS: Resource.TOPIC_POLICY,
}
_TYPES = {kind: name for name, kind in _KINDS.items()}

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
    """One event; `update_time` and `source_cluster` are those of its newest field.

    :param data: `{"values": {field: value}, "times": {field: [ms, cluster]}, "made_with": {field: value}}`: fields that
        mean the same on every cluster, secrets sealed; one with a time and without a value was unset. What a namespace
        is made with stays each cluster's own afterwards. None when the resource was deleted.
    """

    type: EventType
    resource: ResourceType
    resource_name: str
    data: Json
    source_cluster: str
    update_time: int

    @classmethod
    def of(cls, item: Item, values: Mapping[str, Json], known: Known, made_with: Mapping[str, Json]) -> Self:
        """The whole resource as a cluster has it."""
        kind, name = item
        newest = known.newest or Stamp(BEFORE_EVERYTHING, "")
        there = kind is Resource.TOPIC_POLICY or EXISTS in values
        created = known.stamp(EXISTS) == newest and newest.update_time != BEFORE_EVERYTHING
        times = {one: [mark.stamp.update_time, mark.stamp.source_cluster] for one, mark in known.fields.items()}
        return cls(
            type=(EventType.CREATED if created else EventType.MODIFIED) if there else EventType.DELETED,
            resource=_TYPES[kind],
            resource_name=name,
            data={"values": dict(values), "times": times, "made_with": dict(made_with)} if there else None,
            source_cluster=newest.source_cluster,
            update_time=newest.update_time,
        )

    @property
    def item(self) -> Item:
        """The resource as the rest of the package names it."""
        return _KINDS[self.resource], self.resource_name

    @property
    def fields(self) -> dict[str, tuple[Json, Stamp]]:
        """Field → value and when it was written; of what was deleted, that it is not there."""
        if self.data is None:
            return {EXISTS: (None, self.stamp)}
        values = self.data["values"]
        return {name: (values.get(name), Stamp(*stamp)) for name, stamp in self.data["times"].items()}

    @property
    def key(self) -> str:
        """Of the message: a compaction keeps the last event of each resource."""
        return f"{self.resource.value}/{self.resource_name}"

    @property
    def stamp(self) -> Stamp:
        """Of its newest field, or of the deletion."""
        return Stamp(self.update_time, self.source_cluster)

    @property
    def made_with(self) -> JsonObject:
        """What a namespace is made with where it is not there yet."""
        return dict((self.data or {}).get("made_with") or {})

    def record(self) -> JsonObject:
        """As a record of `SCHEMA`; the same for equal events."""
        return {
            "type": self.type.value,
            "resource": self.resource.value,
            "resourceName": self.resource_name,
            "data": None if self.data is None else json.dumps(self.data, sort_keys=True).encode(),
            "sourceCluster": self.source_cluster,
            "updateTime": self.update_time,
        }

    def encode(self) -> bytes:
        """The content of its message."""
        import fastavro

        out = io.BytesIO()
        fastavro.schemaless_writer(out, _parsed(), self.record())
        return out.getvalue()

    @classmethod
    def decode(cls, content: bytes) -> Self:
        """Read what `encode` wrote; anything else is `InvalidRequest` with a sentence for the dead-letter topic."""
        import fastavro

        try:
            found: Any = fastavro.schemaless_reader(io.BytesIO(content), _parsed(), None)
            data = None if found["data"] is None else json.loads(found["data"])
        except (ValueError, EOFError, IndexError, TypeError, OverflowError, StopIteration) as error:
            raise InvalidRequest(f"The event is no MetadataChangeEvent ({type(error).__name__}: {error}).") from error
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
    if not event.source_cluster:
        return f"{event.key} does not say which cluster it comes from."
    if event.type is EventType.DELETED:
        return "" if event.data is None else f"{event.key} is deleted, and its event holds data all the same."
    return "" if _is_document(event.data) else f"{event.key} has no fields with times: {str(event.data)[:200]!r}."


def _is_document(data: Json) -> bool:
    if not isinstance(data, dict):
        return False
    values, times, made_with = (data.get(part) for part in ("values", "times", "made_with"))
    if not isinstance(values, dict) or not isinstance(times, dict) or not isinstance(made_with, dict):
        return False
    if not times or not set(values) <= set(times):
        return False
    return all(_is_stamp(one) for one in times.values())


def _is_stamp(found: Json) -> bool:
    if not isinstance(found, list) or len(found) != 2:
        return False
    return type(found[0]) is int and isinstance(found[1], str)


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
