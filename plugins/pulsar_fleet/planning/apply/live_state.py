"""The current value of what a planned change writes, in the plan's comparable shape."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Self

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import NotFound
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName, own_subscription_properties, own_topic_properties
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.lookup import LOCAL_FIELDS
from pulsar_fleet.cluster.policies.topic_policies import topic_comparable
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.planning.changes.clusters import cluster_path, domain_path, group_path, isolation_path
from pulsar_fleet.planning.diff import (
    cluster_value,
    domain_value,
    group_value,
    isolation_value,
    schema_values,
)
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.planning.plan import Change
from pulsar_fleet.planning.subscription_diff import SUBSCRIPTION_COLUMNS, subscription_value
from pulsar_fleet.snapshot.resources import (
    partition_properties,
    read_info,
    read_namespace,
    read_partitioned,
    schema_state,
    subscriptions_in_info,
)
from pulsar_fleet.snapshot.topic_policy_reader import TopicPolicyReader

_Subscriptions = tuple[tuple[TopicName, ...], dict[str, dict[TopicName, JsonObject]]]
"""The partitions of a topic, or itself; and name → partition that has it → the subscription in its comparable shape."""


class LiveState:
    """The current state of one namespace or of cluster-wide resources; `read` it immediately before and after a write.

    `read` reads the documents and lists that several changes share; `value` reads what belongs to one resource.
    """

    def __init__(self, admin: AdminClient, own: str, redactor: Redactor) -> None:
        self._admin = admin
        self._own = own
        self._redactor = redactor
        self._policies: JsonObject | None = None
        self._topics: dict[TopicName, bool] = {}
        self._listed: frozenset[TopicName] = frozenset()
        self._topic_policies: dict[tuple[str, str], dict[str, Json]] = {}
        self._cursors: dict[TopicName, asyncio.Task[_Subscriptions]] = {}

    @classmethod
    async def read(
        cls, admin: AdminClient, changes: Sequence[Change], own: str, redactor: Redactor, reader: TopicPolicyReader
    ) -> Self:
        """Read what `changes`, of one namespace and one kind of resource, share."""
        live = cls(admin, own, redactor)
        resource, namespace = changes[0].resource, changes[0].namespace
        if namespace is None:
            return live
        if resource in (Resource.NAMESPACE, Resource.POLICY):
            outside = {policy.field for policy in LOCAL_FIELDS}
            local = resource is Resource.NAMESPACE or any(change.field in outside for change in changes)
            document = await read_namespace(admin, namespace, redactor, local=local)
            live._policies = None if document is None else comparable(document, own)
        elif resource in (Resource.TOPIC, Resource.SUBSCRIPTION):
            await live._read_topics(namespace)
        elif resource is Resource.TOPIC_POLICY:
            states = await reader.read(namespace)
            live._topic_policies = {(state.topic, state.scope): topic_comparable(state.policies) for state in states}
        return live

    async def value(self, change: Change) -> Json:
        """The live value; None for what is missing or not set."""
        if not change.resource.in_namespace:
            return await self._shared(change)
        match change.resource:
            case Resource.NAMESPACE:
                return self._policies
            case Resource.POLICY:
                return (self._policies or {}).get(change.field)
            case Resource.TOPIC:
                topic_value = await self._topic(TopicName.parse(change.name))
                return topic_value[change.field] if topic_value and change.field else topic_value
            case Resource.SCHEMA:
                topic = TopicName.parse(change.name)
                return schema_values(schema_state(topic, schema) for schema in await self._admin.schemas(topic)) or None
            case Resource.TOPIC_POLICY:
                scope, _, field = change.field.partition("/")
                return self._topic_policies.get((change.name, scope), {}).get(field)
            case _:
                return await self._subscription(change)

    async def _shared(self, change: Change) -> Json:
        match change.resource:
            case Resource.CLUSTER:
                return _shaped(cluster_value, self._redactor.redact(await self._document(cluster_path(change.name))))
            case Resource.RESOURCE_GROUP:
                return _shaped(group_value, await self._document(group_path(change.name)))
            case Resource.FAILURE_DOMAIN:
                return _shaped(domain_value, await self._document(domain_path(self._own, change.name)))
            case Resource.ISOLATION:
                return _shaped(isolation_value, await self._document(isolation_path(self._own, change.name)))
            case _:
                return _shaped(_tenant_value, await self._admin.tenant(change.name))

    async def _document(self, path: str) -> Json:
        try:
            return await self._admin.get(path)
        except NotFound:
            return None

    async def _read_topics(self, namespace: NamespaceName) -> None:
        # The broker answers 500 for a missing topic, so its existence is read from the lists.
        partitioned = await read_partitioned(self._admin, namespace)
        self._listed = frozenset(await self._admin.topics(namespace))
        self._topics = {topic: True for topic in partitioned}
        self._topics |= {topic: False for topic in self._listed if topic.parent not in self._topics}

    async def _topic(self, topic: TopicName) -> JsonObject | None:
        if topic not in self._topics:
            return await self._partition(topic) if topic in self._listed else None
        if self._topics[topic]:
            metadata = await self._admin.partition_metadata(topic)
            return {"partitions": metadata.partitions, "properties": dict(metadata.properties)}
        info = await self._admin.internal_info(topic) if topic.persistent else {}
        return {"partitions": 0, "properties": own_topic_properties(info.get("properties"))}

    async def _partition(self, partition: TopicName) -> JsonObject:
        name = str(partition)
        properties = partition_properties({"partitions": {name: await self._admin.internal_info(partition)}})
        return {"partitions": 0, "properties": properties.get(name, {})}

    async def _subscription(self, change: Change) -> Json:
        """The subscription, if each partition that the change concerns has it.

        Where partitions differ, the value of one that does not have the planned value, so that a change that reached
        some of them only is finished. Consumers move its position, so the planned one is returned.
        """
        name = TopicName.parse(change.name)
        topic = name if name in self._topics else name.parent
        if topic not in self._topics:
            return None
        if topic not in self._cursors:
            self._cursors[topic] = asyncio.create_task(self._read_subscriptions(topic))
        partitions, subscriptions = await self._cursors[topic]
        partitions = partitions if name == topic else (name,)
        by_partition = subscriptions.get(change.field, {})
        if not by_partition.keys() >= {*partitions}:
            return None
        values = await asyncio.gather(
            *(self._settings(partition, change, by_partition[partition]) for partition in partitions)
        )
        value = _farthest(values, change.before, change.after)
        positions = [side["position"] for side in (change.before, change.after) if side and "position" in side]
        return {**value, "position": positions[0]} if positions else value

    async def _settings(self, partition: TopicName, change: Change, stored: JsonObject) -> JsonObject:
        """The flag and the properties, read only if a side has them: reading them loads the topic."""
        value, path = dict(stored), partition.subscription_path(change.field)
        sides = [side for side in (change.before, change.after) if side]
        if any(side["replicated"] for side in sides):
            states = await self._admin.get(f"{path}/replicatedSubscriptionStatus")
            value["replicated"] = all(states.values())
        if any(side["properties"] for side in sides):
            value["properties"] = own_subscription_properties(await self._admin.get(f"{path}/properties"))
        return value

    async def _read_subscriptions(self, topic: TopicName) -> _Subscriptions:
        count = (await self._admin.partition_metadata(topic)).partitions if self._topics[topic] else 0
        partitions = topic.partitions(count)
        info = await read_info(self._admin, topic, partitions, self._listed)
        subscriptions: dict[str, dict[TopicName, JsonObject]] = {}
        for cursor in subscriptions_in_info(topic, info):
            by_partition = subscriptions.setdefault(cursor.name, {})
            by_partition[TopicName.parse(cursor.partition)] = subscription_value(cursor)
        return partitions, subscriptions


def _farthest(values: Sequence[JsonObject], before: Json, after: Json) -> JsonObject:
    """The first value that is neither the planned nor the previous one, else the first that is not the planned one."""
    old, planned = ({key: side[key] for key in SUBSCRIPTION_COLUMNS} if side else None for side in (before, after))
    return max(values, key=lambda value: 0 if same(value, planned) else 1 if same(value, old) else 2)


def _tenant_value(document: JsonObject) -> JsonObject:
    return {key: sorted(document.get(key) or ()) for key in ("adminRoles", "allowedClusters")}


def _shaped(shape: Callable[[JsonObject], JsonObject], document: JsonObject | None) -> Json:
    return None if document is None else shape(document)
