"""How two clusters differ, in comparable values; the source is already in the target's terms (pure)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policy_documents import comparable
from pulsar_fleet.cluster.states import SchemaState, Snapshot, TopicState
from pulsar_fleet.cluster.topic_policies import topic_comparable

Row = TypeVar("Row")


class Resource(StrEnum):
    """Kinds of resources, in the order in which they are created."""

    TENANT = "tenant"
    NAMESPACE = "namespace"
    POLICY = "policy"
    TOPIC = "topic"
    SCHEMA = "schema"
    TOPIC_POLICY = "topic policy"
    SUBSCRIPTION = "subscription"


class Side(StrEnum):
    """Where something is."""

    MISSING = "missing on the target"
    DIFFERENT = "different"
    EXTRA = "only on the target"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference; `field` names a policy, a topic's property set or a subscription, else it is empty."""

    resource: Resource
    name: str
    field: str
    side: Side
    source: Json
    target: Json


def diff(source: Snapshot, target: Snapshot) -> tuple[Difference, ...]:
    """Every difference, in the order of creation; equal clusters give none. The source must be translated before."""
    steps: tuple[Callable[[Snapshot, Snapshot], Iterable[Difference]], ...] = (
        _tenants,
        _namespaces,
        _topics,
        _schemas,
        _topic_policies,
        _subscriptions,
    )
    return tuple(difference for step in steps for difference in step(source, target))


def diff_documents(
    resource: Resource, name: str, source: Mapping[str, Json], target: Mapping[str, Json]
) -> Iterator[Difference]:
    """The fields in which two comparable documents differ."""
    for field in sorted({*source, *target}):
        if same(source.get(field), target.get(field)):
            continue
        side = Side.DIFFERENT
        if field not in target:
            side = Side.MISSING
        elif field not in source:
            side = Side.EXTRA
        yield Difference(resource, name, field, side, source.get(field), target.get(field))


def same(one: Json, other: Json) -> bool:
    """Whether two JSON values are equal; `1` and `True` are not, lists and tuples are."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def topic_value(topic: TopicState) -> JsonObject:
    """A topic in its comparable shape."""
    return {"partitions": topic.partitions, "properties": dict(topic.properties)}


def schema_values(versions: Iterable[SchemaState]) -> list[JsonObject]:
    """A schema history in its comparable shape, oldest first; version numbers are each cluster's own."""
    ordered = sorted(versions, key=lambda one: one.version)
    return [{"type": one.type, "schema": one.schema, "properties": dict(one.properties)} for one in ordered]


def _tenants(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    def value(snapshot: Snapshot) -> dict[str, JsonObject]:
        return {
            one.name: {"adminRoles": list(one.admin_roles), "allowedClusters": list(one.allowed_clusters)}
            for one in snapshot.tenants
        }

    yield from _whole(Resource.TENANT, value(source), value(target))


def _namespaces(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    wanted = {one.name: one.policies for one in source.namespaces}
    held = {one.name: one.policies for one in target.namespaces}
    for name in sorted({*wanted, *held}):
        if name not in held:
            yield Difference(Resource.NAMESPACE, name, "", Side.MISSING, wanted[name], None)
        elif name not in wanted:
            yield Difference(Resource.NAMESPACE, name, "", Side.EXTRA, None, comparable(held[name], target.cluster))
        else:
            sides = [comparable(document, target.cluster) for document in (wanted[name], held[name])]
            yield from diff_documents(Resource.POLICY, name, *sides)


def _topics(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    wanted = {one.name: topic_value(one) for one in source.topics}
    held = {one.name: topic_value(one) for one in _within(target.topics, source, lambda one: one.name)}
    for name in sorted({*wanted, *held}):
        if name in wanted and name in held:
            yield from diff_documents(Resource.TOPIC, name, wanted[name], held[name])
        else:
            yield from _whole(Resource.TOPIC, _only(name, wanted), _only(name, held))


def _schemas(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    topics = {one.name for one in source.topics}

    def value(snapshot: Snapshot) -> dict[str, list[JsonObject]]:
        grouped = _grouped(snapshot.schemas, lambda one: one.topic)
        return {topic: schema_values(rows) for topic, rows in grouped.items() if topic in topics}

    yield from _whole(Resource.SCHEMA, value(source), value(target))


def _topic_policies(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    topics = {one.name for one in source.topics}

    def value(snapshot: Snapshot) -> dict[tuple[str, str], dict[str, Json]]:
        return {
            (one.topic, one.scope): topic_comparable(one.policies)
            for one in snapshot.topic_policies
            if one.topic in topics
        }

    wanted, held = value(source), value(target)
    for topic, scope in sorted({*wanted, *held}):
        for found in diff_documents(
            Resource.TOPIC_POLICY, topic, wanted.get((topic, scope), {}), held.get((topic, scope), {})
        ):
            yield Difference(found.resource, topic, f"{scope}/{found.field}", found.side, found.source, found.target)


def _subscriptions(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    """A subscription is there when every partition has it; where acknowledgements stand is not compared."""
    topics = {one.name: max(one.partitions, 1) for one in source.topics}

    def value(snapshot: Snapshot) -> dict[tuple[str, str], tuple[int, bool]]:
        grouped = _grouped(snapshot.subscriptions, lambda one: (one.topic, one.name))
        return {
            key: (len(rows), any(one.replicated for one in rows)) for key, rows in grouped.items() if key[0] in topics
        }

    wanted, held = value(source), value(target)
    for topic, name in sorted({*wanted, *held}):
        mine, theirs = wanted.get((topic, name)), held.get((topic, name))
        if mine is None and theirs is not None:
            yield Difference(Resource.SUBSCRIPTION, topic, name, Side.EXTRA, None, {"replicated": theirs[1]})
        elif mine is not None and (theirs is None or theirs[0] < topics[topic]):
            yield Difference(Resource.SUBSCRIPTION, topic, name, Side.MISSING, {"replicated": mine[1]}, None)
        elif mine is not None and theirs is not None and mine[1] != theirs[1]:
            sides = ({"replicated": mine[1]}, {"replicated": theirs[1]})
            yield Difference(Resource.SUBSCRIPTION, topic, name, Side.DIFFERENT, *sides)


def _whole(resource: Resource, wanted: Mapping[str, Json], held: Mapping[str, Json]) -> Iterator[Difference]:
    """Resources that are compared as one value."""
    for found in diff_documents(resource, "", wanted, held):
        yield Difference(resource, found.field, "", found.side, found.source, found.target)


def _within(rows: Iterable[Row], source: Snapshot, name: Callable[[Row], str]) -> list[Row]:
    """Rows in namespaces that the source has too; the others are told once, by their namespace."""
    namespaces = {one.name for one in source.namespaces}
    return [row for row in rows if str(TopicName.parse(name(row)).namespace) in namespaces]


Key = TypeVar("Key")


def _grouped(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    found: dict[Key, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def _only(name: str, values: Mapping[str, Json]) -> dict[str, Json]:
    return {name: values[name]} if name in values else {}
