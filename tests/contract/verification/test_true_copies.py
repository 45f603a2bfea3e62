"""True copies raise no alarm: topics of every kind, whichever engine reads them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Event

import pulsar
import pytest
from pulsar.schema import JsonSchema, Record, String
from tests.contract.verification.test_subscriptions import write_until_marked
from tests.support.encryption import encryption
from tests.support.replication import know_each_other, make_alone, replicate, wait_linked

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.verification.bounds.engine_choice import EngineChoice
from pulsar_fleet.verification.messages.verdict import TopicVerdict, Verdict, Verification
from pulsar_fleet.verification.steps import freeze_bounds, verify_in_process

pytestmark = pytest.mark.versions

Client = pulsar.Client
COUNT = 150
LARGEST = 6_000_000
"""Bytes of a message that the broker's limit of 5 MB cuts in two."""


class Order(Record):
    """Something with a schema."""

    id = String()


def send(client: Client, topic: str, payloads: list[bytes], *, wait: bool = True, **options: object) -> None:
    """Write them with keys, properties that need quoting, and event times; unbatched unless asked for."""
    settings = {"batching_enabled": False, "producer_name": "checkout", "block_if_queue_full": True, **options}
    producer = client.create_producer(topic, **settings)
    for number, payload in enumerate(payloads):
        named = {"trace": f'"t{number}", \\ ü', "empty": ""}
        producer.send_async(payload, None, partition_key=f"k{number % 5}", properties=named, event_timestamp=number + 1)
    producer.flush()
    producer.close()


def numbered(count: int = COUNT) -> list[bytes]:
    return [b"order-%d" % number for number in range(count)]


def in_batches(size: int, **options: object) -> Callable[[Client, str], None]:
    batched = {"batching_max_messages": size, "batching_max_publish_delay_ms": 10_000} if size > 1 else {}
    batched["batching_enabled"] = size > 1
    return lambda client, topic: send(client, topic, numbered(), **batched, **options)


def by_two_producers(client: Client, topic: str) -> None:
    for number in range(6):
        in_batches(4 if number % 2 else 1, producer_name=f"till-{number % 2}")(client, topic)


