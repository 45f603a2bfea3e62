"""The engine of messages on real brokers: a range is read to its end and no further, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pulsar
import pytest
from tests.support.cursors import no_cursor_is_left

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import NotFound, Unavailable
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.messages.digests import BUCKETS, TopicDigest
from pulsar_fleet.messages.engines.engines import Engines
from pulsar_fleet.messages.positions import Ledgers
from pulsar_fleet.messages.ranges import Range, TopicBounds, cut
from pulsar_fleet.messages.scan import sum_up

pytestmark = pytest.mark.versions

MakeNamespace = Callable[[AdminClient, NamespaceName], Awaitable[None]]
Redirect = Callable[[NamespaceName], Awaitable[None]]


@pytest.fixture
async def topic(
    on_blue: AdminClient, new_namespace: Callable[[], NamespaceName], make_namespace: MakeNamespace
) -> TopicName:
    """An empty topic on blue."""
    name = TopicName(new_namespace(), "events")
    await make_namespace(on_blue, name.namespace)
    await on_blue.create_topic(name)
    return name


@pytest.fixture
def writer(blue: ClusterConnection) -> Iterator[pulsar.Client]:
    """A client that writes to blue."""
    client = open_client(blue)
    yield client
    client.close()


@pytest.fixture
def engine(blue: ClusterConnection) -> Iterator[Engines]:
    """The engine under test."""
    with Engines(blue) as engine:
        yield engine


def write(client: pulsar.Client, topic: TopicName, count: int, batch: int = 1) -> None:
    """Write `count` messages in entries of `batch` messages."""
    producer = client.create_producer(
        str(topic),
        batching_enabled=batch > 1,
        batching_max_messages=max(2, batch),
        batching_max_publish_delay_ms=10_000,
        block_if_queue_full=True,
    )
    for number in range(count):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    producer.close()


async def ranges(admin: AdminClient, topic: TopicName, entries: int) -> list[Range]:
    bounds = TopicBounds.whole(str(topic), await admin.internal_stats(topic))
    return list(cut(bounds, pair=0, publish_time=True, entries_per_range=entries))


def numbers(engine: Engines, part: Range) -> list[int]:
    return [int(message.payload) for batch in engine.read(part) for message in batch]


@pytest.mark.parametrize("batch", [1, 7])
async def test_ranges_give_every_message_once_and_in_order(
    on_blue: AdminClient, topic: TopicName, writer: pulsar.Client, engine: Engines, batch: int
) -> None:
    write(writer, topic, 700, batch)
    batches = [numbers(engine, part) for part in await ranges(on_blue, topic, 30)]
    assert [number for batch in batches for number in batch] == list(range(700))


@pytest.mark.parametrize("batch", [1, 7])
async def test_a_range_ends_at_its_last_entry_although_the_topic_goes_on(
    on_blue: AdminClient, topic: TopicName, writer: pulsar.Client, engine: Engines, batch: int
) -> None:
    write(writer, topic, 70, batch)
    (frozen,) = await ranges(on_blue, topic, 1000)
    write(writer, topic, 70, batch)
    assert numbers(engine, frozen) == list(range(70))


async def test_a_range_crosses_ledgers(
    on_blue: AdminClient, topic: TopicName, writer: pulsar.Client, engine: Engines
) -> None:
    await on_blue.create_subscription(topic, "keeps-everything")
    write(writer, topic, 100, 10)
    await on_blue.put(f"/{topic.path}/unload")
    write(writer, topic, 100, 10)
    (whole,) = await ranges(on_blue, topic, 1000)
    assert numbers(engine, whole) == [*range(100), *range(100)]


async def test_a_range_whose_last_entries_do_not_exist_ends_with_the_topic(
    on_blue: AdminClient, topic: TopicName, writer: pulsar.Client, engine: Engines
) -> None:
    write(writer, topic, 10)
    (whole,) = await ranges(on_blue, topic, 1000)
    longer = Range(0, 0, str(topic), whole.first, Position(whole.last.ledger, whole.last.entry + 5), 15, True)
    assert numbers(engine, longer) == list(range(10))


async def test_reading_leaves_no_subscription(
    on_blue: AdminClient, topic: TopicName, writer: pulsar.Client, engine: Engines
) -> None:
    write(writer, topic, 10)
    (whole,) = await ranges(on_blue, topic, 1000)
    numbers(engine, whole)
    await no_cursor_is_left(on_blue, topic)


async def test_digests_do_not_depend_on_batches_and_ranges(
    on_blue: AdminClient, topic: TopicName, writer: pulsar.Client, engine: Engines
) -> None:
    other = TopicName(topic.namespace, "other")
    write(writer, topic, 300, 9)
    write(writer, other, 300)
    digests = []
    for name, entries in ((topic, 1000), (other, 17)):
        bounds = TopicBounds.whole(str(name), await on_blue.internal_stats(name))
        parts = cut(bounds, pair=0, publish_time=False, entries_per_range=entries)
        digests.append(TopicDigest.fold(row for part in parts for row in sum_up(engine, part, BUCKETS)))
    assert digests[0] == digests[1]


def test_a_topic_of_an_unknown_namespace_is_missing(engine: Engines) -> None:
    part = Range(0, 0, "persistent://nobody/nothing/t", Position(0, 0), Position(0, 1), 2, True)
    with pytest.raises(NotFound, match=r"persistent://nobody/nothing/t does not exist on blue"):
        numbers(engine, part)


def test_an_unreadable_range_becomes_a_reason_and_not_an_exception(engine: Engines) -> None:
    part = Range(0, 0, "persistent://nobody/nothing/t", Position(0, 0), Position(0, 1), 2, True)
    (row,) = sum_up(engine, part, BUCKETS)
    assert "does not exist on blue" in row.problem


def test_a_broker_that_does_not_answer_is_transient() -> None:
    nowhere = ClusterConnection(name="nowhere", admin_url="http://localhost:1", service_url="pulsar://localhost:1")
    part = Range(0, 0, "persistent://a/b/t", Position(0, 0), Position(0, 1), 2, True)
    with Engines(nowhere, retry_seconds=0.3) as engine, pytest.raises(Unavailable, match="nowhere"):
        numbers(engine, part)


@pytest.mark.cluster
async def test_a_migrated_topic_is_read_to_its_end_where_it_was(
    on_blue: AdminClient,
    on_green: AdminClient,
    redirect: Redirect,
    topic: TopicName,
    make_namespace: MakeNamespace,
    writer: pulsar.Client,
    engine: Engines,
) -> None:
    await make_namespace(on_green, topic.namespace)
    batched = TopicName(topic.namespace, "batched")
    write(writer, topic, 2500)
    write(writer, batched, 2500, 9)
    await redirect(topic.namespace)
    for name in (topic, batched):
        await terminated(on_blue, name)
    read_numbers = [
        [number for part in await ranges(on_blue, name, 1000) for number in numbers(engine, part)]
        for name in (topic, batched, topic)
    ]
    assert read_numbers == [list(range(2500))] * 3


async def terminated(admin: AdminClient, topic: TopicName) -> None:
    """Wait until the broker has closed a topic of a flagged namespace; it looks once a second."""
    async with asyncio.timeout(30):
        while (await admin.internal_stats(topic))["state"] != "Terminated":
            await asyncio.sleep(0.1)


async def test_ledgers_of_a_live_topic_end_at_the_last_confirmed_entry(
    on_blue: AdminClient, topic: TopicName, writer: pulsar.Client
) -> None:
    write(writer, topic, 5)
    assert len(Ledgers.of(await on_blue.internal_stats(topic))) == 5
