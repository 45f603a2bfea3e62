"""The runbooks, run by Airflow itself against two real clusters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar
import pytest
from tests.support.dag_runs import announced, asset_events, report, states

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.artefacts import Artefacts, Reference
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_sandbox.workload import EstateSpec, build_estate, drain_subscription

pytestmark = [pytest.mark.migration, pytest.mark.cluster]

Play = Callable[..., Any]
PUBLISHED = 100
FORGOTTEN = 41
SIDES = {"source": "pulsar_blue", "target": "pulsar_green"}


def wave_text(run: Any) -> str:
    """What would be approved."""
    return (Artefacts.open().folder(f"{run.dag_id}/{run.run_id}") / "wave.md").read_text()


@pytest.fixture
def moving(blue: ClusterConnection, new_namespace: Callable[[], NamespaceName]) -> NamespaceName:
    """A namespace on blue with a partitioned and a plain topic, backlogs and an idle subscription."""
    name = NamespaceName(new_namespace().tenant, "orders")
    spec = EstateSpec(live=str(name), tenants=1, namespaces_per_tenant=1, history=60)
    asyncio.run(build_estate(blue, spec))
    return name


def test_a_namespace_is_onboarded_moved_and_proven_and_blue_is_restored(
    play: Play, moving: NamespaceName, blue: ClusterConnection, green: ClusterConnection
) -> None:
    onboarded = play("onboard_cluster", **SIDES, selection=[moving.tenant], auto_approve=True)
    assert set(states(onboarded).values()) == {"success"}
    assert report(onboarded).startswith("# Equal")
    extra = asset_events(onboarded)[f"pulsar-copied/blue/green/{moving}"]
    assert [extra[key] for key in ("run", "source", "target", "namespace", "topics")] == [
        *(f"onboard_cluster/{onboarded.run_id}", "blue", "green", str(moving), 2)
    ]
    proof = extra["proofs"]["snapshot"]
    assert (proof["verdict"], proof["number"] > 2) == ("equal", True)
    assert b"green" in Artefacts.open().read(Reference.from_json(proof["document"]))

    before = asyncio.run(overrides(blue))
    # Blue stays readable for the verification below.
    conf = {"auto_approve": True, "delete_inactive_topics_on_blue": True, "unload_terminated_topics": False}
    moved = play("migrate_namespaces", namespaces=[str(moving)], **conf)
    assert states(moved)["restore_blue"] == "success"
    assert asyncio.run(overrides(blue)) == before
    last = ("plan_next_run", "start_next_wave")
    assert {state for task, state in states(moved).items() if task not in last} == {"success"}
    assert [states(moved)[task] for task in last] == ["skipped", "skipped"]
    assert report(moved).startswith("# Migrated 1 namespace, 2 topics, from blue to green")
    verdicts = {record.scope: record for record in Ledger.open().verdicts(f"{moved.dag_id}/{moved.run_id}")}
    assert verdicts.keys() == {str(moving), f"copy of {moving}", f"subscriptions of {moving}"}
    assert {record.verdict for record in verdicts.values()} == {"equal"}
    assert verdicts[str(moving)].messages == 120

    require_event(moved, f"pulsar-migrated/blue/green/{moving}", {"messages", "copy", "subscriptions"})

    verified = play("verify_clusters", **SIDES, namespaces=[str(moving)])
    assert set(states(verified).values()) == {"success"}
    require_event(verified, f"pulsar-verified/blue/green/{moving}", {"messages", "subscriptions"})

    carried = drain_subscription(green, f"persistent://{moving}/events", "archive", at_least=60)
    assert len(carried) == len(set(carried)) == 60


def require_event(run: Any, asset: str, kinds: set[str]) -> None:
    """The only asset event of a run has clusters, counts and proofs, whose documents are stored."""
    ((name, extra),) = asset_events(run).items()
    names = [extra[key] for key in ("run", "source", "target", "partitions", "messages")]
    assert (name, names) == (asset, [f"{run.dag_id}/{run.run_id}", "blue", "green", 5, 120])
    assert {kind: proof["verdict"] for kind, proof in extra["proofs"].items()} == dict.fromkeys(kinds, "equal")
    document = Reference.from_json(extra["proofs"]["messages"]["document"])
    assert b"equal" in Artefacts.open().read(document)


async def overrides(connection: ClusterConnection) -> dict[str, str]:
    """What is set on a cluster's brokers while they run."""
    async with AdminClient(connection) as admin:
        return await admin.dynamic_overrides()


