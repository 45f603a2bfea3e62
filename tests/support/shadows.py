"""A topic whose data waits for its owner, and a shadow topic that shares its ledgers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import pulsar
from tests.support.replication import FOREVER, make_alone

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import Json, JsonObject
from pulsar_fleet.cluster.names import SHADOW_SOURCE, NamespaceName, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.apply.outcome import StepResult
from pulsar_fleet.preflight.findings import Planned
from pulsar_fleet.read_only import removal, steps
from pulsar_fleet.read_only.plan import ReadOnlyPlan, ServingPlan
from pulsar_fleet.read_only.request import Request
from pulsar_sandbox import Cluster

STORED = 20
NOTHING_KEPT = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}


@dataclass(frozen=True)
class Shadowed:
    """`source` has 20 messages in a ledger that is closed, and `owner` has acknowledged none of them."""

    admin: AdminClient
    cluster: Cluster
    source: TopicName
    shadow: TopicName

    async def past_the_guard(self, method: str, path: str, body: Json = None, **params: str | bool) -> None:
        """A call as another tool sends it."""
        await self.admin.http.call(
            method, f"/admin/v2{path}", params=params, body=body, has_body=body is not None, answered_retry_seconds=0
        )

    async def trim(self) -> None:
        """Let the broker delete what the shadow's retention lets go, as it does every two minutes by itself."""
        await asyncio.sleep(1)
        await self.admin.post(f"/{self.shadow.path}/trim")
        await asyncio.sleep(1)

    async def delivered(self) -> int:
        """How many messages the owner gets that has acknowledged nothing, from the ledgers and not from a cache."""
        await self.admin.put(f"/{self.source.path}/unload")
        return await asyncio.to_thread(delivered, self.cluster.service_url, self.source)


def delivered(service_url: str, topic: TopicName, subscription: str = "owner") -> int:
    """How many messages a consumer receives until none comes for two seconds; it acknowledges none."""
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    received = 0
    try:
        consumer = client.subscribe(str(topic), subscription, initial_position=pulsar.InitialPosition.Earliest)
        while True:
            consumer.receive(timeout_millis=2000)
            received += 1
    except pulsar.Timeout:
        return received
    finally:
        client.close()


def publish(service_url: str, topic: TopicName, count: int = STORED) -> None:
    """Publish messages."""
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(str(topic))
    for number in range(count):
        producer.send(f"message {number}".encode())
    client.close()


async def make_source(admin: AdminClient, cluster: Cluster, topic: TopicName, partitions: int = 0) -> None:
    """A topic of a namespace that keeps nothing but what `owner` has not acknowledged, in a closed ledger."""
    own = await admin.cluster_name()
    namespace = topic.namespace
    if namespace.tenant not in await admin.tenants():
        await admin.put(f"/tenants/{namespace.tenant}", {"adminRoles": [], "allowedClusters": [own]})
    if await admin.namespace(namespace) is None:
        await admin.put_namespace(namespace, {"replication_clusters": [own]})
    await (admin.create_partitioned_topic(topic, partitions) if partitions else admin.create_topic(topic))
    await admin.create_subscription(topic, "owner")
    await asyncio.to_thread(publish, cluster.service_url, topic)
    await admin.put(f"/{topic.path}/unload")
    for stored in topic.partitions(partitions):
        await admin.stats(stored)


async def make_shadowed(admin: AdminClient, cluster: Cluster, tenant: str, partitions: int = 0) -> Shadowed:
    """A source and its shadow, in a namespace that keeps everything."""
    source = TopicName(NamespaceName(tenant, "source"), "events")
    shadow = TopicName(NamespaceName(tenant, "readers"), "events")
    await make_source(admin, cluster, source, partitions)
    await make_alone(admin, shadow.namespace)
    properties = {SHADOW_SOURCE: str(source)}
    if partitions:
        await admin.create_partitioned_topic(shadow, partitions, properties)
    else:
        await admin.create_topic(shadow, properties)
    await admin.put(f"/{source.path}/shadowTopics", [str(shadow)])
    for stored in shadow.partitions(partitions):
        await admin.stats(stored)
    return Shadowed(admin, cluster, source, shadow)


__all__ = ["FOREVER", "NOTHING_KEPT", "STORED", "Shadowed", "delivered", "make_shadowed", "make_source", "publish"]


async def plan_of(admin: AdminClient, conf: JsonObject) -> Planned[ReadOnlyPlan]:
    """The plan of a run by its settings, as the procedure makes it."""
    request = Request.of(conf)
    return await (removal.plan(admin, request) if conf.get("remove") else steps.plan(admin, request))


async def carry_out(admin: AdminClient, planned: Planned[ReadOnlyPlan], run: Run) -> StepResult:
    """What follows the approval of a plan, as the procedure does it; the result of the step that links or removes."""
    match planned.plan:
        case removal.RemovalPlan() as plan:
            return await removal.remove_topics(admin, replace(planned, plan=plan), run)
        case ServingPlan() as plan:
            serving = replace(planned, plan=plan)
            await steps.create_topics(admin, serving, run)
            await steps.confirm_brokers(admin, serving, run)
            linked = await steps.link_topics(admin, serving, run)
            await steps.confirm(admin, serving)
            return linked
    raise AssertionError(planned.plan)
