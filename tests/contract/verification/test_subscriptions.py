"""Subscriptions of real clusters compared: two hundred random cursors without a wrong verdict, and every reason."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pulsar
import pytest
from tests.support.cursors import Copy, Entry, Side, random_cursors
from tests.support.spark_submission import submit

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict
from pulsar_fleet.cluster.json import JsonObject
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.verification.messages.verdict import Verdict
from pulsar_fleet.verification.request import Problem, VerifyRequest
from pulsar_fleet.verification.steps import freeze_bounds, store_request
from pulsar_fleet.verification.subscriptions.correspondence import Unit
from pulsar_fleet.verification.subscriptions.report import subscription_text
from pulsar_fleet.verification.subscriptions.steps import compare_subscriptions, conclude, record, result_uri
from pulsar_fleet.verification.subscriptions.verdict import Kind, SubscriptionVerdict, SubscriptionVerification

pytestmark = [pytest.mark.versions, pytest.mark.cluster]

JOB = Path(__file__).parents[3] / "spark_jobs" / "verify_subscriptions.py"
SEED = 20261121
PER_TOPIC = 70


@dataclass(frozen=True)
class Compared:
    """Three topics with random cursors, and what was found about them."""

    copies: dict[str, Copy]
    request: VerifyRequest
    verification: SubscriptionVerification

    def __getitem__(self, topic: str) -> dict[str, SubscriptionVerdict]:
        return by_topic(self.verification)[topic]


def by_topic(verification: SubscriptionVerification) -> dict[str, dict[str, SubscriptionVerdict]]:
    topics = (topic for namespace in verification.namespaces for topic in namespace.topics)
    return {
        TopicName.parse(topic.topic).local: {verdict.subscription: verdict for verdict in topic.subscriptions}
        for topic in topics
    }


@pytest.fixture(scope="module")
def compared(blue: ClusterConnection, green: ClusterConnection) -> Compared:
    """`events` is replicated entry for entry, `partly` with gaps, `copied` written by producers in other batches."""
    return asyncio.run(_compared(blue, green))


async def _compared(blue: ClusterConnection, green: ClusterConnection) -> Compared:
    tenant, chance = f"test-{os.urandom(5).hex()}", random.Random(SEED)
    replicated, written = NamespaceName(tenant, "replicated"), NamespaceName(tenant, "written")
    async with AsyncExitStack() as stack:
        sides = [
            Side(connection, await stack.enter_async_context(AdminClient(connection))) for connection in (blue, green)
        ]
        await register_cluster(sides)
        topics = {name: TopicName(replicated, name) for name in ("events", "partly")}
        topics["copied"] = TopicName(written, "copied")
        for side in reversed(sides):  # else the replicator makes green's topics
            await side.make_namespace(replicated, ["blue", "green"] if side is sides[0] else ["green"])
            await side.make_namespace(written, [side.connection.name])
            for topic in topics.values():
                await side.admin.create_topic(topic)
        for part in ("a", "b"):
            write(sides, topics, part)
            await freeze_bounds(sides[0].admin, sides[1].admin, [replicated])  # waits until all is replicated
            if part == "a":
                for side in sides:
                    await asyncio.gather(*(side.admin.put(f"/{topic.path}/unload") for topic in topics.values()))
        copies = {}
        for name, topic in topics.items():
            blue_entries, green_entries = (side.read(topic, by_index=name == "copied") for side in sides)
            copies[name] = Copy(topic, (blue_entries, green_entries), same_entries=name == "events")
            random_cursors(chance, PER_TOPIC, copies[name])
            for number, side in enumerate(sides):  # side by side, a client of pulsar-client 3.13.0 aborted once
                await side.set_cursors(chance, copies[name], number)
        for side in sides:
            side.client.close()
            await side.admin.put(f"/{topics['partly'].path}/unload")
        admins = (sides[0].admin, sides[1].admin)
        request = replace(await freeze_bounds(*admins, [replicated, written]), examples=1000)
        return Compared(copies, request, await compare_subscriptions(*admins, request))


async def register_cluster(sides: list[Side]) -> None:
    for side, other in (sides, sides[::-1]):
        name, peer = other.connection.name, other.connection
        if name not in await side.admin.clusters():
            await side.admin.put_cluster(name, {"serviceUrl": peer.admin_url, "brokerServiceUrl": peer.service_url})


def write(sides: list[Side], topics: dict[str, TopicName], part: str) -> None:
    blue, green = sides
    for name in ("events", "partly"):
        blue.write(topics[name], [f"{part}{number}" for number in range(15)], batch=1)
        blue.write(topics[name], [f"{part}z{number}" for number in range(15)], batch=3)
        blue.write(topics[name], [f"{part}late{number}" for number in range(3)], batch=1, late=True)
    blue.write(topics["partly"], [f"{part}own{number}" for number in range(3)], batch=1, local=True)
    blue.write(topics["partly"], [f"{part}{number}" for number in range(15, 20)], batch=1)
    repeating = [f"{number % 11}" for number in range(40)]
    blue.write(topics["copied"], repeating, batch=4)
    green.write(topics["copied"], repeating, batch=3)


@pytest.mark.long
@pytest.mark.parametrize("topic", ["events", "partly", "copied"])
def test_no_verdict_on_a_random_cursor_is_wrong(compared: Compared, topic: str) -> None:
    copy, verdicts = compared.copies[topic], compared[topic]
    wrong = []
    for name in copy.cursors:
        again, lost, *counts = copy.expected(name)
        verdict = Verdict.DIFFERENT if again or lost else Verdict.EQUAL
        result = verdicts[name]
        named = {kind: {example for example in result.examples if example.kind is kind} for kind in Kind}
        on_green = {Position.parse(example.target or "") for example in named[Kind.REDELIVERED]}
        on_blue = {Position.parse(example.source or "") for example in named[Kind.SKIPPED]}
        if (result.verdict, result.redelivered, result.skipped, on_green, on_blue) != (verdict, *counts, again, lost):
            wrong.append((name, copy.cursors[name], result))
    assert wrong == []
    assert verdicts.keys() == copy.cursors.keys()


@pytest.mark.long
def test_the_random_cursors_are_of_both_verdicts_and_of_both_kinds(compared: Compared) -> None:
    verdicts = [verdict for topic in compared.copies for verdict in compared[topic].values()]
    counts = Counter(verdict.verdict for verdict in verdicts)
    assert len(verdicts) == 3 * PER_TOPIC
    assert min(counts[Verdict.EQUAL], counts[Verdict.DIFFERENT]) > 50
    assert any(verdict.redelivered for verdict in verdicts)
    assert any(verdict.skipped for verdict in verdicts)


def test_where_entries_are_not_one_to_one_messages_are_counted(compared: Compared) -> None:
    units = {topic: {verdict.unit for verdict in compared[topic].values()} for topic in compared.copies}
    assert units == {"events": {Unit.ENTRIES}, "partly": {Unit.MESSAGES}, "copied": {Unit.MESSAGES}}


def test_verdicts_are_kept_as_a_document_and_as_a_line_per_namespace(compared: Compared, records: Path) -> None:
    run = Run.open("verify/1")
    record(run, compared.verification)
    reference = record(run, compared.verification)
    assert SubscriptionVerification.from_bytes(run.artefacts.read(reference)) == compared.verification
    kept = run.ledger.verdicts(run.id)
    assert [(row.scope, row.verdict) for row in kept] == [
        (f"subscriptions of {namespace.namespace}", "different") for namespace in compared.verification.namespaces
    ]


@pytest.mark.long
@pytest.mark.pyspark
def test_a_spark_job_comes_to_the_same_verdicts(
    compared: Compared, blue: ClusterConnection, green: ClusterConnection, records: Path
) -> None:
    run = Run.open("verify/2")
    request, _ = store_request(run, compared.request)
    job = submit(JOB, ["--request", request, "--result", result_uri(run)], blue, green, records)
    assert job.returncode == 0, job.stdout[-3000:]
    assert conclude(run, result_uri(run)) == compared.verification


# A replicated subscription makes both brokers store markers between the messages.


async def test_markers_are_neither_redelivered_nor_skipped(blue: ClusterConnection, green: ClusterConnection) -> None:
    topic = TopicName(NamespaceName(f"test-{os.urandom(5).hex()}", "orders"), "marked")
    async with AsyncExitStack() as stack:
        sides = [
            Side(connection, await stack.enter_async_context(AdminClient(connection))) for connection in (blue, green)
        ]
        on_blue, on_green = (side.admin for side in sides)
        await register_cluster(sides)
        for side in reversed(sides):
            await side.make_namespace(topic.namespace, ["blue", "green"])
            # The first cluster makes it on the other one too, a moment later.
            with suppress(Conflict):
                await side.admin.create_topic(topic)
            await side.admin.create_subscription(topic, "idle", "earliest")
        written = await asyncio.to_thread(write_until_marked, sides[0].client, topic)
        for side in sides:
            side.client.close()
        request = await freeze_bounds(on_blue, on_green, [topic.namespace])
        by_name = by_topic(await compare_subscriptions(on_blue, on_green, request))["marked"]
    assert len(request.pairs[0].source) > written
    assert (by_name["idle"].verdict, by_name["idle"].source_unread) == (Verdict.EQUAL, written)


def write_until_marked(client: pulsar.Client, topic: TopicName) -> int:
    """Write and acknowledge messages until snapshots of a replicated subscription lie between them."""
    producer = client.create_producer(str(topic), batching_enabled=False)
    consumer = client.subscribe(
        str(topic), "live", pulsar.ConsumerType.Shared, replicate_subscription_state_enabled=True
    )
    written, entries = 0, -1
    while entries - written < 3:
        entries = producer.send(b"%d" % written).entry_id()
        consumer.acknowledge(consumer.receive(10_000))
        written += 1
        time.sleep(0.02)
    return written


# One small topic that producers wrote, with a subscription for each finding.

HELD = 12
PLACES = {"same": (4, 4), "behind": (4, 8), "ahead": (8, 4), "tagged": (4, 4), "lost": (4, None), "new": (None, 4)}
"""How many messages each subscription has acknowledged on blue and on green; None where it does not exist."""


@dataclass(frozen=True)
class Small:
    """A topic, where its messages lie on both sides, and the request to compare it."""

    topic: TopicName
    entries: tuple[list[Entry], list[Entry]]
    request: VerifyRequest


@pytest.fixture(scope="module")
def small(blue: ClusterConnection, green: ClusterConnection) -> Small:
    """The same messages on both sides, and the subscriptions of `PLACES`."""
    return asyncio.run(_small(blue, green))


async def _small(blue: ClusterConnection, green: ClusterConnection) -> Small:
    topic = TopicName(NamespaceName(f"test-{os.urandom(5).hex()}", "orders"), "placed")
    entries: list[list[Entry]] = []
    async with AsyncExitStack() as stack:
        sides = [
            Side(connection, await stack.enter_async_context(AdminClient(connection))) for connection in (blue, green)
        ]
        for number, side in enumerate(sides):
            await side.make_namespace(topic.namespace, [side.connection.name])
            await side.admin.create_topic(topic)
            side.write(topic, [f"{number}" for number in range(HELD)], batch=1)
            entries.append(side.read(topic, by_index=False))
            side.client.close()
            for name, places in PLACES.items():
                if (place := places[number]) is not None:
                    await side.admin.create_subscription(topic, name, entries[-1][place].position)
        await sides[0].admin.put(f"{topic.subscription_path('tagged')}/properties", {"team": "billing"})
        request = await freeze_bounds(sides[0].admin, sides[1].admin, [topic.namespace])
        return Small(topic, (entries[0], entries[1]), request)


async def test_each_finding_is_named_with_what_would_happen(
    small: Small, on_blue: AdminClient, on_green: AdminClient
) -> None:
    verification = await compare_subscriptions(on_blue, on_green, small.request)
    blue_entries, green_entries = small.entries
    text = subscription_text(verification)
    assert {name: verdict.verdict.value for name, verdict in by_topic(verification)["placed"].items()} == {
        "same": "equal",
        **dict.fromkeys(("behind", "ahead", "tagged", "lost"), "different"),
    }
    first = f"blue {blue_entries[4].position} = green {green_entries[4].position}  key 'key-1'"
    assert f"subscription 'behind': 4 messages would be skipped\n  skipped  {first}" in text
    assert f"subscription 'ahead': 4 messages would be redelivered\n  redelivered  {first}" in text
    assert "subscription 'tagged': property 'team' 'billing' → None" in text
    assert "subscription 'lost': green has no such subscription (8 entries unread)" in text
    assert f"note  {small.topic}: subscription 'new' is on green only" in text
    assert text.count("individually acknowledged messages of a batch") == 1


async def test_a_subscription_that_moves_meanwhile_is_inconclusive(
    small: Small, blue: ClusterConnection, on_green: AdminClient
) -> None:
    subscription = f"moving-{os.urandom(3).hex()}"

    class Consuming(AdminClient):
        """Its application acknowledges a message before the cursors are looked at for the second time."""

        looks = 0

        async def internal_stats(self, topic: TopicName) -> JsonObject:
            Consuming.looks += 1
            if Consuming.looks == 2:
                acknowledge_one(blue, topic, subscription)
            return await super().internal_stats(topic)

    async with Consuming(blue) as on_blue:
        for admin, entries in zip((on_blue, on_green), small.entries, strict=True):
            await admin.create_subscription(small.topic, subscription, entries[4].position)
        by_name = by_topic(await compare_subscriptions(on_blue, on_green, small.request))["placed"]
        for admin in (on_blue, on_green):
            await admin.delete_subscription(small.topic, subscription)
    assert by_name[subscription].verdict is Verdict.INCONCLUSIVE
    reason = "it moved while being compared: 1 entry was read on blue; stop its consumers or compare again"
    assert by_name[subscription].reason == reason
    assert by_name["same"].verdict is Verdict.EQUAL


def acknowledge_one(connection: ClusterConnection, topic: TopicName, subscription: str) -> None:
    client = open_client(connection)
    consumer = client.subscribe(str(topic), subscription, consumer_type=pulsar.ConsumerType.Shared)
    consumer.acknowledge(consumer.receive(10_000))
    client.close()


async def test_a_reader_is_no_subscription(
    small: Small, blue: ClusterConnection, on_blue: AdminClient, on_green: AdminClient
) -> None:
    client = open_client(blue)
    reader = client.create_reader(str(small.topic), pulsar.MessageId.earliest)
    cursors = (await on_blue.internal_stats(small.topic))["cursors"]
    by_name = by_topic(await compare_subscriptions(on_blue, on_green, small.request))["placed"]
    reader.close()
    client.close()
    assert any(name.startswith("reader-") for name in cursors)
    assert by_name.keys() == PLACES.keys() - {"new"}


async def test_more_messages_than_may_be_read_are_inconclusive(
    small: Small, on_blue: AdminClient, on_green: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsar_fleet.verification.subscriptions.compare.MOST_MESSAGES", HELD - 5)
    by_name = by_topic(await compare_subscriptions(on_blue, on_green, small.request))["placed"]
    assert by_name["same"].verdict is Verdict.INCONCLUSIVE
    assert "on blue more than 7 messages would have to be read" in by_name["same"].reason


async def test_a_topic_that_the_target_lacks_is_different_and_a_gone_one_unknown(
    small: Small, on_blue: AdminClient, on_green: AdminClient
) -> None:
    gone = TopicName(small.topic.namespace, "gone")
    lost = Problem(str(gone.namespace), str(gone.parent) + "-lost", True, "green has no such topic")
    pairs = tuple(replace(pair, topic=str(gone)) for pair in small.request.pairs)
    verification = await compare_subscriptions(on_blue, on_green, replace(small.request, pairs=pairs, problems=(lost,)))
    ((first, second),) = (namespace.topics for namespace in verification.namespaces)
    assert (first.verdict, second.verdict) == (Verdict.INCONCLUSIVE, Verdict.DIFFERENT)


@pytest.mark.long
def test_the_command_line_says_it_and_exits_with_its_state(
    small: Small, blue: ClusterConnection, green: ClusterConnection, records: Path
) -> None:
    words = [blue.admin_url, green.admin_url, "--namespace", str(small.topic.namespace)]
    with ThreadPoolExecutor() as pool:
        commands = ([*words, "--json"], [*words, "--no-subscriptions"], [*words[:3], "orders"])
        both, messages, wrong = pool.map(verify, commands)
    assert (both.returncode, messages.returncode) == (3, 0)
    document = json.loads(both.stdout)
    assert (document["state"], document["messages"]["verdict"]) == ("different", "equal")
    assert document["subscriptions"]["verdict"] == "different"
    assert re.search(r"^compare_subscriptions +\d", both.stderr, re.MULTILINE)
    assert f"{HELD:,} messages in 1 topic on both sides" in messages.stdout
    assert (wrong.returncode, "write it as tenant/namespace" in wrong.stderr) == (2, True)


def verify(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pulsar_fleet.cli", "verify", *words]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120)
