"""How two clusters differ, in comparable values; the source is already in the target's terms (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.topic_policies import topic_comparable
from pulsar_fleet.planning.diff_entry import Difference, Resource, Side, diff_documents, diff_whole, same
from pulsar_fleet.snapshot.model import SchemaState, Snapshot, SubscriptionState, TopicState

# How the last write was to be carried out, not what the policy says.
_HOW_TO_WRITE = "unload_scope"


def diff_cluster(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    """Differences in the order of creation; the source is translated, so it names only what the target should hold.

    What only the target has is told when the source's snapshot was not limited to a selection.
    """
    unlimited = not source.selection
    peers = {one.name: cluster_value(one.data) for one in source.clusters if one.name != target.cluster}
    known = {one.name: cluster_value(one.data) for one in target.clusters}
    known |= {name: peers[name] for name in target.known_clusters if name in peers and name not in known}
    # Other peers of the target are none of the source's affair.
    yield from diff_whole(Resource.CLUSTER, peers, {name: data for name, data in known.items() if name in peers})
    for resource, wanted, held in (
        (Resource.RESOURCE_GROUP, _groups(source), _groups(target)),
        (Resource.FAILURE_DOMAIN, _domains(source), _domains(target)),
        (Resource.ISOLATION, _isolation(source), _isolation(target)),
    ):
        shown = {name: value for name, value in held.items() if unlimited or name in wanted}
        yield from diff_whole(resource, wanted, shown)


def cluster_value(data: Mapping[str, Json]) -> JsonObject:
    """A cluster's addresses in a comparable shape: what is empty or off is left out, as it is after a read."""
    return {key: value for key, value in data.items() if value not in (None, "", False, [], {})}


def group_value(limits: Mapping[str, Json]) -> JsonObject:
    """A resource group's limits; -1 is without limit, as is one that is not given."""
    return {key: value for key, value in limits.items() if value is not None and value != -1}


def domain_value(document: Mapping[str, Json]) -> JsonObject:
    """A failure domain; the order of its brokers means nothing."""
    return {"brokers": sorted(document.get("brokers") or ())}


def isolation_value(document: Mapping[str, Json]) -> JsonObject:
    """A namespace isolation policy, without how its last write was carried out."""
    return {key: value for key, value in document.items() if key != _HOW_TO_WRITE and value is not None}


def _groups(snapshot: Snapshot) -> dict[str, JsonObject]:
    return {one.name: group_value(one.limits) for one in snapshot.resource_groups}


def _domains(snapshot: Snapshot) -> dict[str, JsonObject]:
    return {name: domain_value(one) for name, one in _own(snapshot, "failure_domains").items()}


def _isolation(snapshot: Snapshot) -> dict[str, JsonObject]:
    return {name: isolation_value(one) for name, one in _own(snapshot, "isolation").items()}


def _own(snapshot: Snapshot, table: str) -> JsonObject:
    found: JsonObject = {}
    for one in snapshot.clusters:
        if one.name == snapshot.cluster:
            found |= getattr(one, table)
    return found


Row = TypeVar("Row")
VALUES: Mapping[str, tuple[str, ...]] = {
    "topics": ("partitions", "properties"),
    "schemas": ("type", "schema", "properties"),
    "subscriptions": ("replicated", "properties"),
}
"""By table, the columns that are compared as they are; documents of policies are compared by their catalogues."""


def diff(source: Snapshot, target: Snapshot) -> tuple[Difference, ...]:
    """Every difference, in the order of creation; equal clusters give none. The source must be translated before."""
    steps: tuple[Callable[[Snapshot, Snapshot], Iterable[Difference]], ...] = (
        diff_cluster,
        _tenants,
        _namespaces,
        _topics,
        _schemas,
        _topic_policies,
        _subscriptions,
    )
    return tuple(difference for step in steps for difference in step(source, target))


def topic_value(topic: TopicState) -> JsonObject:
    """A topic in its comparable shape."""
    return {column: getattr(topic, column) for column in VALUES["topics"]}


def schema_values(versions: Iterable[SchemaState]) -> list[JsonObject]:
    """A schema history in its comparable shape, oldest first; version numbers are each cluster's own."""
    ordered = sorted(versions, key=lambda one: one.version)
    return [{column: getattr(one, column) for column in VALUES["schemas"]} for one in ordered]


def _tenants(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    def value(snapshot: Snapshot) -> dict[str, JsonObject]:
        return {
            one.name: {"adminRoles": list(one.admin_roles), "allowedClusters": list(one.allowed_clusters)}
            for one in snapshot.tenants
        }

    yield from diff_whole(Resource.TENANT, value(source), value(target))


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
            yield from diff_whole(Resource.TOPIC, _only(name, wanted), _only(name, held))


def _schemas(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    topics = {one.name for one in source.topics}

    def value(snapshot: Snapshot) -> dict[str, list[JsonObject]]:
        grouped = _grouped(snapshot.schemas, lambda one: one.topic)
        return {topic: schema_values(rows) for topic, rows in grouped.items() if topic in topics}

    yield from diff_whole(Resource.SCHEMA, value(source), value(target))


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


def subscription_value(rows: Iterable[SubscriptionState]) -> JsonObject:
    """A subscription in its comparable shape, from its cursors; where acknowledgements stand is not compared."""
    found = list(rows)
    properties: JsonObject = {}
    for one in found:
        properties |= one.properties
    return {"replicated": any(one.replicated for one in found), "properties": properties}


def _subscriptions(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    """A subscription is there when every partition has it."""
    topics = {one.name: max(one.partitions, 1) for one in source.topics}

    def cursors(snapshot: Snapshot) -> dict[tuple[str, str], list[SubscriptionState]]:
        grouped = _grouped(snapshot.subscriptions, lambda one: (one.topic, one.name))
        return {key: rows for key, rows in grouped.items() if key[0] in topics}

    wanted, held = cursors(source), cursors(target)
    for key in sorted({*wanted, *held}):
        mine = subscription_value(wanted[key]) if key in wanted else None
        theirs = subscription_value(held[key]) if key in held else None
        if mine is None:
            yield Difference(Resource.SUBSCRIPTION, *key, Side.EXTRA, None, theirs)
        elif theirs is None or len(held[key]) < topics[key[0]]:
            yield Difference(Resource.SUBSCRIPTION, *key, Side.MISSING, mine, None)
        elif not same(mine, theirs):
            yield Difference(Resource.SUBSCRIPTION, *key, Side.DIFFERENT, mine, theirs)


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
