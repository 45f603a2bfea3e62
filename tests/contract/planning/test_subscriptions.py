"""Subscriptions of topics and of single partitions, with their properties and flags, on real clusters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.redaction import Redactor
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.planning.apply.apply import apply_plan
from pulsar_fleet.planning.apply.outcome import Outcome, PlanResult
from pulsar_fleet.planning.build import plan_changes
from pulsar_fleet.planning.diff_entry import Resource
from pulsar_fleet.planning.plan import Plan
from pulsar_fleet.planning.undo import plan_undo
from pulsar_fleet.snapshot.collect import collect

pytestmark = pytest.mark.versions

REDACTOR = Redactor(b"a key of the tests")
Make = Callable[[AdminClient, NamespaceName], Awaitable[None]]
NewNamespace = Callable[[], NamespaceName]
Subscriptions = dict[tuple[str, str], tuple[bool, JsonObject]]
SELECTOR = {"selector": "a = 1"}


async def plan(source: AdminClient, target: AdminClient, namespace: NamespaceName) -> Plan:
    selection = Selection(namespaces=frozenset({namespace}))
    ours = await collect(source, selection, redactor=REDACTOR, must_exist=True, load_topics=True)
    return plan_changes(ours, await collect(target, selection, redactor=REDACTOR, load_topics=True))


async def apply(plan: Plan, target: AdminClient, run: str = "run") -> PlanResult:
    ids = [change.id for change in plan.needing_permission()]
    return await apply_plan(plan, target, Ledger.open(), run, redactor=REDACTOR, allow=ids)


async def copy(source: AdminClient, target: AdminClient, namespace: NamespaceName) -> None:
    """Apply until the target is equal to the source."""
    applied = await apply(await plan(source, target, namespace), target)
    assert [(result.change.label, result.detail) for result in applied.not_in_place()] == []
    assert (await plan(source, target, namespace)).changes == ()


async def subscribe(admin: AdminClient, topic: TopicName, name: str, **properties: str) -> None:
    body = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "properties": properties}
    await admin.put(topic.subscription_path(name), body)


async def subscriptions(admin: AdminClient, namespace: NamespaceName) -> Subscriptions:
    """Topic or partition and subscription → replicated flag and properties, by the brokers' statistics."""
    rows: Subscriptions = {}
    for topic in await admin.topics(namespace):
        for name, document in (await admin.stats(topic))["subscriptions"].items():
            rows[topic.local, name] = (document["replicated"], document["subscriptionProperties"])
    return rows


def changes(planned: Plan) -> list[tuple[str, str, str]]:
    return [
        (TopicName.parse(change.name).local, change.field, change.action.value)
        for change in planned.changes
        if change.resource is Resource.SUBSCRIPTION
    ]


@pytest.fixture
async def both(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_namespace: Make, records: Path
) -> NamespaceName:
    """A namespace with a topic `p` of three partitions on both clusters."""
    name = new_namespace()
    for admin in (on_blue, on_green):
        await make_namespace(admin, name)
        await admin.create_partitioned_topic(TopicName(name, "p"), 3)
    return name


