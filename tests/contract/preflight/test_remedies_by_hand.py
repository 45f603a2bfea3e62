"""Remedies of which a person executes a part, in one estate: each is done as its text says, and its finding is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.migration import restore_left_brokers
from tests.support.remedies import calls, send
from tests.support.snapshots import record, with_settings

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.admin.probes import unreachable
from pulsar_fleet.cluster.errors import Conflict, InvalidRequest
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.policies.effective import is_set, parsed_setting
from pulsar_fleet.cluster.policies.namespace_catalogue import CATALOGUE
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.prepare.brokers import freeze_brokers, restore_brokers
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.preflight.compatibility import check_compatibility
from pulsar_fleet.preflight.context import Measurements, Probes
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import SYSTEM_TOPIC, TABLES, Snapshot, TenantState

REDACTOR = Redactor(b"0123456789abcdef")
NOBODY = {"serviceUrl": "http://localhost:1", "brokerServiceUrl": "pulsar://localhost:1"}
AVRO, LONGER = record(("id", "string")), record(("id", "string"), ("amount", ("int", 0)))
Change = Callable[[Snapshot], Snapshot]


@dataclass(frozen=True)
class Estate:
    """Namespaces of one tenant on both clusters."""

    blue: AdminClient
    green: AdminClient
    tenant: str

    def name(self, local: str) -> NamespaceName:
        return NamespaceName(self.tenant, local)

    async def make(self, locals_: Sequence[str]) -> None:
        for admin, own in ((self.blue, "blue"), (self.green, "green")):
            await admin.put(f"/tenants/{self.tenant}", {"adminRoles": ["owner"], "allowedClusters": [own]})
            await asyncio.gather(*(self.put(admin, self.name(local)) for local in locals_))

    async def put(self, admin: AdminClient, name: NamespaceName, **policies: Any) -> None:
        await admin.put_namespace(name, {"replication_clusters": [admin.connection.name], **policies})

    async def snapshots(self, *names: NamespaceName) -> list[Snapshot]:
        chosen = Selection(namespaces=frozenset(names)) if names else Selection(tenants=frozenset({self.tenant}))
        return [await collect(admin, chosen, redactor=REDACTOR) for admin in (self.blue, self.green)]

    async def findings(
        self,
        *names: NamespaceName,
        source: Change | None = None,
        target: Change | None = None,
        probed: Measurements | None = None,
    ) -> list[Finding]:
        """Of some namespaces or the tenant.

        :param source: what a test changes in blue's snapshot, since brokers refuse it; `target` likewise.
        """
        blue, green = await self.snapshots(*names)
        probes = Probes(source=probed or Measurements())
        return list(check_compatibility(source(blue) if source else blue, target(green) if target else green, probes))

    async def execute(self, finding: Finding) -> list[Any]:
        """Send the printed calls; the answers of those that only read."""
        answers = []
        for cluster, call in calls(finding.call):
            admin = {"blue": self.blue, "green": self.green}[cluster]
            answers += [await admin.get(call.path, **dict(call.params))] if call.method == "GET" else []
            if call.method != "GET":
                await send(admin, call)
        return answers

    async def rows(self, *names: NamespaceName) -> list[set[str]]:
        """All that both clusters have of these namespaces."""
        return [
            {
                repr(row)
                for table in TABLES
                for row in getattr(snapshot, table)
                if getattr(row, "kind", "") not in ("client", SYSTEM_TOPIC)
            }
            for snapshot in await self.snapshots(*names)
        ]


Step = Callable[[Estate, NamespaceName], Awaitable[None]]
Execution = Callable[[Estate, NamespaceName, Finding], Awaitable[None]]


@dataclass(frozen=True)
class Case:
    """How a finding comes about, what a person does, and the nearest state without the finding."""

    id: str
    seed: Step
    near: Step
    execute: Execution
    local: str = ""

    @property
    def space(self) -> str:
        return self.local or self.id


def events(name: NamespaceName) -> TopicName:
    return TopicName(name, "events")


def topics(blue: int, green: int) -> Step:
    async def seed(estate: Estate, name: NamespaceName) -> None:
        for admin, count in ((estate.blue, blue), (estate.green, green)):
            await (admin.create_partitioned_topic(events(name), count) if count else admin.create_topic(events(name)))

    return seed


def terminated(*clusters: str) -> Step:
    async def seed(estate: Estate, name: NamespaceName) -> None:
        for admin in (estate.blue, estate.green):
            await admin.create_topic(events(name))
            if admin.connection.name in clusters:
                await admin.post(f"/{events(name).path}/terminate")

    return seed


def schemas(blue: Sequence[str], green: Sequence[str], *, enforced: bool = False, kind: str = "AVRO") -> Step:
    async def seed(estate: Estate, name: NamespaceName) -> None:
        for admin, texts in ((estate.blue, blue), (estate.green, green)):
            await admin.create_topic(events(name))
            await admin.post(f"/namespaces/{name.path}/schemaValidationEnforced", enforced)
            for text in texts:
                await admin.post_schema(events(name), {"type": kind, "schema": text, "properties": {}})

    return seed


def is_empty(answer: Any) -> bool:
    """The condition of a deletion, as the text has it."""
    parts = list(answer["partitions"].values()) if "partitions" in answer else [answer]
    return not any(part["publishers"] or part["subscriptions"] or part["storageSize"] for part in parts)


async def delete_if_empty(estate: Estate, name: NamespaceName, finding: Finding) -> None:
    (answer,) = await estate.execute(finding)
    assert is_empty(answer)
    assert "without force" in finding.remedy
    partitioned = "partitions" in answer
    await estate.green.delete(f"/{events(name).path}{'/partitions' if partitioned else ''}")


async def allow_growth(estate: Estate, name: NamespaceName, finding: Finding) -> None:
    assert "allow the plan's change" in finding.remedy
    blue, green = await estate.snapshots(name)
    plan = plan_changes(blue, green)
    allowed = {change.id for change in plan.changes if change.name == str(events(name))}
    await apply_plan(plan, estate.green, Ledger.open(), "grow", redactor=REDACTOR, allow=allowed)


async def terminate_on_green(estate: Estate, name: NamespaceName, finding: Finding) -> None:
    (answer,) = await estate.execute(finding)
    assert not answer["publishers"]
    await estate.green.post(f"/{events(name).path}/terminate")


async def register_on_blue(estate: Estate, name: NamespaceName, finding: Finding) -> None:
    (answer,) = await estate.execute(finding)
    schema = answer["getSchemaResponses"][-1]
    assert "register it" in finding.remedy or "register it there too" in finding.remedy
    await estate.blue.post_schema(
        events(name), {"type": schema["type"], "schema": schema["data"], "properties": schema["properties"]}
    )


async def ask_only(estate: Estate, name: NamespaceName, finding: Finding) -> None:
    before = await estate.rows(name)
    assert await estate.execute(finding) == []
    assert await estate.rows(name) == before


async def deleted(estate: Estate, name: NamespaceName) -> None:
    await estate.green.delete(f"/namespaces/{name.path}")
    await estate.put(estate.green, name, deleted=True)


async def delete_again(estate: Estate, name: NamespaceName, finding: Finding) -> None:
    assert "without force" in finding.remedy
    await estate.green.delete(f"/namespaces/{name.path}")


async def nothing(_estate: Estate, _name: NamespaceName) -> None:
    """Both have the empty namespace."""


CASES = (
    Case("partitions-grow", topics(3, 2), topics(3, 3), allow_growth),
    Case("partitioned-on-one-side", topics(0, 2), topics(2, 2), delete_if_empty),
    Case("topic-terminated-on-target", terminated("green"), terminated("blue", "green"), delete_if_empty),
    Case("topic-terminated", terminated("blue"), terminated("blue", "green"), terminate_on_green),
    Case("schema-only-on-target", schemas((), (AVRO,)), schemas((AVRO,), (AVRO,)), register_on_blue),
    Case(
        "schema-only-on-target",
        schemas((), (AVRO,), enforced=True),
        schemas((AVRO,), (AVRO,), enforced=True),
        register_on_blue,
        local="enforced",
    ),
    Case("resource-not-readable", deleted, nothing, delete_again),
)
LASTING = (
    Case("schema-history-differs", schemas((AVRO, LONGER), (LONGER,)), schemas((AVRO,), (AVRO,)), ask_only),
    Case(
        "schema-undecided",
        schemas((AVRO,), (LONGER,), kind="PROTOBUF"),
        schemas((AVRO,), (AVRO,), kind="PROTOBUF"),
        ask_only,
    ),
)
"""The finding stays: its call only asks."""


@pytest.fixture
async def estate(on_blue: AdminClient, on_green: AdminClient, new_namespace: Callable[[], NamespaceName]) -> Estate:
    return Estate(on_blue, on_green, new_namespace().tenant)


def of(findings: Sequence[Finding], case: Case, name: NamespaceName) -> list[Finding]:
    return [
        finding for finding in findings if finding.id == case.id and f"{name}/" in f"{finding.resource.split()[0]}/"
    ]


@pytest.mark.long
async def test_what_a_text_says_removes_its_finding_and_is_not_said_nearby(estate: Estate, records: Path) -> None:
    cases = (*CASES, *LASTING)
    near = [estate.name(f"{case.space}-near") for case in cases]
    await estate.make([f"{case.space}{end}" for case in cases for end in ("", "-near")])
    await asyncio.gather(*(case.seed(estate, estate.name(case.space)) for case in cases))
    await asyncio.gather(*(case.near(estate, name) for case, name in zip(cases, near, strict=True)))
    before, findings = await estate.rows(*near), await estate.findings()
    assert [case.id for case, name in zip(cases, near, strict=True) if of(findings, case, name)] == []
    assert [case.space for case in cases if not of(findings, case, estate.name(case.space))] == []
    for case in cases:
        (finding,) = of(findings, case, estate.name(case.space))
        await case.execute(estate, estate.name(case.space), finding)
    remaining = await estate.findings()
    assert [finding.text() for case in CASES for finding in of(remaining, case, estate.name(case.space))] == []
    assert await estate.rows(*near) == before


async def test_a_topic_in_use_does_not_meet_the_condition_of_its_deletion(estate: Estate) -> None:
    """Brokers refuse to delete a topic only while a client is connected: messages and subscriptions go with it."""
    names = [estate.name(local) for local in ("subscribed", "written", "connected")]
    await estate.make([name.name for name in names])
    client = open_client(estate.green.connection, 10)
    for name in names:
        await topics(0, 2)(estate, name)
    await estate.green.create_subscription(events(names[0]).partitions(2)[1], "billing")
    producers = [await asyncio.to_thread(client.create_producer, str(events(name))) for name in names[1:]]
    await asyncio.to_thread(producers[0].send, b"unread")
    await asyncio.to_thread(producers[0].close)
    for finding in (finding for finding in await estate.findings() if finding.id == "partitioned-on-one-side"):
        assert [is_empty(answer) for answer in await estate.execute(finding)] == [False], finding.text()
    with pytest.raises(InvalidRequest, match="connected"):
        await estate.green.delete(f"/{events(names[2]).path}/partitions")
    await asyncio.to_thread(client.close)


async def test_the_remedy_of_a_hung_deletion_deletes_no_namespace_in_use(estate: Estate) -> None:
    await estate.make(["used"])
    await estate.green.create_topic(events(estate.name("used")))
    assert not [finding for finding in await estate.findings() if finding.id == "namespace-deleted"]
    with pytest.raises(Conflict, match="non empty"):
        await estate.green.delete(f"/namespaces/{estate.name('used').path}")


async def test_a_schema_on_an_enforcing_cluster_refuses_producers_without_one(
    estate: Estate,
) -> None:
    name = estate.name("enforced")
    await estate.make([name.name])
    await schemas((), (AVRO,), enforced=True)(estate, name)
    (finding,) = [finding for finding in await estate.findings() if finding.id == "schema-only-on-target"]
    assert finding.remedy.startswith("let its producers on blue use this schema, then register it there too")
    client = open_client(estate.blue.connection, 10)
    await asyncio.to_thread(lambda: client.create_producer(str(events(name))).close())
    await register_on_blue(estate, name, finding)
    with pytest.raises(Exception, match="IncompatibleSchema"):
        await asyncio.to_thread(client.create_producer, str(events(name)))
    await asyncio.to_thread(client.close)


LIMITS = ("maxTenants", "maxNamespacesPerTenant", "maxNumPartitionsPerPartitionedTopic")


@pytest.mark.cluster
async def test_a_limit_that_is_too_low_is_raised_without_a_restart(estate: Estate, records: Path) -> None:
    """Each limit of green is what it has; a tenant, two namespaces and four partitions come."""
    await estate.make(["wide"])
    other = replace(estate, tenant=f"{estate.tenant}-new")
    await estate.blue.create_partitioned_topic(events(estate.name("wide")), 4)
    await estate.put(estate.blue, estate.name("second"))
    await estate.blue.put(f"/tenants/{other.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
    tenants = len(await estate.green.tenants())
    measured = Measurements(tenants=tenants, namespaces={estate.tenant: 1})

    async def found() -> dict[str, Finding]:
        selection = Selection(tenants=frozenset({estate.tenant, other.tenant}))
        blue = await collect(estate.blue, selection, redactor=REDACTOR)
        green = await collect(estate.green, Selection(tenants=frozenset({estate.tenant})), redactor=REDACTOR)
        findings = check_compatibility(blue, green, Probes(target=measured))
        return {finding.id: finding for finding in findings if finding.id.startswith("too-many-")}

    assert await found() == {}
    try:
        for key, most in zip(LIMITS, (tenants, 1, 2), strict=True):
            await set_limit(estate.green, key, most)
        with pytest.raises(InvalidRequest, match="Exceed"):
            await estate.green.put(f"/tenants/{other.tenant}", {"adminRoles": [], "allowedClusters": ["green"]})
        findings = await found()
        assert set(findings) == {"too-many-tenants", "too-many-namespaces", "too-many-partitions"}
        for finding in findings.values():
            (runtime,) = await estate.execute(finding)
            assert "is still lower" in finding.remedy
            assert any(key in finding.remedy and key in runtime for key in LIMITS)
        async with asyncio.timeout(10):
            while await found():
                await asyncio.sleep(0.1)
        await estate.green.put(f"/tenants/{other.tenant}", {"adminRoles": [], "allowedClusters": ["green"]})
        await estate.put(estate.green, estate.name("second"))
        await estate.green.create_partitioned_topic(events(estate.name("wide")), 4)
        assert len(await estate.green.tenants()) == tenants + 1
    finally:
        for key in LIMITS:
            await estate.green.unset_dynamic(key)


async def set_limit(admin: AdminClient, key: str, value: int) -> None:
    await admin.set_dynamic(key, str(value))
    async with asyncio.timeout(10):
        while (await admin.runtime_configuration())[key] != str(value):
            await asyncio.sleep(0.05)


@pytest.mark.cluster
async def test_a_peer_gets_its_addresses_and_keeps_its_other_fields(estate: Estate) -> None:
    """A peer without addresses, and beside it one that is complete, reachable and known to green: nothing is said."""
    peer, near = f"{estate.tenant}-peer", f"{estate.tenant}-near"
    name, green = estate.name("orders"), estate.green.connection
    good = {"serviceUrl": green.admin_url, "brokerServiceUrl": green.service_url}
    await estate.make(["orders"])
    secret = {"authenticationPlugin": "token", "authenticationParameters": "token:hush"}
    await estate.blue.put_cluster(peer, {"serviceUrl": NOBODY["serviceUrl"], **secret})
    for admin in (estate.blue, estate.green):
        await admin.put_cluster(near, good)
    clusters = ["blue", peer, near]
    await estate.blue.post(f"/tenants/{estate.tenant}", {"adminRoles": ["owner"], "allowedClusters": clusters})
    await estate.blue.post(f"/namespaces/{name.path}/replication", clusters)

    async def found(source: Change | None = None) -> dict[str, Finding]:
        documents = [await estate.blue.cluster_data(cluster) or {} for cluster in (peer, near)]
        urls = [str(url) for document in documents for url in document.values() if "://" in str(url)]
        findings = await estate.findings(source=source, probed=Measurements(unreachable=await unreachable(urls)))
        assert source or not [finding for finding in findings if finding.resource == f"cluster {near}"]
        return {finding.id: finding for finding in findings if finding.resource == f"cluster {peer}"}

    async def correct(finding: Finding, document: dict[str, str]) -> None:
        (current,) = await estate.execute(finding)
        await estate.blue.post(f"/clusters/{peer}", {**current, **document})

    try:
        findings = await found()
        assert set(findings) == {"peer-address-missing", "peer-unreachable-from-here", "cluster-unknown-to-target"}
        await correct(findings["peer-address-missing"], {"brokerServiceUrl": NOBODY["brokerServiceUrl"]})
        findings = await found()
        assert set(findings) == {"peer-unreachable-from-here", "cluster-unknown-to-target"}
        await correct(findings["peer-unreachable-from-here"], good)
        findings = await found()
        assert set(findings) == {"cluster-unknown-to-target"}
        (document,) = await estate.execute(findings["cluster-unknown-to-target"])
        await estate.green.put_cluster(peer, {key: document[key] for key in good})
        assert await found() == {}
        findings = await found(on_other_hosts)
        assert set(findings) == {"peer-address-local"}
        elsewhere = {key: url.replace("localhost", "green.example") for key, url in good.items()}
        await correct(findings["peer-address-local"], elsewhere)
        assert "peer-address-local" not in await found(on_other_hosts)
        assert secret.items() <= (await estate.blue.cluster_data(peer) or {}).items()
    finally:
        await estate.blue.post(f"/namespaces/{name.path}/replication", ["blue"])
        for admin in (estate.blue, estate.green):
            for cluster in {peer, near} & set(await admin.clusters()):
                await admin.delete(f"/clusters/{cluster}")


def on_other_hosts(snapshot: Snapshot) -> Snapshot:
    """As if each broker had a host of its own."""
    brokers = (replace(broker, address=f"{snapshot.cluster}.example:8080") for broker in snapshot.brokers)
    return replace(snapshot, brokers=tuple(brokers))


@pytest.mark.cluster
async def test_a_tenant_that_is_allowed_a_cluster_keeps_its_roles_and_clusters(estate: Estate) -> None:
    """Brokers refuse what would lead to this finding, so that it is taken from a snapshot with fewer clusters."""
    west, name = f"{estate.tenant}-west", estate.name("orders")
    await estate.make(["orders"])
    for admin in (estate.blue, estate.green):
        await admin.put_cluster(west, NOBODY)
    try:
        wide = {"adminRoles": ["owner", "second"], "allowedClusters": ["blue", west]}
        await estate.blue.post(f"/tenants/{estate.tenant}", wide)
        await estate.blue.post(f"/namespaces/{name.path}/replication", ["blue", west])
        assert "cluster-not-allowed" not in {finding.id for finding in await estate.findings()}

        def narrow(snapshot: Snapshot) -> Snapshot:
            return replace(snapshot, tenants=(TenantState(estate.tenant, ("owner", "second"), (snapshot.cluster,)),))

        findings = await estate.findings(source=narrow, target=narrow)
        (finding,) = [finding for finding in findings if finding.id == "cluster-not-allowed"]
        before = await estate.rows()
        (tenant,) = await estate.execute(finding)
        assert {key: sorted(tenant[key]) for key in wide} == {key: sorted(wide[key]) for key in wide}
        assert await estate.rows() == before
    finally:
        await estate.blue.post(f"/namespaces/{name.path}/replication", ["blue"])
        await estate.blue.post(f"/tenants/{estate.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
        for admin in (estate.blue, estate.green):
            await admin.delete(f"/clusters/{west}")


# Other values of each kind, for the settings of green's brokers.
_OTHER = {"true": "false", "false": "true"}


async def test_what_blues_brokers_apply_is_set_there_and_copied_for_every_policy(estate: Estate, records: Path) -> None:
    """Green's brokers have another default for each policy; a namespace with a quota of its own keeps it."""
    quota = {"limitSize": 77, "limitTime": -1, "policy": "producer_exception"}
    name, near = estate.name("orders"), estate.name("set")
    await estate.make([name.name, near.name])
    for admin in (estate.blue, estate.green):
        await admin.post(f"/namespaces/{name.path}/backlogQuota", quota, backlogQuotaType="destination_storage")
    runtime = await estate.blue.runtime_configuration()
    keys = {
        key
        for policy in CATALOGUE
        for key in (
            [policy.broker_default]
            if isinstance(policy.broker_default, str)
            else [part for _, part in policy.broker_default]
        )
        if key and is_set(parsed_setting(runtime.get(key)))
    }
    others = {key: _OTHER.get(runtime[key], "7" if runtime[key].isdigit() else "other") for key in keys}

    def differing(snapshot: Snapshot) -> Snapshot:
        return with_settings(snapshot, None, **others)

    async def found() -> list[Finding]:
        findings = await estate.findings(name, target=differing)
        return [
            finding
            for finding in findings
            if finding.id in ("behaves-differently", "schema-default-differs") and finding.call
        ]

    findings = await found()
    fields = {finding.evidence.partition(" ")[0] for finding in findings}
    assert {"persistence", "max_consumers_per_topic", "schemaCompatibilityStrategy:"} <= fields
    effective = await _effective(estate.blue, name)
    for finding in findings:
        await estate.execute(finding)
    assert [finding.text() for finding in await found()] == []
    assert await _effective(estate.blue, name) == effective
    kept = (await estate.blue.namespace(name) or {})["backlog_quota_map"]["destination_storage"]
    assert quota.items() <= kept.items()
    # Where every namespace has a policy, nothing is said: the second time there was nothing to send.
    assert not any(str(name) in finding.call for finding in await found())


