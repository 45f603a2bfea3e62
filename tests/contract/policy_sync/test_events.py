"""Events of metadata between two real clusters: what arrives, what has no effect, what is put away, who goes on."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.support.event_exchange import Exchange, becomes
from tests.support.proxy import NONE, CallFault, Proxy, answer, behind, proxied
from tests.support.reconciler import MAX_CONSUMERS, MAX_PRODUCERS, Reconciler, held, set_policy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Unavailable
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger import tables
from pulsar_fleet.ledger.fingerprint_key import open_redactor
from pulsar_fleet.ledger.ledger import Ledger
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.links.fleet import open_fleet
from pulsar_fleet.policy_sync.events.apply import apply_received
from pulsar_fleet.policy_sync.events.event import EventType, MetadataChangeEvent, ResourceType
from pulsar_fleet.policy_sync.events.follower import follow_all
from pulsar_fleet.policy_sync.events.ordering.updates import Order
from pulsar_fleet.policy_sync.events.participant import Participant, open_participant
from pulsar_fleet.policy_sync.events.results import Tally
from pulsar_fleet.policy_sync.merge.merge_resource import Granularity
from pulsar_fleet.report.metadata import lines, metrics
from pulsar_sandbox import Sandbox

pytestmark = [pytest.mark.versions, pytest.mark.cluster]

log = logging.getLogger(__name__)

OUTAGE_SECONDS = float(os.environ.get("PULSAR_FLEET_OUTAGE_SECONDS", "0"))
KILLS = int(os.environ.get("PULSAR_FLEET_FOLLOWER_POINTS", "1"))


async def test_a_change_on_either_side_reaches_the_other_and_no_event_follows(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    await on_green.create_topic(TopicName(shared, "orders"))
    await exchange.run_until_older(on_green, TopicName(shared, "orders"))
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)
    await set_policy(on_green, shared, MAX_CONSUMERS[0], 7)
    await on_blue.post(f"/namespaces/{shared.path}/permissions/writer", ["produce"])
    await on_green.post(f"/namespaces/{shared.path}/permissions/reader", ["consume"])
    summary = await exchange.run()
    assert [tally.reasons for tally in summary.clusters.values()] == [[], []]
    expected = {MAX_PRODUCERS[1]: 5, MAX_CONSUMERS[1]: 7}
    for admin, own in ((on_blue, "blue"), (on_green, "green")):
        assert await held(admin, shared, expected) == expected
        document = await admin.namespace(shared) or {}
        assert document["auth_policies"]["namespace_auth"] == {"writer": ["produce"], "reader": ["consume"]}
        assert document["replication_clusters"] == [own]
    await exchange.settle()
    await set_policy(on_green, shared, MAX_PRODUCERS[0], None)
    await exchange.run()
    assert await held(on_blue, shared, expected) == {MAX_PRODUCERS[1]: None, MAX_CONSUMERS[1]: 7}


@pytest.mark.long
async def test_a_run_ends_after_the_events_that_wait_for_a_cluster(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    """However short a pause between two events ends it: a replicator or a consumer may be slow."""
    for value in (5, 6, 7):
        await set_policy(on_blue, shared, MAX_PRODUCERS[0], value)
        summary = await exchange.run(idle_seconds=0.001)
        assert await held(on_green, shared, (MAX_PRODUCERS[1],)) == {MAX_PRODUCERS[1]: value}, summary
    for admin in (on_blue, on_green):
        await exchange.read_again(admin)
    summary = await exchange.run(idle_seconds=0.001)
    assert all(tally.dropped >= 3 and not tally.backlog for tally in summary.clusters.values()), summary


async def test_brokers_of_a_version_that_was_not_measured_are_named(
    shared: NamespaceName, exchange: Exchange, on_green: AdminClient
) -> None:
    version = answer(200, "9.1.0", Date=formatdate(usegmt=True))
    async with behind(on_green, CallFault("GET .*/brokers/version", version)) as (through, _):
        there = Exchange((exchange.connections[0], await proxied(through)), exchange.request)
        summary = await there.run()
    assert "  cluster green: brokers run 9.1.0." in "\n".join(lines(summary))


async def test_what_is_made_on_one_side_is_made_on_the_other(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    new = NamespaceName(shared.tenant, "new")
    await on_green.put(f"/namespaces/{new.path}", {"replication_clusters": ["green"], MAX_PRODUCERS[1]: 3})
    await exchange.run()
    expected = {"replication_clusters": ["blue"], MAX_PRODUCERS[1]: 3}
    assert await held(on_blue, new, expected) == expected


@pytest.mark.long
async def test_policies_of_topics_arrive_where_the_topic_is(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    both, alone = TopicName(shared, "both"), TopicName(shared, "alone")
    for admin, topic in ((on_blue, both), (on_green, both), (on_blue, alone)):
        await admin.create_topic(topic)
    for topic in (both, alone):
        await on_blue.post(f"/{topic.path}/maxProducers", 9)
    summary = await exchange.run()
    assert await on_green.get(f"/{both.path}/maxProducers") == 9
    (reason,) = summary.clusters["green"].reasons
    assert "green does not have the topic" in reason


@pytest.mark.long
async def test_a_topic_that_is_read_again_from_its_beginning_changes_nothing(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    for value in (5, 6, 7):
        await set_policy(on_blue, shared, MAX_PRODUCERS[0], value)
        await set_policy(on_green, shared, MAX_CONSUMERS[0], value)
        await exchange.run()
    await exchange.settle()
    before = [await admin.namespace(shared) for admin in (on_blue, on_green)]
    for admin in (on_blue, on_green):
        await exchange.read_again(admin)
    summary = await exchange.run()
    assert [(tally.applied, tally.published, tally.refused) for tally in summary.clusters.values()] == [(0, 0, 0)] * 2
    assert all(tally.dropped >= 6 for tally in summary.clusters.values()), summary
    assert [await admin.namespace(shared) for admin in (on_blue, on_green)] == before


async def test_an_invalid_event_is_dead_lettered_and_the_rest_is_applied(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    green = exchange.connections[1]
    exchange.send(green, b"\x00 no event")
    for event in impossible(shared):
        exchange.send(green, event.encode(), event.key)
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)
    summary = await exchange.run()
    assert await held(on_green, shared, (MAX_PRODUCERS[1],)) == {MAX_PRODUCERS[1]: 5}
    assert summary.clusters["green"].refused == 4, summary
    reasons = [letter["reason"] for letter in exchange.dead_letters(green)]
    for words in ("not a MetadataChangeEvent", "leaves green out", "cannot-be", "no fields with times"):
        assert any(words in reason for reason in reasons), (words, reasons)
    document = await on_green.namespace(shared) or {}
    assert document["replication_clusters"] == ["green"]
    assert (await exchange.run()).clusters["green"].refused == 0


def impossible(shared: NamespaceName) -> list[MetadataChangeEvent]:
    """A list without the cluster that reads it, a namespace of a tenant that is not there, and one without times."""
    at = 4_000_000_000_000
    lists: dict[str, object] = {
        "values": {"replication_clusters": ["blue"]},
        "times": {"replication_clusters": [at, "red"]},
        "made_with": {},
    }
    field = MAX_PRODUCERS[1]
    times = {"": [at, "red"], field: [at, "red"]}
    wrong: dict[str, object] = {"values": {"": True, field: "many"}, "times": times, "made_with": {}}
    return [
        event_of(str(shared), lists, at),
        event_of(f"{shared.tenant}/cannot-be", wrong, at),
        event_of(f"{shared.tenant}/bare", {"values": {}}, at),
    ]


def event_of(name: str, data: object, at: int) -> MetadataChangeEvent:
    return MetadataChangeEvent(
        type=EventType.MODIFIED,
        resource=ResourceType.NAMESPACES,
        resource_name=name,
        data=data,
        source_cluster="red",
        update_time=at,
    )


async def test_a_snapshot_carries_every_resource_and_beats_nothing_newer(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)
    await exchange.run()
    await set_policy(on_green, shared, MAX_PRODUCERS[0], 6)
    summary = await exchange.run(snapshot=True)
    assert all(tally.published >= 2 for tally in summary.clusters.values()), summary
    await exchange.run(snapshot=True)
    expected = {MAX_PRODUCERS[1]: 6}
    assert [await held(admin, shared, expected) for admin in (on_blue, on_green)] == [expected, expected]


@pytest.mark.long
async def test_a_stamp_says_who_wrote_a_namespace_last_and_is_itself_no_change(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    await on_green.put(f"/namespaces/{shared.path}/properties", {"owner": "us"})
    await exchange.run()
    idle = [tally.scan_calls for tally in (await exchange.run()).clusters.values()]
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)
    began = int(time.time() * 1000)
    await exchange.run(write_provenance=True)
    stamps = [((await admin.namespace(shared)) or {})["properties"] for admin in (on_blue, on_green)]
    assert stamps[0] == stamps[1]
    assert (stamps[0]["lastUpdatedBy"], stamps[0]["owner"]) == ("blue", "us")
    # By the brokers' clock, which is measured to half a second.
    assert began - 1000 <= int(stamps[0]["lastUpdatedTime"]) <= int(time.time() * 1000) + 1000
    for stamp in (True, False):
        quiet = (await exchange.run(write_provenance=stamp)).clusters.values()
        assert [(tally.published, tally.applied, tally.provenance_written) for tally in quiet] == [(0, 0, 0)] * 2
        assert [tally.scan_calls for tally in quiet] == idle
    await on_green.put(f"/namespaces/{shared.path}/properties", {"lastUpdatedBy": "somebody"})
    await exchange.settle()
    drift = await Reconciler.of(shared.tenant, *exchange.connections).find()
    assert (drift.drifting, drift.fields) == (0, 0)
    corrected = (await exchange.run(write_provenance=True)).clusters
    assert [(tally.published, tally.provenance_written) for tally in corrected.values()] == [(0, 0), (0, 1)]
    assert ((await on_green.namespace(shared)) or {})["properties"] == stamps[0]


@pytest.mark.long
async def test_as_whole_documents_one_of_two_disjoint_edits_is_lost_and_said(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    order = Order(granularity=Granularity.DOCUMENT)
    fields = (MAX_PRODUCERS[1], MAX_CONSUMERS[1])
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 5)
    await set_policy(on_green, shared, MAX_CONSUMERS[0], 7)
    summary = await exchange.run(order=order)
    await exchange.settle(order=order)
    sides = [await held(admin, shared, fields) for admin in (on_blue, on_green)]
    assert sides[0] == sides[1]
    assert sorted(value for value in sides[0].values() if value is not None) in ([5], [7])
    assert sum(tally.lost for tally in summary.clusters.values()) == metrics(summary)["lost"] == 1


@pytest.mark.long
@pytest.mark.full
async def test_a_killed_follower_is_succeeded_by_the_next_and_nothing_is_lost(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange, records: Path
) -> None:
    chance = random.Random(KILLS)
    value = 0
    with ExitStack() as ended:
        followers = [ended.enter_context(exchange.follower(records)) for _ in range(2)]
        for _ in range(KILLS):
            for _ in range(3):
                value += 1
                await set_policy(on_blue, shared, MAX_PRODUCERS[0], value)
                await set_policy(on_green, shared, MAX_CONSUMERS[0], value)
                await asyncio.sleep(chance.random())
            # The older one gets the events.
            followers.pop(0).kill()
            for admin, field in ((on_green, MAX_PRODUCERS[1]), (on_blue, MAX_CONSUMERS[1])):
                await arrives(admin, shared, field, value)
            followers.append(ended.enter_context(exchange.follower(records)))
    await exchange.settle()
    expected = {MAX_PRODUCERS[1]: value, MAX_CONSUMERS[1]: value}
    assert [await held(admin, shared, expected) for admin in (on_blue, on_green)] == [expected, expected]
    written = [(row.before or 0, row.after) for row in journal(shared)]
    # Values only grew where they were set, so they only grow where they are applied, and none comes twice.
    assert [pair for pair in written if pair[1] <= pair[0]] == []
    assert max(Counter((row.cluster, row.resource, row.after) for row in journal(shared)).values()) == 1


def journal(name: NamespaceName) -> Sequence[Any]:
    """The changes of a namespace's policies that were made, by whatever process, in their order."""
    table = tables.changes
    query = sa.select(table).where(table.c.outcome == "applied", table.c.resource.contains(f"policy {name} "))
    with Ledger.open().engine.connect() as connection:
        return connection.execute(query.order_by(table.c.at)).all()


