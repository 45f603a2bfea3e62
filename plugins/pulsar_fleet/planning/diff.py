"""The differences of two clusters, in comparable values; the source is already in the target's terms (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.topic_policies import topic_comparable
from pulsar_fleet.planning.diff_entry import Difference, Resource, Side, diff_documents, diff_resources, same
from pulsar_fleet.snapshot.model import SchemaState, Snapshot, SubscriptionState, TopicState

SUBSCRIPTION_COLUMNS = ("replicated", "properties")
"""The columns that are compared; positions are not."""

ByPartition = Mapping[str, JsonObject]
"""Partition (or topic without partitions) → the subscription there in its comparable shape."""


def subscription_value(cursor: SubscriptionState) -> JsonObject:
    """A subscription of one topic or partition in its comparable shape."""
    return {column: getattr(cursor, column) for column in SUBSCRIPTION_COLUMNS}


def diff_subscriptions(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    """One difference for a subscription that is the same on all partitions of each side, or on none of them.

    Of any other subscription there is a difference for each partition that differs, under the partition's name.
    Subscriptions on partitions that only the target has are left out: the number of partitions is a difference itself.
    """
    counts = {topic.name: topic.partitions for topic in source.topics}
    ours, theirs = _by_subscription(source.subscriptions, counts), _by_subscription(target.subscriptions, counts)
    for topic, name in sorted({*ours, *theirs}):
        partitions = [str(partition) for partition in TopicName.parse(topic).partitions(counts[topic])]
        sides = [side.get((topic, name), {}) for side in (ours, theirs)]
        alike = all(_is_alike(partitions, side) for side in sides)
        for place in partitions[:1] if alike else partitions:
            values = [side.get(place) for side in sides]
            yield from _difference(topic if alike else place, name, *values)


def _by_subscription(
    cursors: Iterable[SubscriptionState], topics: Mapping[str, int]
) -> dict[tuple[str, str], dict[str, JsonObject]]:
    subscriptions: dict[tuple[str, str], dict[str, JsonObject]] = {}
    for cursor in cursors:
        if cursor.topic in topics:
            subscriptions.setdefault((cursor.topic, cursor.name), {})[cursor.partition] = subscription_value(cursor)
    return subscriptions


def _is_alike(partitions: Iterable[str], values: ByPartition) -> bool:
    """Whether all partitions have the same subscription, or none has it."""
    first, *others = (values.get(partition) for partition in partitions)
    return all(same(first, other) for other in others)


def _difference(topic: str, name: str, source: Json, target: Json) -> Iterator[Difference]:
    if same(source, target):
        return
    side = Side.MISSING if target is None else Side.EXTRA if source is None else Side.DIFFERENT
    yield Difference(Resource.SUBSCRIPTION, topic, name, side, source, target)


# An option of the last write, not a part of the policy.
_WRITE_OPTION = "unload_scope"


def diff_cluster(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    """Differences of the cluster-wide resources, in the order of creation; the source is the desired state.

    What only the target has is reported when the source's snapshot is not limited to a selection.
    """
    unlimited = not source.selection
    peers = {peer.name: cluster_value(peer.data) for peer in source.clusters if peer.name != target.cluster}
    target_peers = {peer.name: cluster_value(peer.data) for peer in target.clusters}
    target_peers |= {name: peers[name] for name in target.known_clusters if name in peers and name not in target_peers}
    # Only peers of the source are compared.
    yield from diff_resources(
        Resource.CLUSTER, peers, {name: data for name, data in target_peers.items() if name in peers}
    )
    for resource, ours, theirs in (
        (Resource.RESOURCE_GROUP, _groups(source), _groups(target)),
        (Resource.FAILURE_DOMAIN, _domains(source), _domains(target)),
        (Resource.ISOLATION, _isolation(source), _isolation(target)),
    ):
        shown = {name: value for name, value in theirs.items() if unlimited or name in ours}
        yield from diff_resources(resource, ours, shown)


def cluster_value(data: Mapping[str, Json]) -> JsonObject:
    """A cluster's addresses in a comparable shape: empty and false values are left out, as in the broker's answer."""
    return {key: value for key, value in data.items() if value not in (None, "", False, [], {})}


def group_value(limits: Mapping[str, Json]) -> JsonObject:
    """A resource group's limits; -1 and missing mean no limit, and are left out."""
    return {key: value for key, value in limits.items() if value is not None and value != -1}


def domain_value(document: Mapping[str, Json]) -> JsonObject:
    """A failure domain, its brokers sorted: their order has no meaning."""
    return {"brokers": sorted(document.get("brokers") or ())}


def isolation_value(document: Mapping[str, Json]) -> JsonObject:
    """A namespace isolation policy without the options of its last write."""
    return {key: value for key, value in document.items() if key != _WRITE_OPTION and value is not None}


def _groups(snapshot: Snapshot) -> dict[str, JsonObject]:
    return {group.name: group_value(group.limits) for group in snapshot.resource_groups}


def _domains(snapshot: Snapshot) -> dict[str, JsonObject]:
    return {name: domain_value(document) for name, document in _own(snapshot, "failure_domains").items()}


def _isolation(snapshot: Snapshot) -> dict[str, JsonObject]:
    return {name: isolation_value(document) for name, document in _own(snapshot, "isolation").items()}