def test_a_moved_namespace_is_brought_back(
    play: Play, blue: ClusterConnection, green: ClusterConnection, new_namespace: Callable[[], NamespaceName]
) -> None:
    topic = TopicName(new_namespace(), "events")
    asyncio.run(_make_topic(blue, topic, kept=None))
    conf = {"namespaces": [str(topic.namespace)]}
    moved = states(play("migrate_namespaces", **conf, auto_approve=True))
    assert (moved["restore_blue"], moved["plan_next_run"]) == ("success", "skipped")
    listed = states(play("fail_back_namespaces", **conf))
    assert (listed["check_failback"], listed["reopen_blue"]) == ("failed", "upstream_failed")
    returned = play("fail_back_namespaces", **conf, allow_removal=True, auto_approve=True)
    assert set(states(returned).values()) == {"success"}
    assert report(returned).startswith("# Migrated 1 namespace, 1 topic, from green to blue")
    _publish(blue, topic, leave_out=None)
    asyncio.run(_clear_flag(green, topic.namespace))


async def _clear_flag(connection: ClusterConnection, name: NamespaceName) -> None:
    """Whoever brings a namespace back later refuses while a flag is set elsewhere on the same cluster."""
    async with AdminClient(connection) as admin:
        await admin.post(f"/namespaces/{name.path}/migration", False)


@pytest.mark.long
def test_a_dry_run_changes_nothing(play: Play, moving: NamespaceName, green: ClusterConnection) -> None:
    async def on_green() -> object:
        async with AdminClient(green) as admin:
            return await admin.tenant(moving.tenant)

    onboarding = play("onboard_cluster", **SIDES, selection=[moving.tenant], dry_run=True)
    moved = play("migrate_namespaces", namespaces=[str(moving)], dry_run=True)
    assert (states(onboarding)["apply_plan"], states(moved)["prepare_green"]) == ("skipped", "skipped")
    assert "**Wave 1 of 1: 1 namespace, 2 topics" in wave_text(moved)
    assert (str(onboarding.state), str(moved.state)) == ("success", "success")
    assert asyncio.run(on_green()) is None


@pytest.mark.long
def test_a_forgotten_message_fails_its_batch_and_the_other_is_verified(
    play: Play, blue: ClusterConnection, green: ClusterConnection, new_namespace: Callable[[], NamespaceName]
) -> None:
    lacking, whole = (TopicName(new_namespace(), "events") for _ in range(2))
    make_pair(lacking, blue, green, leave_out=FORGOTTEN)
    make_pair(whole, blue, green)
    names = [str(topic.namespace) for topic in (lacking, whole)]
    run = play("verify_clusters", **SIDES, namespaces=names, namespaces_per_job=1)
    task_states = states_by_batch(run)
    assert (task_states["compare_messages"], task_states["compare_subscriptions"]) == (["success"] * 2, ["success"] * 2)
    assert (task_states["read_verdict"], str(run.state)) == (["failed", "success"], "failed")
    documents = [json.loads(_verdict(run, f"verification/{batch}").read_text()) for batch in (1, 2)]
    ((compared,),) = ([topic for topic in namespace["topics"]] for namespace in documents[0]["namespaces"])
    (difference,) = compared["differences"]
    assert (compared["topic"], difference["key"], difference["kind"]) == (str(lacking), f"key-{FORGOTTEN}", "missing")
    assert f"key 'key-{FORGOTTEN}'" in report(run)
    assert "subscription 'billing': 1 message would be skipped" in report(run)
    assert f"EQUAL      {names[1]}: {PUBLISHED} messages in 1 topic on both sides" in report(run)
    assert announced(run) == [f"pulsar-verified/blue/green/{names[1]}"]
    verdicts = {record.scope: record.verdict for record in Ledger.open().verdicts(f"{run.dag_id}/{run.run_id}")}
    assert verdicts == {
        names[0]: "different",
        names[1]: "equal",
        f"subscriptions of {names[0]}": "different",
        f"subscriptions of {names[1]}": "equal",
    }