async def _effective(admin: AdminClient, name: NamespaceName) -> dict[str, Any]:
    """What the broker says applies to a topic of the namespace."""
    topic = TopicName(name, "applied")
    with suppress(Conflict):
        await admin.create_topic(topic)
    paths = ("retention", "messageTTL", "persistence", "maxConsumers", "maxProducers", "inactiveTopicPolicies")
    return {path: await admin.get(f"/{topic.path}/{path}", applied=True) for path in paths}


@pytest.mark.cluster
async def test_dynamic_settings_are_named_without_those_that_a_run_overrides(estate: Estate, records: Path) -> None:
    await estate.make(["orders"])
    await restore_left_brokers(estate.blue)
    key, run = "maxConcurrentTopicLoadRequest", "migrate_namespaces/overriding"

    async def named() -> dict[str, Finding]:
        return {finding.id: finding for finding in await estate.findings() if finding.id == "dynamic-settings-differ"}

    assert await named() == {}
    try:
        await freeze_brokers(estate.blue, Run.open(run))
        assert await named() == {}
        await estate.blue.set_dynamic(key, "4321")
        finding = (await named())["dynamic-settings-differ"]
        assert "loadBalancer" not in finding.evidence
        (values,) = await estate.execute(finding)
        assert values[key] == "4321"
        await estate.green.set_dynamic(key, "4321")
        assert await named() == {}
    finally:
        for admin in (estate.blue, estate.green):
            await admin.unset_dynamic(key)
        await restore_brokers(estate.blue, run)
    await estate.blue.set_dynamic("loadBalancerSheddingEnabled", "false")
    try:
        assert "loadBalancerSheddingEnabled = false" in (await named())["dynamic-settings-differ"].evidence
    finally:
        await estate.blue.unset_dynamic("loadBalancerSheddingEnabled")


async def test_the_configuration_store_is_named_by_the_printed_call(estate: Estate) -> None:
    """Two clusters with one store are beyond a sandbox: its finding is a unit test's, its call is sent here."""
    answer = await estate.green.get("/brokers/internal-configuration")
    assert {"metadataStoreUrl", "configurationMetadataStoreUrl"} & set(answer)
