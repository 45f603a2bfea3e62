"""Read and write one cluster for changes: bounded, guarded, and in sequence where the broker needs it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import unquote

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import Conflict, FleetError, InvalidRequest, NotFound, PreconditionFailed, Unavailable
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import (
    NamespaceName,
    TopicName,
    own_subscription_properties,
    own_topic_properties,
    with_parent,
)
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.cluster.policies.model import OWN_LIST
from pulsar_fleet.cluster.policies.namespace_catalogue import LOCAL_FIELDS
from pulsar_fleet.cluster.policies.topic_policies import topic_comparable
from pulsar_fleet.cluster.redaction import Redactor, restore_secrets
from pulsar_fleet.cluster.versions import KEEPS_TOPIC_POLICIES
from pulsar_fleet.planning.apply.outcome import check_creation
from pulsar_fleet.planning.changes.clusters import cluster_path, domain_path, group_path, isolation_path
from pulsar_fleet.planning.changes.limits import with_both_limits
from pulsar_fleet.planning.diff import (
    SUBSCRIPTION_COLUMNS,
    cluster_value,
    domain_value,
    group_value,
    isolation_value,
    schema_values,
    subscription_value,
)
from pulsar_fleet.planning.diff_entry import Resource, same
from pulsar_fleet.planning.hazards import guard_call
from pulsar_fleet.planning.plan import Action, Change
from pulsar_fleet.snapshot.resources import (
    partition_properties,
    read_clusters_in_effect,
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


log = logging.getLogger(__name__)

_POSITION_NOT_STORED = "unable to persist readPosition"
_RETRY_SECONDS = (1.0, 5.0)
_POLL_SECONDS = 0.02
_READABLE_SECONDS = 5.0
# To set a policy the broker visits all topics of the namespace; isolation and failure domains share one document.
_SEQUENTIAL = (Resource.NAMESPACE, Resource.POLICY, Resource.FAILURE_DOMAIN, Resource.ISOLATION)


@dataclass(kw_only=True)
class Writer:
    """The target of a plan.

    :param own: the cluster name that its brokers report.
    :param secrets: fingerprint → secret.
    """

    admin: AdminClient
    own: str
    redactor: Redactor
    secrets: Mapping[str, str]
    reader: TopicPolicyReader

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.admin.connection.max_connections)

    async def read(self, changes: Sequence[Change]) -> LiveState:
        """The current state that changes of one kind and one namespace share."""
        async with self._slots:
            return await LiveState.read(self.admin, changes, self.own, self.redactor, self.reader)

    async def values(self, changes: Sequence[Change], live: LiveState) -> list[Json | FleetError]:
        """The live value of each change, or the error of reading it."""
        return await asyncio.gather(*(self._value(change, live) for change in changes))

    async def send_all(self, changes: Sequence[Change], begun: Sequence[bool]) -> list[FleetError | None]:
        """Send the calls of each change; the error where the broker did not confirm it."""
        locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        slowly = any(change.resource is Resource.TOPIC_POLICY for change in changes) and not KEEPS_TOPIC_POLICIES.holds(
            await self.admin.version()
        )

        limited = with_both_limits(changes)

        async def in_sequence(change: Change, finish: bool) -> FleetError | None:
            confirm = change.resource is Resource.TOPIC_POLICY and (slowly or change.name in limited)
            async with locks[change.name if confirm else _sequence(change)]:
                return await self._send(change, finish, confirm)

        return await asyncio.gather(*(in_sequence(*pair) for pair in zip(changes, begun, strict=True)))

    async def _value(self, change: Change, live: LiveState) -> Json | FleetError:
        async with self._slots:
            try:
                return await live.value(change)
            except FleetError as error:
                return error

    async def _send(self, change: Change, finish: bool, confirm: bool) -> FleetError | None:
        """Send a change; with `finish`, an earlier attempt may have made some of its calls.

        :param confirm: wait after each call until the broker shows it.
        """
        failed: FleetError | None = None
        async with self._slots:
            try:
                await self._require_no_cluster_cut(change)
            except FleetError as error:
                return error
            for call in change.calls:
                try:
                    await (self._send_shown(call) if confirm else self._send_call(change, call))
                except Conflict as error:
                    failed = error
                    if not finish:
                        break
                except FleetError as error:
                    return error
        return failed

    async def _send_shown(self, call: Call) -> None:
        """Send a call for a topic policy and wait until the broker shows another value than before.

        Brokers read a policy of a topic from an event, after they have answered the call that wrote it: until then a
        backlog quota is compared with the retention before that call (observed, 4.2.4). A broker of Pulsar 3.0 writes
        all policies of a topic with each of them, from what it has read so far: the next call would remove this one
        (observed).
        """
        path = f"{call.path}Map" if call.path.endswith("/backlogQuota") else call.path
        scope: dict[str, Any] = {key: value for key, value in call.params if key == "isGlobal"}
        before = await self.admin.get(path, **scope)
        await self._call(call)
        deadline = time.monotonic() + _READABLE_SECONDS
        while await self.admin.get(path, **scope) == before and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_SECONDS)

    async def _send_call(self, change: Change, call: Call) -> None:
        """Send a call; retry when a busy broker creates a subscription and cannot store its position (observed).

        That subscription starts at the end of the topic, so it is deleted before the next attempt.
        """
        for seconds in _RETRY_SECONDS:
            try:
                return await self._call(call)
            except InvalidRequest as error:
                creates = (change.resource, change.action) == (Resource.SUBSCRIPTION, Action.CREATE)
                if not creates or _POSITION_NOT_STORED not in str(error):
                    raise
                log.warning("%s; retry in %.0f s", error, seconds)
                await asyncio.sleep(seconds)
                with suppress(NotFound):
                    await self.admin.delete(call.path)
        return await self._call(call)

    async def _call(self, call: Call) -> None:
        guard_call(call, self.own)
        check_creation(call, self.own)
        if call.method == "DELETE" and call.path.startswith("/clusters/") and call.path.count("/") == 2:
            await self._require_unused(unquote(call.path.rpartition("/")[2]))
        await self.admin.send(replace(call, body=restore_secrets(call.body, self.secrets)))

    async def _require_no_cluster_cut(self, change: Change) -> None:
        """Refuse a list of a topic's own that ends replication which the plan did not see.

        The list of its namespace counts for the topic until then, and may have grown since the plan.
        """
        own_list = change.resource is Resource.TOPIC_POLICY and change.field == OWN_LIST
        if not own_list or change.hazard.needs_permission:
            return
        topic = TopicName.parse(change.name)
        current = await read_clusters_in_effect(self.admin, topic)
        after = change.after or await read_clusters_in_effect(self.admin, topic, without_own=True)
        if cut := sorted({*current} - {*after}):
            raise PreconditionFailed(
                f"The list in effect for {topic} on {self.own} is {', '.join(current)} by now, and the planned change "
                f"leaves {', '.join(sorted(after))}: replication to {', '.join(cut)} would end. Nothing was sent: plan "
                "again.",
                cluster=self.own,
            )

    async def _require_unused(self, cluster: str) -> None:
        """Refuse to delete a cluster in use: the broker would delete it even while namespaces replicate to it."""
        for name in await self.admin.tenants():
            if cluster in ((await self.admin.tenant(name)) or {}).get("allowedClusters", ()):
                raise PreconditionFailed(
                    f"Cluster {cluster!r} is not deleted, because tenant {name!r} on {self.own!r} still allows it: "
                    "remove it from the tenant's allowed clusters first.",
                    cluster=self.own,
                )


def _sequence(change: Change) -> str:
    """The key of a sequence: changes with the same key are sent in order, never concurrently."""
    if change.resource in _SEQUENTIAL:
        return change.resource.value
    # A change of a subscription can unload its topic while the next one is sent.
    return min(with_parent(change.name), key=len) if change.resource is Resource.SUBSCRIPTION else change.id


def may_have_taken_effect(error: FleetError | None) -> bool:
    """Whether the change may be in place despite the error: the answer was lost, or a retry met the first attempt."""
    return error is None or isinstance(error, Conflict | NotFound | Unavailable)
