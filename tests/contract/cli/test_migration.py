"""A migration and a failback on the terminal: approved, killed and resumed, interrupted and aborted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.migration import forget_migrations
from tests.support.shell import Said, Shell

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.migration.model import Strategy

pytestmark = pytest.mark.cluster

NewNamespace = Callable[[], NamespaceName]
DONE, ERROR, USAGE, _, REFUSED, PARTLY = range(6)
FOREVER = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


@pytest.fixture
async def moving(
    new_namespace: NewNamespace, on_blue: AdminClient, on_green: AdminClient
) -> AsyncIterator[NamespaceName]:
    """A namespace on blue with one topic; what a migration leaves on the clusters is cleared before and at the end."""
    await forget_migrations(on_blue, on_green)
    name, overrides = new_namespace(), [await admin.dynamic_overrides() for admin in (on_blue, on_green)]
    await on_blue.put(f"/tenants/{name.tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
    await on_blue.put_namespace(name, {"replication_clusters": ["blue"]})
    await on_blue.create_topic(TopicName(name, "events"))
    yield name
    for admin, before in zip((on_blue, on_green), overrides, strict=True):
        for key in (await admin.dynamic_overrides()).keys() - before.keys():
            await admin.unset_dynamic(key)
        if await admin.namespace(name):
            await admin.post(f"/namespaces/{name.path}/migration", False)


async def settings(admin: AdminClient, name: NamespaceName) -> tuple[Any, ...]:
    """What a migration overrides on blue."""
    policies = [await admin.get(f"/namespaces/{name.path}/{policy}") for policy in ("publishRate", "replication")]
    return await admin.dynamic_overrides(), policies, await admin.get(f"/namespaces/{name.path}/inactiveTopicPolicies")


def result(completed: Said) -> Any:
    (run,) = completed.document["runs"]
    return run


def test_a_migration_is_refused_before_the_first_call_when_it_is_not_valid(shell: Shell, moving: NamespaceName) -> None:
    blue, green = shell.sides
    unapproved, unknown, twice, absent = shell.at_once(
        ("migrate", *shell.sides, "--namespaces", moving),
        ("migrate", blue, "pulsar_nowhere", "--namespaces", moving, "--yes"),
        ("fail-back", green, green, "--namespaces", moving, "--yes"),
        ("migrate", *shell.sides, "--namespaces", "no/where", "--yes"),
    )
    assert (unapproved.state, unknown.state, twice.state, absent.state) == (REFUSED, USAGE, USAGE, ERROR)
    assert "no terminal to ask on: add --yes" in unapproved.err
    assert "'pulsar_nowhere'" in unknown.err
    assert "both lead to cluster 'green'" in twice.err
    assert "has no 'no/where'" in absent.err


async def test_a_migration_is_approved_on_the_terminal_and_fails_back(
    shell: Shell, moving: NamespaceName, on_blue: AdminClient, on_green: AdminClient
) -> None:
    dry = shell.run("migrate", *shell.sides, "--namespaces", moving, "--dry-run")
    assert (dry.state, await on_green.namespace(moving)) == (DONE, None)
    state, rejected = shell.typed("n", "migrate", *shell.sides, "--namespaces", moving)
    assert (state, "wave 1 was not approved. Nothing has been changed." in rejected) == (REFUSED, True)
    state, shown = shell.typed("y", "migrate", *shell.sides, "--namespaces", moving)
    assert (state, "Approve wave 1 of 1?" in shown) == (DONE, True), shown
    assert "Migrated 1 namespace, 1 topic, from blue to green" in shown
    assert "Wave 1: Approve by" in shown.replace("wave 1", "Wave 1")
    assert (await on_blue.namespace(moving) or {})["migrated"]

    before = await settings(on_green, moving)
    refused = shell.run("fail-back", *shell.sides, "--namespaces", moving, "--yes")
    assert (refused.state, "removal-not-allowed" in refused.err) == (REFUSED, True)
    back = shell.run("fail-back", *shell.sides, "--namespaces", moving, "--allow-removal", "--yes", "--json")
    assert (back.state, result(back)["failed"]) == (DONE, []), back.err
    assert not (await on_blue.namespace(moving) or {})["migrated"]
    dynamic, policies, _inactive = await settings(on_green, moving)
    assert (dynamic, policies) == before[:2]


@pytest.mark.long
async def test_a_killed_migration_is_resumed_to_its_end(
    shell: Shell, moving: NamespaceName, on_blue: AdminClient
) -> None:
    before = await settings(on_blue, moving)
    options = ("--namespaces", moving, "--yes", "--json", "--delete-inactive-topics-on-blue")
    said = shell.killed("migrate", *shell.sides, *options, after="start_replication")
    (running,) = Ledger.open().migrations()
    assert f"pulsar-fleet migrate --resume {running.run_id}\n" in said
    resumed = shell.run("migrate", "--resume", running.run_id, "--yes", "--json")
    assert resumed.state == DONE, resumed.err
    names = [step["step"] for step in result(resumed)["steps"]]
    assert names[:2] == ["read_request", "freeze_blue"]
    assert (names[-1], "prepare_green" in names) == ("restore_blue", False)
    assert await settings(on_blue, moving) == before
    again, other = shell.at_once(
        ("migrate", "--resume", running.run_id, "--yes"), ("fail-back", "--resume", running.run_id, "--yes")
    )
    assert (again.state, "has ended (succeeded)" in again.err) == (DONE, True)
    assert (other.state, "not a run of fail_back_namespaces" in other.err) == (USAGE, True)


@pytest.mark.long
async def test_an_interrupted_migration_restores_blue_and_can_be_aborted(
    shell: Shell, moving: NamespaceName, on_blue: AdminClient, on_green: AdminClient
) -> None:
    await on_blue.post(f"/namespaces/{moving.path}/retention", FOREVER)
    before, now = await settings(on_blue, moving), datetime.now(UTC)
    closed = "/".join(f"{now + timedelta(hours=hours):%Y-%m-%dT%H:%M}" for hours in (-1, 1))
    options = ("--namespaces", moving, "--yes", "--json", "--freeze-windows", closed)
    stopped = shell.interrupted("migrate", *shell.sides, *options, after="wait_for_window")
    assert (stopped.state, result(stopped)["failed"]) == (PARTLY, ["wait_for_window"]), stopped.err
    run = result(stopped)["run"]
    assert f"pulsar-fleet migrate --resume {run}" in stopped.err
    assert f"pulsar-fleet abort {run}" in stopped.err
    dynamic, policies, inactive = await settings(on_blue, moving)
    assert (dynamic, policies[0], inactive) == (before[0], before[1][0], before[2])
    aborted = shell.run("abort", run, "--yes", "--json")
    assert (aborted.state, await settings(on_blue, moving)) == (DONE, before)
    assert await on_green.namespace(moving) is None
    assert Ledger.open().migrations() == []


@pytest.mark.long
async def test_a_failback_that_was_killed_is_aborted_and_blue_redirects_again(
    shell: Shell, moving: NamespaceName, on_blue: AdminClient, on_green: AdminClient
) -> None:
    assert shell.run("migrate", *shell.sides, "--namespaces", moving, "--yes").state == DONE
    options = ("--namespaces", moving, "--allow-removal", "--yes", "--json")
    for step in ("check_gates", "start_replication"):
        before = await settings(on_green, moving)
        shell.killed("fail-back", *shell.sides, *options, after=step)
        (running,) = Ledger.open().migrations()
        assert not (await on_blue.namespace(moving) or {})["migrated"]
        exchanged = ("--blue", shell.sides[1], "--green", shell.sides[0])
        refused = shell.run("abort", running.run_id, *exchanged, "--yes")
        assert (refused.state, "leads to the cluster 'green'" in refused.err) == (REFUSED, True), refused.err
        aborted = shell.run("abort", running.run_id, "--yes", "--json")
        assert (aborted.state, aborted.document["closed"]) == (DONE, [str(moving)]), aborted.err
        flags = [bool((await admin.namespace(moving) or {}).get("migrated")) for admin in (on_blue, on_green)]
        assert (flags, await settings(on_green, moving)) == ([True, False], before)
        assert Ledger.open().migrations() == []
    Ledger.open().enter_phase("migrate_namespaces/later", str(moving), "prepared")
    late = shell.run("abort", running.run_id, "--yes")
    assert (late.state, "was moved by migrate_namespaces/later after this run" in late.err) == (REFUSED, True), late.err


async def test_topics_of_applications_with_two_underscores_move(
    shell: Shell, moving: NamespaceName, on_blue: AdminClient, on_green: AdminClient
) -> None:
    heartbeat, audit = (TopicName(moving, name) for name in ("__debezium-heartbeat.fulfillment", "__audit"))
    await on_blue.create_topic(heartbeat)
    await on_blue.create_subscription(heartbeat, "watch")
    await on_blue.create_partitioned_topic(audit, 2)
    await on_blue.post(f"/{heartbeat.path}/messageTTL", messageTTL=86_400)
    with closing(open_client(on_blue.connection)) as client:
        producer = client.create_producer(str(heartbeat))
        for number in range(10):
            producer.send(b"%d" % number)
    planned = shell.run("plan", *shell.sides, "--select", moving)
    assert f"{moving}/{heartbeat.local}" in planned.out
    assert f"Not copied from blue: 1 system topic: persistent://{moving}/__change_events" in planned.out
    done = shell.run(
        *("migrate", *shell.sides, "--namespaces", moving, "--strategy", Strategy.REPLICATE, "--yes", "--json")
    )
    assert done.state == DONE, done.err
    assert (await on_green.stats(heartbeat))["subscriptions"]["watch"]["msgBacklog"] == 10
    assert set(await on_green.topics(moving)) == {heartbeat, *audit.partitions(2), TopicName(moving, "events")}
    assert "terminatedPosition" in await on_blue.internal_info(heartbeat)
