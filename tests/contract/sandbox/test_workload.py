"""The estate and the traffic on a real cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path

import psutil
import pytest

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound, PreconditionFailed
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_sandbox import Sandbox
from pulsar_sandbox.workload import Counters, Counts, EstateSpec, Traffic, build_estate, drain_subscription
from pulsar_sandbox.workload.live import live_topics

pytestmark = pytest.mark.long  # What a killed application gets again depends on the moment.

NewNamespace = Callable[[], NamespaceName]
HISTORY = 60
OWNER = """
import sys, time
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_sandbox.workload import Traffic
blue = ClusterConnection(name="blue", admin_url=sys.argv[1], service_url=sys.argv[2])
traffic = Traffic.start(blue, namespace=sys.argv[3], folder=sys.argv[4])
print(traffic.pid, flush=True)
time.sleep(600)
"""


def small(live: NamespaceName) -> EstateSpec:
    """An estate with a part of every kind."""
    return EstateSpec(
        live=str(live),
        tenants=2,
        namespaces_per_tenant=2,
        topics_per_namespace=4,
        messages_per_topic=40,
        history=HISTORY,
        prefix=f"{live.tenant}-",
    )


async def only_live(connection: ClusterConnection, live: NamespaceName) -> None:
    """The live namespace alone."""
    await build_estate(
        connection, EstateSpec(live=str(live), tenants=1, namespaces_per_tenant=1, history=HISTORY), None
    )


def until(holds: Callable[[], bool], what: str, *, poll_seconds: float = 0.2) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(poll_seconds)


def published(traffic: Traffic) -> int:
    """Messages acknowledged so far."""
    counters = traffic.peek()
    assert isinstance(counters, Counters)
    return counters.published


def process_of(traffic: Traffic, name: str) -> psutil.Process:
    """The process that writes the journal of the application whose name begins so."""
    processes = psutil.Process(traffic.pid).children()
    return next(
        process
        for process in processes
        if any(
            Path(file.path).name.startswith(name) and file.path.endswith(".journal") for file in process.open_files()
        )
    )


def kill_after_a_delivery(traffic: Traffic, name: str, folder: Path) -> None:
    """Kill it in the 0.1 s for which its client collects acknowledgements before it sends them."""
    process, journal = process_of(traffic, name), next(folder.glob(f"{name}*.journal"))
    size = journal.stat().st_size
    until(lambda: journal.stat().st_size > size, f"a delivery to {name}", poll_seconds=0.001)
    process.kill()


def lives(process: psutil.Process) -> bool:
    """Whether it runs; one that nobody has asked about since it ended does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def addresses(admin: AdminClient, live: NamespaceName, name: str) -> set[str]:
    """The client's end of every connection that an application of that name has."""
    ends = set()
    for topic in live_topics(live):
        for partition in (topic, *(TopicName(live, f"{topic.local}-partition-{index}") for index in range(4))):
            try:
                stats = await admin.stats(partition)
            except NotFound:
                continue
            clients = [*stats["publishers"]]
            for subscription in stats["subscriptions"].values():
                clients += subscription["consumers"]
            names = [
                (client.get("producerName") or client.get("consumerName"), client["address"]) for client in clients
            ]
            ends |= {address for client, address in names if client.startswith(name)}
    return ends


async def test_an_estate_is_made_once(blue: ClusterConnection, new_namespace: NewNamespace) -> None:
    spec = small(new_namespace())
    first = await build_estate(blue, spec)
    assert first.created == first.holds
    second = await build_estate(blue, spec)
    assert (second.created, second.holds) == (Counts(), first.holds)


async def test_an_estate_holds_the_backlog_that_it_states(
    blue: ClusterConnection, on_blue: AdminClient, new_namespace: NewNamespace
) -> None:
    estate = await build_estate(blue, small(new_namespace()))
    stated, drained = {}, {}
    for topic in (candidate for candidate in estate.topics if candidate.messages):
        for subscription in topic.subscriptions:
            place = (str(topic.name), subscription.name)
            stated[place] = set(range(topic.messages)) - topic.acknowledged(subscription)
            count = len(stated[place])
            messages = drain_subscription(blue, topic.name, subscription.name, idle_seconds=0.2, at_least=count)
            drained[place] = {number for _, _, number in messages}
    assert drained == stated


