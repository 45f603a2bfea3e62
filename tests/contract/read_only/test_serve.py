"""Topics are served read-only by shadow topics, and taken away again; their sources lose nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pulsar
import pytest
from tests.support.remedies import calls, send
from tests.support.shadows import NOTHING_KEPT, STORED, carry_out, delivered, make_source, plan_of, publish

from pulsar_fleet.cluster.admin.call import Call
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.shadow_guard import RETIRED_FROM
from pulsar_fleet.cluster.errors import InvalidRequest, PreconditionFailed
from pulsar_fleet.cluster.names import SHADOW_SOURCE, NamespaceName, TopicName
from pulsar_fleet.cluster.policies.documents import comparable
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.prepare.compaction import compact
from pulsar_fleet.planning.apply.outcome import StepResult
from pulsar_fleet.preflight.findings import Finding, Planned, blockers
from pulsar_fleet.read_only import steps
from pulsar_fleet.read_only.plan import ReadOnlyPlan
from pulsar_fleet.read_only.request import Request
from pulsar_fleet.read_only.upkeep.watch import alarms, watch_namespace
from pulsar_sandbox import Sandbox

LONG = {"retentionTimeInMinutes": 90, "retentionSizeInMB": -1}


class Serving:
    """Runs of the procedure on blue, one after the other."""

    def __init__(self, admin: AdminClient, sandbox: Sandbox, tenant: str) -> None:
        self.admin, self.cluster = admin, sandbox["blue"]
        self.owner, self.readers = NamespaceName(tenant, "source"), NamespaceName(tenant, "readers")
        self.runs = 0

    def topic(self, name: str) -> TopicName:
        return TopicName(self.owner, name)

    def shadow(self, name: str) -> TopicName:
        return TopicName(self.readers, name)

    async def plan(self, *topics: str, **settings: Any) -> tuple[Planned[ReadOnlyPlan], Run]:
        self.runs += 1
        run = Run.open(f"serve/{self.readers.tenant}-{self.runs}")
        names = [str(self.topic(name)) for name in topics]
        return await plan_of(self.admin, {"topics": names, "namespace": str(self.readers), **settings}), run

    async def findings(self, *topics: str, **settings: Any) -> dict[str, Finding]:
        planned, _ = await self.plan(*topics, **settings)
        return {finding.id: finding for finding in planned.findings}

    async def findings_of(self, topics: list[str], namespace: NamespaceName) -> dict[str, Finding]:
        return await self.findings(topics=topics, namespace=str(namespace))

    async def serve(self, *topics: str, **settings: Any) -> tuple[Planned[ReadOnlyPlan], Run, StepResult]:
        planned, run = await self.plan(*topics, **settings)
        assert not blockers(planned.findings), planned.findings
        return planned, run, await carry_out(self.admin, planned, run)

    async def received(self, name: str, subscription: str = "reader") -> int:
        return await asyncio.to_thread(delivered, self.cluster.service_url, self.shadow(name), subscription)

    async def owner_receives(self, name: str) -> int:
        await self.admin.put(f"/{self.topic(name).path}/unload")
        return await asyncio.to_thread(delivered, self.cluster.service_url, self.topic(name))


@pytest.fixture
async def serving(
    on_alone: AdminClient, alone: Sandbox, new_namespace: Callable[[], NamespaceName], records: Path
) -> Serving:
    return Serving(on_alone, alone, new_namespace().tenant)


async def test_topics_are_served_and_a_second_run_changes_nothing(serving: Serving) -> None:
    await make_source(serving.admin, serving.cluster, serving.topic("plain"))
    await make_source(serving.admin, serving.cluster, serving.topic("parts"), 3)
    planned, run, _ = await serving.serve("plain", "parts")
    assert len(planned.plan.changes()) == 5
    for name in ("plain", "parts"):
        assert await serving.received(name) == STORED
    await asyncio.to_thread(publish, serving.cluster.service_url, serving.topic("plain"), 5)
    # The last entry of an open ledger may come with the next one.
    async with asyncio.timeout(60):
        while await serving.received("plain", "later") < STORED + 4:
            pass
    again, _, _ = await serving.serve("plain", "parts")
    assert (again.plan.changes(), again.plan.calls()) == ((), [])
    resources = {row.resource for row in run.ledger.changes(run.id)}
    assert resources == {f"shadow topics of {serving.topic(name)}" for name in ("plain", "parts")}
    created = {row.resource for row in run.ledger.changes(f"{run.id}/contents")}
    assert created == {f"namespace {serving.readers}", *(f"topic {serving.shadow(n)}" for n in ("plain", "parts"))}


async def test_the_namespace_keeps_everything_and_nobody_may_produce_in_it(serving: Serving) -> None:
    await make_source(serving.admin, serving.cluster, serving.topic("plain"))
    for role, actions in (("writer", ["produce"]), ("both", ["produce", "consume"]), ("reader", ["consume"])):
        await serving.admin.post(f"/namespaces/{serving.owner.path}/permissions/{role}", actions)
    await serving.serve("plain")
    document = await serving.admin.namespace(serving.readers) or {}
    assert document["retention_policies"] == {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    assert document["auth_policies"]["namespace_auth"] == {"both": ["consume"], "reader": ["consume"]}
    assert document["inactive_topic_policies"]["deleteWhileInactive"] is False
    with pytest.raises(PreconditionFailed, match=f"data of {serving.topic('plain')} would be deleted"):
        await serving.admin.post(f"/namespaces/{serving.readers.path}/retention", NOTHING_KEPT)


@pytest.mark.long
@pytest.mark.parametrize("partitions", [0, 2])
async def test_topics_are_taken_away_and_the_owner_still_gets_every_message(serving: Serving, partitions: int) -> None:
    await make_source(serving.admin, serving.cluster, serving.topic("events"), partitions)
    await serving.serve("events")
    assert await serving.received("events") == STORED
    planned, run, removed = await serving.serve("events", remove=True)
    assert (len(planned.plan.changes()), removed.kept) == (2, ())
    retires = any("-retired" in call.path for call in planned.plan.calls())
    assert retires is not await serving.admin.deletes_shadows_alone()
    assert await serving.admin.namespace(serving.readers) is None
    assert not await serving.admin.get(f"/{serving.topic('events').path}/shadowTopics")
    assert await serving.owner_receives("events") == STORED
    assert {row.outcome for row in run.ledger.changes(run.id)} == {"applied"}
    again, _, _ = await serving.serve("events", remove=True)
    assert (again.plan.changes(), again.plan.calls()) == ((), [])
    await serving.serve("events")
    assert await serving.received("events", "again") == STORED


@pytest.mark.long
async def test_one_of_two_topics_is_taken_away_and_the_namespace_stays(serving: Serving) -> None:
    for name in ("stays", "goes"):
        await make_source(serving.admin, serving.cluster, serving.topic(name))
    await serving.serve("stays", "goes")
    _, _, removed = await serving.serve("goes", remove=True)
    assert "topics are left in it" in removed.kept[0]
    assert await serving.admin.topics(serving.readers) == (serving.shadow("stays"),)
    assert await serving.received("stays") == STORED
    assert await serving.owner_receives("goes") == STORED


@pytest.mark.long
@pytest.mark.parametrize("tenths", range(1, 10, 2))
async def test_a_removal_that_was_cut_is_finished_by_the_next(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, tenths: int
) -> None:
    await make_source(serving.admin, serving.cluster, serving.topic("events"))
    await serving.serve("events")
    planned, _ = await serving.plan("events", remove=True)
    left = sum(call.method != "GET" for call in planned.plan.calls()) * tenths // 10
    sends = serving.admin.send

    async def cut(call: Call) -> None:
        nonlocal left
        if (left := left - 1) < 0:
            raise ConnectionError
        await sends(call)

    monkeypatch.setattr(serving.admin, "send", cut)
    with pytest.raises(ConnectionError):
        await serving.serve("events", remove=True)
    monkeypatch.undo()
    assert await serving.owner_receives("events") == STORED
    await serving.serve("events", remove=True)
    assert await serving.owner_receives("events") == STORED
    assert await serving.admin.namespace(serving.readers) is None


async def test_a_topic_is_served_again_only_after_its_cut_removal_is_finished(serving: Serving) -> None:
    """The removal may have been cut on brokers of 4.2 that were upgraded: those of 5.0 do not let it begin so."""
    for name in ("events", "stays"):
        await make_source(serving.admin, serving.cluster, serving.topic(name))
    await serving.serve("stays")
    stand_in, source = serving.shadow("events-retired"), str(serving.topic("events"))
    await serving.admin.create_topic(stand_in)
    await serving.admin.create_topic(serving.shadow("events"), {SHADOW_SOURCE: str(stand_in), RETIRED_FROM: source})
    assert set(await serving.findings("events")) == {"shadow-is-being-removed", "source-retention-short"}
    planned, _, _ = await serving.serve("events", remove=True)
    assert f"DELETE /{stand_in.path}" in [call.text() for call in planned.plan.calls()]
    assert await serving.admin.topics(serving.readers) == (serving.shadow("stays"),)
    assert await serving.owner_receives("events") == STORED


async def test_a_shadow_topic_whose_source_is_gone_is_taken_away(serving: Serving) -> None:
    await make_source(serving.admin, serving.cluster, serving.topic("events"))
    await serving.serve("events")
    await serving.admin.delete(f"/{serving.topic('events').path}", force=True)
    await serving.serve("events", remove=True)
    assert await serving.admin.namespace(serving.readers) is None


async def test_a_compacted_source_is_named_before_readers_get_less(serving: Serving) -> None:
    admin, source, url = serving.admin, serving.topic("events"), serving.cluster.service_url
    await make_source(admin, serving.cluster, serving.topic("plain"))
    await admin.post(f"/namespaces/{serving.owner.path}/retention", LONG)
    await admin.create_topic(source)
    await asyncio.to_thread(_publish_keys, url, source, range(40))
    assert set(await serving.findings("events")) == set()
    await compact(admin, [source])
    await admin.post(f"/namespaces/{serving.owner.path}/retention", NOTHING_KEPT)
    await admin.put(f"/{source.path}/unload")
    async with asyncio.timeout(60):
        while len((await admin.internal_stats(source))["ledgers"]) > 1:
            await admin.post(f"/{source.path}/trim")
            await asyncio.sleep(0.2)
    await admin.post(f"/namespaces/{serving.owner.path}/retention", LONG)
    finding = (await serving.findings("events"))["source-compacted"]
    assert (finding.resource, finding.evidence) == (str(source), "it is compacted")
    await serving.serve("events")
    await asyncio.to_thread(_publish_keys, url, source, range(3))
    served = serving.shadow("events")
    async with asyncio.timeout(30):
        while len(await asyncio.to_thread(_compacted_keys, url, served)) < 3:
            await asyncio.sleep(0.2)
    assert len(await asyncio.to_thread(_compacted_keys, url, source)) == 10
    assert len(await asyncio.to_thread(_compacted_keys, url, served)) == 3
    _, findings = await watch_namespace(admin, serving.readers, 60)
    assert {found.id for found in findings} == {"source-compacted"}
    assert alarms(findings) == ()
    await admin.put(f"/namespaces/{serving.owner.path}/compactionThreshold", 1_000_000)
    findings_by_id = await serving.findings("plain")
    assert findings_by_id["source-compacted"].evidence == "its compaction threshold is 1,000,000 bytes"


def _publish_keys(service_url: str, topic: TopicName, numbers: range) -> None:
    with closing(pulsar.Client(service_url)) as client:
        producer = client.create_producer(str(topic))
        for number in numbers:
            producer.send(b"%d" % number, partition_key=f"k{number % 10}")


def _compacted_keys(service_url: str, topic: TopicName) -> set[str]:
    keys: set[str] = set()
    with closing(pulsar.Client(service_url)) as client:
        reader = client.create_reader(str(topic), pulsar.MessageId.earliest, is_read_compacted=True)
        while reader.has_message_available():
            keys.add(reader.read_next(5000).partition_key())
    return keys


async def test_what_would_lose_messages_or_serve_nothing_is_refused(serving: Serving) -> None:
    admin, cluster = serving.admin, serving.cluster
    await make_source(admin, cluster, serving.topic("plain"))
    assert set(await serving.findings("plain")) == {"source-retention-short"}
    await admin.post(f"/namespaces/{serving.owner.path}/retention", LONG)
    assert await serving.findings("plain") == {}
    assert set(await serving.findings("plain", lag_minutes=91)) == {"source-retention-short"}
    assert set(await serving.findings("missing")) == {"source-missing"}
    assert set(await serving.findings("plain", brokers=["localhost"])) == {"isolation-not-followed"}
    await admin.post(f"/{serving.topic('plain').path}/terminate")
    assert set(await serving.findings("plain")) == {"source-terminated"}
    await make_source(admin, cluster, serving.topic("parts"), 3)
    await admin.put_namespace(serving.readers, {"replication_clusters": ["blue"]})
    assert set(await serving.findings("parts")) == {"namespace-of-other-use"}
    await admin.delete(f"/namespaces/{serving.readers.path}")
    await serving.serve("parts")
    other = NamespaceName(serving.readers.tenant, "other")
    findings = await serving.findings_of([str(serving.shadow("parts"))], other)
    assert set(findings) == {"source-is-shadow"}
    await admin.create_topic(serving.shadow("ordinary"))
    await make_source(admin, cluster, serving.topic("ordinary"))
    assert set(await serving.findings("ordinary")) == {"shadow-is-ordinary-topic"}
    await make_source(admin, cluster, serving.topic("crossed"))
    await admin.create_topic(serving.shadow("crossed"), {SHADOW_SOURCE: str(serving.topic("ordinary"))})
    assert set(await serving.findings("crossed")) == {"shadow-of-other-source"}
    assert set(await serving.findings("crossed", remove=True)) == {"shadow-of-other-source"}
    await admin.post(f"/{serving.shadow('parts').path}/partitions", 4)
    assert set(await serving.findings("parts")) == {"partitions-differ"}
    await admin.post(f"/namespaces/{serving.readers.path}/permissions/writer", ["produce"])
    assert set(await serving.findings("parts")) == {"partitions-differ", "producing-allowed"}
    await admin.http.call("POST", f"/admin/v2/namespaces/{serving.readers.path}/retention", body=NOTHING_KEPT)
    assert "retention-not-infinite" in await serving.findings("parts")


async def test_limits_of_the_namespace_for_readers_are_named_with_their_calls(serving: Serving) -> None:
    """Under required encryption the link of a shadow topic never connects, and its readers get nothing."""
    admin, readers = serving.admin, f"/namespaces/{serving.readers.path}"
    for name in ("events", "more"):
        await make_source(admin, serving.cluster, serving.topic(name))
    await admin.post(f"/namespaces/{serving.owner.path}/retention", LONG)
    await serving.serve("events")
    await admin.post(f"{readers}/encryptionRequired", True)
    await admin.post(f"{readers}/maxTopicsPerNamespace", 1)
    assert set(await serving.findings("events")) == {"replicator-not-encrypted"}
    findings = await serving.findings("events", "more")
    assert set(findings) == {"replicator-not-encrypted", "too-many-topics"}
    for finding in findings.values():
        for _, call in calls(finding.call):
            await send(admin, call)
    assert await serving.findings("events", "more") == {}
    await serving.serve("events", "more")
    assert await serving.received("more") == STORED


@pytest.mark.cluster
async def test_a_namespace_that_would_send_messages_elsewhere_is_refused(
    serving: Serving,
) -> None:
    admin = serving.admin
    await make_source(admin, serving.cluster, serving.topic("events"))
    await admin.post(f"/namespaces/{serving.owner.path}/retention", LONG)
    missing = await serving.findings("events", namespace=f"{serving.readers.tenant}-missing/readers")
    assert set(missing) == {"tenant-missing"}
    await serving.serve("events")
    await admin.put_cluster("green", {"serviceUrl": "http://localhost:1", "brokerServiceUrl": "pulsar://localhost:1"})
    both = {"adminRoles": [], "allowedClusters": ["blue", "green"]}
    await admin.post(f"/tenants/{serving.readers.tenant}", both)
    await admin.post(f"/namespaces/{serving.readers.path}/replication", ["blue", "green"])
    findings = await serving.findings("events")
    await admin.post(f"/namespaces/{serving.readers.path}/replication", ["blue"])
    assert set(findings) == {"namespace-is-replicated", "cluster-has-peers"}
    assert findings["namespace-is-replicated"].evidence == "replicates to green"
    await admin.post(f"/tenants/{serving.readers.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
    await admin.delete("/clusters/green")
    assert await serving.findings("events") == {}


async def test_a_topic_with_connected_readers_is_not_taken_away(serving: Serving) -> None:
    await make_source(serving.admin, serving.cluster, serving.topic("events"))
    await serving.serve("events")
    client = pulsar.Client(serving.cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.create_reader(str(serving.shadow("events")), pulsar.MessageId.earliest)
    findings = await serving.findings("events", remove=True)
    client.close()
    assert set(findings) == {"shadow-has-readers"}
    assert findings["shadow-has-readers"].evidence == "1 connected consumers and readers"
    await serving.serve("events", remove=True)
    assert await serving.owner_receives("events") == STORED


@pytest.mark.parametrize("scope", ["local", "global"])
async def test_a_retention_of_a_shadow_topic_itself_is_refused(serving: Serving, scope: str) -> None:
    await make_source(serving.admin, serving.cluster, serving.topic("events"))
    await serving.serve("events")
    path = f"/{serving.shadow('events').path}/retention"
    flag = str(scope == "global").lower()
    await serving.admin.http.call("POST", f"/admin/v2{path}", params={"isGlobal": flag}, body=LONG)
    async with asyncio.timeout(30):
        while "topic-retention-not-infinite" not in (findings := await serving.findings("events")):
            await asyncio.sleep(0.2)
    assert findings["topic-retention-not-infinite"].evidence.startswith(f"{scope} retention")
    await serving.admin.delete(path, isGlobal=flag)


@pytest.mark.parametrize(
    ("conf", "reason"),
    [
        ({"topics": []}, "'topics' is empty"),
        ({"topics": ["non-persistent://a/b/c"]}, "is not persistent"),
        ({"topics": ["persistent://a/b/c-partition-1"]}, "is one partition"),
        ({"topics": ["persistent://a/b/__change_events"]}, "is a system topic"),
        ({"topics": ["persistent://a/readers/c"]}, "is in a/readers itself"),
        ({"topics": ["persistent://a/b/c", "persistent://a/d/c"]}, "Two topics are called 'c'"),
        ({"topics": ["persistent://a/b/c"], "lag_minutes": -5}, "'lag_minutes' is -5"),
        ({"topics": ["c"]}, "is not a topic"),
        ({"topics": ["persistent://a/b/c"], "namespace": "readers"}, "is not a namespace"),
        ({"topics": ["persistent://a/b/c"], "namespace": "pulsar/system"}, "is a namespace of the brokers"),
    ],
)
def test_settings_that_cannot_be_served_are_refused(conf: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        Request.of({"namespace": "a/readers", **conf})


async def test_tiers_of_readers_that_were_planned_at_once_are_all_linked(serving: Serving) -> None:
    await make_source(serving.admin, serving.cluster, serving.topic("events"))
    tenant = serving.readers.tenant
    plans = [await serving.plan("events", namespace=f"{tenant}/{tier}") for tier in ("gold", "bronze")]
    for planned, run in plans:
        await carry_out(serving.admin, planned, run)
    shadows = [f"persistent://{tenant}/{tier}/events" for tier in ("bronze", "gold")]
    assert sorted(await serving.admin.get(f"/{serving.topic('events').path}/shadowTopics")) == shadows
    # One broker has both, which the plan says.
    assert "shadow-may-share-broker" in await serving.findings("events", namespace=f"{tenant}/gold")
    # A removal that was planned before another tier was served takes its own tier away alone.
    planned, run = await serving.plan("events", namespace=f"{tenant}/gold", remove=True)
    await carry_out(serving.admin, *await serving.plan("events", namespace=f"{tenant}/silver"))
    await carry_out(serving.admin, planned, run)
    left = [f"persistent://{tenant}/{tier}/events" for tier in ("bronze", "silver")]
    assert sorted(await serving.admin.get(f"/{serving.topic('events').path}/shadowTopics")) == left


async def test_a_link_that_another_tool_has_ended_is_not_confirmed(serving: Serving) -> None:
    await make_source(serving.admin, serving.cluster, serving.topic("events"))
    planned, run, _ = await serving.serve("events")
    path = f"/{serving.topic('events').path}/shadowTopics"
    await serving.admin.delete(path)
    async with asyncio.timeout(30):
        while await serving.admin.get(path):
            await asyncio.sleep(0.1)
    with pytest.raises(PreconditionFailed, match="is not in the list of shadow topics"):
        await steps.confirm(serving.admin, planned)
    await steps.link_topics(serving.admin, planned, run)
    await steps.confirm(serving.admin, planned)
    assert await serving.admin.get(path) == [str(serving.shadow("events"))]


async def test_policies_that_bind_consumers_of_the_source_alone_are_named(serving: Serving) -> None:
    await make_source(serving.admin, serving.cluster, serving.topic("events"))
    assert "policies-not-followed" not in await serving.findings("events")
    path = f"/namespaces/{serving.owner.path}"
    await serving.admin.post(f"{path}/permissions/subscription/billing", ["clerk"])
    await serving.admin.post(f"{path}/maxConsumersPerSubscription", 3)
    await serving.admin.post(f"/{serving.topic('events').path}/maxConsumers", 5)
    async with asyncio.timeout(30):
        while "itself has" not in (finding := (await serving.findings("events"))["policies-not-followed"]).evidence:
            await asyncio.sleep(0.1)
    assert finding.evidence == (
        f"{serving.owner} has max_consumers_per_subscription, subscription_auth_roles; "
        "the topic itself has maxConsumerPerTopic"
    )
    assert str(serving.shadow("events")) in finding.remedy
    await serving.serve("events")
    readers = await serving.admin.namespace(serving.readers) or {}
    assert "max_consumers_per_subscription" not in comparable(readers, "blue")
    assert not readers["auth_policies"]["subscription_auth_roles"]
