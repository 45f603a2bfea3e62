"""Populate a cluster by ensuring each part: tenants, namespaces, topics, schemas, subscriptions, messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from urllib.parse import quote

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import JsonObject
from pulsar_sandbox.workload.layout import EstateSpec, NamespacePlan, TenantPlan, TopicPlan, plan_estate
from pulsar_sandbox.workload.schemas import schema_body

log = logging.getLogger(__name__)

_FILLERS = 12
"""Threads that fill topics: they mostly wait, a Failover consumer a whole second to become the active one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How much of each kind; `partitions` counts plain topics once, `backlog` sums over subscriptions."""

    tenants: int = 0
    namespaces: int = 0
    topics: int = 0
    partitions: int = 0
    schema_versions: int = 0
    topic_policies: int = 0
    subscriptions: int = 0
    messages: int = 0
    backlog: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{item.name: getattr(self, item.name) + getattr(other, item.name) for item in fields(self)})


@dataclass(frozen=True, slots=True)
class Estate:
    """The layout of an estate, and what this call created of it.

    :param tenants: the whole layout: tenants, their namespaces, topics, subscriptions and acknowledged messages.
    :param holds: counts of the layout.
    :param created: counts of created resources; all 0 on a second call.
    """

    spec: EstateSpec
    cluster: str
    tenants: tuple[TenantPlan, ...]
    holds: Counts
    created: Counts

    @property
    def namespaces(self) -> tuple[NamespacePlan, ...]:
        """Every namespace, the live one first."""
        return tuple(namespace for tenant in self.tenants for namespace in tenant.namespaces)

    @property
    def topics(self) -> tuple[TopicPlan, ...]:
        """Every topic."""
        return tuple(topic for namespace in self.namespaces for topic in namespace.topics)

    @property
    def live(self) -> NamespacePlan:
        """The namespace for the traffic."""
        return self.namespaces[0]

    def to_json(self) -> JsonObject:
        """Names and counts, for reports."""
        return {
            "schema_version": 1,
            "cluster": self.cluster,
            "spec": asdict(self.spec),
            "namespaces": [str(namespace.name) for namespace in self.namespaces],
            "topics": [str(topic.name) for topic in self.topics],
            "holds": asdict(self.holds),
            "created": asdict(self.created),
        }


async def build_estate(
    connection: ClusterConnection, spec: EstateSpec, progress: Callable[[str], None] | None = None
) -> Estate:
    """Create the missing parts of the estate on a cluster, and count them.

    A topic that has a message counts as filled. A second call creates nothing.

    :param progress: receives one line per stage.
    :raises FleetError: by who must act, when the cluster refuses a part.
    """
    report = progress or log.info
    tenants = plan_estate(spec)
    namespaces = [namespace for tenant in tenants for namespace in tenant.namespaces]
    topics = [topic for namespace in namespaces for topic in namespace.topics]
    async with AdminClient(connection) as admin:
        cluster = await admin.cluster_name()
        created = _sum([await _ensure_tenant(admin, tenant, cluster) for tenant in tenants])
        created += _sum(await asyncio.gather(*(_ensure_namespace(admin, plan, cluster) for plan in namespaces)))
        report(f"{cluster}: {created.namespaces} of {len(namespaces)} namespaces created")
        created += _sum(await asyncio.gather(*(_ensure_topics(admin, plan) for plan in namespaces)))
        report(f"{cluster}: {created.topics} of {len(topics)} topics and {created.subscriptions} subscriptions created")
        created += await _fill(admin, topics)
        report(f"{cluster}: {created.messages} messages published")
    return Estate(spec, cluster, tenants, _count(tenants), created)


async def _ensure_tenant(admin: AdminClient, tenant: TenantPlan, cluster: str) -> Counts:
    if await admin.tenant(tenant.name) is not None:
        return Counts()
    body = {"adminRoles": list(tenant.admin_roles), "allowedClusters": [cluster]}
    await admin.put(f"/tenants/{quote(tenant.name, safe='')}", body)
    return Counts(tenants=1)


async def _ensure_namespace(admin: AdminClient, namespace: NamespacePlan, cluster: str) -> Counts:
    if await admin.namespace(namespace.name) is not None:
        return Counts()
    await admin.put_namespace(namespace.name, namespace.document(cluster))
    return Counts(namespaces=1)


async def _ensure_topics(admin: AdminClient, namespace: NamespacePlan) -> Counts:
    existing = {*await admin.topics(namespace.name), *await admin.partitioned_topics(namespace.name)}
    ensured = (_ensure_topic(admin, topic, exists=topic.name in existing) for topic in namespace.topics)
    return _sum(await asyncio.gather(*ensured))


async def _ensure_topic(admin: AdminClient, topic: TopicPlan, *, exists: bool) -> Counts:
    created = Counts() if exists else Counts(topics=1, partitions=max(1, topic.partitions))
    if not exists and topic.partitions:
        await admin.create_partitioned_topic(topic.name, topic.partitions, topic.properties)
    elif not exists:
        await admin.create_topic(topic.name, topic.properties)
    created += await _ensure_schemas(admin, topic)
    created += await _ensure_topic_policies(admin, topic)
    return created + await _ensure_subscriptions(admin, topic)


async def _ensure_schemas(admin: AdminClient, topic: TopicPlan) -> Counts:
    if topic.schema is None:
        return Counts()
    existing = len(await admin.schemas(topic.name))
    for version in range(existing, topic.schema_versions):
        await admin.post_schema(topic.name, schema_body(topic.schema, version))
    return Counts(schema_versions=max(0, topic.schema_versions - existing))


async def _ensure_topic_policies(admin: AdminClient, topic: TopicPlan) -> Counts:
    created = 0
    for name, value in topic.policies.items():
        path = f"/{topic.name.path}/{name}"
        if await admin.get(path) is None:
            await admin.post(path, value)
            created += 1
    return Counts(topic_policies=created)


async def _ensure_subscriptions(admin: AdminClient, topic: TopicPlan) -> Counts:
    if not topic.subscriptions:
        return Counts()
    existing = set(await admin.get(f"/{topic.name.path}/subscriptions"))
    missing = [subscription.name for subscription in topic.subscriptions if subscription.name not in existing]
    for name in missing:
        await admin.create_subscription(topic.name, name, "earliest")
    return Counts(subscriptions=len(missing))


async def _fill(admin: AdminClient, topics: list[TopicPlan]) -> Counts:
    from pulsar_sandbox.workload.messages import fill_topic, open_client

    empty = [topic for topic in topics if topic.messages and await _is_empty(admin, topic)]
    if not empty:
        return Counts()
    client = open_client(admin.connection)
    loop = asyncio.get_running_loop()
    try:
        with ThreadPoolExecutor(_FILLERS, thread_name_prefix="estate") as pool:
            published = await asyncio.gather(
                *(loop.run_in_executor(pool, fill_topic, client, topic) for topic in empty)
            )
    finally:
        client.close()
    return Counts(messages=sum(published), backlog=sum(map(_backlog, empty)))


async def _is_empty(admin: AdminClient, topic: TopicPlan) -> bool:
    """Whether no message was ever stored; the last position survives trimming and restarts."""
    for part in topic.name.partitions(topic.partitions):
        if not str((await admin.internal_stats(part))["lastConfirmedEntry"]).endswith(":-1"):
            return False
    return True


def _sum(parts: Iterable[Counts]) -> Counts:
    return sum(parts, start=Counts())


def _backlog(topic: TopicPlan) -> int:
    return sum(topic.messages - len(topic.acknowledged(subscription)) for subscription in topic.subscriptions)


def _count(tenants: tuple[TenantPlan, ...]) -> Counts:
    namespaces = [namespace for tenant in tenants for namespace in tenant.namespaces]
    topics = [topic for namespace in namespaces for topic in namespace.topics]
    return Counts(
        tenants=len(tenants),
        namespaces=len(namespaces),
        topics=len(topics),
        partitions=sum(max(1, topic.partitions) for topic in topics),
        schema_versions=sum(topic.schema_versions for topic in topics),
        topic_policies=sum(len(topic.policies) for topic in topics),
        subscriptions=sum(len(topic.subscriptions) for topic in topics),
        messages=sum(topic.messages for topic in topics),
        backlog=sum(map(_backlog, topics)),
    )
