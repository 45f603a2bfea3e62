"""Failover and failback of applications with replicated subscriptions: what was forecast is what they got."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pulsar
import pytest
from tests.support.applications import wait_copied
from tests.support.migration import forget_migrations
from tests.support.reconciler import make_namespaces
from tests.support.replicated_applications import (
    Application,
    make_topics,
    publish,
    replicate_both_ways,
    wait_everywhere,
)
from tests.support.replication import FOREVER, wait_linked

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import PreconditionFailed
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.cluster.selection import Selection
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.cutover.redirect import redirect_to, set_flag, store_redirect
from pulsar_fleet.replication.clusters import open_clusters
from pulsar_fleet.replication.failover.forecast import Agreement, ForecastRow, OutcomeRow
from pulsar_fleet.replication.failover.report import Addresses, forecast_text, outcome_text
from pulsar_fleet.replication.failover.steps import forecast_failover, prepare_target, record_outcome
from pulsar_fleet.replication.replicated_namespaces import replicated_namespaces
from pulsar_fleet.replication.topology import Link
from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.request import EntryMapping
from pulsar_fleet.verification.steps import freeze_bounds, verify_in_process
from pulsar_sandbox import Sandbox

STUCK = {
    "dispatchThrottlingRateInMsg": 1,
    "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 600,
}


@dataclass
class Centres:
    """Two data centres with a namespace that replicates both ways, and applications that move between them.

    :param published: messages of each topic; `taken`: what each application has acknowledged.
    """

    connections: Mapping[str, ClusterConnection]
    admins: Mapping[str, AdminClient]
    clients: Mapping[str, pulsar.Client]
    namespace: NamespaceName
    stored: list[TopicName] = field(default_factory=list)
    published: dict[TopicName, list[str]] = field(default_factory=dict)
    taken: dict[Application, set[str]] = field(default_factory=dict)

    @property
    def selection(self) -> Selection:
        return Selection.parse([str(self.namespace)])

    async def publish(self, cluster: str, topic: TopicName, count: int, *, batch: int = 1) -> None:
        all_names = self.published.setdefault(topic, [])
        names = [f"m{number}" for number in range(len(all_names), len(all_names) + count)]
        all_names += names
        await asyncio.to_thread(publish, self.clients[cluster], topic, names, batch=batch)

    async def take(self, cluster: str, application: Application, count: int, *, leave: Sequence[str] = ()) -> None:
        got = await asyncio.to_thread(application.take, self.clients[cluster], count, leave=leave)
        taken = self.taken.setdefault(application, set())
        assert taken.isdisjoint(got)
        taken.update(got)

    async def quiet(self) -> None:
        """Everything is replicated in both directions, and the last snapshots have been exchanged."""
        pairs = [(self.admins["blue"], "green"), (self.admins["green"], "blue")]
        await wait_everywhere(pairs, self.stored)
        await asyncio.sleep(1.5)
        await wait_everywhere(pairs, self.stored)

    async def move(self, to: str, applications: Sequence[Application]) -> dict[str, tuple[int, int, int]]:
        """Connect them to `to` and get everything: what each got again, got first, and never got."""
        got = {}
        for application in applications:
            received = await asyncio.to_thread(application.drain, self.clients[to])
            before = self.taken.setdefault(application, set())
            again = [name for name in received if name in before]
            first = set(received) - before
            lost = set(self.published[application.topic]) - before - first
            before |= first
            got[application.subscription] = len(again), len(first), len(lost)
        return got


@pytest.fixture
async def centres(
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
) -> AsyncIterator[Centres]:
    clients = {"blue": open_client(blue), "green": open_client(green)}
    namespace = new_namespace()
    await replicate_both_ways(on_blue, on_green, namespace)
    yield Centres({"blue": blue, "green": green}, {"blue": on_blue, "green": on_green}, clients, namespace)
    for client in clients.values():
        client.close()


def predicted(rows: Sequence[ForecastRow]) -> dict[str, tuple[int | None, int | None, int | None]]:
    return {row.subscription: (row.redelivered, row.first, row.lost) for row in rows}


def happened(rows: Sequence[OutcomeRow]) -> dict[str, tuple[int | None, int | None, int | None]]:
    return {row.subscription: (row.redelivered, row.first, row.lost) for row in rows}


@pytest.mark.long
async def test_four_subscriptions_fail_over_and_back_as_predicted(centres: Centres, records: Path) -> None:
    plain, parts = TopicName(centres.namespace, "plain"), TopicName(centres.namespace, "parts")
    centres.stored += await make_topics(centres.admins["blue"], centres.admins["green"], [plain], [parts])
    done, behind, holes, idle = (Application(plain, name) for name in ("done", "behind", "holes", "idle"))
    batched = Application(parts, "batched", pulsar.ConsumerType.KeyShared)
    applications = [done, behind, holes, idle, batched]
    for application in applications:
        application.subscribe(centres.clients["blue"]).close()
    for part in range(8):
        await centres.publish("blue", plain, 10)
        await centres.publish("blue", parts, 20, batch=5)
        await centres.take("blue", done, 10)
        await centres.take("blue", batched, 20)
        if part < 5:
            await centres.take("blue", behind, 8)
        await centres.take("blue", holes, 9 if part in (1, 4) else 10, leave=("m15", "m41"))
        await asyncio.sleep(0.3)
    await centres.publish("blue", parts, 20, batch=5)
    await centres.quiet()

    run = Run.open("cli/there")
    sides = centres.connections["blue"], centres.connections["green"]
    before = await forecast_failover(*sides, centres.selection, run)
    prepared, forecast = await prepare_target(*sides, centres.selection, run)
    missing = {row.subscription: row.lost for row in before.rows() if row.missing}
    assert missing["idle"] == 80
    assert {item.subscription for item in prepared.subscriptions} == missing.keys()
    # The flag and the position survive an unload.
    await centres.admins["green"].put(f"/{plain.path}/unload")
    assert (await prepare_target(*sides, centres.selection, run))[0].subscriptions == ()
    got = await centres.move("green", applications)
    outcome = await record_outcome(*sides, run)
    assert got == predicted(forecast.rows()) == happened(outcome.rows())
    assert outcome.agreement is Agreement.AS_PREDICTED
    assert [row.lost for row in outcome.rows()] == [0] * 5
    assert got["holes"][0] > 60
    assert (
        outcome_text(outcome, _addresses(run))
        .splitlines()[0]
        .startswith("Failover blue → green: as predicted. 0 messages lost")
    )

    # Back again, with what was published and acknowledged on green meanwhile.
    await centres.publish("green", plain, 30)
    await centres.publish("green", parts, 40, batch=4)
    await centres.take("green", done, 30)
    await centres.take("green", behind, 20)
    await centres.take("green", holes, 29, leave=("m83",))
    await centres.take("green", batched, 20)
    await centres.quiet()
    back = Run.open("cli/back")
    sides = centres.connections["green"], centres.connections["blue"]
    forecast = await forecast_failover(*sides, centres.selection, back)
    got = await centres.move("blue", applications)
    outcome = await record_outcome(*sides, back)
    assert got == predicted(forecast.rows()) == happened(outcome.rows())
    assert outcome.agreement is Agreement.AS_PREDICTED
    assert [row.lost for row in outcome.rows()] == [0] * 5
    assert got["idle"] == (0, 30, 0)
    # A load of the topics resets what brokers count, and changes no result.
    await centres.admins["blue"].put(f"/{plain.path}/unload")
    again = await record_outcome(*sides, back)
    assert (happened(again.rows()), again.agreement) == (got, Agreement.AS_PREDICTED)


async def test_topics_that_a_list_of_their_own_replicates_are_selected(
    centres: Centres, new_namespace: Callable[[], NamespaceName], records: Path
) -> None:
    """Beside a topic that is not replicated, in a namespace whose list has its own cluster alone."""
    blue = centres.admins["blue"]
    sent, kept = await _make_single(centres, new_namespace())
    tenant = sent.namespace.tenant
    for topic in (sent, kept):
        await blue.create_subscription(topic, "app", "earliest")
    # A topic keeps a list that its tenant does not allow any more.
    await blue.post(f"/tenants/{tenant}", {"adminRoles": [], "allowedClusters": ["blue"]})
    sides = centres.connections["blue"], centres.connections["green"]
    for number, text in enumerate((tenant, f"re:{tenant}/.*")):
        forecast = await forecast_failover(*sides, Selection.parse([text]), Run.open(f"cli/own-list-{number}"))
        assert [(row.topic, row.lost) for row in forecast.rows()] == [(str(sent), 20)]
        assert (forecast.lost, forecast.is_complete) == (20, True)
    named = await forecast_failover(*sides, Selection.parse([str(sent.namespace)]), Run.open("cli/named"))
    assert {row.topic: row.lost for row in named.rows()} == {str(sent): 20, str(kept): 20}

    await blue.delete(f"/{sent.path}/replication")
    run = Run.open("cli/none")
    async with asyncio.timeout(30):
        while (none := await forecast_failover(*sides, Selection.parse([tenant]), run)).topics:
            await asyncio.sleep(0.5)
    text = forecast_text(none, _addresses(run))
    assert "Nothing was counted: blue replicates no selected topic to green." in text
    assert "Nothing is lost" not in text


@pytest.mark.cluster
async def test_a_migrated_namespace_is_no_failover_and_the_forecast_says_so(
    blue: ClusterConnection,
    green: ClusterConnection,
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    records: Path,
) -> None:
    migrated = new_namespace()
    other = NamespaceName(migrated.tenant, "other")
    await make_namespaces([migrated, other], on_blue)
    await make_namespaces([migrated], on_green)
    for name in (migrated, other):
        await on_blue.create_topic(TopicName(name, "events"))
    await store_redirect(on_blue, "blue", redirect_to(green))
    await set_flag(on_blue, migrated, migrated=True)
    reason = f"{migrated} is flagged as migrated on blue: blue redirects its clients to localhost"
    try:
        for sides in ((blue, green), (green, blue)):
            for step in (forecast_failover, prepare_target):
                with pytest.raises(PreconditionFailed, match=re.escape(reason)):
                    await step(*sides, Selection.parse([str(migrated)]), Run.open("cli/migrated"))
        both = await forecast_failover(blue, green, Selection.parse([str(migrated), str(other)]), Run.open("cli/both"))
    finally:
        await forget_migrations(on_blue)
    assert [text.startswith(reason) for text in both.unread] == [True]
    assert [topic.topic for topic in both.topics] == [str(TopicName(other, "events"))]


async def test_only_topics_with_a_list_of_their_own_are_verified(
    centres: Centres, new_namespace: Callable[[], NamespaceName], records: Path
) -> None:
    blue, green = (centres.admins[name] for name in ("blue", "green"))
    sent, _ = await _make_single(centres, new_namespace())
    await centres.publish("blue", sent, 30)
    await wait_copied(blue, [sent], "green")
    selection = Selection.parse([sent.namespace.tenant, str(centres.namespace)])
    async with open_clusters([centres.connections["blue"], centres.connections["green"]]) as clusters:
        links, unread = await replicated_namespaces(clusters, selection)
    expected = {sent.namespace: (sent,), centres.namespace: ()}
    assert (links, unread) == ({Link("blue", "green"): expected, Link("green", "blue"): expected}, ())
    request = await freeze_bounds(blue, green, [sent.namespace], mapping=EntryMapping.MESH, topics=[sent])
    verified = await verify_in_process(blue, green, request)
    assert (verified.verdict, verified.messages) == (Verdict.EQUAL, 30)


async def _make_single(centres: Centres, namespace: NamespaceName) -> tuple[TopicName, TopicName]:
    """A topic that a list of its own replicates both ways, and one that is on blue alone; 20 messages from before."""
    sent, kept = TopicName(namespace, "sent"), TopicName(namespace, "kept")
    for admin in centres.admins.values():
        await admin.put(f"/tenants/{namespace.tenant}", {"adminRoles": [], "allowedClusters": ["blue", "green"]})
        await admin.put_namespace(namespace, {"retention_policies": FOREVER})
        await admin.create_topic(sent)
    await centres.admins["blue"].create_topic(kept)
    for topic in (sent, kept):
        await centres.publish("blue", topic, 20)
    for admin in centres.admins.values():
        await admin.post(f"/{sent.path}/replication", ["blue", "green"])
    await wait_linked(centres.admins["blue"], [sent], "green")
    await wait_linked(centres.admins["green"], [sent], "blue")
    return sent, kept


@pytest.mark.long
async def test_messages_that_wait_for_replication_are_lost_until_a_recovery(centres: Centres, records: Path) -> None:
    orders = TopicName(centres.namespace, "orders")
    centres.stored += await make_topics(centres.admins["blue"], centres.admins["green"], [orders], [])
    billing = Application(orders, "billing")
    await _consumed_on_blue(centres, billing)
    rate = f"/namespaces/{centres.namespace.path}/replicatorDispatchRate"
    await centres.admins["blue"].post(rate, STUCK)
    await asyncio.sleep(1)
    await centres.publish("blue", orders, 12)
    await asyncio.sleep(1)
    run, sides = Run.open("cli/stuck"), (centres.connections["blue"], centres.connections["green"])
    forecast = await forecast_failover(*sides, centres.selection, run)
    (row,) = forecast.rows()
    assert row.lost == row.unreplicated
    assert row.lost >= 10
    assert row.first == 12 - row.lost
    got = await centres.move("green", [billing])
    assert got == predicted([row])
    outcome = await record_outcome(*sides, run)
    assert happened(outcome.rows()) == got
    assert outcome_text(outcome, _addresses(run)).splitlines()[-2].startswith("Do: when blue is back")
    # A stuck replicator goes on when its rate is lifted, as that of a cluster that comes back.
    await centres.admins["blue"].post(rate, {**STUCK, "dispatchThrottlingRateInMsg": -1, "ratePeriodInSecond": 1})
    await centres.quiet()
    assert (await centres.move("green", [billing]))["billing"] == (0, row.lost, 0)
    (after,) = (await record_outcome(*sides, run)).rows()
    assert after.lost == 0


@pytest.mark.long
async def test_an_acknowledgement_after_the_forecast_is_an_explained_difference(
    centres: Centres, records: Path
) -> None:
    orders = TopicName(centres.namespace, "orders")
    centres.stored += await make_topics(centres.admins["blue"], centres.admins["green"], [orders], [])
    billing = Application(orders, "billing")
    await _consumed_on_blue(centres, billing)
    await centres.publish("blue", orders, 20)
    await centres.quiet()
    run, sides = Run.open("cli/late"), (centres.connections["blue"], centres.connections["green"])
    await forecast_failover(*sides, centres.selection, run)
    await centres.take("blue", billing, 15)
    await centres.quiet()
    got = await centres.move("green", [billing])
    (row,) = (await record_outcome(*sides, run)).rows()
    assert got["billing"] == (15, 5, 0)
    assert row.agreement is Agreement.DIFFERENT
    assert re.search(r"got \d+ messages after the forecast: up to \d+ of the 20 that count as first", row.reasons[0])
    assert f"{row.predicted_redelivered} messages acknowledged on green without a delivery there" in row.reasons[1]


@pytest.mark.long
async def test_the_last_forecast_of_a_dead_cluster_says_what_is_redelivered(
    centres: Centres, clusters: Sandbox, records: Path
) -> None:
    orders = TopicName(centres.namespace, "orders")
    centres.stored += await make_topics(centres.admins["blue"], centres.admins["green"], [orders], [])
    billing = Application(orders, "billing")
    await _consumed_on_blue(centres, billing)
    await centres.publish("blue", orders, 20)
    await centres.take("blue", billing, 12)
    await centres.quiet()
    run, sides = Run.open("cli/dead"), (centres.connections["blue"], centres.connections["green"])
    forecast = await forecast_failover(*sides, centres.selection, run)
    clusters["blue"].kill()
    try:
        late = await forecast_failover(*sides, centres.selection, Run.open("cli/too-late"))
        got = await centres.move("green", [billing])
        outcome = await record_outcome(*sides, run)
    finally:
        await asyncio.to_thread(clusters["blue"].restart)
    assert late.origin_unreachable
    assert got == predicted(forecast.rows()) == happened(outcome.rows())
    assert outcome.agreement is Agreement.AS_PREDICTED
    assert got["billing"][2] == 0


@pytest.mark.long
async def test_an_unreachable_cluster_makes_its_facts_unknown_and_not_zero(
    centres: Centres, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsar_fleet.replication.failover.steps.REACH_SECONDS", 0.5)
    orders = TopicName(centres.namespace, "orders")
    centres.stored += await make_topics(centres.admins["blue"], centres.admins["green"], [orders], [])
    await _consumed_on_blue(centres, Application(orders, "billing"))
    run, gone = Run.open("cli/gone"), replace(centres.connections["blue"], admin_url="http://127.0.0.1:9")
    forecast = await forecast_failover(gone, centres.connections["green"], centres.selection, run)
    (row,) = forecast.rows()
    assert (row.subscription, row.redelivered, row.lost, row.missing) == ("billing", None, None, 0)
    assert not forecast.is_complete
    text = forecast_text(forecast, _addresses(run)).splitlines()
    assert text[1].startswith("UNKNOWN      blue does not answer")
    assert (await record_outcome(gone, centres.connections["green"], run)).agreement is Agreement.UNKNOWN


@pytest.mark.long
async def test_the_commands_exit_with_the_state_of_forecast_and_outcome(centres: Centres, records: Path) -> None:
    orders = TopicName(centres.namespace, "orders")
    centres.stored += await make_topics(centres.admins["blue"], centres.admins["green"], [orders], [])
    billing = Application(orders, "billing")
    billing.subscribe(centres.clients["blue"]).close()
    path, selector = f"{orders.subscription_path('billing')}/properties", {"selector": "a = 1"}
    await centres.admins["blue"].put(path, selector)
    await centres.publish("blue", orders, 7)
    await centres.quiet()
    urls = [centres.connections[name].admin_url for name in ("blue", "green")]
    words = [*urls, "--select", str(centres.namespace)]
    forecast = await _command("forecast-failover", *words)
    assert forecast.returncode == 3
    assert "LOST         7 messages of 1 subscription not delivered on green" in forecast.stdout
    assert f"pulsar-fleet prepare-failover {' '.join(words)} --yes" in forecast.stdout
    prepared = await _command("prepare-failover", *words, "--yes", "--json")
    document = json.loads(prepared.stdout)
    assert (prepared.returncode, document["lost"], len(document["prepared"]["subscriptions"])) == (0, 0, 1)
    assert await centres.admins["green"].get(path) == selector
    await centres.move("green", [billing])
    outcome = await _command("failover-outcome", document["run"], "--json")
    assert (outcome.returncode, json.loads(outcome.stdout)["agreement"]) == (0, "as predicted")


async def _consumed_on_blue(centres: Centres, application: Application) -> None:
    """Let it acknowledge on blue until its subscription exists on green."""
    application.subscribe(centres.clients["blue"]).close()
    async with asyncio.timeout(30):
        while application.subscription not in (await centres.admins["green"].stats(application.topic))["subscriptions"]:
            await centres.publish("blue", application.topic, 5)
            await centres.take("blue", application, 5)
            await asyncio.sleep(0.3)
    await centres.quiet()


def _addresses(run: Run) -> Addresses:
    return Addresses(origin="blue", target="green", run=run.id)


async def _command(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pulsar_fleet.cli", *words]
    return await asyncio.to_thread(
        subprocess.run, command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
    )