async def test_an_estate_holds_the_schema_versions_in_order(
    blue: ClusterConnection, on_blue: AdminClient, new_namespace: NewNamespace
) -> None:
    estate = await build_estate(blue, replace(small(new_namespace()), messages_per_topic=0))
    for topic in estate.topics:
        versions = [dict(schema["properties"]).get("version") for schema in await on_blue.schemas(topic.name)]
        assert versions == [str(index + 1) for index in range(topic.schema_versions)]


async def test_undisturbed_traffic_loses_repeats_and_reorders_nothing(
    blue: ClusterConnection, new_namespace: NewNamespace, tmp_path: Path
) -> None:
    live = new_namespace()
    await only_live(blue, live)
    with Traffic.start(blue, namespace=live, folder=tmp_path / "run") as traffic:
        until(lambda: published(traffic) >= 400, "400 messages")
        result = traffic.stop()
    assert (result.finished, result.failed, result.lost, result.duplicates, result.order_breaks) == (True, 0, 0, 0, 0)
    assert result.received == 4 * result.published
    assert {subscription.earlier for subscription in result.subscriptions} == {HISTORY}


async def test_an_idle_subscription_holds_its_history_and_what_came_later(
    blue: ClusterConnection, new_namespace: NewNamespace, tmp_path: Path
) -> None:
    live = new_namespace()
    await only_live(blue, live)
    history = [
        drain_subscription(blue, topic, "archive", acknowledge=False, at_least=HISTORY) for topic in live_topics(live)
    ]
    with Traffic.start(blue, namespace=live, folder=tmp_path / "run") as traffic:
        until(lambda: published(traffic) >= 50, "50 messages")
        result = traffic.stop()
    drained = [drain_subscription(blue, topic, "archive", at_least=HISTORY) for topic in live_topics(live)]
    after = [drain_subscription(blue, topic, "archive", idle_seconds=0.5) for topic in live_topics(live)]
    assert [len(set(part)) for part in history] == [HISTORY, HISTORY]
    assert sum(map(len, drained)) == 2 * HISTORY + result.published
    assert after == [[], []]


async def test_a_killed_broker_costs_a_silence_and_no_acknowledged_message(
    clusters: Sandbox, blue: ClusterConnection, new_namespace: NewNamespace, tmp_path: Path
) -> None:
    live = new_namespace()
    await only_live(blue, live)
    with Traffic.start(blue, namespace=live, folder=tmp_path / "run") as traffic:
        until(lambda: published(traffic) >= 100, "100 messages")
        clusters["blue"].kill(0)
        down = time.monotonic()
        until(lambda: len((traffic.peek() or pytest.fail("no counters")).stalled_producers) == 3, "no acknowledgements")
        clusters["blue"].restart(0)
        outage = time.monotonic() - down
        before = published(traffic)
        until(lambda: published(traffic) >= before + 500, "500 messages after the restart")
        result = traffic.stop()
    assert (result.finished, result.lost, result.order_breaks) == (True, 0, 0)
    assert all(gap.milliseconds > outage * 500 for _, gap in result.publish_pauses)


async def test_hung_applications_are_restarted_and_nothing_is_lost(
    blue: ClusterConnection, on_blue: AdminClient, new_namespace: NewNamespace, tmp_path: Path
) -> None:
    live, names = new_namespace(), ("billing-events-1", "mail-audit-1", "checkout-1")
    await only_live(blue, live)
    with Traffic.start(blue, namespace=live, folder=tmp_path / "run", restart_seconds=5) as traffic:
        until(lambda: published(traffic) >= 200, "200 messages")
        before = [await addresses(on_blue, live, name) for name in names]
        processes = [process_of(traffic, name) for name in names]
        for process in processes:
            process.suspend()
        until(lambda: not any(process.is_running() for process in processes), "the hung processes are gone")
        count = published(traffic)
        until(lambda: published(traffic) >= count + 400, "400 messages after the restarts")
        after = [await addresses(on_blue, live, name) for name in names]
        result = traffic.stop()
    assert all(before), "each was connected"
    assert all(after), "each is connected again"
    assert {*chain(*before)}.isdisjoint(chain(*after)), "no connection of a hung process is left"
    assert (result.finished, result.lost, result.order_breaks) == (True, 0, 0), result.text()
    assert {next(name for name in names if restarted.startswith(name)) for restarted in result.restarted} == {*names}
    assert [part.duplicates.unexplained for part in result.subscriptions if part.duplicates.unexplained] == []


