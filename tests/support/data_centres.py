"""Clusters in several data centres, traffic in each of them, and what each has stored."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pulsar
from tests.support.applications import Numbered, Publisher
from tests.support.replication import FOREVER

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.apply.outcome import StepResult
from pulsar_fleet.planning.undo import plan_undo
from pulsar_fleet.preflight.findings import Finding, Planned, blockers
from pulsar_fleet.procedures.runner import undoable_runs
from pulsar_fleet.replication import steps
from pulsar_fleet.replication.clusters import Clusters, open_clusters
from pulsar_fleet.replication.request import Request
from pulsar_fleet.replication.setup.plan import ReplicationPlan

_QUIET_MS = 2000


@dataclass
class Replicated:
    """What a run did, stage by stage."""

    run: Run
    planned: Planned[ReplicationPlan]
    stages: list[StepResult] = field(default_factory=list)
    links: int = 0

    @property
    def plan(self) -> ReplicationPlan:
        return self.planned.plan

    @property
    def blockers(self) -> tuple[Finding, ...]:
        return blockers(self.planned.findings)


Connections = Mapping[str, ClusterConnection]


@asynccontextmanager
async def opened(connections: Connections, request: Request) -> AsyncIterator[Clusters]:
    groups = (request.members, request.receive_only, request.leaving)
    async with open_clusters(*([connections[name] for name in group] for group in groups)) as clusters:
        yield clusters


def request_of(*members: str, **settings: Json) -> Request:
    return Request.of({"clusters": list(members), **settings})


async def plan(connections: Connections, request: Request, run_id: str) -> Replicated:
    """Only the dry run."""
    run = Run.open(run_id)
    run.ledger.start_run(run.id, "replicate_namespaces", {})
    async with opened(connections, request) as clusters:
        return Replicated(run, await steps.plan(clusters, request))


async def replicate(connections: Connections, request: Request, run_id: str) -> Replicated:
    """All steps, as the DAG and the command call them."""
    done = await plan(connections, request, run_id)
    run, planned = done.run, done.planned
    assert not done.blockers, findings_text(done)
    async with opened(connections, request) as clusters:
        done.stages.append(await steps.apply_contents(clusters, planned, request, run))
        done.stages.append(await steps.start_links(clusters, planned, request, run))
        done.links = (await steps.confirm(clusters, planned)).links
        async with asyncio.timeout(60):
            while done.plan.ends and await steps.backlog_of_ending_links(clusters, planned):
                await asyncio.sleep(0.5)
        if done.plan.ends:
            done.stages.append(await steps.end_links(clusters, planned, run))
    return done


async def undo(done: Replicated, admins: Mapping[str, AdminClient], stage: str = "") -> None:
    """Undo all stages of a run, or one, as the commands do that it prints, and allow what they would ask for."""
    for run_id in [one for one in undoable_runs(done.run) if one.startswith(f"{done.run.id}/{stage}")]:
        planned, ledger = plan_undo(Ledger.open(), run_id), Ledger.open()
        allow = {change.id for change in planned.changes}
        admin = admins[planned.target]
        applied = await apply_plan(planned, admin, ledger, f"undo/{run_id}", redactor=open_redactor(), allow=allow)
        assert applied.complete, [(result.change.label, result.detail) for result in applied.not_in_place()]


def finding_ids(done: Replicated) -> set[str]:
    return {finding.id for finding in done.planned.findings}


def findings_text(done: Replicated) -> str:
    return "\n".join(finding.text() for finding in done.planned.findings)


async def make_origin(admin: AdminClient, namespace: NamespaceName) -> tuple[TopicName, TopicName]:
    """A namespace that only one cluster has, which keeps everything, with a partitioned and a plain topic."""
    own = await admin.cluster_name()
    if namespace.tenant not in await admin.tenants():
        await admin.put(f"/tenants/{namespace.tenant}", {"adminRoles": ["owner"], "allowedClusters": [own]})
    await admin.put_namespace(namespace, {"replication_clusters": [own], "retention_policies": FOREVER})
    events, audit = TopicName(namespace, "events"), TopicName(namespace, "audit")
    await admin.create_partitioned_topic(events, 3)
    await admin.create_topic(audit)
    return events, audit


class Traffic:
    """One publisher for each topic of each cluster; its keys begin with the cluster's name."""

    def __init__(self, topics: Sequence[TopicName], per_second: float = 40.0) -> None:
        self._topics = topics
        self._per_second = per_second
        self.publishers: dict[tuple[str, TopicName], Publisher] = {}

    def start(self, name: str, connection: ClusterConnection) -> None:
        for topic in self._topics:
            keys = [f"{name}-{number}" for number in range(4)]
            publisher = self.publishers.setdefault((name, topic), Publisher(topic, keys, per_second=self._per_second))
            publisher.start(connection)

    async def stop(self, *names: str) -> None:
        for (name, _), publisher in self.publishers.items():
            if name in names:
                await asyncio.to_thread(publisher.stop)
                assert not publisher.errors

    def sent(self, topic: TopicName, *names: str) -> list[Numbered]:
        return [message for name in names for message in self.publishers[name, topic].sent]

    def counts(self) -> dict[tuple[str, TopicName], int]:
        return {key: len(publisher.sent) for key, publisher in self.publishers.items()}


def stored(connection: ClusterConnection, topic: TopicName) -> list[Numbered]:
    """Every message that a cluster has, in its order within each partition."""
    client = open_client(connection)
    try:
        consumer = client.subscribe(str(topic), "reads-all", initial_position=pulsar.InitialPosition.Earliest)
        messages = []
        while True:
            try:
                message = consumer.receive(_QUIET_MS)
            except pulsar.Timeout:
                break
            messages.append(Numbered.of(message))
            consumer.acknowledge(message)
        consumer.unsubscribe()
        return messages
    finally:
        client.close()


def assert_once_in_order(messages: Sequence[Numbered]) -> None:
    twice = [message for message, count in Counter(messages).items() if count > 1]
    assert not twice, f"{len(twice)} messages more than once, first {twice[0]}"
    by_key: dict[str, list[int]] = {}
    for message in messages:
        by_key.setdefault(message.key, []).append(message.number)
    for key, numbers in by_key.items():
        assert numbers == sorted(numbers), f"the messages of {key} are out of order"


async def wait_sent(admins: Mapping[str, AdminClient], partitions: Sequence[TopicName], names: Sequence[str]) -> None:
    """Until nothing waits to be replicated between these clusters."""
    async with asyncio.timeout(60):
        for name in names:
            for partition in partitions:
                while any(
                    link["replicationBacklog"]
                    for peer, link in (await admins[name].stats(partition, precise=True))["replication"].items()
                    if peer in names
                ):
                    await asyncio.sleep(0.1)


def publish_typed(connection: ClusterConnection, topic: TopicName) -> None:
    """A message with a schema that the topic did not have."""
    client = open_client(connection)
    try:
        client.create_producer(str(topic), schema=pulsar.schema.StringSchema()).send("one")
    finally:
        client.close()


async def make_lagging(
    connections: Connections, origin: AdminClient, target: AdminClient, namespace: NamespaceName
) -> TopicName:
    """A topic of three partitions whose link lags: the target takes none of its new schema's messages."""
    events, _ = await make_origin(origin, namespace)
    names = [await admin.cluster_name() for admin in (origin, target)]
    await replicate(connections, request_of(*names, namespaces=[str(namespace)]), "begin")
    await target.post(f"/namespaces/{namespace.path}/isAllowAutoUpdateSchema", False)
    await asyncio.to_thread(publish_typed, connections[names[0]], events)
    return events
