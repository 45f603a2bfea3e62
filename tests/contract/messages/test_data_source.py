"""`spark.read.format("pulsar")`, used by itself: rows, digests, bounds, refusals, and nothing left on the broker."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pulsar
import pytest
from tests.support.every_policy import INACTIVE
from tests.support.replication import make_alone
from tests.support.spark_submission import submission

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import Conflict, InvalidRequest, NotFound
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, Position, TopicName
from pulsar_fleet.messages.datasource.options import TopicOptions
from pulsar_fleet.messages.datasource.source import PulsarReader
from pulsar_fleet.messages.digests import ALL

pytestmark = [pytest.mark.versions, pytest.mark.pyspark]

COUNT = 200

JOB = """
import json, sys
from pyspark.sql import SparkSession, functions as F
from pulsar_fleet.messages.datasource.source import PulsarSource

spark = SparkSession.builder.getOrCreate()
spark.dataSource.register(PulsarSource)
read = lambda **options: spark.read.format("pulsar").options(**{**json.loads(sys.argv[1]), **options}).load()
rows = read(topics_pattern=sys.argv[2], entries_per_task="10")
by_topic = {row["topic"]: row["n"] for row in rows.groupBy("topic").agg(F.count("*").alias("n")).collect()}
first = rows.where("key = 'k7'").orderBy("topic").first().asDict()
digests = read(topics_pattern=sys.argv[2], out="digests")
messages = digests.where("bucket = -1").agg(F.sum("messages")).first()[0]
first = {name: str(bytes(value) if name == "value" else value) for name, value in first.items()}
print("FOUND", json.dumps([by_topic, first, messages, rows.rdd.getNumPartitions()]))
"""


@dataclass(frozen=True)
class Written:
    """A namespace with a plain and a partitioned topic, and a time between the two halves of what was written."""

    namespace: NamespaceName
    options: dict[str, str]
    between: datetime


@pytest.fixture(scope="module")
def written(blue: ClusterConnection) -> Written:
    """Messages in batches of 4, on blue."""
    namespace = NamespaceName(f"test-source-{time.time_ns()}", "orders")
    asyncio.run(_make(blue, namespace))
    client = open_client(blue)
    for half in range(2):
        between = datetime.now(UTC)
        time.sleep(0.01)
        for name in ("events", "parted-partition-0", "parted-partition-1"):
            _write(client, TopicName(namespace, name), range(half * COUNT // 2, (half + 1) * COUNT // 2))
    client.close()
    return Written(namespace, {"admin_url": blue.admin_url, "service_url": str(blue.service_url)}, between)


async def _make(blue: ClusterConnection, namespace: NamespaceName) -> None:
    async with AdminClient(blue) as admin:
        await make_alone(admin, namespace)
        # Else a broker deletes an empty topic after a minute, and these tests may take longer.
        await admin.post(f"/namespaces/{namespace.path}/inactiveTopicPolicies", INACTIVE)
        await admin.create_partitioned_topic(TopicName(namespace, "parted"), 2)
        await admin.create_topic(TopicName(namespace, "nothing"))


def _write(client: pulsar.Client, topic: TopicName, numbers: range) -> None:
    producer = client.create_producer(
        str(topic),
        producer_name="checkout",
        batching_enabled=True,
        batching_max_messages=4,
        batching_max_publish_delay_ms=10_000,
    )
    for number in numbers:
        producer.send_async(b"%d" % number, None, partition_key=f"k{number}", properties={"trace": f"t{number}"})
    producer.flush()
    producer.close()


def read(written: Written, **options: str) -> list[dict[str, object]]:
    reader = PulsarReader({**written.options, **options})
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def values(written: Written, **options: str) -> list[int]:
    return [int(str(row["value"], "ascii")) for row in read(written, **options)]  # type: ignore[arg-type]


@pytest.mark.long
def test_spark_reads_rows_and_digests_of_all_topics_that_match(
    written: Written, blue: ClusterConnection, tmp_path: Path
) -> None:
    script = tmp_path / "job.py"
    script.write_text(JOB)
    pattern = f"persistent://{written.namespace}/(events|parted)"
    command, environment = submission(script, [json.dumps(written.options), pattern], blue, blue, tmp_path)
    job = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=200)
    assert job.returncode == 0, job.stderr[-3000:]
    by_topic, first, messages, tasks = json.loads(job.stdout.partition("FOUND ")[2])
    topics = [
        f"persistent://{written.namespace}/{name}" for name in ("events", "parted-partition-0", "parted-partition-1")
    ]
    assert by_topic == dict.fromkeys(topics, COUNT)
    assert messages == 3 * COUNT
    assert tasks == 15
    expected = {"topic": topics[0], "key": "k7", "producer": "checkout", "batch": "3", "value": "b'7'"}
    assert {name: first[name] for name in expected} == expected
    assert (first["properties"], first["event_time"]) == ("{'trace': 't7'}", "None")


def test_a_pattern_matches_names_with_two_underscores_but_no_system_topic(
    written: Written, blue: ClusterConnection
) -> None:
    heartbeat = TopicName(written.namespace, "__debezium-heartbeat.fulfillment")
    with closing(open_client(blue)) as client:
        _write(client, heartbeat, range(10))

    async def set_policy() -> None:
        async with AdminClient(blue) as admin:
            await admin.post(f"/{heartbeat.path}/messageTTL", messageTTL=86_400)

    asyncio.run(set_policy())
    rows = read(written, topics_pattern=f"persistent://{written.namespace}/__.*")
    assert [row["topic"] for row in rows] == [str(heartbeat)] * 10


def test_message_ids_bound_what_is_read_both_ends_included(written: Written) -> None:
    topic = f"persistent://{written.namespace}/events"
    ids = [f"{row['ledger']}:{row['entry']}" for row in read(written, topics=topic)]
    assert values(written, topics=topic, start=ids[40], end=ids[83]) == list(range(40, 84))
    assert values(written, topics=topic, start=ids[196]) == list(range(196, COUNT))
    last = Position.parse(ids[-1])
    assert values(written, topics=topic, start=f"{last.ledger}:{last.entry + 1}") == []


@pytest.mark.parametrize("name", ["events", "parted-partition-1"])
def test_positions_that_never_existed_are_refused(written: Written, name: str) -> None:
    topic = f"persistent://{written.namespace}/{name}"
    rows = read(written, topics=topic)
    first, last = (Position(int(str(row["ledger"])), int(str(row["entry"]))) for row in (rows[0], rows[-1]))
    gap = Position(last.ledger, last.entry + 2)
    for option, position, stored in (
        ("start", "0:7", f"the oldest one is {first}"),
        ("end", "0:7", f"the oldest one is {first}"),
        ("start", str(gap), f"the newest one is {last}"),
        ("start", "99999999:0", f"the newest one is {last}"),
        ("end", "99999999:0", f"the newest one is {last}"),
    ):
        with pytest.raises(Conflict, match=f"{topic} stores no entry {position}, the option {option}; {stored}"):
            read(written, topics=topic, **{option: position})
    assert values(written, topics=topic, start="0:7", fail_on_data_loss="false") == list(range(COUNT))
    assert values(written, topics=topic, start=str(gap), fail_on_data_loss="false") == []
    nothing = f"persistent://{written.namespace}/nothing"
    with pytest.raises(Conflict, match=f"{nothing} stores no entry 0:7, the option start; it stores none"):
        read(written, topics=nothing, start="0:7")


async def test_a_start_that_was_trimmed_is_refused(
    written: Written, blue: ClusterConnection, on_blue: AdminClient
) -> None:
    topic = TopicName(written.namespace, "trimmed")
    with closing(open_client(blue)) as client:
        _write(client, topic, range(8))
        first = (await asyncio.to_thread(partial(read, written, topics=str(topic))))[0]
        await on_blue.put(f"/{topic.path}/unload")
        _write(client, topic, range(8, 16))
    await on_blue.post(f"/{topic.path}/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    async with asyncio.timeout(20):
        while (oldest := Position.parse(await _oldest(on_blue, topic))).ledger <= int(str(first["ledger"])):
            await on_blue.post(f"/{topic.path}/trim")
            await asyncio.sleep(0.2)
    start = f"{first['ledger']}:{first['entry']}"
    with pytest.raises(
        Conflict, match=f"{topic} stores no entry {start}, the option start; the oldest one is {oldest}"
    ):
        await asyncio.to_thread(read, written, topics=str(topic), start=start)
    options = {"topics": str(topic), "start": start, "fail_on_data_loss": "false"}
    assert await asyncio.to_thread(partial(values, written, **options)) == list(range(8, 16))


async def _oldest(admin: AdminClient, topic: TopicName) -> str:
    ledgers = (await admin.internal_stats(topic))["ledgers"]
    return f"{ledgers[0]['ledgerId']}:0"


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (1_790_000_000_123_456, None),  # Microseconds.
        (253_402_300_799_999, datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        (253_402_300_800_000, None),
        ((1 << 63) - 1, None),
        (1 << 63, None),
        ((1 << 64) - 5, datetime(1969, 12, 31, 23, 59, 59, 995_000, tzinfo=UTC)),
    ],
)
def test_an_event_time_beyond_every_calendar_is_read(
    written: Written, blue: ClusterConnection, milliseconds: int, shown: datetime | None
) -> None:
    topic = f"persistent://{written.namespace}/times-{milliseconds}"
    with closing(open_client(blue)) as client:
        producer = client.create_producer(topic)
        producer.send(b"0", event_timestamp=milliseconds)
        producer.send(b"1")
    first, second = read(written, topics=topic)
    stored = milliseconds if milliseconds < 1 << 63 else milliseconds - (1 << 64)
    assert (first["event_time"], first["event_time_ms"]) == (shown, stored)
    assert (second["event_time"], second["event_time_ms"]) == (None, None)


async def test_a_missing_partition_is_refused_or_empty(
    written: Written, blue: ClusterConnection, on_blue: AdminClient
) -> None:
    topic = TopicName(written.namespace, "gone")
    await on_blue.create_partitioned_topic(topic, 3)
    with closing(open_client(blue)) as client:
        for index in range(3):
            _write(client, topic.partition(index), range(8))
    await on_blue.delete(f"/{topic.partition(1).path}", force=True)
    for options in (
        {"topics": str(topic)},
        {"topics_pattern": f"persistent://{written.namespace}/gone"},
    ):
        with pytest.raises(NotFound, match=f"{topic.partition(1)} does not exist, but {topic} has 3 partitions"):
            await asyncio.to_thread(partial(read, written, **options))
        rows = await asyncio.to_thread(partial(read, written, **options, fail_on_data_loss="false"))
        assert Counter(row["topic"] for row in rows) == {str(topic.partition(index)): 8 for index in (0, 2)}


def test_times_bound_what_is_read_the_end_left_out(written: Written) -> None:
    topic = f"persistent://{written.namespace}/events"
    assert values(written, topics=topic, start=written.between.isoformat()) == list(range(COUNT // 2, COUNT))
    assert values(written, topics=topic, end=written.between.isoformat()) == list(range(COUNT // 2))


def test_both_engines_count_the_same_messages(written: Written) -> None:
    topic = f"persistent://{written.namespace}/parted"
    for engine in ("message", "entry"):
        rows = read(written, topics=topic, out="digests", engine=engine, entries_per_task="7")
        assert sum(int(str(row["messages"])) for row in rows if row["bucket"] == ALL) == 2 * COUNT


def test_a_topic_without_messages_has_no_rows(written: Written) -> None:
    assert read(written, topics=f"persistent://{written.namespace}/nothing") == []


async def test_nothing_is_left_on_the_broker(written: Written, on_blue: AdminClient) -> None:
    topic = TopicName(written.namespace, "events")
    await asyncio.to_thread(read, written, topics=str(topic), entries_per_task="5")
    async with asyncio.timeout(10):
        while (await on_blue.stats(topic))["subscriptions"]:
            await asyncio.sleep(0.1)


def test_a_topic_that_is_not_there_is_missing(written: Written) -> None:
    with pytest.raises(NotFound):
        read(written, topics=f"persistent://{written.namespace}/none")
    with pytest.raises(NotFound, match=r"matches 'none'; it has \d+ topics"):
        read(written, topics_pattern=f"persistent://{written.namespace}/none")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Give either the option topics"),
        ({"topics": "events"}, "write it as persistent://"),
        ({"topics": "persistent://a/b/c", "topics_pattern": "persistent://a/b/.*"}, "Give either the option topics"),
        ({"topics_pattern": "a/b/.*"}, "write it as persistent://tenant/namespace/ and"),
        ({"topics_pattern": "persistent://a/b/("}, "not a valid regular expression"),
        ({"topics": "persistent://a/b/c", "topic": "x"}, "has no option 'topic'"),
        ({"topics": "persistent://a/b/c", "start": "yesterday"}, "neither 'earliest', a message id"),
        ({"topics": "persistent://a/b/c", "start": "2026-11-21T08:00:00"}, "a time with its zone"),
        ({"topics": "persistent://a/b/c", "start": "5:9", "end": "5:8"}, "end='5:8' is before start='5:9'"),
        ({"topics": "persistent://a/b/c", "out": "table"}, "it takes rows or digests"),
        ({"topics": "persistent://a/b/c", "fail_on_data_loss": "no"}, "it takes true or false"),
        ({"topics": "persistent://a/b/c", "engine": "entry"}, "gives digests only"),
        ({"topics": "persistent://a/b/c", "buckets": "0"}, "an integer of at least 1"),
        ({"topics": "persistent://a/b/c", "service_url": ""}, "The option service_url is missing"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, str], message: str) -> None:
    all_options = {"admin_url": "http://h:1", "service_url": "pulsar://h:1", **options}
    with pytest.raises(InvalidRequest, match=message.replace("(", r"\(")) as refused:
        TopicOptions.parse(all_options)
    assert str(refused.value).count("\n") == 0


def test_the_credentials_of_a_side_are_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSAR_FLEET_TARGET_TOKEN_SECRET", "t")
    reader: Callable[[], ClusterConnection] = PulsarReader(
        {
            "admin_url": "http://h:1",
            "service_url": "pulsar://h:1",
            "topics": "persistent://a/b/c",
            "credentials": "target",
        }
    )._connection
    assert reader().token == "t"
