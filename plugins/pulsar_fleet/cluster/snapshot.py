"""Read what a cluster holds: a fixed number of calls per namespace and at most two per topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from datetime import UTC, datetime
from typing import TypeVar
from urllib.parse import unquote

from pulsar_fleet.cluster.admin import AdminClient
from pulsar_fleet.cluster.brokers import read_brokers
from pulsar_fleet.cluster.errors import FleetError, Missing, Transient
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies import LOCAL_FIELDS
from pulsar_fleet.cluster.position import Position
from pulsar_fleet.cluster.secrets import Seal
from pulsar_fleet.cluster.states import (
    NamespaceState,
    Note,
    Problem,
    SchemaState,
    Selection,
    Snapshot,
    SubscriptionState,
    TenantState,
    TopicPolicyState,
    TopicState,
)
from pulsar_fleet.cluster.topic_policy_reader import TopicPolicyReader

log = logging.getLogger(__name__)

Read = TypeVar("Read")
PUBLIC_DEFAULT = NamespaceName("public", "default")
_OWN_CURSORS = ("pulsar.repl", "pulsar.dedup", "__compaction")


async def collect(
    admin: AdminClient, selection: Selection | None = None, *, seal: Seal, must_exist: bool = False
) -> Snapshot:
    """Read the selected tenants and namespaces with all that lies in them, and every broker.

    No topic is loaded by it. What vanishes meanwhile is noted; what cannot be read makes the snapshot incomplete.

    :param seal: replaces secrets by fingerprints before anything leaves this function.
    :param must_exist: a selected tenant or namespace that is not there is `Missing`.
    """
    return await _Collector(admin, selection or Selection(), seal).run(must_exist=must_exist)


async def read_namespace(admin: AdminClient, namespace: NamespaceName, seal: Seal) -> JsonObject | None:
    """The policies document without secrets, the settings outside of it merged in; None without such a namespace."""
    document = await admin.namespace(namespace)
    if document is None:
        return None
    for policy in LOCAL_FIELDS:
        document[policy.field] = await _read_local(admin, f"/namespaces/{namespace.path}/{policy.path}")
    # Roles are keys there, whatever they are called, and their rights are no secrets.
    return {field: value if field == "auth_policies" else seal.redact(value) for field, value in document.items()}


async def read_partitioned(admin: AdminClient, namespace: NamespaceName) -> tuple[TopicName, ...]:
    """The partitioned topics, non-persistent ones included."""
    listed = await admin.get(f"/non-persistent/{namespace.path}/partitioned")
    return (*await admin.partitioned_topics(namespace), *sorted(TopicName.parse(text) for text in listed))


async def read_cursors(admin: AdminClient, topic: TopicName) -> tuple[SubscriptionState, ...]:
    """The subscriptions of a topic, partition by partition. The topic must exist: else the broker answers 500."""
    return cursors_of(topic, await admin.internal_info(topic))


def cursors_of(topic: TopicName, info: JsonObject) -> tuple[SubscriptionState, ...]:
    """The subscriptions in an `internal-info` answer, without the brokers' own cursors."""
    parts = info.get("partitions") or {str(topic): info}
    return tuple(
        SubscriptionState(str(topic), part, unquote(name), _position(cursor), _is_replicated(cursor))
        for part, found in sorted(parts.items())
        for name, cursor in sorted((found.get("cursors") or {}).items())
        if not name.startswith(_OWN_CURSORS)
    )


