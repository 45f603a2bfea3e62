"""The entry engine on real brokers: whole entries, the same however they are read and whatever breaks meanwhile."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace

import pulsar
import pytest
from tests.support.cursors import no_cursor_is_left
from tests.support.tcp_proxy import CuttingProxy

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, NotFound, Unavailable
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.messages.datasource.ranges_source import RangeGroup, RangesReader
from pulsar_fleet.messages.digest_table import digest_row
from pulsar_fleet.messages.digests import BUCKETS, TopicDigest
from pulsar_fleet.messages.engines.engines import Engines, EntryEngine
from pulsar_fleet.messages.ranges import EngineName, Range, TopicBounds, cut
from pulsar_fleet.messages.scan import sum_up
from pulsar_fleet.verification.bounds.engine_choice import messages_per_entry

pytestmark = pytest.mark.versions

COUNT = 2400
BATCH = 3
NOWHERE = ClusterConnection(name="nowhere", admin_url="http://localhost:1", service_url="pulsar://localhost:1")

Redirect = Callable[[NamespaceName], Awaitable[None]]


@pytest.fixture
async def topic(
    on_blue: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    make_namespace: Callable[[AdminClient, NamespaceName], Awaitable[None]],
    blue: ClusterConnection,
) -> TopicName:
    """A topic on blue with 800 entries in two ledgers, which no subscription holds but retention does."""
    name = TopicName(new_namespace(), "events")
    await make_namespace(on_blue, name.namespace)
    kept = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    await on_blue.post(f"/namespaces/{name.namespace.path}/retention", kept)
    await on_blue.create_topic(name)
    for first in (0, COUNT // 2):
        write(blue, name, range(first, first + COUNT // 2))
        await on_blue.put(f"/{name.path}/unload")
    return name


def write(connection: ClusterConnection, topic: TopicName, numbers: Sequence[int]) -> None:
    writer = open_client(connection)
    producer = writer.create_producer(
        str(topic),
        batching_enabled=True,
        batching_max_messages=BATCH,
        batching_max_publish_delay_ms=10_000,
        block_if_queue_full=True,
    )
    for number in numbers:
        producer.send_async(b"%d" % number * 50, None, properties={"n": str(number)})
    producer.flush()
    writer.close()


@pytest.fixture
def engine(blue: ClusterConnection) -> Iterator[EntryEngine]:
    """The engine under test."""
    with EntryEngine(blue) as engine:
        yield engine


async def ranges(admin: AdminClient, topic: TopicName, entries: int = 10_000) -> list[Range]:
    bounds = TopicBounds.whole(str(topic), await admin.internal_stats(topic))
    return list(cut(bounds, pair=0, publish_time=True, entries_per_range=entries, engine=EngineName.ENTRY))


def digest(engine: EntryEngine, parts: Sequence[Range]) -> TopicDigest:
    return TopicDigest.fold(row for part in parts for row in sum_up(engine, part, BUCKETS))


def places(engine: EntryEngine, part: Range) -> list[tuple[int, int]]:
    return [entry[:2] for entries in engine.read(part) for entry in entries]


async def test_one_range_and_many_give_the_same_digest_of_all_messages(
    on_blue: AdminClient, topic: TopicName, engine: EntryEngine
) -> None:
    whole, parts = await ranges(on_blue, topic), await ranges(on_blue, topic, 71)
    of_whole = digest(engine, whole)
    assert (of_whole.all.count, of_whole.problems, len(parts)) == (COUNT, (), 12)
    assert digest(engine, parts) == of_whole


async def test_every_entry_comes_once_and_in_order_and_nothing_behind_the_range(
    on_blue: AdminClient, topic: TopicName, blue: ClusterConnection, engine: EntryEngine
) -> None:
    (whole,) = await ranges(on_blue, topic)
    write(blue, topic, range(30))
    positions = places(engine, whole)
    assert (len(positions), positions) == (COUNT // BATCH, sorted(set(positions)))
    assert Position(*positions[-1]) == whole.last


async def test_a_range_whose_last_entries_do_not_exist_ends_with_the_topic(
    on_blue: AdminClient, topic: TopicName, engine: EntryEngine
) -> None:
    (whole,) = await ranges(on_blue, topic)
    longer = replace(whole, last=Position(whole.last.ledger, whole.last.entry + 5))
    assert len(places(engine, longer)) == COUNT // BATCH


async def test_reading_leaves_no_subscription_even_when_it_is_given_up(
    on_blue: AdminClient, topic: TopicName, engine: EntryEngine
) -> None:
    (whole,) = await ranges(on_blue, topic)
    places(engine, whole)
    await no_cursor_is_left(on_blue, topic)
    reading = engine.read(whole)
    next(reading)
    reading.close()  # type: ignore[attr-defined]
    await no_cursor_is_left(on_blue, topic)


async def test_a_connection_that_is_cut_again_and_again_costs_no_entry(
    on_blue: AdminClient, topic: TopicName, blue: ClusterConnection, engine: EntryEngine
) -> None:
    whole = await ranges(on_blue, topic)
    cuts = [100, 20_000, 50_001, 30_000]
    with CuttingProxy(blue.require_service_url(), cuts) as proxy, EntryEngine(through(blue, proxy)) as shaken:
        of_shaken = digest(shaken, whole)
        assert proxy.connections > len(cuts)
    assert of_shaken == digest(engine, whole)


def through(connection: ClusterConnection, proxy: CuttingProxy) -> ClusterConnection:
    """A broker of a sandbox answers look-ups with "through me", so all goes where the service URL says."""
    return replace(connection, service_url=proxy.url)


async def test_a_topic_that_is_unloaded_while_it_is_read_is_read_on(
    on_blue: AdminClient, topic: TopicName, engine: EntryEngine
) -> None:
    (whole,) = await ranges(on_blue, topic)
    reading = engine.read(whole)
    count = len(next(reading))
    await on_blue.put(f"/{topic.path}/unload")
    count += await asyncio.to_thread(lambda: sum(len(entries) for entries in reading))
    assert count == COUNT // BATCH


async def migrate(admin: AdminClient, redirect: Redirect, topic: TopicName) -> None:
    """Redirect the namespace's clients, and wait until the topic is closed."""
    await redirect(topic.namespace)
    async with asyncio.timeout(30):
        while (await admin.internal_stats(topic))["state"] != "Terminated":
            await asyncio.sleep(0.1)


