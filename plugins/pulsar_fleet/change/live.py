"""The value that a planned change is about, as it is on the cluster now, in the plan's comparable shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pulsar_fleet.change.diff import Resource, schema_values
from pulsar_fleet.change.plan import Change
from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policy_documents import comparable
from pulsar_fleet.cluster.secrets import Seal
from pulsar_fleet.cluster.snapshot import read_cursors, read_namespace, read_partitioned, schema_state
from pulsar_fleet.cluster.topic_policies import topic_comparable
from pulsar_fleet.cluster.topic_policy_reader import TopicPolicyReader


class LiveNamespace:
    """One namespace (or, with None, the tenants) as it is now. Obtain one by `read`, right before or after a write.

    It holds what one document or list tells about many changes; what belongs to one topic is read by `value`.
    """

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self._policies: JsonObject | None = None
        self._topics: dict[TopicName, bool] = {}
        self._topic_policies: dict[tuple[str, str], dict[str, Json]] = {}

    @classmethod
    async def read(cls, admin: AdminClient, changes: Sequence[Change], seal: Seal, reader: TopicPolicyReader) -> Self:
        """Read what all of `changes`, of one namespace and one kind of resource, have in common."""
        live = cls(admin)
        resource, namespace = changes[0].resource, changes[0].namespace
        if namespace is None:
            return live
        if resource in (Resource.NAMESPACE, Resource.POLICY):
            document = await read_namespace(admin, namespace, seal)
            live._policies = None if document is None else comparable(document, await admin.cluster_name())
        elif resource in (Resource.TOPIC, Resource.SUBSCRIPTION):
            await live._read_topics(namespace)
        elif resource is Resource.TOPIC_POLICY:
            states = await reader.read(namespace)
            live._topic_policies = {(one.topic, one.scope): topic_comparable(one.policies) for one in states}
        return live

    async def value(self, change: Change) -> Json:
        """The live value; None for what is not there or not set."""
        match change.resource:
            case Resource.TENANT:
                return _tenant_value(await self._admin.tenant(change.name))
            case Resource.NAMESPACE:
                return self._policies
            case Resource.POLICY:
                return (self._policies or {}).get(change.field)
            case Resource.TOPIC:
                found = await self._topic(TopicName.parse(change.name))
                return found[change.field] if found and change.field else found
            case Resource.SCHEMA:
                topic = TopicName.parse(change.name)
                return schema_values(schema_state(topic, one) for one in await self._admin.schemas(topic)) or None
            case Resource.TOPIC_POLICY:
                scope, _, field = change.field.partition("/")
                return self._topic_policies.get((change.name, scope), {}).get(field)
            case Resource.SUBSCRIPTION:
                return await self._subscription(change)

    async def _read_topics(self, namespace: NamespaceName) -> None:
        # Asking for a topic that is not there answers 500, so whether it is there is read from the lists.
        partitioned = await read_partitioned(self._admin, namespace)
        listed = await self._admin.topics(namespace)
        self._topics = {topic: True for topic in partitioned}
        self._topics |= {topic: False for topic in listed if topic.parent not in self._topics}

    async def _topic(self, topic: TopicName) -> JsonObject | None:
        if topic not in self._topics:
            return None
        if self._topics[topic]:
            metadata = await self._admin.partition_metadata(topic)
            return {"partitions": metadata.partitions, "properties": dict(metadata.properties)}
        info = await self._admin.internal_info(topic) if topic.persistent else {}
        return {"partitions": 0, "properties": dict(info.get("properties") or {})}

    async def _subscription(self, change: Change) -> Json:
        """What the change wants, if every partition has the subscription: where it stands is the consumers' affair."""
        topic = TopicName.parse(change.name)
        if topic not in self._topics:
            return None
        wanted = 1
        if self._topics[topic]:
            wanted = (await self._admin.partition_metadata(topic)).partitions
        found = [one for one in await read_cursors(self._admin, topic) if one.name == change.field]
        return change.after if len(found) >= wanted else None


def _tenant_value(document: JsonObject | None) -> Json:
    if document is None:
        return None
    return {key: sorted(document.get(key) or ()) for key in ("adminRoles", "allowedClusters")}
