"""Remedies of gates of which a person executes a part: done as the text says on real clusters, and harmless nearby."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.contract.migration.test_remedies import NOBODY, REDACTOR, Fleet, fleet
from tests.support.replication import know_each_other, wait_linked
from tests.support.tcp_proxy import CuttingProxy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.migration.artefacts import FAILBACK_CHECKS
from pulsar_fleet.migration.clusters import Sides
from pulsar_fleet.migration.cutover.redirect import redirect_to
from pulsar_fleet.migration.failback.steps import check_failback
from pulsar_fleet.migration.model import Strategy
from pulsar_fleet.migration.preflight.redirect_probe import advertised_addresses, probe_redirect
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.preflight.findings import Finding, Severity
from pulsar_fleet.snapshot.collect import collect

pytestmark = pytest.mark.long

__all__ = ["fleet"]


async def test_the_stored_redirect_is_read_by_the_printed_call(fleet: Fleet) -> None:
    await fleet.redirect_by_hand(NOBODY)
    stored = (await fleet.blue.get("/clusters/blue/migrate"))["migratedClusterUrl"]
    assert NOBODY.items() <= stored.items()


async def test_an_unreachable_green_is_asked_again_and_not_said_to_refuse(fleet: Fleet) -> None:
    advertised, green = await advertised_addresses(fleet.green), fleet.green.connection
    redirect = redirect_to(green, next(iter(advertised.values())))
    for cut, unanswered in ((2, False), (3, True)):
        with CuttingProxy(green.require_service_url(), [0] * cut) as proxy:
            behind = replace(green, service_url=proxy.url)
            probe = await probe_redirect(fleet.blue.connection, behind, redirect, advertised)
        assert (bool(probe.unanswered), probe.credentials, probe.trust) == (unanswered, "", "")
        assert proxy.connections >= 3


async def west_of(admin: AdminClient, name: NamespaceName, clusters: tuple[str, ...]) -> None:
    """The tenant may use clusters at which nobody is."""
    own = await admin.cluster_name()
    for cluster in clusters:
        await admin.put_cluster(cluster, {key: NOBODY[key] for key in ("serviceUrl", "brokerServiceUrl")})
    await admin.post(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": [own, *clusters]})


async def without(admin: AdminClient, name: NamespaceName, clusters: tuple[str, ...]) -> None:
    own = await admin.cluster_name()
    await admin.post(f"/namespaces/{name.path}/replication", [own])
    await admin.post(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": [own]})
    for cluster in clusters:
        await admin.delete(f"/clusters/{cluster}")


async def test_green_is_added_to_a_list_in_which_the_other_clusters_stay(fleet: Fleet) -> None:
    west = (f"{fleet.next.tenant}-west",)
    name = fleet.beside("foreign")
    await fleet.make(name, on_green=False)
    await west_of(fleet.green, name, west)
    await fleet.green.put_namespace(name, {"replication_clusters": [*west]})
    finding = (await fleet.findings(name))["green-not-in-list"]
    assert "leave the other clusters in it" in finding.remedy
    before = (await fleet.state(name))[0]
    await fleet.green.post(f"/namespaces/{name.path}/replication", ["green", *west])
    assert "green-not-in-list" not in await fleet.findings(name)
    assert (await fleet.state(name))[0] == before
    await without(fleet.green, name, west)


async def test_a_grant_is_printed_with_the_actions_and_roles_that_green_has(fleet: Fleet) -> None:
    """A grant replaces what a role has: granting only what lacks would take the rest away."""
    name, topic = fleet.next, TopicName(fleet.next, "events")
    base = f"/namespaces/{name.path}/permissions"
    for admin, actions, roles in ((fleet.blue, ["produce"], ["billing-app"]), (fleet.green, ["consume"], ["auditor"])):
        await admin.post(f"{base}/app", actions)
        await admin.post(f"/{topic.path}/permissions/app", actions)
        await admin.post(f"{base}/subscription/billing", roles)
    blue = (await fleet.blue.namespace(name) or {})["auth_policies"]
    for _ in range(3):
        await fleet.execute((await fleet.findings(prepares_green=False))["role-missing-on-green"])
    assert "role-missing-on-green" not in await fleet.findings(prepares_green=False)
    rights = (await fleet.green.namespace(name) or {})["auth_policies"]
    assert sorted(rights["namespace_auth"]["app"]) == ["consume", "produce"]
    assert sorted(rights["destination_auth"][str(topic)]["app"]) == ["consume", "produce"]
    assert sorted(rights["subscription_auth_roles"]["billing"]) == ["auditor", "billing-app"]
    assert (await fleet.blue.namespace(name) or {})["auth_policies"] == blue


async def test_a_cluster_that_needs_nothing_is_taken_out_and_no_topic_is_lost(fleet: Fleet) -> None:
    west = tuple(f"{fleet.next.tenant}-{side}" for side in ("west", "east"))
    await west_of(fleet.blue, fleet.next, west)
    await fleet.blue.post(f"/namespaces/{fleet.next.path}/replication", ["blue", *west])
    finding = (await fleet.findings())["replicator-disconnected"]
    assert "leave all other clusters in it" in finding.remedy
    topics = await fleet.blue.topics(fleet.next)
    for remaining in (["blue", west[1]], ["blue"]):
        await fleet.blue.post(f"/namespaces/{fleet.next.path}/replication", remaining)
    async with asyncio.timeout(60):
        while finding := (await fleet.findings()).get("replicator-disconnected"):
            # A broker can keep a replicator that it was starting when the list changed.
            assert "in no list any more" in finding.evidence
            assert "once more as it is" in finding.remedy
            await fleet.blue.post(f"/namespaces/{fleet.next.path}/replication", ["blue"])
            await asyncio.sleep(1)
    assert await fleet.blue.topics(fleet.next) == topics
    await without(fleet.blue, fleet.next, west)


async def test_the_plan_creates_what_green_lacks_and_changes_nothing_else(fleet: Fleet) -> None:
    name, topic = fleet.beside("absent"), TopicName(fleet.beside("absent"), "events")
    await fleet.make(name, on_green=False)
    await fleet.blue.post(f"/namespaces/{name.path}/deduplication", True)
    await fleet.blue.post(f"/{topic.path}/maxProducers", 7)
    await fleet.blue.post_schema(topic, {"type": "STRING", "schema": "", "properties": {}})
    await fleet.blue.post(f"/tenants/{name.tenant}", {"adminRoles": ["owner"], "allowedClusters": ["blue"]})
    strict = {"prepares_green": False}
    before = await fleet.state(name, fleet.next)
    assert {"green-namespace-missing", "green-tenant-differs"} <= set(await fleet.findings(name, **strict))
    assert not _lacking(await fleet.findings(name))
    await _onboard(fleet, name)
    assert not _lacking(await fleet.findings(name, **strict))
    part = topic.partitions(2)[0]
    await fleet.green.delete(f"/namespaces/{name.path}/deduplication")
    await fleet.green.delete(f"/{topic.path}/maxProducers")
    await fleet.green.delete(f"/schemas/{topic.namespace.path}/events/schema")
    await fleet.green.delete_subscription(part, "billing")
    await asyncio.sleep(0.5)
    kinds = {f"green-{kind}" for kind in ("policies-differ", "topic-policies-differ", "schemas-missing")}
    assert {*kinds, "green-subscriptions-missing"} == _lacking(await fleet.findings(name, **strict))
    await fleet.green.delete(f"/{topic.path}/partitions")
    assert "green-topics-missing" in await fleet.findings(name, **strict)
    await _onboard(fleet, name)
    assert not _lacking(await fleet.findings(name, **strict))
    assert (await fleet.green.namespace(name) or {})["deduplicationEnabled"]
    assert (await fleet.state(name, fleet.next))[0] == before[0]


def _lacking(findings: dict[str, Finding]) -> set[str]:
    return {id_ for id_ in findings if id_.startswith("green-")}


async def _onboard(fleet: Fleet, name: NamespaceName) -> None:
    chosen = Selection(namespaces=frozenset({name}))
    blue, green = [await collect(admin, chosen, redactor=REDACTOR) for admin in (fleet.blue, fleet.green)]
    run = replace(fleet.run, id="onboard_cluster/by-hand")
    result = await apply_plan(plan_changes(blue, green), fleet.green, run.ledger, run.id, redactor=REDACTOR)
    assert result.complete, result


async def test_a_copied_namespace_moves_by_cursor_transfer_once_replication_ends(
    fleet: Fleet,
) -> None:
    """Both clusters replicate to each other: as long as green replicates into blue, the text names green's list."""
    name, topic = fleet.next, TopicName(fleet.next, "events")
    await know_each_other(fleet.blue, fleet.green)
    path, both = f"/namespaces/{name.path}/replication", ["blue", "green"]
    try:
        for admin in (fleet.blue, fleet.green):
            await admin.post(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": both})
            await admin.post(path, both)
            await wait_linked(admin, topic.partitions(2), both[admin is fleet.blue])
        client = open_client(fleet.green.connection, 10)
        for part in topic.partitions(2):
            await asyncio.to_thread(client.create_producer(str(part)).send, b"from green")
        await asyncio.to_thread(client.close)
        findings = await fleet.findings()
        assert "copied-and-redirected" in findings
        inbound = findings["replicates-into-blue"]
        assert inbound.remedy.startswith("Before the cut-over, when green's replication backlog to blue is 0")
        copied = await fleet.findings(strategy=Strategy.REPLICATE)
        assert "copied-and-redirected" not in copied
        assert "abandoned-subscription" in findings
        milder = copied["abandoned-subscription"]
        assert (findings["abandoned-subscription"].severity, milder.severity) == (Severity.BLOCKER, Severity.WARNING)
        async with asyncio.timeout(20):
            while any([await _backlog(fleet.green, part) for part in topic.partitions(2)]):
                await asyncio.sleep(0.2)
        await fleet.green.post(path, ["green"])
        async with asyncio.timeout(20):
            while any([await _is_sending(fleet.green, part) for part in topic.partitions(2)]):
                await asyncio.sleep(0.2)
        # Statistics have the connection for up to a minute; those of a topic that is loaded again do not.
        for part in topic.partitions(2):
            await fleet.blue.put(f"/{part.path}/unload")
        assert "replicates-into-blue" not in await fleet.findings()
        assert [(await fleet.blue.stats(part))["backlogSize"] > 0 for part in topic.partitions(2)] == [True, True]
    finally:
        for admin in (fleet.blue, fleet.green):
            own = await admin.cluster_name()
            await admin.post(path, [own])
            await admin.post(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": [own]})
            await admin.delete(f"/clusters/{both[own == 'blue']}")


async def _backlog(admin: AdminClient, part: TopicName) -> int:
    return int((await admin.stats(part))["replication"]["blue"]["replicationBacklog"])


async def _is_sending(admin: AdminClient, part: TopicName) -> bool:
    return "outboundConnection" in ((await admin.stats(part))["replication"].get("blue") or {})


async def failback(fleet: Fleet, name: NamespaceName, *, allow_removal: bool = False) -> dict[str, Finding]:
    run = replace(fleet.run, id="fail_back_namespaces/checks")
    sides = Sides(fleet.blue.connection, fleet.green.connection, 5.0)
    with pytest.raises(PreconditionFailed):
        await check_failback(sides, run, [name], Strategy.REDIRECT, allow_removal=allow_removal)
    return {document["id"]: Finding.from_json(document) for document in run.stored(FAILBACK_CHECKS)}


async def test_before_a_failback_only_an_empty_topic_on_blue_is_to_be_deleted(fleet: Fleet) -> None:
    name, empty = fleet.beside("opened"), TopicName(fleet.beside("opened"), "empty")
    for admin in (fleet.blue, fleet.green):
        await admin.put_namespace(name, {"replication_clusters": [await admin.cluster_name()]})
        await admin.create_partitioned_topic(empty, 2)
    part, remedy = empty.partitions(2)[1], "if no application uses it on blue, delete it there"
    assert (await failback(fleet, name))["open-on-blue"].remedy.startswith(remedy)
    await fleet.blue.create_subscription(part, "billing")
    assert (await failback(fleet, name))["open-on-blue"].remedy.startswith("take the namespace out")
    await fleet.blue.delete_subscription(part, "billing")
    assert (await failback(fleet, name))["open-on-blue"].remedy.startswith(remedy)
    await fleet.blue.delete(f"/{empty.path}/partitions")
    await fleet.blue.post(f"/namespaces/{name.path}/migration", True)
    await fleet.green.post(f"/namespaces/{name.path}/migration", True)
    assert "open-on-blue" not in await failback(fleet, name)
    assert await fleet.green.topics(name)


async def test_the_removal_before_a_failback_is_allowed_by_the_named_setting(fleet: Fleet) -> None:
    topic = await fleet.move(fleet.beside("moved"))
    finding = (await failback(fleet, topic.namespace))["removal-not-allowed"]
    assert "set 'allow_removal'" in finding.remedy
    await fleet.green.post(f"/namespaces/{topic.namespace.path}/migration", True)
    assert "removal-not-allowed" not in await failback(fleet, topic.namespace, allow_removal=True)