def without_payload(client: Client, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(COUNT):
        producer.send_async(b"", None, partition_key=f"k{number}" if number % 2 else None)
    producer.flush()


def ordered_and_delayed(client: Client, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(COUNT):
        producer.send_async(
            b"%d" % number, None, ordering_key=f"o{number % 3}", deliver_after=timedelta(hours=1 + number)
        )
    producer.flush()


def with_schema(client: Client, topic: str) -> None:
    producer = client.create_producer(topic, schema=JsonSchema(Order))
    for number in range(20):
        producer.send(Order(id=f"{number}"))


def marked(client: Client, topic: str) -> None:
    write_until_marked(client, TopicName.parse(topic))


def encrypted(client: Client, topic: str) -> None:
    in_batches(7, **encryption(Path(os.environ["AIRFLOW_HOME"])))(client, topic)


REPLICATED: Mapping[str, Callable[[Client, str], None]] = {
    "empty": lambda client, topic: None,
    "unbatched": in_batches(1),
    "batches": in_batches(50),
    "batches-by-key": in_batches(30, batching_type=pulsar.BatchingType.KeyBased),
    "lz4": in_batches(20, compression_type=pulsar.CompressionType.LZ4),
    "zlib": in_batches(20, compression_type=pulsar.CompressionType.ZLib),
    "zstd": in_batches(20, compression_type=pulsar.CompressionType.ZSTD),
    "snappy": in_batches(20, compression_type=pulsar.CompressionType.SNAPPY),
    "two-producers": by_two_producers,
    "without-payload": without_payload,
    "ordered-and-delayed": ordered_and_delayed,
    "schema": with_schema,
    "markers": marked,
    "encrypted": encrypted,
    "large": lambda client, topic: send(client, topic, [os.urandom(1_000_000) for _ in range(4)]),
    "never-loaded": in_batches(9),
}
"""How each topic that geo-replication copies is written on blue."""

COPIED: Mapping[str, tuple[Callable[[Client, str], None], Callable[[Client, str], None]]] = {
    "other-batches": (in_batches(50), in_batches(1)),
    "other-compression": (
        in_batches(10, compression_type=pulsar.CompressionType.LZ4),
        in_batches(11, compression_type=pulsar.CompressionType.ZSTD),
    ),
    "other-producer": (in_batches(4, producer_name="checkout"), in_batches(4, producer_name="copier")),
    "chunks": (
        lambda client, topic: send(client, topic, [b"a" * LARGEST, b"small", b"b" * LARGEST], chunking_enabled=True),
        lambda client, topic: send(client, topic, [b"a" * LARGEST, b"small", b"b" * LARGEST], chunking_enabled=True),
    ),
}
"""How each topic that a producer copied is written on blue and on green."""

ENGINES = (EngineChoice.MESSAGE, EngineChoice.ENTRY)


@dataclass(frozen=True)
class Copies:
    """What was found by each engine, by topic; topics that producers copied are under `copied/`."""

    verdicts: Mapping[EngineChoice, Mapping[str, TopicVerdict]]


@pytest.fixture(scope="module")
def copies(blue: ClusterConnection, green: ClusterConnection) -> Copies:
    """Every topic, written and copied; compared by each engine while a further one goes on being written."""
    return asyncio.run(_copies(blue, green))


async def _copies(blue: ClusterConnection, green: ClusterConnection) -> Copies:
    tenant = f"test-{os.urandom(5).hex()}"
    copied, moving = NamespaceName(tenant, "copied"), NamespaceName(tenant, "moving")
    async with AsyncExitStack() as stack:
        on_blue, on_green = [await stack.enter_async_context(AdminClient(connection)) for connection in (blue, green)]
        await know_each_other(on_blue, on_green)
        await replicate(on_blue, on_green, moving)
        for admin in (on_blue, on_green):
            await make_alone(admin, copied)
        topics = [TopicName(moving, name) for name in [*REPLICATED, "live"]]
        for topic in topics:
            await on_green.create_topic(topic)
            await on_blue.create_topic(topic)
        # Markers are only made where the subscription's state can travel both ways.
        await on_green.post(f"/namespaces/{moving.path}/replication", ["blue", "green"])
        await wait_linked(on_blue, topics, "green")
        clients = [open_client(connection) for connection in (blue, green)]
        await asyncio.to_thread(_write, clients, copied, moving)
        await on_blue.put(f"/{TopicName(moving, 'never-loaded').path}/unload")
        with _writing(clients[0], str(TopicName(moving, "live"))):
            verdicts = {engine: await _compare(on_blue, on_green, [moving, copied], engine) for engine in ENGINES}
        for client in clients:
            client.close()
    return Copies(verdicts)


def _write(clients: list[Client], copied: NamespaceName, moving: NamespaceName) -> None:
    for name, write in REPLICATED.items():
        write(clients[0], str(TopicName(moving, name)))
    for name, sides in COPIED.items():
        for client, write in zip(clients, sides, strict=True):
            write(client, str(TopicName(copied, name)))


@contextmanager
def _writing(client: Client, topic: str) -> Iterator[None]:
    """Two producers that go on, one of them with batches."""
    ended = Event()

    def write(number: int) -> None:
        producer = client.create_producer(topic, producer_name=f"live-{number}", batching_enabled=bool(number))
        written = 0
        while not ended.wait(0.002):
            producer.send_async(b"%d" % written, None, partition_key=f"k{written % 7}")
            written += 1
        producer.flush()

    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(write, number) for number in range(2)]
        try:
            time.sleep(1)
            yield
        finally:
            ended.set()
            for future in running:
                future.result()


async def _compare(
    on_blue: AdminClient, on_green: AdminClient, namespaces: list[NamespaceName], engine: EngineChoice
) -> dict[str, TopicVerdict]:
    request = await freeze_bounds(on_blue, on_green, namespaces, engine=engine)
    verification: Verification = await verify_in_process(on_blue, on_green, request)
    names = {
        topic.topic: TopicName.parse(topic.topic) for namespace in verification.namespaces for topic in namespace.topics
    }
    verdicts = {topic.topic: topic for namespace in verification.namespaces for topic in namespace.topics}
    return {f"{name.namespace.name}/{name.local}": verdicts[topic] for topic, name in names.items()}


KINDS = [*(f"moving/{name}" for name in [*REPLICATED, "live"]), *(f"copied/{name}" for name in COPIED)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("topic", KINDS)
def test_a_true_copy_is_equal(copies: Copies, topic: str, engine: EngineChoice) -> None:
    compared = copies.verdicts[engine][topic]
    assert (compared.verdict, compared.reason) == (Verdict.EQUAL, "")
    assert compared.source_messages == compared.target_messages
    assert bool(compared.source_messages) is (topic != "moving/empty")


def test_entries_were_read_as_entries(copies: Copies) -> None:
    verdicts = copies.verdicts[EngineChoice.ENTRY]
    assert {topic for topic in KINDS if verdicts[topic].engine.startswith("entry")} == {
        topic for topic in KINDS if topic.startswith("moving/")
    }