class _Collector:
    def __init__(self, admin: AdminClient, selection: Selection, seal: Seal) -> None:
        self._admin = admin
        self._selection = selection
        self._seal = seal
        self._slots = asyncio.Semaphore(admin.connection.max_connections)
        self._tenants: list[TenantState] = []
        self._namespaces: list[NamespaceState] = []
        self._topics: list[TopicState] = []
        self._schemas: list[SchemaState] = []
        self._subscriptions: list[SubscriptionState] = []
        self._policies: list[TopicPolicyState] = []
        self._notes: list[Note] = []

    async def run(self, *, must_exist: bool) -> Snapshot:
        began, calls = _now(), self._admin.calls
        cluster = await self._admin.cluster_name()
        brokers = await read_brokers(self._admin, self._seal)
        found = await self._read_tenants()
        if must_exist:
            self._require(found, cluster)
        async with TopicPolicyReader(self._admin, self._seal) as reader:
            await asyncio.gather(*(self._namespace(name, reader) for name in found))
        snapshot = Snapshot(
            cluster=cluster,
            began=began,
            ended=_now(),
            key_id=self._seal.key_id,
            selection=self._selection.texts(),
            known_clusters=await self._admin.clusters(),
            resource_groups=tuple(sorted(await self._admin.get("/resourcegroups"))),
            calls=self._admin.calls - calls,
            tenants=tuple(sorted(self._tenants, key=lambda one: one.name)),
            namespaces=tuple(sorted(self._namespaces, key=lambda one: one.name)),
            topics=tuple(sorted(self._topics, key=lambda one: one.name)),
            schemas=tuple(sorted(self._schemas, key=lambda one: (one.topic, one.version))),
            subscriptions=tuple(sorted(self._subscriptions, key=lambda one: (one.topic, one.partition, one.name))),
            topic_policies=tuple(sorted(self._policies, key=lambda one: (one.topic, one.scope))),
            brokers=brokers,
            notes=tuple(sorted(self._notes, key=lambda one: one.resource)),
        )
        log.info("%s: %s read in %d calls", cluster, snapshot.counts(), snapshot.calls)
        return snapshot

    async def _read_tenants(self) -> list[NamespaceName]:
        """Note the selected tenants; their selected namespaces."""
        names = [name for name in await self._admin.tenants() if self._selection.has_tenant(name)]
        found = await asyncio.gather(*(self._tenant(name) for name in names))
        return [namespace for namespaces in found for namespace in namespaces]

    async def _tenant(self, name: str) -> list[NamespaceName]:
        async with self._slots:
            document = await self._try(name, self._admin.tenant(name))
            if document is None:
                return []
            listed = await self._try(name, self._admin.namespaces(name)) or ()
        chosen = [namespace for namespace in listed if self._selection.has(namespace)]
        if chosen or name in self._selection.tenants or (self._selection.everything and name not in ("pulsar",)):
            roles, clusters = document.get("adminRoles") or (), document.get("allowedClusters") or ()
            self._tenants.append(TenantState(name, tuple(sorted(roles)), tuple(sorted(clusters))))
        return chosen

    def _require(self, found: Iterable[NamespaceName], cluster: str) -> None:
        tenants = {one.name for one in self._tenants}
        absent = [*sorted(self._selection.tenants - tenants), *sorted(self._selection.namespaces - set(found))]
        if absent:
            raise Missing(f"{cluster} has no {', '.join(map(str, absent))}: check the selection.", cluster=cluster)

    async def _namespace(self, name: NamespaceName, reader: TopicPolicyReader) -> None:
        async with self._slots:
            document = await self._try(str(name), read_namespace(self._admin, name, self._seal))
            listed = await self._try(str(name), self._admin.topics(name)) if document else None
            partitioned = await self._try(str(name), read_partitioned(self._admin, name)) if document else None
        if document is None or listed is None or partitioned is None:
            return
        parents = set(partitioned)
        # A non-persistent topic without partitions exists only while somebody uses it.
        plain = [topic for topic in listed if topic.parent not in parents and topic.persistent]
        topics = [topic for topic in (*partitioned, *plain) if not topic.is_system]
        if name == PUBLIC_DEFAULT and not topics and not self._selection.names(name):
            return
        self._namespaces.append(NamespaceState(str(name), document))
        await asyncio.gather(*(self._topic(topic, topic in parents) for topic in topics))
        async with self._slots:
            self._policies += await self._try(f"topic policies of {name}", reader.read(name)) or ()

    async def _topic(self, topic: TopicName, partitioned: bool) -> None:
        async with self._slots:
            metadata = await self._try(str(topic), self._admin.partition_metadata(topic)) if partitioned else None
            info: JsonObject | None = {}
            if topic.persistent:
                info = await self._try(str(topic), self._admin.internal_info(topic), still_there=topic)
            versions = await self._try(str(topic), self._admin.schemas(topic))
        if info is None or versions is None or (partitioned and metadata is None):
            return
        properties = metadata.properties if metadata else info.get("properties") or {}
        count = metadata.partitions if metadata else 0
        self._topics.append(TopicState(str(topic), count, dict(properties), _is_terminated(info)))
        self._schemas += (schema_state(topic, version) for version in versions)
        self._subscriptions += cursors_of(topic, info)

    async def _try(self, resource: str, call: Awaitable[Read], still_there: TopicName | None = None) -> Read | None:
        """The answer; None and a note if the resource is gone or cannot be read."""
        try:
            answer = await call
        except Missing as error:
            self._notes.append(Note(resource, Problem.VANISHED.value, str(error)))
            return None
        except FleetError as error:
            # A broker answers 500 to internal-info of a topic that was deleted.
            gone = isinstance(error, Transient) and still_there is not None and not await self._exists(still_there)
            problem = Problem.VANISHED if gone else Problem.UNREADABLE
            self._notes.append(Note(resource, problem.value, str(error)))
            return None
        if answer is None:
            self._notes.append(Note(resource, Problem.VANISHED.value, "It was gone when it was read."))
        return answer

    async def _exists(self, topic: TopicName) -> bool:
        try:
            listed = await self._admin.topics(topic.namespace)
        except Missing:
            return False
        return any(topic in (one, one.parent) for one in listed)


def schema_state(topic: TopicName, found: JsonObject) -> SchemaState:
    """One version in the answer of `AdminClient.schemas`."""
    return SchemaState(
        str(topic),
        int(found["version"]),
        str(found["type"]),
        str(found.get("data") or ""),
        dict(found.get("properties") or {}),
        int(found.get("timestamp") or 0),
    )


async def _read_local(admin: AdminClient, path: str) -> Json:
    try:
        return await admin.get(path)
    except Missing:
        return None


def _position(cursor: JsonObject) -> str:
    found = cursor.get("markDelete") or {}
    return str(Position(int(found.get("ledgerId", -1)), int(found.get("entryId", -1))))


def _is_terminated(info: JsonObject) -> bool:
    return any("terminatedPosition" in part for part in (info, *(info.get("partitions") or {}).values()))


def _is_replicated(cursor: JsonObject) -> bool:
    return (cursor.get("properties") or {}).get("pulsar.replicated.subscription") == 1


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