async def test_a_subscription_that_one_partition_has_meanwhile_gets_to_all(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    topic = TopicName(both, "p")
    await on_blue.create_subscription(topic, "job")
    planned = await plan(on_blue, on_green, both)
    first, *_ = topic.partitions(3)
    await subscribe(on_green, first, "job")
    assert (await apply(planned, on_green)).not_in_place() == ()
    rows = await subscriptions(on_green, both)
    assert {name for name, subscription in rows if subscription == "job"} == {
        part.local for part in topic.partitions(3)
    }


async def test_a_subscription_of_a_partition_stays_on_that_partition(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: NewNamespace, make_namespace: Make, records: Path
) -> None:
    name = new_namespace()
    await make_namespace(on_blue, name)
    topic = TopicName(name, "p")
    await on_blue.create_partitioned_topic(topic, 2)
    for index in range(2):
        await subscribe(on_blue, topic.partition(index), f"job{index}", number=str(index))
    await subscribe(on_blue, topic, "all")
    planned = await plan(on_blue, on_green, name)
    assert changes(planned) == [
        ("p", "all", "create"),
        ("p-partition-0", "job0", "create"),
        ("p-partition-1", "job1", "create"),
    ]
    await copy(on_blue, on_green, name)
    assert await subscriptions(on_green, name) == await subscriptions(on_blue, name)


async def test_partitions_that_lack_a_subscription_get_it_and_lose_it_by_undo(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    topic = TopicName(both, "p")
    await subscribe(on_blue, topic, "s")
    await subscribe(on_green, topic.partition(1), "s")
    before = await subscriptions(on_green, both)
    planned = await plan(on_blue, on_green, both)
    assert changes(planned) == [("p-partition-0", "s", "create"), ("p-partition-2", "s", "create")]
    await copy(on_blue, on_green, both)
    assert await subscriptions(on_green, both) == await subscriptions(on_blue, both)
    await apply(plan_undo(Ledger.open(), "run"), on_green, "undo")
    assert await subscriptions(on_green, both) == before


async def test_a_flag_and_properties_that_differ_between_partitions_are_copied(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    topic = TopicName(both, "p")
    for admin in (on_blue, on_green):
        await subscribe(admin, topic, "s")
    await on_blue.post(f"{topic.partition(1).subscription_path('s')}/replicatedSubscriptionStatus", True)
    await on_blue.put(f"{topic.partition(2).subscription_path('s')}/properties", SELECTOR)
    await on_blue.put(f"/{topic.partition(1).path}/unload")
    planned = await plan(on_blue, on_green, both)
    assert changes(planned) == [("p-partition-1", "s", "set"), ("p-partition-2", "s", "set")]
    await copy(on_blue, on_green, both)
    assert (await subscriptions(on_green, both))["p-partition-2", "s"] == (False, SELECTOR)
    info = (await on_green.internal_info(topic))["partitions"]
    flags = [info[str(topic.partition(index))]["cursors"]["s"].get("properties") for index in range(3)]
    assert flags == [None, {"pulsar.replicated.subscription": 1}, None]


async def test_the_flag_of_a_new_subscription_is_stored_on_each_partition(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    topic = TopicName(both, "p")
    await subscribe(on_blue, topic, "s")
    await on_blue.post(f"{topic.subscription_path('s')}/replicatedSubscriptionStatus", True)
    await on_blue.put(f"/{topic.path}/unload")
    await copy(on_blue, on_green, both)
    await on_green.put(f"/{topic.path}/unload")
    assert {replicated for replicated, _ in (await subscriptions(on_green, both)).values()} == {True}


async def test_a_topic_without_one_of_its_partitions_is_copied(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    topic = TopicName(both, "p")
    await subscribe(on_blue, topic, "s", team="billing")
    await subscribe(on_blue, topic.partition(1), "job")
    for admin in (on_blue, on_green):
        await admin.delete(f"/{topic.partition(1).path}", force=True)
    assert changes(await plan(on_blue, on_green, both)) == [
        ("p-partition-0", "s", "create"),
        ("p-partition-2", "s", "create"),
    ]
    await copy(on_blue, on_green, both)
    await subscribe(on_blue, topic, "s2")
    await copy(on_blue, on_green, both)
    assert await subscriptions(on_green, both) == await subscriptions(on_blue, both)


async def test_new_partitions_have_the_subscription_when_partitions_grow(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    topic = TopicName(both, "p")
    for admin in (on_blue, on_green):
        await subscribe(admin, topic, "s", team="billing")
    await on_blue.post(f"/{topic.path}/partitions", 5)
    await copy(on_blue, on_green, both)
    assert await subscriptions(on_green, both) == await subscriptions(on_blue, both)


async def test_what_only_the_target_has_on_a_partition_is_named_and_kept(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    topic = TopicName(both, "p")
    await subscribe(on_blue, topic.partition(0), "s")
    await subscribe(on_green, topic, "s")
    planned = await plan(on_blue, on_green, both)
    assert planned.empty
    assert [(TopicName.parse(row.name).local, row.field, row.reason) for row in planned.left_alone] == [
        ("p-partition-1", "s", "exists only on the target"),
        ("p-partition-2", "s", "exists only on the target"),
    ]


async def test_properties_are_created_and_added_and_none_is_removed(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    topic = TopicName(both, "p")
    await subscribe(on_blue, topic, "new", **SELECTOR)
    await subscribe(on_blue, topic, "old", **SELECTOR)
    await subscribe(on_green, topic, "old", selector="b = 2", owner="green")
    planned = await plan(on_blue, on_green, both)
    assert changes(planned) == [("p", "new", "create"), ("p", "old", "set")]
    await copy(on_blue, on_green, both)
    after = await subscriptions(on_green, both)
    assert {after[f"p-partition-{index}", "new"][1]["selector"] for index in range(3)} == {"a = 1"}
    assert all(after[f"p-partition-{index}", "old"] == (False, {**SELECTOR, "owner": "green"}) for index in range(3))
    await apply(plan_undo(Ledger.open(), "run"), on_green, "undo")
    assert await subscriptions(on_green, both) == {
        (f"p-partition-{index}", "old"): (False, {"selector": "b = 2", "owner": "green"}) for index in range(3)
    }


@pytest.mark.parametrize("exists", [True, False])
async def test_properties_of_single_partitions_are_copied_to_these(
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: NewNamespace,
    make_namespace: Make,
    records: Path,
    exists: bool,
) -> None:
    name = new_namespace()
    topic = TopicName(name, "p")
    for admin in (on_blue, on_green)[: 2 if exists else 1]:
        await make_namespace(admin, name)
        await admin.create_partitioned_topic(topic, 3, {"team": "billing"})
    await on_blue.put(f"/{topic.partition(1).path}/properties", {"shard": "east"})
    if exists:
        await on_green.put(f"/{topic.partition(1).path}/properties", {"owner": "green"})
        await on_green.put(f"/{topic.partition(2).path}/properties", {"owner": "green"})
    await copy(on_blue, on_green, name)
    own = [await on_green.get(f"/{topic.partition(index).path}/properties") for index in range(3)]
    if exists:
        assert own == [{}, {"shard": "east", "owner": "green"}, {"owner": "green"}]
    else:
        assert own == [{}, {"shard": "east"}, {}]
    assert await on_green.get(f"/{topic.path}/properties") == {"team": "billing"}
    await apply(plan_undo(Ledger.open(), "run"), on_green, "undo")
    if exists:
        assert await on_green.get(f"/{topic.partition(1).path}/properties") == {"owner": "green"}
    else:
        assert await on_green.namespace(name) is None


async def test_properties_that_changed_after_the_plan_are_a_conflict_and_stay(
    on_blue: AdminClient, on_green: AdminClient, both: NamespaceName
) -> None:
    topic = TopicName(both, "p")
    await subscribe(on_blue, topic, "s", **SELECTOR)
    await subscribe(on_green, topic, "s")
    planned = await plan(on_blue, on_green, both)
    await on_green.put(f"{topic.partition(2).subscription_path('s')}/properties", {"selector": "c = 3"})
    applied = await apply(planned, on_green)
    assert [result.outcome for result in applied.results] == [Outcome.CONFLICT]
    assert [value for _, value in (await subscriptions(on_green, both)).values()] == [{}, {}, {"selector": "c = 3"}]