def _own(snapshot: Snapshot, table: str) -> JsonObject:
    documents: JsonObject = {}
    for state in snapshot.clusters:
        if state.name == snapshot.cluster:
            documents |= getattr(state, table)
    return documents


Row = TypeVar("Row")
COMPARED_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "topics": ("partitions", "properties", "partition_properties"),
    "schemas": ("type", "schema", "properties"),
    "subscriptions": SUBSCRIPTION_COLUMNS,
}
"""By table, the columns that are compared unchanged; the catalogues define how documents of policies are compared."""


def diff(source: Snapshot, target: Snapshot) -> tuple[Difference, ...]:
    """Every difference, in the order of creation. The source must be translated before."""
    steps: tuple[Callable[[Snapshot, Snapshot], Iterable[Difference]], ...] = (
        diff_cluster,
        _tenants,
        _namespaces,
        _topics,
        _schemas,
        _topic_policies,
        diff_subscriptions,
    )
    return tuple(difference for step in steps for difference in step(source, target))


def topic_value(topic: TopicState) -> JsonObject:
    """A topic in its comparable shape, without the properties of single partitions."""
    return {"partitions": topic.partitions, "properties": topic.properties}


def schema_values(versions: Iterable[SchemaState]) -> list[JsonObject]:
    """A schema history in its comparable shape, oldest first; version numbers are local to a cluster and left out."""
    ordered = sorted(versions, key=lambda schema: schema.version)
    return [{column: getattr(schema, column) for column in COMPARED_COLUMNS["schemas"]} for schema in ordered]


def _tenants(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    def value(snapshot: Snapshot) -> dict[str, JsonObject]:
        return {
            tenant.name: {"adminRoles": list(tenant.admin_roles), "allowedClusters": list(tenant.allowed_clusters)}
            for tenant in snapshot.tenants
        }

    yield from diff_resources(Resource.TENANT, value(source), value(target))


def _namespaces(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    ours = {namespace.name: namespace.policies for namespace in source.namespaces}
    theirs = {namespace.name: namespace.policies for namespace in target.namespaces}
    for name in sorted({*ours, *theirs}):
        if name not in theirs:
            yield Difference(Resource.NAMESPACE, name, "", Side.MISSING, ours[name], None)
        elif name not in ours:
            yield Difference(Resource.NAMESPACE, name, "", Side.EXTRA, None, comparable(theirs[name], target.cluster))
        else:
            sides = [comparable(document, target.cluster) for document in (ours[name], theirs[name])]
            yield from diff_documents(Resource.POLICY, name, *sides)


def _topics(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    states = {topic.name: topic for topic in source.topics}
    target_states = {topic.name: topic for topic in _within(target.topics, source, lambda topic: topic.name)}
    ours, theirs = ({name: topic_value(topic) for name, topic in side.items()} for side in (states, target_states))
    for name in sorted({*ours, *theirs}):
        if name in ours and name in theirs:
            yield from diff_documents(Resource.TOPIC, name, ours[name], theirs[name])
        else:
            yield from diff_resources(Resource.TOPIC, _only(name, ours), _only(name, theirs))
        if name in states:
            yield from _partition_properties(states[name], target_states.get(name))


def _partition_properties(source: TopicState, target: TopicState | None) -> Iterator[Difference]:
    """A difference for each partition of the source with other properties of its own, under the partition's name."""
    ours, theirs = source.partition_properties, target.partition_properties if target else {}
    if same(ours, theirs):
        return
    for partition in map(str, TopicName.parse(source.name).partitions(source.partitions)):
        values = (ours.get(partition, {}), theirs.get(partition, {}))
        if not same(*values):
            yield Difference(Resource.TOPIC, partition, "properties", Side.DIFFERENT, *values)


def _schemas(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    topics = {row.name for row in source.topics}

    def value(snapshot: Snapshot) -> dict[str, list[JsonObject]]:
        grouped = _grouped(snapshot.schemas, lambda row: row.topic)
        return {topic: schema_values(rows) for topic, rows in grouped.items() if topic in topics}

    yield from diff_resources(Resource.SCHEMA, value(source), value(target))


def _topic_policies(source: Snapshot, target: Snapshot) -> Iterator[Difference]:
    topics = {row.name for row in source.topics}

    def value(snapshot: Snapshot) -> dict[tuple[str, str], dict[str, Json]]:
        return {
            (row.topic, row.scope): topic_comparable(row.policies)
            for row in snapshot.topic_policies
            if row.topic in topics
        }

    ours, theirs = value(source), value(target)
    for topic, scope in sorted({*ours, *theirs}):
        for difference in diff_documents(
            Resource.TOPIC_POLICY, topic, ours.get((topic, scope), {}), theirs.get((topic, scope), {})
        ):
            yield replace(difference, field=f"{scope}/{difference.field}")


def _within(rows: Iterable[Row], source: Snapshot, name: Callable[[Row], str]) -> list[Row]:
    """Rows in namespaces that the source has too; other namespaces are reported once as a whole."""
    namespaces = {namespace.name for namespace in source.namespaces}
    return [row for row in rows if str(TopicName.parse(name(row)).namespace) in namespaces]


Key = TypeVar("Key")


def _grouped(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _only(name: str, values: Mapping[str, Json]) -> dict[str, Json]:
    return {name: values[name]} if name in values else {}
