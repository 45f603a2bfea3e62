"""A data centre that is gone for good is taken out of the others, which go on; what the run refuses; its undo."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.data_centres import (
    Traffic,
    assert_once_in_order,
    make_origin,
    opened,
    plan,
    replicate,
    request_of,
    stored,
    wait_sent,
)
from tests.support.fleets import connection, shell_of
from tests.support.kinds import StartClusters
from tests.support.shell import Shell

from pulsar_fleet.cli.terminal import ExitState
from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.json import Json
from pulsar_fleet.cluster.names import NamespaceName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.replication import steps
from pulsar_fleet.replication.setup.plan import ReplicationPlan, call_lines
from pulsar_sandbox import Sandbox

NAMES = ("east", "north", "south")
STAY = ("east", "north")
Connections = dict[str, ClusterConnection]
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory, start_clusters: StartClusters) -> Iterator[Sandbox]:
    with start_clusters(tmp_path_factory.mktemp("absent"), clusters=NAMES) as sandbox:
        yield sandbox


@pytest.fixture
def connections(sandbox: Sandbox) -> Connections:
    return {cluster.name: connection(cluster) for cluster in sandbox}


@pytest.fixture
async def admins(connections: Connections) -> AsyncIterator[dict[str, AdminClient]]:
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(AdminClient(connection)) for name, connection in connections.items()
        }


@pytest.fixture
def shell(records: Path, connections: Connections) -> Shell:
    """South has a connection without its name, and one with it."""
    all_connections = {**connections, "south_named": named(connections["south"])}
    return shell_of(records, STAY, all_connections)


def named(south: ClusterConnection) -> ClusterConnection:
    return replace(south, cluster_name="south")


def end(sandbox: Sandbox) -> None:
    """As a data centre that burns: no process of south gets the chance to say goodbye."""
    for pid in sandbox["south"].pids:
        assert pid is not None
        os.kill(pid, signal.SIGKILL)


async def documents(admins: dict[str, AdminClient], namespace: NamespaceName) -> dict[str, Json]:
    """What the clusters that stay store about the others."""
    return {
        name: {
            "list": sorted((await admins[name].namespace(namespace) or {})["replication_clusters"]),
            "tenant": sorted((await admins[name].tenant(namespace.tenant) or {})["allowedClusters"]),
            "clusters": {peer: await admins[name].cluster_data(peer) for peer in await admins[name].clusters()},
        }
        for name in STAY
    }


async def test_an_absent_cluster_is_taken_out_while_the_others_lose_nothing(
    sandbox: Sandbox,
    connections: Connections,
    admins: dict[str, AdminClient],
    shell: Shell,
    new_namespace: Callable[[], NamespaceName],
) -> None:
    namespace = new_namespace()
    topics = await make_origin(admins["east"], namespace)
    partitions = [*topics[0].partitions(3), topics[1]]
    await replicate(connections, request_of(*NAMES, namespaces=[str(namespace)]), "mesh")
    traffic = Traffic(topics)
    for name in NAMES:
        traffic.start(name, connections[name])
    await asyncio.sleep(3)
    await traffic.stop(*NAMES)
    await wait_sent(admins, partitions, NAMES)
    end(sandbox)
    for name in STAY:
        traffic.start(name, connections[name])
    before = await documents(admins, namespace)

    departure = ("replicate", *STAY, "--namespaces", namespace, "--delete-cluster-data")
    unnamed, nameless, member, dry = shell.at_once(
        (*departure, "--yes"),
        (*departure, "--leaving", "south", "--yes"),
        ("replicate", *STAY, "south_named", "--namespaces", namespace, "--yes"),
        (*departure, "--leaving", "south_named", "--dry-run", "--json"),
    )
    assert unnamed.state == ExitState.REFUSED
    assert "list-names-other-cluster" in unnamed.out
    assert "in 'leaving' if it ends" in unnamed.out
    assert nameless.state == ExitState.ERROR
    assert "If it is gone for good, write its name in 'cluster_name' of connection 'south'" in nameless.err
    assert member.state == ExitState.ERROR
    assert "south_named" in member.err
    for refused in (nameless, member):
        assert len(refused.err.strip().splitlines()[-1:]) == 1
    assert dry.state == ExitState.DONE, dry.err
    assert await documents(admins, namespace) == before

    departed = shell.run(*departure, "--leaving", "south_named", "--yes", "--json")
    assert departed.state == ExitState.DONE, departed.err
    planned, changes = recorded(departed.document)
    assert planned == dry.document["calls"]
    assert all("south" not in call.partition(" ")[0] for call in planned)
    assert {*changes.values()} == {"applied"}, changes
    assert departed.document["end_links"]["kept"] == []
    after = await documents(admins, namespace)
    assert after == {
        name: {
            "list": [*STAY],
            "tenant": [*STAY],
            "clusters": {peer: data for peer, data in before[name]["clusters"].items() if peer != "south"},
        }
        for name in STAY
    }
    await asyncio.sleep(3)
    await traffic.stop(*STAY)
    await wait_sent(admins, partitions, STAY)
    await assert_both_have_everything(connections, traffic)

    again = shell.run(*departure, "--leaving", "south_named", "--yes", "--json")
    assert (again.state, again.document["planned"]["changes"]) == (ExitState.DONE, 0), again.err
    for line in departed.document["undo"]:
        undone = shell.run(*line.split()[1:], "--yes")
        assert undone.state == ExitState.DONE, undone.err
    assert await documents(admins, namespace) == before
    for name in STAY:
        traffic.start(name, connections[name])
    await asyncio.sleep(2)
    await traffic.stop(*STAY)
    await wait_sent(admins, partitions, STAY)
    await assert_both_have_everything(connections, traffic)


def recorded(document: Json) -> tuple[list[str], dict[str, str]]:
    """The calls of a run, as its dry run prints them, and the outcome of each of its changes by the ledger."""
    run = Run.open(document["run"])
    planned = ReplicationPlan.from_json(run.stored("plan.json"))
    done = [change for undo in document["undo"] for change in run.ledger.changes(undo.rpartition(" ")[2])]
    outcomes = {f"{change.cluster} {change.change_id}": change.outcome for change in done}
    every = [change for plan in planned.plans for change in plan.changes]
    assert len(outcomes) == len(every)
    return call_lines(planned), outcomes


async def assert_both_have_everything(connections: Connections, traffic: Traffic) -> None:
    for topic in {topic for _, topic in traffic.publishers}:
        for name in STAY:
            messages = await asyncio.to_thread(stored, connections[name], topic)
            assert_once_in_order(messages)
            assert {*messages} == {*traffic.sent(topic, *NAMES)}, (name, topic)


async def test_a_cluster_that_changes_state_during_its_departure_stops_the_run(
    sandbox: Sandbox,
    connections: Connections,
    admins: dict[str, AdminClient],
    records: Path,
    new_namespace: Callable[[], NamespaceName],
) -> None:
    """What it still has to send was not waited for, or will not be sent any more: a person must know."""
    namespace = new_namespace()
    if not sandbox["south"].pids[0]:
        await asyncio.to_thread(sandbox["south"].restart)
    await make_origin(admins["east"], namespace)
    all_connections = {**connections, "south": named(connections["south"])}
    await replicate(all_connections, request_of(*NAMES, namespaces=[str(namespace)]), "mesh")
    leaving = request_of(*STAY, leaving=["south"], namespaces=[str(namespace)])
    present = await plan(all_connections, leaving, "present")
    end(sandbox)
    absent = await plan(all_connections, leaving, "absent")
    before = await documents(admins, namespace)
    async with opened(all_connections, leaving) as clusters:
        with pytest.raises(
            PreconditionFailed, match="south answered when this run was planned, and does not answer now"
        ):
            await steps.end_links(clusters, present.planned, present.run)
    await asyncio.to_thread(sandbox["south"].restart)
    async with opened(all_connections, leaving) as clusters:
        with pytest.raises(PreconditionFailed, match="south did not answer when this run was planned, and answers now"):
            await steps.end_links(clusters, absent.planned, absent.run)
    assert await documents(admins, namespace) == before
