"""Every kind of fault at every rate is found, counted exactly and named; in copies of producers and of replicators.

PULSAR_FLEET_FAULT_RATES: one fault in so many messages, 1000 unless set; 1000,10000,100000 takes minutes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial

import pulsar
import pytest
from tests.support.raw_store import store_again
from tests.support.replication import know_each_other, make_alone, replicate, wait_linked

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.verification.bounds.engine_choice import EngineChoice
from pulsar_fleet.verification.messages.differences import Kind
from pulsar_fleet.verification.messages.verdict import TopicVerdict, Verdict
from pulsar_fleet.verification.steps import freeze_bounds, verify_in_process

pytestmark = [pytest.mark.versions, pytest.mark.cluster]

RATES = [int(text) for text in os.environ.get("PULSAR_FLEET_FAULT_RATES", "1000").split(",")]
FEWEST = 2_000
"""Messages of a topic, so that the highest rate has more than one fault."""

SOURCE_BATCH, TARGET_BATCH = 100, 70


@dataclass(frozen=True)
class Message:
    """One message, as it is written."""

    key: str
    payload: bytes
    trace: str
    event: int


def original(count: int) -> list[Message]:
    """Messages of which no two are alike."""
    return [Message(f"k{number}", b"order-%d" % number, f"t{number}", 1 + number) for number in range(count)]


def dropped(messages: list[Message], at: int) -> list[Message]:
    return messages[:at] + messages[at + 1 :]


def duplicated(messages: list[Message], at: int) -> list[Message]:
    return [*messages[: at + 1], *messages[at:]]


def swapped(messages: list[Message], at: int) -> list[Message]:
    return [*messages[:at], messages[at + 1], messages[at], *messages[at + 2 :]]


def altered(messages: list[Message], at: int, **changed: object) -> list[Message]:
    return [*messages[:at], replace(messages[at], **changed), *messages[at + 1 :]]  # type: ignore[arg-type]


PLANT = {
    "drop": dropped,
    "duplicate": duplicated,
    "swap": swapped,
    "corrupt": lambda messages, at: altered(messages, at, payload=b"\x00" + messages[at].payload[1:]),
    "key": partial(altered, key="k-other"),
    "property": partial(altered, trace="t-other"),
    "event-time": partial(altered, event=9_999_999),
}
NAMED_AS: Mapping[str, tuple[Kind, str]] = {
    "drop": (Kind.MISSING, ""),
    "duplicate": (Kind.EXTRA, ""),
    "swap": (Kind.REORDERED, "place"),
    "corrupt": (Kind.ALTERED, "payload"),
    "key": (Kind.ALTERED, "key"),
    "property": (Kind.ALTERED, "property 'trace'"),
    "event-time": (Kind.ALTERED, "event time"),
}


def size(rate: int) -> int:
    """Messages of a topic with this rate."""
    return max(rate, FEWEST)


def places(rate: int) -> list[int]:
    """Which messages are damaged, ascending: one in so many, never the first or the last."""
    return [rate // 2 + number * rate for number in range(size(rate) // rate)]


def write(client: pulsar.Client, topic: TopicName, messages: Sequence[Message], batch: int) -> None:
    """Exactly `batch` messages in each entry but the last."""
    producer = client.create_producer(
        str(topic),
        producer_name="checkout",
        batching_enabled=True,
        batching_max_messages=batch,
        batching_max_allowed_size_in_bytes=1 << 20,
        batching_max_publish_delay_ms=60_000,
        block_if_queue_full=True,
    )
    for message in messages:
        named = {"trace": message.trace}
        producer.send_async(
            message.payload, None, partition_key=message.key, properties=named, event_timestamp=message.event
        )
    producer.flush()
    producer.close()


# Copies that a producer made.


@dataclass(frozen=True)
class Found:
    """What was found of one topic, and its first ledger on the source."""

    verdict: TopicVerdict
    ledger: int


@pytest.fixture(scope="module")
def verdicts(blue: ClusterConnection, green: ClusterConnection) -> Mapping[str, Found]:
    """A topic for each fault and rate, compared once."""
    return asyncio.run(_found(blue, green))


async def _found(blue: ClusterConnection, green: ClusterConnection) -> Mapping[str, Found]:
    namespace = NamespaceName(f"test-{os.urandom(5).hex()}", "damaged")
    async with AsyncExitStack() as stack:
        admins = [await stack.enter_async_context(AdminClient(connection)) for connection in (blue, green)]
        for admin in admins:
            await make_alone(admin, namespace)
        await asyncio.to_thread(_write_all, blue, green, namespace)
        request = await freeze_bounds(*admins, [namespace])
        ledgers = {TopicName.parse(pair.topic).local: pair.source.ledgers.runs[0][0] for pair in request.pairs}
        result = await verify_in_process(*admins, request)
    topics = {TopicName.parse(topic.topic).local: topic for verified in result.namespaces for topic in verified.topics}
    return {name: Found(verdict, ledgers[name]) for name, verdict in topics.items()}


def _write_all(blue: ClusterConnection, green: ClusterConnection, namespace: NamespaceName) -> None:
    clients = [open_client(connection) for connection in (blue, green)]
    for rate in RATES:
        messages = original(size(rate))
        for fault, plant in PLANT.items():
            topic, copy = TopicName(namespace, f"{fault}-{rate}"), messages
            for at in reversed(places(rate)):
                copy = plant(copy, at)
            write(clients[0], topic, messages, SOURCE_BATCH)
            write(clients[1], topic, copy, TARGET_BATCH)
    for client in clients:
        client.close()


@pytest.mark.long
@pytest.mark.full
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("fault", PLANT)
def test_each_fault_is_found_counted_and_named(verdicts: Mapping[str, Found], fault: str, rate: int) -> None:
    topic = verdicts[f"{fault}-{rate}"]
    verdict, planted = topic.verdict, places(rate)
    assert verdict.verdict is Verdict.DIFFERENT
    assert (verdict.differing, verdict.reordered) == ((0, True) if fault == "swap" else (len(planted), False))
    kind, field = NAMED_AS[fault]
    assert [difference.kind for difference in verdict.differences] == [kind] * len(planted)
    assert [[name for name, _, _ in difference.fields] for difference in verdict.differences] == [
        [field] if field else []
    ] * len(planted)
    assert [difference.key for difference in verdict.differences] == [f"k{at}" for at in planted]
    if fault != "duplicate":
        expected = [f"{topic.ledger}:{at // SOURCE_BATCH}[{at % SOURCE_BATCH}]" for at in planted]
        assert [difference.source for difference in verdict.differences] == expected
    else:
        assert [difference.copies for difference in verdict.differences] == [(1, 2)] * len(planted)


# Copies that the replicator made.

BATCH = 5
GEO_RATES = [rate for rate in RATES if rate <= 10_000]


@dataclass(frozen=True)
class Replicated:
    """Verdicts by topic, and the keys that were damaged."""

    by_engine: Mapping[EngineChoice, Mapping[str, TopicVerdict]]
    keys: Mapping[str, list[str]]


@pytest.fixture(scope="module")
def replicated(blue: ClusterConnection, green: ClusterConnection) -> Replicated:
    """Topics that lost or repeated an entry on their way from blue to green."""
    return asyncio.run(_replicated(blue, green))


async def _replicated(blue: ClusterConnection, green: ClusterConnection) -> Replicated:
    tenant = f"test-{os.urandom(5).hex()}"
    keys: dict[str, list[str]] = {}
    async with AsyncExitStack() as stack:
        on_blue, on_green = [await stack.enter_async_context(AdminClient(connection)) for connection in (blue, green)]
        await know_each_other(on_blue, on_green)
        client = open_client(blue)
        names = []
        for rate in GEO_RATES:
            messages = original(rate)
            damaged = messages[rate // 2 : rate // 2 + BATCH]
            namespace = NamespaceName(tenant, f"damaged-{rate}")
            names.append(namespace)
            topics = [TopicName(namespace, fault) for fault in ("dropped", "duplicated")]
            await replicate(on_blue, on_green, namespace)
            for topic in topics:
                for admin in (on_green, on_blue):
                    await admin.create_topic(topic)
                keys[topic.local + f"-{rate}"] = [message.key for message in damaged]
            await wait_linked(on_blue, topics, "green")
            for topic in topics:
                await asyncio.to_thread(write, client, topic, messages[: rate // 2], BATCH)
            await freeze_bounds(on_blue, on_green, [namespace])  # waits for the replicators
            await asyncio.to_thread(write, client, topics[1], damaged, BATCH)
            await freeze_bounds(on_blue, on_green, [namespace])
            last = Position.parse((await on_green.internal_stats(topics[1]))["lastConfirmedEntry"])
            await asyncio.to_thread(store_again, green, str(topics[1]), last, BATCH)
            await without_replication(on_blue, topics[0], partial(write, client, topics[0], damaged, BATCH))
            await wait_linked(on_blue, topics, "green")
            for topic in topics:
                await asyncio.to_thread(write, client, topic, messages[rate // 2 + BATCH :], BATCH)
        by_engine = {}
        for engine in (EngineChoice.MESSAGE, EngineChoice.ENTRY):
            result = await verify_in_process(
                on_blue, on_green, await freeze_bounds(on_blue, on_green, names, engine=engine)
            )
            by_engine[engine] = {
                f"{TopicName.parse(topic.topic).local}-{verified.namespace.rpartition('-')[2]}": topic
                for verified in result.namespaces
                for topic in verified.topics
            }
        client.close()
    return Replicated(by_engine, keys)


async def without_replication(admin: AdminClient, topic: TopicName, meanwhile: partial[None]) -> None:
    """Write what no replicator will ever send: its cursor begins behind it."""
    path = f"/namespaces/{topic.namespace.path}/replication"
    await admin.post(path, ["blue"])
    async with asyncio.timeout(30):
        while "pulsar.repl.green" in (await admin.internal_stats(topic))["cursors"]:
            await asyncio.sleep(0.1)
    await asyncio.to_thread(meanwhile)
    await admin.post(path, ["blue", "green"])


@pytest.mark.full
@pytest.mark.parametrize("engine", [EngineChoice.MESSAGE, EngineChoice.ENTRY])
@pytest.mark.parametrize("rate", GEO_RATES)
@pytest.mark.parametrize(("fault", "kind"), [("dropped", Kind.MISSING), ("duplicated", Kind.EXTRA)])
def test_what_replication_lost_or_repeated_is_found(
    replicated: Replicated, fault: str, kind: Kind, rate: int, engine: EngineChoice
) -> None:
    topic = f"{fault}-{rate}"
    compared = replicated.by_engine[engine][topic]
    assert (compared.verdict, compared.differing, compared.reordered) == (Verdict.DIFFERENT, BATCH, False)
    assert [(difference.kind, difference.key) for difference in compared.differences] == [
        (kind, key) for key in replicated.keys[topic]
    ]
