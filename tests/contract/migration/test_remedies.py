"""Remedies about flags, redirects and topics are executed as they are printed, and no moved application is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pulsar
import pytest
from tests.support.migration import forget_migrations
from tests.support.remedies import calls, send

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.artefacts import FAILBACK_CHECKS, REDIRECT
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.redirect import redirect_to, set_flag, store_redirect
from pulsar_fleet.migration.drain.remediate import RemedyContext, remediate
from pulsar_fleet.migration.drain.state import Incident, IncidentKind, Remedy
from pulsar_fleet.migration.failback.steps import check_failback
from pulsar_fleet.migration.model import Move, PartitionClients, Phase, Strategy
from pulsar_fleet.migration.preflight import gates
from pulsar_fleet.migration.preflight.redirect_probe import advertised_addresses, probe_redirect
from pulsar_fleet.migration.preflight.survey import survey
from pulsar_fleet.migration.preflight.view import Expectations, View
from pulsar_fleet.migration.prepare.overrides import OriginalSettings
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import SYSTEM_TOPIC, TABLES
from pulsar_fleet.snapshot.resources import is_terminated

pytestmark = pytest.mark.cluster

REDACTOR = Redactor(b"0123456789abcdef")
NOBODY = {
    "serviceUrl": "http://localhost:1",
    "serviceUrlTls": "https://localhost:1",
    "brokerServiceUrl": "pulsar://localhost:1",
    "brokerServiceUrlTls": "pulsar+ssl://localhost:1",
}
LOST: tuple[dict[str, str] | None, ...] = (NOBODY, {}, None)
"""Blue's redirect was overwritten with other addresses, emptied, or deleted."""


@dataclass(frozen=True)
class Fleet:
    """A namespace `next` that is to be moved to green, and the namespaces beside it."""

    blue: AdminClient
    green: AdminClient
    next: NamespaceName
    run: Run

    def beside(self, local: str) -> NamespaceName:
        return NamespaceName(self.next.tenant, local)

    async def make(self, name: NamespaceName, *, on_green: bool = True) -> TopicName:
        """The namespace with a topic of two partitions, loaded on blue."""
        topic = TopicName(name, "events")
        for admin in (self.blue, self.green) if on_green else (self.blue,):
            own = await admin.cluster_name()
            if await admin.tenant(name.tenant) is None:
                await admin.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": [own]})
            await admin.put_namespace(name, {"replication_clusters": [own]})
            await admin.create_partitioned_topic(topic, 2)
        await asyncio.gather(*(self.blue.create_subscription(part, "billing") for part in topic.partitions(2)))
        return topic

    async def move(self, name: NamespaceName) -> TopicName:
        """A namespace that was moved from blue to green, with an entry in the ledger, and clients through blue."""
        topic = await self.make(name)
        await store_redirect(self.blue, "blue", redirect_to(self.green.connection))
        await set_flag(self.blue, name, migrated=True)
        async with asyncio.timeout(20):
            while not await self.is_terminated(topic):
                await asyncio.sleep(0.2)
        earlier = replace(self.run, id="migrate_namespaces/earlier")
        self.run.ledger.enter_phase(earlier.id, str(name), Phase.CUT_OVER)
        advertised = await advertised_addresses(self.green)
        redirect = redirect_to(self.green.connection, next(iter(advertised.values())))
        probed = await probe_redirect(self.blue.connection, self.green.connection, redirect, advertised)
        earlier.artefacts.write_json(earlier.id, REDIRECT, probed.to_json())
        return topic

    async def is_terminated(self, topic: TopicName) -> bool:
        parts = (await self.blue.internal_info(topic))["partitions"]
        return all(is_terminated(part) for part in parts.values())

    async def redirect_by_hand(self, address: dict[str, str] | None) -> None:
        await self.blue.post("/clusters/blue/migrate", address, migrated=False)

    async def findings(
        self, *names: NamespaceName, green: ClusterConnection | None = None, **expected: Any
    ) -> dict[str, Finding]:
        """What the gates find about these namespaces, `next` by default, and about the clusters."""
        strategy = expected.pop("strategy", Strategy.REDIRECT)
        async with AdminClient(green or self.green.connection) as other:
            surveyed = await survey(self.blue, other, names or (self.next,), self.run, redactor=REDACTOR)
        view = View(
            survey=surveyed,
            strategies={facts.namespace: strategy for facts in surveyed.namespaces},
            connections=("pulsar_blue", "pulsar_green"),
            expected=Expectations(**expected),
        )
        return {finding.id: finding for finding in gates.check(view)}

    async def execute(self, finding: Finding) -> None:
        """Send the printed calls to the clusters that they name."""
        assert finding.call, finding.text()
        for cluster, call in calls(finding.call):
            await send({"blue": self.blue, "green": self.green}[cluster], call)

    async def state(self, *names: NamespaceName) -> list[set[str]]:
        """All that both clusters hold of these namespaces: policies with flags, topics, cursors, schemas."""
        states = []
        for admin in (self.blue, self.green):
            snapshot = await collect(admin, Selection(namespaces=frozenset(names)), redactor=REDACTOR)
            rows = [row for table in TABLES for row in getattr(snapshot, table)]
            states.append({repr(row) for row in rows if getattr(row, "kind", "") not in ("client", SYSTEM_TOPIC)})
        return states

    async def arrives(self, topic: TopicName) -> bool:
        """Whether a new producer and a new consumer that start through blue get a message to and from green."""
        return await asyncio.to_thread(_publish_and_receive, self.blue.connection, self.green.connection, topic)


