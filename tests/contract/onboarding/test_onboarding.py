"""A cluster brought into the fleet, step by step, on real clusters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pulsar
import pytest
from tests.support.snapshot_equality import verify_equal

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.artefacts import Artefacts
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.onboarding.results import AppliedChanges
from pulsar_fleet.onboarding.steps import (
    apply_onboarding,
    plan_onboarding,
    probe_target_schemas,
    take_snapshot,
)
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.preflight.findings import Planned, blockers
from pulsar_fleet.report.onboard import onboarding_report
from pulsar_fleet.verification.snapshots.compare import EqualityResult

pytestmark = pytest.mark.versions

Make = Callable[[AdminClient, NamespaceName], Awaitable[None]]
NewNamespace = Callable[[], NamespaceName]
RUN = "run-1"
TYPES = {
    "exclusive": pulsar.ConsumerType.Exclusive,
    "failover": pulsar.ConsumerType.Failover,
    "shared": pulsar.ConsumerType.Shared,
    "key-shared": pulsar.ConsumerType.KeyShared,
}


class Onboarding:
    """The steps in order, as the DAG runs them."""

    def __init__(self, blue: ClusterConnection, green: ClusterConnection, namespace: NamespaceName) -> None:
        self.blue, self.green = blue, green
        self.selection = Selection(namespaces=frozenset({namespace}))
        self.artefacts, self.ledger = Artefacts.open(), Ledger.open()
        self.applied: AppliedChanges | None = None
        self.verified: EqualityResult | None = None

    async def plan(self) -> Planned[Plan]:
        self.source = await take_snapshot(
            self.blue, self.selection, self.artefacts, RUN, name="source", must_exist=True
        )
        self.target = await take_snapshot(self.green, self.selection, self.artefacts, RUN, name="target")
        self.planned = plan_onboarding(self.source, self.target, self.artefacts)
        return self.planned

    async def run(self) -> EqualityResult:
        await self.plan()
        self.applied = await apply_onboarding(
            self.blue, self.green, self.planned.plan, self.artefacts, self.ledger, RUN
        )
        self.verified = await verify_equal(self.source, self.green, self.selection, self.artefacts, RUN)
        return self.verified

    def report(self) -> str:
        plan, findings = self.planned.plan, self.planned.findings
        return onboarding_report(self.source, self.target, plan, findings, self.applied, self.verified).markdown()


@pytest.fixture
async def onboarding(
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    new_namespace: NewNamespace,
    make_estate: Make,
    records: Path,
) -> Onboarding:
    """An estate on blue that green knows nothing of."""
    name = new_namespace()
    await make_estate(on_blue, name)
    return Onboarding(blue, green, name)


async def test_an_estate_is_equal_after_one_run(onboarding: Onboarding) -> None:
    verified = await onboarding.run()
    assert verified.equal, verified.text
    assert verified.compared == {
        "tenants": 1,
        "namespaces": 1,
        "topics": 3,
        "schemas": 2,
        "subscriptions": 7,
        "topic_policies": 2,
    }


async def test_a_second_plan_is_empty(onboarding: Onboarding) -> None:
    await onboarding.run()
    assert (await onboarding.plan()).plan.empty


async def test_a_new_estate_needs_no_permission(onboarding: Onboarding) -> None:
    planned = await onboarding.plan()
    assert (planned.plan.needing_permission(), blockers(planned.findings)) == ((), ())


async def test_planning_changes_nothing(onboarding: Onboarding, on_green: AdminClient) -> None:
    await onboarding.plan()
    (name,) = onboarding.selection.namespaces
    assert await on_green.namespace(name) is None


async def test_the_report_says_first_that_all_is_well(onboarding: Onboarding) -> None:
    await onboarding.run()
    assert onboarding.report().startswith(
        "# Equal: green has all that a plan copies from blue (1 tenants, 1 namespaces, 3 topics"
    )


async def test_the_report_of_a_plan_says_that_nothing_was_changed(onboarding: Onboarding) -> None:
    await onboarding.plan()
    assert "Nothing has been changed" in onboarding.report().splitlines()[0]


async def test_what_a_step_hands_over_is_small(onboarding: Onboarding) -> None:
    await onboarding.run()
    handed = (onboarding.source, onboarding.target, onboarding.applied, onboarding.verified)
    assert max(len(result.to_bytes()) for result in handed) < 4000


async def test_subscriptions_of_every_type_are_there_at_the_first_message(
    onboarding: Onboarding, on_green: AdminClient
) -> None:
    (name,) = onboarding.selection.namespaces
    plain = TopicName(name, "plain")
    client = pulsar.Client(onboarding.blue.require_service_url(), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        for subscription, kind in TYPES.items():
            # The namespace forbids subscriptions that come into being by use.
            async with AdminClient(onboarding.blue) as admin:
                await admin.create_subscription(plain, subscription)
            client.subscribe(str(plain), subscription, consumer_type=kind).close()
    finally:
        client.close()
    assert (await onboarding.run()).equal
    cursors = (await on_green.internal_info(plain))["cursors"]
    assert set(TYPES) | {"tail"} <= set(cursors)
    assert {cursors[name]["markDelete"]["entryId"] for name in TYPES} == {-1}


async def test_subscriptions_keep_their_partitions_and_their_properties(
    onboarding: Onboarding, on_blue: AdminClient, on_green: AdminClient
) -> None:
    (name,) = onboarding.selection.namespaces
    events, plain = TopicName(name, "events"), TopicName(name, "plain")
    await on_blue.put(f"{plain.subscription_path('tail')}/properties", {"selector": "a = 1"})
    await on_blue.create_subscription(events.partition(1), "job")
    assert (await onboarding.run()).equal
    stats = (await on_green.stats(plain))["subscriptions"]
    assert stats["tail"]["subscriptionProperties"] == {"selector": "a = 1"}
    info = (await on_green.internal_info(events))["partitions"]
    assert [partition for partition, document in info.items() if "job" in document["cursors"]] == [
        str(events.partition(1))
    ]
    await on_green.put(f"{plain.subscription_path('tail')}/properties", {"selector": "b = 2"})
    await on_green.create_subscription(events.partition(2), "billing-2")
    verified = await verify_equal(
        onboarding.source, on_green.connection, onboarding.selection, onboarding.artefacts, RUN
    )
    assert (verified.equal, verified.differences) == (False, 1)
    assert "tail" in verified.text


async def test_another_type_of_schema_on_the_target_is_a_blocker_with_a_remedy(
    onboarding: Onboarding, on_green: AdminClient
) -> None:
    """The broker answers 500 to the question whether it would accept it."""
    (name,) = onboarding.selection.namespaces
    await on_green.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["green"]})
    await on_green.put_namespace(name, {"replication_clusters": ["green"]})
    events = TopicName(name, "events")
    await on_green.create_partitioned_topic(events, 3)
    await on_green.post_schema(events, {"type": "STRING", "schema": "", "properties": {}})
    await onboarding.plan()
    answers = await probe_target_schemas(onboarding.green, onboarding.source, onboarding.target, onboarding.artefacts)
    assert [(answer.topic, answer.compatible) for answer in answers] == [(str(events), False)]
    planned = plan_onboarding(onboarding.source, onboarding.target, onboarding.artefacts, answers=answers)
    (blocker,) = [row for row in planned.findings if row.id == "schema-incompatible"]
    assert "blue 2 AVRO versions, green 1 STRING version" in blocker.evidence
    assert f"DELETE /admin/v2{events.schema_path}/schema" not in blocker.call
    assert "find out which type the applications use" in blocker.remedy


@pytest.mark.cluster
async def test_dynamic_settings_of_the_source_are_named_with_their_values(
    onboarding: Onboarding, on_blue: AdminClient
) -> None:
    await on_blue.set_dynamic("dispatchThrottlingRatePerTopicInMsg", "12345")
    try:
        planned = await onboarding.plan()
    finally:
        await on_blue.unset_dynamic("dispatchThrottlingRatePerTopicInMsg")
    (finding,) = [row for row in planned.findings if row.id == "dynamic-settings-differ"]
    assert "dispatchThrottlingRatePerTopicInMsg = 12345" in finding.evidence
    assert finding.call == "blue: GET /admin/v2/brokers/configuration/values"