async def test_unacknowledged_messages_of_killed_consumers_are_redelivered(
    blue: ClusterConnection, new_namespace: NewNamespace, tmp_path: Path
) -> None:
    live, names = new_namespace(), ("mail-audit-1", "search-events-1", "billing-events-2")
    await only_live(blue, live)
    with Traffic.start(blue, namespace=live, folder=tmp_path / "run", rate=300) as traffic:
        until(lambda: published(traffic) >= 400, "400 messages")
        for name in names:
            kill_after_a_delivery(traffic, name, tmp_path / "run")
        count = published(traffic)
        until(lambda: published(traffic) >= count + 2000, "2,000 messages after the kills")
        result = traffic.stop()
    assert (result.finished, result.lost, result.order_breaks) == (True, 0, 0), result.text()
    assert {*result.restarted} == {*names}
    assert sum(part.duplicates.restarted for part in result.subscriptions) == result.duplicates > 0


async def test_traffic_that_is_killed_leaves_what_it_knew_a_moment_before(
    blue: ClusterConnection, new_namespace: NewNamespace, tmp_path: Path
) -> None:
    live = new_namespace()
    await only_live(blue, live)
    with Traffic.start(blue, namespace=live, folder=tmp_path / "run") as traffic:
        until(lambda: published(traffic) >= 100, "100 messages")
        published_before = published(traffic)
        traffic.kill()
        result = traffic.stop()
    assert (result.finished, result.lost) == (False, None)
    assert result.published >= published_before


async def test_traffic_that_cannot_connect_says_why(
    blue: ClusterConnection, new_namespace: NewNamespace, tmp_path: Path
) -> None:
    with pytest.raises(PreconditionFailed, match=r"did not connect: .*(TopicNotFound|AuthorizationError)"):
        Traffic.start(blue, namespace=new_namespace(), folder=tmp_path / "run")


async def test_a_folder_of_an_earlier_run_is_refused(blue: ClusterConnection, tmp_path: Path) -> None:
    (tmp_path / "old.journal").touch()
    with pytest.raises(InvalidRequest, match="is not empty"):
        Traffic.start(blue, namespace="acme/orders", folder=tmp_path)


async def test_traffic_dies_with_an_owner_that_is_killed(
    blue: ClusterConnection, new_namespace: NewNamespace, tmp_path: Path
) -> None:
    live = new_namespace()
    await only_live(blue, live)
    arguments = [
        sys.executable,
        "-c",
        OWNER,
        blue.admin_url,
        blue.require_service_url(),
        str(live),
        str(tmp_path / "run"),
    ]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        traffic = psutil.Process(int(owner.stdout.readline()))
        processes = [traffic, *traffic.children()]
        os.kill(owner.pid, signal.SIGKILL)
    until(lambda: not any(lives(process) for process in processes), "the traffic is gone")


async def test_applications_end_when_what_started_them_is_killed(
    blue: ClusterConnection, new_namespace: NewNamespace, tmp_path: Path
) -> None:
    live = new_namespace()
    await only_live(blue, live)
    with Traffic.start(blue, namespace=live, folder=tmp_path / "run") as traffic:
        operator = psutil.Process(traffic.pid)
        processes = operator.children()
        operator.kill()
        until(lambda: not any(lives(process) for process in processes), "the applications are gone")
        result = traffic.stop()
    assert (len(processes), result.finished, result.lost) == (14, False, None)
