"""The event of PIP-136: a resource of a cluster, each field with its version (pure)."""

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
from pulsar_fleet.policy_sync.events.versions import BEFORE_EVERYTHING, EXISTS, ResourceVersions, Version, is_version
from pulsar_fleet.policy_sync.merge.view import Item


class EventType(StrEnum):
    """The last change of the resource; a snapshot repeats it with its original time."""

    CREATED = "Created"
    MODIFIED = "Modified"
    DELETED = "Deleted"


class ResourceType(StrEnum):
    """Kinds of resources; `Topics` is an extension of PIP-136, for topic policies and for partitioned topics.

    Only that of a partitioned topic has a version of its existence, or no data: policies of topics are never deleted.
    """

    TENANTS = "Tenants"
    NAMESPACES = "Namespaces"
    TOPICS = "Topics"


_TYPES = {
    Resource.TENANT: ResourceType.TENANTS,
    Resource.NAMESPACE: ResourceType.NAMESPACES,
    Resource.TOPIC: ResourceType.TOPICS,
    Resource.TOPIC_POLICY: ResourceType.TOPICS,
}
_KEYS = {**{kind: str(name) for kind, name in _TYPES.items()}, Resource.TOPIC: "PartitionedTopics"}

SCHEMA: JsonObject = {
    "type": "record",
    "name": "MetadataChangeEvent",
    "namespace": "pulsar_fleet",
    "fields": [
        {
            "name": "type",
            "type": {"type": "enum", "name": "EventType", "symbols": [str(member) for member in EventType]},
        },
        {
            "name": "resource",
            "type": {"type": "enum", "name": "ResourceType", "symbols": [str(member) for member in ResourceType]},
        },
        {"name": "resourceName", "type": "string"},
        {"name": "data", "type": ["null", "bytes"], "default": None},
        {"name": "sourceCluster", "type": "string"},
        {"name": "updateTime", "type": "long"},
    ],
}
"""The Avro schema of the event topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataChangeEvent:
    """One event; `update_time` and `source_cluster` are those of its newest field.

    :param data: `{"values": {field: value}, "times": {field: version}, "made_with": {field: value}}`: shared
        fields, secrets redacted; a field with a time and without a value was unset. `made_with` has the settings for
        the creation of a namespace, which are local to each cluster afterwards. None if the resource was deleted.
    """

    type: EventType
    resource: ResourceType
    resource_name: str
    data: Json
    source_cluster: str
    update_time: int

    @classmethod
    def of(
        cls, item: Item, values: Mapping[str, Json], versions: ResourceVersions, made_with: Mapping[str, Json]
    ) -> Self:
        """The whole resource of a cluster."""
        kind, name = item
        newest = versions.newest or Version(BEFORE_EVERYTHING, "")
        exists = kind is Resource.TOPIC_POLICY or EXISTS in values
        created = versions.version(EXISTS) == newest and newest.update_time > BEFORE_EVERYTHING
        times = {field: entry.version.as_array() for field, entry in versions.fields.items()}
        return cls(
            type=(EventType.CREATED if created else EventType.MODIFIED) if exists else EventType.DELETED,
            resource=_TYPES[kind],
            resource_name=name,
            data={"values": dict(values), "times": times, "made_with": dict(made_with)} if exists else None,
            source_cluster=newest.source_cluster,
            update_time=newest.update_time,
        )

    @property
    def item(self) -> Item:
        """The resource as an `Item`."""
        return self._kind, self.resource_name

    @property
    def _kind(self) -> Resource:
        if self.resource is ResourceType.TENANTS:
            return Resource.TENANT
        if self.resource is ResourceType.NAMESPACES:
            return Resource.NAMESPACE
        times = self.data.get("times") if isinstance(self.data, dict) else None
        is_topic = self.data is None or (isinstance(times, dict) and EXISTS in times)
        return Resource.TOPIC if is_topic else Resource.TOPIC_POLICY

    @property
    def fields(self) -> dict[str, tuple[Json, Version]]:
        """Field → value and version; for a deleted resource only `EXISTS`."""
        if self.data is None:
            return {EXISTS: (None, self.version)}
        values = self.data["values"]
        return {name: (values.get(name), Version.of(version)) for name, version in self.data["times"].items()}

    @property
    def key(self) -> str:
        """The key of the message: a compaction keeps the last event of each resource."""
        return f"{_KEYS[self._kind]}/{self.resource_name}"

    @property
    def version(self) -> Version:
        """The version of its newest field, or of the deletion."""
        return Version(self.update_time, self.source_cluster)

    @property
    def made_with(self) -> JsonObject:
        """The settings for the creation of a namespace."""
        return dict((self.data or {}).get("made_with") or {})

    def record(self) -> JsonObject:
        """As a record of `SCHEMA`; identical for equal events."""
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
        """Read what `encode` wrote; anything else is `InvalidRequest` with a reason for the dead-letter topic."""
        import fastavro

        try:
            record: Any = fastavro.schemaless_reader(io.BytesIO(content), _parsed(), None)
            data = None if record["data"] is None else json.loads(record["data"])
        except (ValueError, EOFError, IndexError, TypeError, OverflowError, StopIteration) as error:
            raise InvalidRequest(
                f"The message is not a MetadataChangeEvent ({type(error).__name__}: {error})."
            ) from error
        return cls(
            type=EventType(record["type"]),
            resource=ResourceType(record["resource"]),
            resource_name=record["resourceName"],
            data=data,
            source_cluster=record["sourceCluster"],
            update_time=record["updateTime"],
        )


def reason_to_refuse(event: MetadataChangeEvent) -> str:
    """Why an event is not valid, for the dead-letter topic; empty if it is."""
    try:
        _parse_name(event)
    except FleetError as error:
        return str(error)
    if not event.source_cluster:
        return f"{event.key} does not name the cluster that it comes from."
    if event.type is EventType.DELETED:
        return "" if event.data is None else f"{event.key} is deleted, but its event has data."
    return "" if _is_document(event.data) else f"{event.key} has no fields with times: {str(event.data)[:200]!r}."


def _is_document(data: Json) -> bool:
    if not isinstance(data, dict):
        return False
    values, times, made_with = (data.get(part) for part in ("values", "times", "made_with"))
    if not isinstance(values, dict) or not isinstance(times, dict) or not isinstance(made_with, dict):
        return False
    if not times or not set(values) <= set(times):
        return False
    return all(is_version(entry) for entry in times.values())


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