@pytest.mark.cluster
async def test_a_migrated_topic_is_read_where_it_was_and_never_anywhere_else(
    on_blue: AdminClient, topic: TopicName, redirect: Redirect, engine: EntryEngine
) -> None:
    before = await asyncio.to_thread(digest, engine, await ranges(on_blue, topic))
    await migrate(on_blue, redirect, topic)
    after = await ranges(on_blue, topic, 300)
    assert [await asyncio.to_thread(digest, engine, parts) for parts in (after, after)] == [before, before]
    await on_blue.put(f"/{topic.path}/unload")
    with pytest.raises(Conflict, match="was moved to another cluster"):
        await asyncio.to_thread(places, engine, after[0])


@pytest.mark.cluster
async def test_a_slow_broker_does_not_end_a_topic_that_it_calls_empty(
    on_blue: AdminClient,
    topic: TopicName,
    blue: ClusterConnection,
    redirect: Redirect,
) -> None:
    parts = (await ranges(on_blue, topic, 300))[:2]
    await migrate(on_blue, redirect, topic)

    def counts() -> list[int]:
        with Engines(blue, idle_seconds=1e-6) as engines:
            counted = [sum(entry.messages for batch in engines.read(part) for entry in batch) for part in parts]
            by_message = [replace(part, engine=EngineName.MESSAGE) for part in parts]
            return [*counted, *(sum(len(batch) for batch in engines.read(part)) for part in by_message)]

    assert await asyncio.to_thread(counts) == [300 * BATCH] * 4


async def test_a_topic_that_is_not_there_is_missing_and_not_created(
    on_blue: AdminClient, topic: TopicName, engine: EntryEngine
) -> None:
    (whole,) = await ranges(on_blue, topic)
    with pytest.raises(NotFound, match="does not exist on blue"):
        places(engine, replace(whole, topic=f"persistent://{topic.namespace}/other"))
    assert list(await on_blue.topics(topic.namespace)) == [topic]


def test_a_broker_that_does_not_answer_is_transient() -> None:
    part = Range(0, 0, "persistent://a/b/t", Position(0, 0), Position(0, 1), 2, True, engine=EngineName.ENTRY)
    with (
        EntryEngine(NOWHERE, retry_seconds=0.3) as engine,
        pytest.raises(Unavailable, match="cannot be connected to"),
    ):
        places(engine, part)


async def test_a_spark_task_reads_with_the_engine_that_its_ranges_name(
    on_blue: AdminClient, topic: TopicName, blue: ClusterConnection, engine: EntryEngine
) -> None:
    whole = await ranges(on_blue, topic)
    address = {"name": "blue", "admin_url": blue.admin_url, "service_url": blue.service_url}
    task = RangesReader({"clusters": json.dumps({"source": address}), "buckets": str(BUCKETS)})
    group = RangeGroup("source", [part.to_json() for part in whole])
    rows = [digest_row(row) for batch in task.read(group) for row in batch.to_pylist()]
    assert TopicDigest.fold(rows) == digest(engine, whole)


async def test_messages_per_entry_are_known_of_a_topic_that_was_just_loaded_too(
    on_blue: AdminClient, topic: TopicName
) -> None:
    bounds = TopicBounds.whole(str(topic), await on_blue.internal_stats(topic))
    await on_blue.put(f"/{topic.path}/unload")
    assert await messages_per_entry(on_blue, bounds) == BATCH


async def test_large_messages_and_those_without_a_batch_are_entries_too(
    on_blue: AdminClient, topic: TopicName, blue: ClusterConnection, engine: EntryEngine
) -> None:
    writer = open_client(blue)
    other = TopicName(topic.namespace, "other")
    producer = writer.create_producer(str(other), batching_enabled=False, compression_type=pulsar.CompressionType.LZ4)
    for content in (b"small", random.Random(1).randbytes(3_000_000), b"x" * 1_000_000, b""):
        producer.send(content)
    writer.close()
    (whole,) = await ranges(on_blue, other)
    assert [entry.messages for entries in engine.read(whole) for entry in entries] == [1] * 4