def _publish_and_receive(blue: ClusterConnection, green: ClusterConnection, topic: TopicName) -> bool:
    """A partition of its own: a client through blue is redirected, a consumer on green gets the message."""
    part, logger = str(topic.partitions(2)[0]), pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    on_green = pulsar.Client(green.require_service_url(), logger=logger)
    on_blue = pulsar.Client(blue.require_service_url(), operation_timeout_seconds=5, logger=logger)
    try:
        consumer = on_green.subscribe(part, "arrivals")
        on_blue.create_producer(part, send_timeout_millis=5000).send(b"through blue")
        return bool(consumer.receive(5000).data() == b"through blue")
    except (pulsar.Timeout, pulsar.ConnectError, pulsar.TopicNotFound):
        return False
    finally:
        on_blue.close()
        on_green.close()


@pytest.fixture
async def fleet(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: Callable[[], NamespaceName], records: Path
) -> AsyncIterator[Fleet]:
    """Nothing is flagged and nothing redirected, before the test and after it."""
    await forget_migrations(on_blue, on_green)
    fleet = Fleet(on_blue, on_green, new_namespace(), Run.open("migrate_namespaces/next"))
    await fleet.make(fleet.next)
    yield fleet
    await forget_migrations(on_blue, on_green)


async def test_a_flag_that_no_redirect_made_effective_is_cleared(fleet: Fleet) -> None:
    flagged, bystander = fleet.beside("flagged"), fleet.beside("bystander")
    for name in (flagged, bystander):
        await fleet.make(name)
    await fleet.blue.post(f"/namespaces/{flagged.path}/migration", True)
    before = await fleet.state(bystander, fleet.next)
    finding = (await fleet.findings())["flag-left-elsewhere"]
    assert finding.resource == str(flagged)
    await fleet.execute(finding)
    assert "flag-left-elsewhere" not in await fleet.findings()
    assert not await fleet.is_terminated(TopicName(flagged, "events"))
    assert await fleet.state(bystander, fleet.next) == before


