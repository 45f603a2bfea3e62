"""Readers get brokers of their own: owners by lookup, refusals, tiers, repairs, and what it is worth."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from tests.support.canary import Canary
from tests.support.kinds import StartClusters
from tests.support.shadows import STORED, carry_out, delivered, make_source, plan_of, publish

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.undo import plan_undo
from pulsar_fleet.preflight.findings import Planned, blockers
from pulsar_fleet.read_only import steps
from pulsar_fleet.read_only.plan import ReadOnlyPlan
from pulsar_fleet.read_only.request import Request
from pulsar_fleet.read_only.upkeep.watch import alarms, watch_namespace
from pulsar_sandbox import Cluster

PARTITIONS = 4
SUBSCRIPTIONS, MESSAGES, PAYLOAD_BYTES, TIMED_MESSAGES = 50, 200, 10_000, 300
BUNDLES = {"boundaries": [f"0x{part:x}0000000" if part else "0x00000000" for part in range(16)] + ["0xffffffff"]}
BUNDLES_16: JsonObject = {**BUNDLES, "numBundles": 16}


log = logging.getLogger(__name__)


pytestmark = pytest.mark.long
LOAD_BALANCE = "org.apache.pulsar.broker.loadbalance"
EXTENSIBLE = {
    "loadManagerClassName": f"{LOAD_BALANCE}.extensions.ExtensibleLoadManagerImpl",
    "loadBalancerLoadSheddingStrategy": f"{LOAD_BALANCE}.extensions.scheduler.TransferShedder",
}


@pytest.fixture(
    scope="module",
    params=[pytest.param({}, id="modular"), pytest.param(EXTENSIBLE, id="extensible")],
)
def wide(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters
) -> Iterator[Cluster]:
    folder, settings = tmp_path_factory.mktemp("wide"), {"wide": request.param}
    with start_clusters(folder, clusters=("wide",), brokers=4, settings=settings) as sandbox:
        yield sandbox["wide"]


@pytest.fixture
async def admin(wide: Cluster) -> AsyncIterator[AdminClient]:
    connection = ClusterConnection(name="wide", admin_url=wide.admin_url, service_url=wide.service_url)
    async with AdminClient(connection) as admin:
        yield admin
        for name in await admin.isolation_policies():
            await admin.delete(f"/clusters/wide/namespaceIsolationPolicies/{name}")


class Serving:
    """Runs of the procedure for one source, one after the other."""

    def __init__(self, admin: AdminClient, wide: Cluster, tenant: str) -> None:
        self.admin, self.wide, self.tenant, self.runs = admin, wide, tenant, 0
        self.source = TopicName(NamespaceName(tenant, "source"), "events")
        self.readers = self.namespace("readers")
        self.policy_path = f"/clusters/wide/namespaceIsolationPolicies/{tenant}~readers"

    async def make(self) -> None:
        await make_source(self.admin, self.wide, self.source, PARTITIONS)

    def namespace(self, name: str) -> NamespaceName:
        return NamespaceName(self.tenant, name)

    def host(self, number: int) -> str:
        return self.wide.layout.brokers[number].host

    def shadows(self, namespace: NamespaceName | None = None) -> tuple[TopicName, ...]:
        return TopicName(namespace or self.readers, self.source.local).partitions(PARTITIONS)

    async def plan(self, namespace: NamespaceName | None = None, **settings: Any) -> tuple[Planned[ReadOnlyPlan], Run]:
        self.runs += 1
        run = Run.open(f"brokers/{self.tenant}-{self.runs}")
        conf = {"topics": [str(self.source)], "namespace": str(namespace or self.readers), **settings}
        return await plan_of(self.admin, conf), run

    async def findings(self, *brokers: str, **settings: Any) -> set[str]:
        planned, _ = await self.plan(brokers=list(brokers), **settings)
        ids = {finding.id for finding in planned.findings}
        return ids - {"source-retention-short"}

    async def serve(self, namespace: NamespaceName | None = None, **settings: Any) -> tuple[Planned[ReadOnlyPlan], Run]:
        planned, run = await self.plan(namespace, **settings)
        assert not blockers(planned.findings), planned.findings
        await carry_out(self.admin, planned, run)
        return planned, run

    async def hosts(self, namespace: NamespaceName | None = None) -> set[str]:
        """The hosts of the brokers that own the topics of readers."""
        return {(await self.admin.owner(topic)).split(":")[0] for topic in self.shadows(namespace)}

    async def alarms(self) -> set[str]:
        _, findings = await watch_namespace(self.admin, self.readers, 60)
        return {finding.id for finding in alarms(findings)}

    async def received(self, topic: TopicName, subscription: str = "reader") -> int:
        return await asyncio.to_thread(delivered, self.wide.service_url, topic, subscription)


@pytest.fixture
async def serving(
    admin: AdminClient, wide: Cluster, new_namespace: Callable[[], NamespaceName], records: Path
) -> Serving:
    serving = Serving(admin, wide, new_namespace().tenant)
    await serving.make()
    return serving


async def spread(admin: AdminClient, namespace: NamespaceName) -> set[str]:
    """Make a namespace of sixteen bundles; the hosts of the brokers that take them."""
    await admin.put_namespace(namespace, {"replication_clusters": ["wide"], "bundles": BUNDLES_16})
    topics = [TopicName(namespace, f"topic-{number}") for number in range(32)]
    return {(await admin.owner(topic)).split(":")[0] for topic in topics}


async def test_readers_get_a_broker_of_their_own_and_give_it_back(serving: Serving) -> None:
    admin = serving.admin
    canary = TopicName(serving.namespace("canary"), "events")
    await admin.put_namespace(canary.namespace, {"replication_clusters": ["wide"], "bundles": BUNDLES_16})
    await admin.create_partitioned_topic(canary, PARTITIONS)
    with Canary(serving.wide.service_url, canary) as application:
        planned, run = await serving.serve(brokers=[serving.host(2)])
        text = planned.text
        assert f"POST /admin/v2{serving.policy_path}" in text
        assert "a copy on another cluster would store as much again" in text
        assert "3 of 4 brokers stay free" in text
        findings = {finding.id: finding for finding in planned.findings}
        assert "No other namespace is given to it any more" in findings["brokers-lost-for-others"].consequence
        assert await serving.hosts() == {serving.host(2)}
        assert await serving.received(TopicName(serving.readers, "events")) == STORED
        assert serving.host(2) not in await spread(admin, serving.namespace("others"))
        sent = (await steps.confirm(admin, planned)).sent
        assert {broker.split(":")[0] for broker, (_, shadows) in sent.items() if shadows} == {serving.host(2)}
        (row,) = [row for row in run.ledger.changes(f"{run.id}/contents") if "isolation" in row.resource]
        assert (row.before, row.after["primary"]) == (None, [r"127\.0\.0\.3(:[0-9]+)?"])
        for again in ({"brokers": [serving.host(2)]}, {}):
            repeated, _ = await serving.serve(**again)
            assert (repeated.plan.changes(), repeated.plan.calls()) == ((), [])
        assert await serving.alarms() <= {"source-retention-short"}

        _, run = await serving.serve(remove=True)
        assert await admin.isolation_policies() == {}
        (row,) = [row for row in run.ledger.changes(run.id) if "isolation" in row.resource]
        assert (row.before["namespaces"], row.after) == ([str(serving.readers)], None)
        removed, _ = await serving.serve(remove=True)
        assert (removed.plan.changes(), removed.plan.calls()) == ((), [])
        assert serving.host(2) in await spread(admin, serving.namespace("later"))
    assert application.lost == 0
    assert len(application.sent) > 100


async def test_topics_served_already_move_and_changes_to_them_are_repaired(serving: Serving) -> None:
    admin = serving.admin
    await serving.serve()
    assert await admin.isolation_policies() == {}
    (broker,) = [name for name in await admin.brokers() if name.startswith(serving.host(3))]
    planned, run = await serving.serve(brokers=[broker])
    assert await serving.hosts() == {serving.host(3)}
    policy = (await admin.isolation_policies())[f"{serving.tenant}~readers"]
    assert policy["primary"] == [rf"127\.0\.0\.4(:{broker.split(':')[1]})?"]
    stored = planned.plan
    assert {row.resource for row in run.ledger.changes(run.id)} >= {
        f"bundle {serving.readers}/{bundle}" for bundle in stored.moving
    }
    assert await serving.alarms() == set()

    topic = serving.shadows()[0]
    (elsewhere,) = [name for name in await admin.brokers() if name.startswith(serving.host(0))]
    bundle = await admin.bundle(topic)
    await admin.put(f"/namespaces/{serving.readers.path}/{bundle}/unload", destinationBroker=elsewhere)
    assert await admin.owner(topic) == elsewhere
    assert await serving.alarms() == {"topic-on-other-broker"}
    planned, _ = await serving.serve()
    assert len(planned.plan.changes()) == 1
    assert await serving.hosts() == {serving.host(3)}
    assert await serving.alarms() == set()

    await admin.post(serving.policy_path, {**policy, "primary": [r"127\.0\.0\.9"]})
    assert await serving.alarms() == {"isolation-policy-changed"}
    await admin.delete(serving.policy_path)
    assert await serving.alarms() == {"isolation-policy-missing"}
    await serving.serve()
    assert await serving.alarms() == set()
    assert await serving.received(TopicName(serving.readers, "events")) == STORED


async def test_two_tiers_of_readers_have_brokers_of_their_own(serving: Serving) -> None:
    admin = serving.admin
    gold, bronze = (serving.namespace(name) for name in ("gold", "bronze"))
    await serving.serve(gold, brokers=[serving.host(1)])
    await serving.serve(bronze, brokers=[serving.host(2)])
    assert (await serving.hosts(gold), await serving.hosts(bronze)) == ({serving.host(1)}, {serving.host(2)})
    both = {str(TopicName(tier, "events")) for tier in (gold, bronze)}
    assert set(await admin.get(f"/{serving.source.path}/shadowTopics")) == both
    for tier in (gold, bronze):
        assert await serving.received(TopicName(tier, "events")) == STORED
    await serving.serve(gold, remove=True)
    assert set(await admin.isolation_policies()) == {f"{serving.tenant}~bronze"}
    assert await admin.get(f"/{serving.source.path}/shadowTopics") == [str(TopicName(bronze, "events"))]
    assert await serving.received(TopicName(bronze, "events"), "later") == STORED
    assert await serving.hosts(bronze) == {serving.host(2)}
    await serving.serve(bronze, remove=True)
    assert await admin.isolation_policies() == {}
    assert await serving.received(serving.source, "owner") == STORED


async def test_two_tiers_that_were_planned_at_once_both_get_new_messages(serving: Serving) -> None:
    tiers = [serving.namespace(name) for name in ("gold", "bronze")]
    plans = [await serving.plan(tier, brokers=[serving.host(number)]) for number, tier in enumerate(tiers, start=1)]
    for planned, run in plans:
        assert not blockers(planned.findings), planned.findings
        await carry_out(serving.admin, planned, run)
    await asyncio.to_thread(publish, serving.wide.service_url, serving.source, 40)
    for tier in tiers:
        # The last message of an open ledger may come with the next one.
        async with asyncio.timeout(60):
            while await serving.received(TopicName(tier, "events"), "new") < STORED + 40 - PARTITIONS:
                pass


async def test_brokers_that_would_take_a_namespace_out_of_service_are_refused(serving: Serving) -> None:
    admin = serving.admin
    hosts = [serving.host(number) for number in range(4)]
    assert await serving.findings(hosts[2]) == {"brokers-lost-for-others"}
    assert await serving.findings("10.9.9.9", f"{hosts[0]}:1") == {"brokers-not-alive"}
    assert await serving.findings(hosts[2], "10.9.9.9") == {"broker-not-alive", "brokers-lost-for-others"}
    assert await serving.findings(*hosts[:3]) == {"too-few-free-brokers", "brokers-lost-for-others"}
    path = "/clusters/wide/namespaceIsolationPolicies/theirs"
    policy = {
        "namespaces": ["nobody/else"],
        "primary": [r"127\.0\.0\.2"],
        "secondary": [r"127\.0\.0\.1"],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "100"},
        },
    }
    await admin.post(path, policy)
    assert await serving.findings(hosts[2]) == {"brokers-lost-for-others"}
    assert await serving.findings(hosts[2], hosts[3]) == {"too-few-free-brokers", "brokers-lost-for-others"}
    for host in hosts[:2]:
        assert "brokers-of-other-policy" in await serving.findings(host)
    await admin.post(path, {**policy, "namespaces": [f"{serving.tenant}/.*"]})
    assert "namespace-of-other-policy" in await serving.findings(hosts[2])
    await admin.delete(path)
    await admin.post(serving.policy_path, policy)
    assert "namespace-of-other-policy" in await serving.findings(hosts[2])


async def test_topics_that_are_elsewhere_are_named(serving: Serving) -> None:
    admin = serving.admin
    planned, run = await serving.plan(brokers=[serving.host(2)])
    await steps.create_topics(admin, planned, run)
    path = serving.policy_path
    policy = await admin.get(path)
    await admin.post(path, {**policy, "primary": ["nobody"]})
    problem = (
        r"4 of 4 topics are not on 127\.0\.0\.3 after 3 s\. First \S+/readers/events-partition-0: it is on no broker"
    )
    with pytest.raises(PreconditionFailed, match=problem):
        await steps.confirm_brokers(admin, planned, run, seconds=3)
    await admin.post(path, {**policy, "primary": [r"127\.0\.0\.4"]})
    async with asyncio.timeout(60):
        while await serving.hosts() != {serving.host(3)}:
            await asyncio.sleep(0.5)
    await admin.post(path, policy)
    assert (await steps.confirm_brokers(admin, planned, run)).changes > 0
    assert await serving.hosts() == {serving.host(2)}
    moved = [row for row in run.ledger.changes(run.id) if row.resource.startswith("bundle ")]
    assert {(row.before.split(":")[0], row.after.split(":")[0]) for row in moved} == {("127.0.0.4", "127.0.0.3")}


async def test_the_undo_of_the_creation_gives_the_brokers_back(serving: Serving) -> None:
    admin = serving.admin
    planned, run = await serving.plan(brokers=[serving.host(2)])
    await steps.create_topics(admin, planned, run)
    undo = plan_undo(run.ledger, f"{run.id}/contents")
    allowed = {change.id for change in undo.changes}
    result = await apply_plan(undo, admin, run.ledger, f"{run.id}/undo", redactor=open_redactor(), allow=allowed)
    assert result.complete, result
    assert await admin.isolation_policies() == {}
    assert await admin.namespace(serving.readers) is None
    assert await serving.received(serving.source, "owner") == STORED


def fan_out(service_url: str, source: TopicName, read: TopicName) -> int:
    """Publish to the source while fifty subscriptions read a topic; the messages that they got."""
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(str(source), block_if_queue_full=True)
    consumers = [
        client.subscribe(str(read), f"fan-out-{number}", receiver_queue_size=MESSAGES)
        for number in range(SUBSCRIPTIONS)
    ]
    for number in range(MESSAGES):
        producer.send_async(number.to_bytes(PAYLOAD_BYTES, "big"), lambda *_: None)
    producer.flush()
    # The last entry of an open ledger may come to a shadow topic only with the next one.
    producer.send(b"next")
    received = 0
    for consumer in consumers:
        for _ in range(MESSAGES):
            consumer.receive(timeout_millis=30_000)
            received += 1
        consumer.unsubscribe()
    client.close()
    return received


async def sent_bytes(admin: AdminClient, broker: str) -> int:
    """What a broker has sent to all consumers since its start."""
    metrics = (await admin.http.call("GET", "/metrics/", base=f"http://{broker}")).text
    values = re.findall(r"^pulsar_broker_out_bytes_total\{.*?\} (\S+)$", metrics, re.MULTILINE)
    return int(sum(map(float, values)))


def delays(service_url: str, source: TopicName, shadow: TopicName) -> dict[str, list[float]]:
    """Milliseconds from publish to receive, by a reader of the source and one of its shadow topic."""
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    times: dict[str, list[float]] = {"source": [], "shadow": []}

    def listen(name: str) -> Callable[[pulsar.Consumer, pulsar.Message], None]:
        return lambda _, message: times[name].append((time.time() - float(message.data())) * 1000)

    for name, topic in (("source", source), ("shadow", shadow)):
        client.subscribe(str(topic), "delays", message_listener=listen(name))
    producer = client.create_producer(str(source))
    for _ in range(TIMED_MESSAGES):
        producer.send(repr(time.time()).encode())
        time.sleep(0.02)
    time.sleep(2)
    client.close()
    return times


async def test_fifty_subscriptions_cost_the_broker_of_the_source_nothing(serving: Serving) -> None:
    admin, url = serving.admin, serving.wide.service_url
    source = TopicName(serving.source.namespace, "load")
    await make_source(admin, serving.wide, source)
    owner = await admin.owner(source)
    number = 3 if owner.startswith(serving.host(2)) else 2
    await serving.serve(topics=[str(source)], brokers=[serving.host(number)])
    shadow = TopicName(serving.readers, source.local)
    own = await admin.owner(shadow)
    copies = SUBSCRIPTIONS * MESSAGES * PAYLOAD_BYTES
    sent: dict[TopicName, dict[str, int]] = {}
    for topic in (source, shadow):
        before = {broker: await sent_bytes(admin, broker) for broker in (owner, own)}
        assert await asyncio.to_thread(fan_out, url, source, topic) == SUBSCRIPTIONS * MESSAGES
        sent[topic] = {broker: await sent_bytes(admin, broker) - before[broker] for broker in (owner, own)}
        log.warning("fifty subscriptions on %s: owner sent %s bytes, readers' broker %s", topic, *sent[topic].values())
    times = await asyncio.to_thread(delays, url, source, shadow)
    for name, values in times.items():
        p50, p99 = (sorted(values)[int(len(values) * share)] for share in (0.5, 0.99))
        log.warning("publish to receive on the %s: p50 %.1f ms, p99 %.1f ms, %d messages", name, p50, p99, len(values))
    assert sent[source][owner] > 0.9 * copies
    assert sent[shadow][own] > 0.9 * copies
    assert sent[shadow][owner] < 0.01 * copies
    assert len(times["source"]) == TIMED_MESSAGES
    assert len(times["shadow"]) >= TIMED_MESSAGES - 1


@pytest.mark.parametrize("broker", ["", "http://a:8080", "a:b", "a/b", ".*"])
def test_what_is_not_a_broker_is_refused(broker: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a broker"):
        Request.of({"topics": ["persistent://a/b/c"], "namespace": "a/readers", "brokers": [broker]})