@pytest.mark.long
async def test_a_follower_of_an_unreachable_cluster_says_so_and_catches_up(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    _, green = exchange.connections
    follower = Following(exchange, "follower")
    async with Proxy(green.admin_url) as proxy:
        follower.start(green=replace(green, admin_url=proxy.url))
        await set_policy(on_blue, shared, MAX_PRODUCERS[0], 1)
        await arrives(on_green, shared, MAX_PRODUCERS[1], 1)
        proxy.otherwise = answer(503)
        await set_policy(on_blue, shared, MAX_PRODUCERS[0], 2)
        await set_policy(on_green, shared, MAX_CONSUMERS[0], 3)
        await follower.says("green is behind since")
        proxy.otherwise = NONE
        await arrives(on_green, shared, MAX_PRODUCERS[1], 2)
        await arrives(on_blue, shared, MAX_CONSUMERS[1], 3)
        await follower.says("green answers again")
        await follower.end()


async def test_events_that_a_cluster_could_not_take_are_delivered_again(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    """Its messages still arrive while its admin API does not answer."""
    blue, green = exchange.connections
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 2)
    await Exchange((blue,), exchange.request).run()
    async with Proxy(green.admin_url) as proxy, opened(exchange, "green", replace(green, admin_url=proxy.url)) as there:
        received = await there.topic.receive(10, 30.0)
        assert received
        proxy.otherwise = answer(503)
        with pytest.raises(Unavailable):
            await apply_received(there, received)
        await set_policy(on_blue, shared, MAX_CONSUMERS[0], 3)
        await Exchange((blue,), exchange.request).run()
        proxy.otherwise = NONE
        await becomes(partial(left, there), 0)
    expected = {MAX_PRODUCERS[1]: 2, MAX_CONSUMERS[1]: 3}
    assert await held(on_green, shared, expected) == expected


async def test_only_what_needs_a_secret_of_a_cluster_that_is_down_waits(
    on_blue: AdminClient, on_green: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    other, new = NamespaceName(shared.tenant, "other"), NamespaceName(shared.tenant, "new")
    await on_blue.put(f"/namespaces/{other.path}", {"replication_clusters": ["blue"]})
    await exchange.settle()
    blue, green = exchange.connections
    secret = {"password": "of the source"}
    await on_blue.put(f"/namespaces/{new.path}", {"replication_clusters": ["blue"], "properties": secret})
    await on_blue.put(f"/{TopicName(new, 'events').path}/partitions", 2)
    await on_blue.put(f"/namespaces/{shared.path}/properties", secret)
    await set_policy(on_blue, other, MAX_PRODUCERS[0], 4)
    await Exchange((blue,), exchange.request).run()
    async with Proxy(blue.admin_url) as proxy, opened(exchange, "green", replace(blue, admin_url=proxy.url)) as there:
        proxy.otherwise = answer(503)
        await becomes(partial(left, there), 3)
        await becomes(partial(held, on_green, other, (MAX_PRODUCERS[1],)), {MAX_PRODUCERS[1]: 4})
        assert {name: "blue" in entry.why for (_, name), entry in there.waiting.items()} == {
            str(shared): True,
            str(new): True,
            str(TopicName(new, "events")): False,
        }
        proxy.otherwise = NONE
        await becomes(partial(left, there), 0)
        assert not there.waiting
    for name in (shared, new):
        assert ((await on_green.namespace(name) or {})["properties"]) == secret
    assert await on_green.partitioned_topics(new) == (TopicName(new, "events"),)
    assert exchange.dead_letters(green) == []


async def test_a_run_ends_although_events_wait_longer_than_it(
    on_blue: AdminClient, shared: NamespaceName, exchange: Exchange
) -> None:
    """They are delivered again before the pause ends that would end the run."""
    ledger = Ledger.open()
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 2)
    await Exchange(exchange.connections[:1], exchange.request).run()
    ledger.start_run("migrate/1", "migrate_namespaces", {})
    ledger.enter_phase("migrate/1", str(shared), "prepared")
    async with asyncio.timeout(60):
        result = await exchange.run(idle_seconds=7.0)
    ledger.finish_run("migrate/1", "succeeded")
    assert any("first namespace" in line and "in a migration" in line for line in lines(result))


async def left(participant: Participant) -> int:
    """How many events are not acknowledged after those were applied that are delivered now."""
    await apply_received(participant, await participant.topic.receive(10, 1.0))
    return (await participant.topic_state()).backlog


@asynccontextmanager
async def opened(exchange: Exchange, name: str, *instead: ClusterConnection) -> AsyncIterator[Participant]:
    """A cluster of the exchange whose calls are not retried; a connection given takes the place of that name."""
    given = {connection.name: connection for connection in instead}
    sides = [given.get(connection.name, connection) for connection in exchange.connections]
    async with open_fleet(sides, 0.0) as reached:
        run, fleet = Run.open("sync/opened"), ("blue", "green")
        async with open_participant(name, reached, fleet, exchange.request, run, open_redactor()) as participant:
            yield participant


@pytest.mark.long
async def test_a_cluster_that_was_down_catches_up_and_its_outage_is_reported(
    on_blue: AdminClient,
    on_green: AdminClient,
    shared: NamespaceName,
    exchange: Exchange,
    clusters: Sandbox,
) -> None:
    first, second = Following(exchange, "first"), Following(exchange, "second")
    first.start()
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 1)
    await arrives(on_green, shared, MAX_PRODUCERS[1], 1)
    went = datetime.now(UTC)
    await asyncio.to_thread(clusters["green"].kill)
    await set_policy(on_blue, shared, MAX_PRODUCERS[0], 2)
    await first.says("green is behind since")
    await asyncio.sleep(OUTAGE_SECONDS)
    second.start()
    await second.says("green is behind since")
    beside = await exchange.run()
    assert (list(beside.clusters), list(beside.behind), list(beside.since)) == (["blue"], ["green"], ["green"])
    assert went <= datetime.fromisoformat(beside.since["green"])
    gauges = metrics(beside)
    assert (gauges["clusters_behind"], gauges["behind_seconds.blue"], gauges["unsent.green"] >= 1) == (1, 0, True)
    assert gauges["behind_seconds.green"] >= OUTAGE_SECONDS
    await set_policy(on_blue, shared, MAX_CONSUMERS[0], 3)
    await asyncio.to_thread(clusters["green"].restart)
    back = time.monotonic()
    await arrives(on_green, shared, MAX_PRODUCERS[1], 2, 180)
    await arrives(on_green, shared, MAX_CONSUMERS[1], 3, 180)
    log.info("caught up %.1f s after the cluster was back", time.monotonic() - back)
    await first.says("green answers again")
    await second.says("green answers; following it too")
    await first.end()
    await set_policy(on_green, shared, MAX_PRODUCERS[0], 4)
    await arrives(on_blue, shared, MAX_PRODUCERS[1], 4, 180)
    assert [tally.behind_since for tally in (await second.end()).values()] == ["", ""]
    assert metrics(await exchange.run())["behind_seconds.green"] == 0


class Following:
    """A follower of all clusters, in this process."""

    def __init__(self, exchange: Exchange, name: str) -> None:
        self.exchange, self.run = exchange, Run.open(f"sync/{name}")
        self.stopped, self.said = asyncio.Event(), list[str]()

    def start(self, **connections: ClusterConnection) -> None:
        """Begin; a connection given by the name of another takes its place."""
        sides = [connections.get(connection.name, connection) for connection in self.exchange.connections]
        work = follow_all(sides, self.exchange.request, self.run, stopped=self.stopped, say=self.said.append)
        self.task = asyncio.create_task(work)

    async def says(self, words: str) -> None:
        """Wait until it says something."""
        end = time.monotonic() + 180
        while not any(words in line for line in self.said):
            assert time.monotonic() < end, self.said
            assert not self.task.done(), self.task.result()
            await asyncio.sleep(0.05)

    async def end(self) -> dict[str, Tally]:
        """Stop; what it has counted."""
        self.stopped.set()
        return await self.task


async def arrives(admin: AdminClient, name: NamespaceName, field: str, value: int, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while (await held(admin, name, (field,)))[field] != value:
        assert time.monotonic() < end, f"{field} of {name} did not become {value}"
        await asyncio.sleep(0.05)