@pytest.mark.parametrize("address", LOST, ids=["overwritten", "emptied", "deleted"])
async def test_a_moved_namespace_keeps_its_flag_and_its_redirect_is_stored_again(
    fleet: Fleet, address: dict[str, str] | None
) -> None:
    moved = fleet.beside("moved")
    topic = await fleet.move(moved)
    await fleet.redirect_by_hand(address)
    before, findings = await fleet.state(moved, fleet.next), await fleet.findings()
    assert "flag-left-elsewhere" not in findings
    assert "redirect-to-another-cluster" not in findings
    await fleet.execute(findings["redirect-lost"])
    assert not {"redirect-lost", "flag-left-elsewhere"} & set(await fleet.findings())
    assert await fleet.state(moved, fleet.next) == before
    assert await fleet.arrives(topic)


@pytest.mark.long
async def test_clearing_the_flag_of_a_moved_namespace_would_cut_its_clients_off(fleet: Fleet) -> None:
    topic = await fleet.move(fleet.beside("moved"))
    assert await fleet.arrives(topic)
    await fleet.blue.post(f"/namespaces/{topic.namespace.path}/migration", False)
    assert not await fleet.arrives(topic)
    await fleet.blue.post(f"/namespaces/{topic.namespace.path}/migration", True)
    assert await fleet.arrives(topic)


@pytest.mark.long
async def test_a_flag_or_redirect_of_a_migration_to_a_third_cluster_is_kept(fleet: Fleet) -> None:
    moved = fleet.beside("moved")
    topic = await fleet.move(moved)
    await fleet.green.delete(f"/{topic.path}/partitions", force=True)
    await fleet.green.delete(f"/namespaces/{moved.path}")
    await fleet.redirect_by_hand(NOBODY)
    findings = await fleet.findings()
    assert "redirect-lost" not in findings
    assert [findings[id_].call for id_ in ("flag-left-elsewhere", "redirect-to-another-cluster")] == ["", ""]
    assert "leave its flag" in findings["flag-left-elsewhere"].remedy


@pytest.mark.long
async def test_a_redirect_that_nobody_uses_is_deleted_and_a_used_one_is_not(fleet: Fleet) -> None:
    await fleet.redirect_by_hand(NOBODY)
    finding = (await fleet.findings())["redirect-to-another-cluster"]
    await fleet.blue.post(f"/namespaces/{fleet.next.path}/migration", True)
    assert (await fleet.findings())["redirect-to-another-cluster"].call == ""
    await fleet.blue.post(f"/namespaces/{fleet.next.path}/migration", False)
    await fleet.execute(finding)
    assert "redirect-to-another-cluster" not in await fleet.findings()


@pytest.mark.long
async def test_an_alias_of_green_stays_stored_and_the_connection_takes_it(fleet: Fleet) -> None:
    topic = await fleet.move(fleet.beside("moved"))
    alias = {
        key: url.replace("localhost", "127.0.0.1") for key, url in redirect_to(fleet.green.connection).document.items()
    }
    await fleet.redirect_by_hand(alias)
    findings = await fleet.findings()
    assert findings["redirect-to-other-addresses"].call == ""
    assert not {"redirect-lost", "redirect-to-another-cluster", "flag-left-elsewhere"} & set(findings)
    green = replace(fleet.green.connection, service_url=alias["brokerServiceUrl"], admin_url=alias["serviceUrl"])
    assert not [id_ for id_ in await fleet.findings(green=green) if id_.startswith(("redirect-to", "flag"))]
    assert await fleet.arrives(topic)


@pytest.mark.long
async def test_a_redirect_on_green_is_deleted_only_while_no_flag_is_set_there(fleet: Fleet) -> None:
    await fleet.green.post("/clusters/green/migrate", NOBODY, migrated=False)
    finding = (await fleet.findings())["redirect-left-on-green"]
    other = fleet.beside("on-green")
    await fleet.make(other)
    await fleet.green.post(f"/namespaces/{other.path}/migration", True)
    needed = (await fleet.findings())["redirect-left-on-green"]
    assert (needed.call, "do not delete it" in needed.remedy) == ("", True)
    await fleet.green.post(f"/namespaces/{other.path}/migration", False)
    await fleet.execute(finding)
    assert "redirect-left-on-green" not in await fleet.findings()


