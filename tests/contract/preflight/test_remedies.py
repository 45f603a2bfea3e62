"""The printed call of each finding removes it on real clusters and harms nothing; nearby, it is not printed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.support.remedies import calls, send
from tests.support.remedy_inventory import done_by
from tests.support.snapshots import record, with_settings

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.preflight.compatibility import check_compatibility
from pulsar_fleet.preflight.context import Probes
from pulsar_fleet.preflight.findings import Finding
from pulsar_fleet.snapshot.collect import collect
from pulsar_fleet.snapshot.model import SYSTEM_TOPIC, TABLES, Snapshot

REDACTOR = Redactor(b"0123456789abcdef")
LAG = 3600
GROUP = {"publishRateInMsgs": 100, "publishRateInBytes": 1000, "dispatchRateInMsgs": 100, "dispatchRateInBytes": 1000}
TTL = {"ttlDurationDefaultInSeconds": "3600"}
RETENTION = {"defaultRetentionTimeInMinutes": "60", "defaultRetentionSizeInMB": "100"}
DEDUPLICATION = {"brokerDeduplicationEnabled": "true"}


@dataclass(frozen=True)
class Pair:
    """A namespace on both clusters with a plain topic; each case spoils it."""

    blue: AdminClient
    green: AdminClient
    name: NamespaceName

    @property
    def topic(self) -> TopicName:
        return TopicName(self.name, "orders")

    @property
    def wide(self) -> TopicName:
        return TopicName(self.name, "wide")

    @property
    def path(self) -> str:
        return f"/namespaces/{self.name.path}"

    async def make(self) -> None:
        for admin, own in ((self.blue, "blue"), (self.green, "green")):
            await admin.put(f"/tenants/{self.name.tenant}", {"adminRoles": ["owner"], "allowedClusters": [own]})
            await admin.put_namespace(self.name, {"replication_clusters": [own]})
            await admin.create_topic(self.topic)
            await admin.create_subscription(self.topic, "billing")

    async def unload(self, *clusters: str) -> None:
        """A cursor stores its replicated flag with its position: snapshots do not see it before."""
        for admin in (self.blue, self.green):
            if admin.connection.name in clusters:
                await admin.put(f"/{self.topic.path}/unload")

    async def snapshots(self) -> list[Snapshot]:
        selection = Selection(tenants=frozenset({self.name.tenant}))
        return [await collect(admin, selection, redactor=REDACTOR) for admin in (self.blue, self.green)]

    async def findings(self, settings: dict[str, str]) -> dict[str, Finding]:
        """By id and kind of resource.

        :param settings: static settings of blue's brokers, which are put into its snapshot.
        """
        source, target = await self.snapshots()
        findings = check_compatibility(with_settings(source, None, **settings), target, Probes(lag_seconds=LAG))
        return {finding.id: finding for finding in findings}

    async def rows(self) -> list[set[str]]:
        """Topics, cursors, schemas, tenants on both clusters: what no remedy here may change."""
        kept = ("tenants", "topics", "schemas", "subscriptions", "inventory")
        return [
            {
                repr(row)
                for table in TABLES
                if table in kept
                for row in getattr(snapshot, table)
                if getattr(row, "kind", "") not in ("client", SYSTEM_TOPIC)
            }
            for snapshot in await self.snapshots()
        ]


Seed = Callable[[Pair], Awaitable[None]]


@dataclass(frozen=True)
class Case:
    """A finding, how to produce it, and the nearest state in which it would be wrong.

    :param changes: the remedy is meant to change topics, cursors or tenants: only the other cluster must stay equal.
    """

    id: str
    seed: Seed
    wrong: Seed
    settings: dict[str, str] = field(default_factory=dict)
    changes: bool = False


def policy(path: str, body: Any, *, on: str = "blue", method: str = "post") -> Seed:
    """Set a policy of the namespace on one cluster, or on both."""

    async def seed(pair: Pair) -> None:
        for admin in (pair.blue, pair.green):
            if on in ("both", admin.connection.name):
                await getattr(admin, method)(f"{pair.path}/{path}", body)

    return seed


async def nothing(_: Pair) -> None:
    """The namespace is as it was made."""


def after(*seeds: Seed) -> Seed:
    async def seed(pair: Pair) -> None:
        for step in seeds:
            await step(pair)

    return seed


async def three_topics(pair: Pair) -> None:
    for local in ("one", "two"):
        await pair.blue.create_topic(TopicName(pair.name, local))


async def two_subscriptions(pair: Pair) -> None:
    await pair.blue.create_subscription(pair.topic, "audit")


def group(limits: dict[str, int]) -> Seed:
    """The namespace is in a resource group of its own on both clusters; green has these limits."""

    async def seed(pair: Pair) -> None:
        for admin, numbers in ((pair.blue, GROUP), (pair.green, limits)):
            await admin.put(f"/resourcegroups/{pair.name.tenant}", numbers)
            await admin.post(f"{pair.path}/resourcegroup/{pair.name.tenant}")

    return seed


def replicated(on_green: bool) -> Seed:
    async def seed(pair: Pair) -> None:
        path = f"{pair.topic.subscription_path('billing')}/replicatedSubscriptionStatus"
        await pair.blue.post(path, True)
        if on_green:
            await pair.green.post(path, True)
        await pair.unload("blue", "green")

    return seed


def grant(*clusters: str) -> Seed:
    return after(*(policy("permissions/stranger", ["consume"], on=cluster) for cluster in clusters))


def admin_role(*clusters: str) -> Seed:
    async def seed(pair: Pair) -> None:
        for admin in (pair.blue, pair.green):
            own = admin.connection.name
            if own in clusters:
                roles = {"adminRoles": ["owner", "stranger"], "allowedClusters": [own]}
                await admin.post(f"/tenants/{pair.name.tenant}", roles)

    return seed


def partitions(blue: int, green: int) -> Seed:
    async def seed(pair: Pair) -> None:
        await pair.blue.create_partitioned_topic(pair.wide, blue)
        await pair.green.create_partitioned_topic(pair.wide, green)

    return seed


def stored(limit: int) -> Seed:
    """A namespace that blue was created with, unchecked, and that green has without it."""

    async def seed(pair: Pair) -> None:
        name = NamespaceName(pair.name.tenant, "stored")
        for admin, policies in ((pair.blue, {"max_producers_per_topic": limit}), (pair.green, {})):
            await admin.put_namespace(name, {"replication_clusters": [admin.connection.name], **policies})

    return seed


def quota(seconds: int) -> Seed:
    body = {"limitTime": seconds, "limitSize": -1, "policy": "consumer_backlog_eviction"}

    async def seed(pair: Pair) -> None:
        await pair.blue.post(f"{pair.path}/backlogQuota", body, backlogQuotaType="message_age")

    return seed


def kept(minutes: int) -> Seed:
    return policy("retention", {"retentionTimeInMinutes": minutes, "retentionSizeInMB": 100})


def schema(*clusters: str) -> Seed:
    """A schema on blue, and another one, or the same, on green."""

    async def seed(pair: Pair) -> None:
        for admin in (pair.blue, pair.green):
            kind = "string" if admin.connection.name in clusters else "long"
            await admin.post_schema(pair.topic, {"type": "AVRO", "schema": record(("id", kind)), "properties": {}})

    return seed


def flagged(*clusters: str) -> Seed:
    return after(nothing, *(policy("migration", True, on=cluster) for cluster in clusters))


OFF = {"allowAutoTopicCreation": False}
CREATION = ("autoTopicCreation", OFF)
SUBSCRIBING = ("autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False})
STRATEGY = ("schemaCompatibilityStrategy", "BACKWARD")
CASES = (
    Case("ttl-shorter-than-lag", policy("messageTTL", 60), policy("messageTTL", 2 * LAG)),
    Case("retention-shorter-than-lag", kept(5), kept(600)),
    Case("quota-shorter-than-lag", quota(60), quota(2 * LAG)),
    Case(
        "too-many-topics", after(three_topics, policy("maxTopicsPerNamespace", 1)), policy("maxTopicsPerNamespace", 3)
    ),
    Case(
        "too-many-subscriptions",
        after(two_subscriptions, policy("maxSubscriptionsPerTopic", 1)),
        after(two_subscriptions, policy("maxSubscriptionsPerTopic", 2)),
    ),
    Case("value-refused", stored(-1), stored(1)),
    Case("resource-group-differs", group({**GROUP, "publishRateInMsgs": 7}), group(GROUP)),
    Case("replicated-flag-differs", replicated(on_green=False), replicated(on_green=True), changes=True),
    Case("role-only-on-target", grant("green"), grant("blue", "green")),
    Case("role-only-on-target", admin_role("green"), admin_role("blue", "green"), changes=True),
    Case("partitions-differ", partitions(2, 3), partitions(3, 3), changes=True),
    Case("auto-creation-differs", policy(*CREATION), policy(*CREATION, on="both")),
    Case("auto-creation-differs", policy(*CREATION, on="green"), policy(*CREATION, on="both")),
    Case("auto-subscription-differs", policy(*SUBSCRIBING, on="green"), policy(*SUBSCRIBING, on="both")),
    Case("schema-strategy-differs", policy(*STRATEGY, method="put"), policy(*STRATEGY, on="both", method="put")),
    Case("ttl-default-differs", nothing, policy("messageTTL", 60), TTL),
    Case("retention-default-differs", nothing, kept(600), RETENTION),
    Case("dedup-default-differs", nothing, policy("deduplication", False), DEDUPLICATION),
    Case("auto-creation-differs", nothing, policy(*CREATION, on="both"), {"allowAutoTopicCreation": "false"}),
)
QUESTIONS = (
    Case("schema-incompatible", schema("blue"), schema("blue", "green")),
    Case("namespace-migrated", flagged("green"), nothing),
)
"""Findings whose call only reads."""


@pytest.fixture
async def pair(on_blue: AdminClient, on_green: AdminClient, new_namespace: Callable[[], NamespaceName]) -> Pair:
    pair = Pair(on_blue, on_green, new_namespace())
    await pair.make()
    return pair


def _names(cases: tuple[Case, ...]) -> list[str]:
    return [f"{number}-{case.id}" for number, case in enumerate(cases)]


@pytest.mark.parametrize("case", CASES, ids=_names(CASES))
async def test_the_printed_call_removes_the_finding_and_harms_nothing(case: Case, pair: Pair) -> None:
    await case.seed(pair)
    before, finding = await pair.rows(), (await pair.findings(case.settings))[case.id]
    touched = set()
    for cluster, call in calls(finding.call):
        touched.add(cluster)
        await send({"blue": pair.blue, "green": pair.green}[cluster], call)
    if case.changes:
        await pair.unload(*touched)
    remaining = await _left(pair, case)
    assert remaining is None, remaining.text()
    for cluster, rows, later in zip(("blue", "green"), before, await pair.rows(), strict=True):
        assert rows == later or (case.changes and cluster in touched)
        assert {row for row in rows - later if "Topic" in row and "Tenant" not in row} == set() or case.changes


async def _left(pair: Pair, case: Case) -> Finding | None:
    """The finding, if it is still there when a topic policy has become visible.

    A policy that the plan is going to copy differs on green until then: that finding is about the namespace.
    """
    for _ in range(20):
        finding = (await pair.findings(case.settings)).get(case.id)
        if finding is None or (case.settings and finding.resource == str(pair.name)):
            return None
        await asyncio.sleep(0.2)
    return finding


@pytest.mark.parametrize("case", CASES, ids=_names(CASES))
async def test_where_the_finding_would_be_wrong_its_call_is_not_printed(case: Case, pair: Pair) -> None:
    await case.wrong(pair)
    assert case.id not in await pair.findings(case.settings)


@pytest.mark.long
@pytest.mark.parametrize("case", QUESTIONS, ids=_names(QUESTIONS))
async def test_a_call_that_only_asks_changes_nothing(case: Case, pair: Pair) -> None:
    await case.wrong(pair)
    assert case.id not in await pair.findings({})
    other = replace(pair, name=NamespaceName(f"{pair.name.tenant}-other", "orders"))
    await other.make()
    await case.seed(other)
    before, finding = await _settled(other), (await other.findings({}))[case.id]
    for cluster, call in calls(finding.call):
        # The answers of a broker that would refuse the schema, and of one without a redirect.
        with suppress(InvalidRequest, NotFound):
            await send({"blue": other.blue, "green": other.green}[cluster], call)
    assert await other.rows() == before
    await other.green.post(f"{other.path}/migration", False)


async def _settled(pair: Pair) -> list[set[str]]:
    """The rows when they do not change any more: brokers terminate the topics of a flagged namespace a second later."""
    rows = await pair.rows()
    while True:
        await asyncio.sleep(1.5)
        if (again := await pair.rows()) == rows:
            return rows
        rows = again


async def test_no_deletion_is_advised_for_a_topic_that_only_green_terminated(pair: Pair) -> None:
    await pair.green.post(f"/{pair.topic.path}/terminate")
    finding = (await pair.findings({}))["topic-terminated-on-target"]
    assert "no client, no subscription and storageSize 0" in finding.remedy
    await pair.green.post(f"{pair.path}/migration", True)
    findings = await pair.findings({})
    assert findings["topic-terminated-on-target"].remedy.startswith("keep it")
    assert "leave the flag" in findings["namespace-migrated"].remedy
    await pair.green.post(f"{pair.path}/migration", False)


@pytest.mark.cluster
async def test_the_override_of_a_migration_on_blue_is_no_reason_to_change_green(pair: Pair) -> None:
    key = "brokerDeleteInactiveTopicsEnabled"
    on_green = (await pair.green.runtime_configuration())[key]
    await pair.blue.set_dynamic(key, "true" if on_green == "false" else "false")
    try:
        finding = (await pair.findings({}))["inactive-topics-default-differs"]
        assert finding.remedy.startswith("nothing if a dynamic setting is the cause")
        ((cluster, call),) = calls(finding.call)
        assert (cluster, key in await pair.blue.get(call.path)) == ("blue", True)
    finally:
        await pair.blue.unset_dynamic(key)
    assert "inactive-topics-default-differs" not in await pair.findings({})


def test_every_finding_that_is_executed_has_a_case() -> None:
    assert {case.id for case in CASES} == done_by(test_the_printed_call_removes_the_finding_and_harms_nothing.__name__)
    assert {case.id for case in QUESTIONS} == done_by(test_a_call_that_only_asks_changes_nothing.__name__)