@pytest.mark.parametrize(
    ("dag_id", "conf"),
    [
        ("onboard_cluster", {**SIDES, "slection": []}),
        ("onboard_cluster", {**SIDES, "selection": ["nobody/nowhere"]}),
        ("onboard_cluster", {"source": "pulsar_blue", "target": "pulsar_blue"}),
        ("fail_back_namespaces", {"namespaces": ["nobody/nowhere"]}),
        ("verify_clusters", {**SIDES, "namespaces": ["nobody/nowhere"]}),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_a_configuration_that_cannot_be_meant_fails_in_the_first_task(
    play: Play, dag_id: str, conf: dict[str, Any]
) -> None:
    task_states = states(play(dag_id, **conf))
    ending = ("read_request", "write_report", "restore_blue", "restore_green")
    others = {state for task, state in task_states.items() if task not in ending}
    assert (task_states["read_request"], others) == ("failed", {"upstream_failed"})


def states_by_batch(run: Any) -> dict[str, list[str]]:
    """Task id → states of its batches in their order."""
    by_task: dict[str, list[str]] = {}
    for instance in sorted(run.get_task_instances(), key=lambda instance: instance.map_index):
        by_task.setdefault(instance.task_id, []).append(str(instance.state))
    return by_task


def make_pair(
    topic: TopicName, blue: ClusterConnection, green: ClusterConnection, *, leave_out: int | None = None
) -> None:
    """The same 100 messages on both clusters, but for one that green lacks."""
    for connection in (blue, green):
        asyncio.run(_make_topic(connection, topic))
        _publish(connection, topic, leave_out=leave_out if connection is green else None)
        asyncio.run(_subscribe(connection, topic))


FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


async def _make_topic(
    connection: ClusterConnection, topic: TopicName, *, kept: dict[str, int] | None = FOREVER
) -> None:
    async with AdminClient(connection) as admin:
        own = await admin.cluster_name()
        await admin.put(f"/tenants/{topic.namespace.tenant}", {"adminRoles": [], "allowedClusters": [own]})
        await admin.put_namespace(topic.namespace, {"replication_clusters": [own], "retention_policies": kept})
        await admin.create_topic(topic)


async def _subscribe(connection: ClusterConnection, topic: TopicName) -> None:
    async with AdminClient(connection) as admin:
        await admin.create_subscription(topic, "billing", "earliest")


def _publish(connection: ClusterConnection, topic: TopicName, *, leave_out: int | None) -> None:
    client = pulsar.Client(connection.require_service_url(), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        producer = client.create_producer(str(topic))
        for number in range(PUBLISHED):
            if number != leave_out:
                producer.send(b"x" * 20, partition_key=f"key-{number}", event_timestamp=1_700_000_000_000 + number)
    finally:
        client.close()


def _verdict(run: Any, folder: str) -> Path:
    return Path(str(Artefacts.open().folder(f"{run.dag_id}/{run.run_id}") / folder / "verdict.json"))


@pytest.mark.long
def test_a_selection_moves_in_waves_and_what_was_moved_is_left_out(
    play: Play, blue: ClusterConnection, new_namespace: Callable[[], NamespaceName]
) -> None:
    tenant = new_namespace().tenant
    names = [NamespaceName(tenant, "first"), NamespaceName(tenant, "second")]
    for number, name in enumerate(names):
        asyncio.run(
            build_estate(blue, EstateSpec(live=str(name), tenants=1, namespaces_per_tenant=1, history=number + 1))
        )
    conf = {"namespaces": [f"re:{tenant}/.*"], "auto_approve": True, "wave_namespaces": 1, "next_waves": False}
    first = play("migrate_namespaces", **conf)
    assert report(first).startswith("# Migrated 1 namespace,")
    assert states(first)["start_next_wave"] == "skipped"
    assert [str(name) in wave_text(first).partition("##")[0] for name in names] == [True, False]
    second = play("migrate_namespaces", **conf, continues=f"{first.dag_id}/{first.run_id}", wave=2)
    assert report(second).startswith("# Migrated 1 namespace,")
    third = play("migrate_namespaces", **conf)
    assert states(third)["read_request"] == "failed"