@pytest.mark.long
async def test_of_two_flags_the_one_that_sends_clients_on_stays(fleet: Fleet) -> None:
    moved = fleet.beside("moved")
    topic = await fleet.move(moved)
    await fleet.green.post(f"/namespaces/{moved.path}/migration", True)
    await fleet.execute((await fleet.findings(moved))["both-sides-flagged"])
    findings = await fleet.findings(moved)
    assert "both-sides-flagged" not in findings
    assert "leave the flag" in findings["namespace-migrated"].remedy
    assert [(await admin.namespace(moved) or {})["migrated"] for admin in (fleet.blue, fleet.green)] == [True, False]
    assert await fleet.arrives(topic)


@pytest.mark.long
async def test_of_two_flags_without_effect_both_are_cleared(fleet: Fleet) -> None:
    for admin in (fleet.green, fleet.blue):
        await admin.post(f"/namespaces/{fleet.next.path}/migration", True)
    findings = await fleet.findings()
    assert "has no redirect (404)" in findings["namespace-migrated"].remedy
    await fleet.execute(findings["both-sides-flagged"])
    assert not {"both-sides-flagged", "namespace-migrated"} & set(await fleet.findings())
    assert not await fleet.is_terminated(TopicName(fleet.next, "events"))


async def test_a_loaded_topic_with_a_users_property_is_terminated_by_the_flag(fleet: Fleet) -> None:
    topic = TopicName(fleet.beside("marked"), "plain")
    await fleet.make(topic.namespace)
    for admin in (fleet.blue, fleet.green):
        await admin.create_topic(topic, {"migrated": "true"} if admin is fleet.blue else {})
    await fleet.blue.create_subscription(topic, "billing")
    await store_redirect(fleet.blue, "blue", redirect_to(fleet.green.connection))
    assert not is_terminated(await fleet.blue.internal_info(topic))
    await set_flag(fleet.blue, topic.namespace, migrated=True)
    async with asyncio.timeout(20):
        while not is_terminated(await fleet.blue.internal_info(topic)):
            await asyncio.sleep(0.2)


async def failback_findings(fleet: Fleet, name: NamespaceName, *, exchanged: bool = False) -> dict[str, Finding]:
    run = replace(fleet.run, id="fail_back_namespaces/checks")
    order = (fleet.green, fleet.blue) if exchanged else (fleet.blue, fleet.green)
    sides = Sides(*(admin.connection for admin in order), 5.0)
    with pytest.raises(PreconditionFailed):
        await check_failback(sides, run, [name], Strategy.REDIRECT, allow_removal=False)
    return {document["id"]: Finding.from_json(document) for document in run.stored(FAILBACK_CHECKS)}


async def test_a_failback_with_exchanged_clusters_says_just_that(fleet: Fleet) -> None:
    moved = fleet.beside("moved")
    await fleet.move(moved)
    assert [*await failback_findings(fleet, moved, exchanged=True)] == ["clusters-exchanged"]
    assert "clusters-exchanged" not in await failback_findings(fleet, moved)


@pytest.mark.long
async def test_the_flag_on_green_is_cleared_for_a_failback_only_with_open_topics(fleet: Fleet) -> None:
    moved = fleet.beside("moved")
    topic = await fleet.move(moved)
    await fleet.green.post(f"/namespaces/{moved.path}/migration", True)
    finding = (await failback_findings(fleet, moved))["both-flagged"]
    await fleet.execute(finding)
    assert "both-flagged" not in await failback_findings(fleet, moved)
    assert (await fleet.blue.namespace(moved) or {})["migrated"]
    await fleet.green.post(f"/{topic.path}/terminate/partitions")
    await fleet.green.post(f"/namespaces/{moved.path}/migration", True)
    remaining = (await failback_findings(fleet, moved))["both-flagged"]
    assert (remaining.call, "leave the flag" in remaining.remedy) == ("", True)


@pytest.mark.long
async def test_a_users_property_is_removed_and_the_brokers_mark_is_not_mentioned(fleet: Fleet) -> None:
    topics = TopicName(fleet.next, "plain"), TopicName(fleet.next, "parted")
    properties = {"migrated": "true", "owner": "billing"}
    await fleet.blue.create_topic(topics[0], properties)
    await fleet.blue.create_partitioned_topic(topics[1], 2, properties)
    for _ in topics:
        await fleet.execute((await fleet.findings())["migrated-property"])
    assert "migrated-property" not in await fleet.findings()
    assert [await fleet.blue.get(f"/{topic.path}/properties") for topic in topics] == [{"owner": "billing"}] * 2
    moved = fleet.beside("moved")
    await fleet.move(moved)
    assert "migrated-property" not in await fleet.findings(moved)


@pytest.mark.long
@pytest.mark.parametrize("prepares", [True, False], ids=["the run prepares green", "green is prepared"])
async def test_retention_for_the_copy_is_set_where_the_run_reads_it(fleet: Fleet, prepares: bool) -> None:
    long: dict[str, Any] = {"strategy": Strategy.REPLICATE, "drain_minutes": 300, "prepares_green": prepares}
    finding = (await fleet.findings(**long))["copy-not-kept"]
    await fleet.execute(finding)
    findings = await fleet.findings(**long)
    assert not {"copy-not-kept", "green-policies-differ", "retention-shorter-than-lag"} & set(findings)


@pytest.mark.long
@pytest.mark.parametrize("prepares", [True, False], ids=["the run prepares green", "green is prepared"])
@pytest.mark.parametrize("level", ["namespace", "topic", "global"])
async def test_a_quota_that_the_copy_exceeds_is_lifted_by_the_printed_call(
    fleet: Fleet, level: str, prepares: bool
) -> None:
    """Beside a retention that is shorter than no limit, which brokers compare with a quota."""
    copying: dict[str, Any] = {"strategy": Strategy.REPLICATE, "prepares_green": prepares}
    topic = TopicName(fleet.next, "events")
    await asyncio.to_thread(_publish, fleet.blue.connection, topic.partitions(2)[0])
    path = f"/namespaces/{fleet.next.path}" if level == "namespace" else f"/{topic.path}"
    query = {"isGlobal": True} if level == "global" else {}
    quota = {"limitSize": 1, "limitTime": -1, "policy": "producer_exception"}
    for admin in (fleet.blue, fleet.green):
        await admin.post(
            f"/namespaces/{fleet.next.path}/retention", {"retentionTimeInMinutes": 60, "retentionSizeInMB": 9}
        )
        await admin.post(f"{path}/backlogQuota", quota, backlogQuotaType="destination_storage", **query)
    await fleet.execute((await fleet.findings(**copying))["copy-exceeds-quota"])
    findings = await fleet.findings(**copying)
    assert not {"copy-exceeds-quota", "green-policies-differ", "green-topic-policies-differ"} & set(findings)


@pytest.mark.long
async def test_a_shorter_retention_is_raised_where_the_run_reads_it(fleet: Fleet) -> None:
    for prepares in (True, False):
        await _lower(fleet.blue, fleet.green, name=fleet.next)
        finding = (await fleet.findings(prepares_green=prepares))["retention-shorter-than-lag"]
        await fleet.execute(finding)
        ids = set(await fleet.findings(prepares_green=prepares))
        assert not {"retention-shorter-than-lag", "green-policies-differ"} & ids


async def _lower(*clusters: AdminClient, name: NamespaceName) -> None:
    for admin in clusters:
        await admin.post(f"/namespaces/{name.path}/retention", {"retentionTimeInMinutes": 5, "retentionSizeInMB": 100})


def moved_context(fleet: Fleet, topic: TopicName) -> RemedyContext:
    partitions = {part: PartitionClients(0, {}, {}) for part in topic.partitions(2)}
    return RemedyContext(
        blue=fleet.blue,
        green=fleet.green,
        move=Move(topic.namespace, Strategy.REDIRECT, "", {topic: 2}, partitions),
        redirect=redirect_to(fleet.green.connection),
        before=OriginalSettings(green="green", publish_rates={}, replication={}),
        run=fleet.run,
    )


def incident(kind: IncidentKind, remedy: Remedy, subject: str, name: NamespaceName) -> Incident:
    return Incident(kind=kind, namespace=str(name), subject=subject, sentence="", remedy=remedy, topics=(subject,))


@pytest.mark.long
async def test_a_lost_flag_and_a_lost_redirect_are_set_again_during_the_drain(fleet: Fleet) -> None:
    topic = await fleet.move(fleet.beside("moved"))
    name, context = topic.namespace, moved_context(fleet, topic)
    await fleet.blue.post(f"/namespaces/{name.path}/migration", False)
    cleared = incident(IncidentKind.FLAG_RESET, Remedy.SET_FLAG, str(name), name)
    fleet.run.ledger.enter_phase("fail_back_namespaces/other", str(name), Phase.REOPENED)
    assert await remediate(cleared, context) is None
    assert not (await fleet.blue.namespace(name) or {})["migrated"]
    fleet.run.ledger.enter_phase(fleet.run.id, str(name), Phase.CUT_OVER)
    assert await remediate(cleared, context)
    await fleet.redirect_by_hand(NOBODY)
    lost = incident(IncidentKind.REDIRECT_LOST, Remedy.STORE_REDIRECT, str(name), name)
    assert await remediate(lost, context)
    assert await fleet.arrives(topic)


async def test_a_topic_with_unread_entries_is_not_unloaded_and_one_without_is(fleet: Fleet) -> None:
    topic = await fleet.make(fleet.beside("moved"))
    part = topic.partitions(2)[0]
    await asyncio.to_thread(_publish, fleet.blue.connection, part)
    await store_redirect(fleet.blue, "blue", redirect_to(fleet.green.connection))
    await set_flag(fleet.blue, topic.namespace, migrated=True)
    async with asyncio.timeout(20):
        while not await fleet.is_terminated(topic):
            await asyncio.sleep(0.2)
    context = moved_context(fleet, topic)
    fenced = incident(IncidentKind.FENCED, Remedy.UNLOAD, str(part), topic.namespace)
    assert await remediate(fenced, context) is None
    assert (await fleet.blue.stats(part))["subscriptions"]["billing"]["msgBacklog"] == 1
    await fleet.blue.post(f"{part.subscription_path('billing')}/skip_all")
    assert await remediate(fenced, context)
    with pytest.raises(Conflict, match="already migrated"):
        await fleet.blue.stats(part)


def _publish(connection: ClusterConnection, part: TopicName) -> None:
    client = pulsar.Client(connection.require_service_url(), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.create_producer(str(part)).send(b"unread")
    client.close()


async def test_permissions_are_granted_on_green_and_no_other_role_changes(fleet: Fleet) -> None:
    topic = await fleet.make(fleet.beside("moved"))
    path = f"/namespaces/{topic.namespace.path}/permissions"
    await fleet.blue.post(f"{path}/app", ["produce", "consume"])
    for role, actions in (("app", ["consume"]), ("other", ["produce"])):
        await fleet.green.post(f"{path}/{role}", actions)
    missing = incident(IncidentKind.PERMISSIONS_MISSING, Remedy.GRANT, str(topic.namespace), topic.namespace)
    assert await remediate(missing, moved_context(fleet, topic))
    rights = {role: sorted(actions) for role, actions in (await fleet.green.get(path)).items()}
    assert rights == {"app": ["consume", "produce"], "other": ["produce"]}
