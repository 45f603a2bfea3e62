"""Verification of real clusters, here and as a real Spark job: what differs is named, nothing is equal by luck."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pulsar
import pytest
from tests.support.replication import FOREVER, make_replicated, wait_linked
from tests.support.spark_submission import submit

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest, NotFound
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.messages.ranges import EngineName
from pulsar_fleet.verification.bounds.engine_choice import EngineChoice
from pulsar_fleet.verification.job import build_package_zip
from pulsar_fleet.verification.messages.differences import Difference, Kind
from pulsar_fleet.verification.messages.recheck import recheck
from pulsar_fleet.verification.messages.verdict import TopicVerdict, Verdict, Verification
from pulsar_fleet.verification.request import ChosenEngine, EntryMapping, VerifyRequest
from pulsar_fleet.verification.steps import conclude, freeze_bounds, record, store_request, verify_in_process

pytestmark = pytest.mark.versions

JOB = Path(__file__).parents[3] / "spark_jobs" / "verify_messages.py"
COUNT = 60
AT = 40
MakeNamespace = Callable[[AdminClient, NamespaceName], Awaitable[None]]
Redirect = Callable[[NamespaceName], Awaitable[None]]


@dataclass(frozen=True)
class Written:
    """A message as a test writes it."""

    payload: bytes
    key: str
    trace: str
    event: int

    def send(self, producer: pulsar.Producer) -> None:
        """Hand it to a producer."""
        producer.send_async(
            self.payload, None, partition_key=self.key, properties={"trace": self.trace}, event_timestamp=self.event
        )


MESSAGES = [Written(b"order-%d" % number, f"k{number % 7}", f"t{number}", 1000 + number) for number in range(COUNT)]
TARGETED = MESSAGES[AT]


def altered(**changed: object) -> list[Written]:
    return [*MESSAGES[:AT], replace(TARGETED, **changed), *MESSAGES[AT + 1 :]]  # type: ignore[arg-type]


COPIES: dict[str, list[Written]] = {
    "equal": MESSAGES,
    "dropped": [*MESSAGES[:AT], *MESSAGES[AT + 1 :]],
    "duplicated": [*MESSAGES[: AT + 1], TARGETED, *MESSAGES[AT + 1 :]],
    "payload": altered(payload=b"Order-40"),
    "key": altered(key="k-other"),
    "property": altered(trace="t-other"),
    "event-time": altered(event=9),
    "swapped": [*MESSAGES[:AT], MESSAGES[AT + 1], TARGETED, *MESSAGES[AT + 2 :]],
    "swapped-and-dropped": [*MESSAGES[1:AT], MESSAGES[AT + 1], TARGETED, *MESSAGES[AT + 2 :]],
}
"""What green holds, by topic; blue holds `MESSAGES` in each."""


def write(client: pulsar.Client, topic: TopicName, messages: Sequence[Written], batch: int = 7) -> None:
    producer = client.create_producer(
        str(topic),
        producer_name="checkout-2",
        batching_enabled=batch > 1,
        batching_max_messages=max(2, batch),
        batching_max_publish_delay_ms=10_000,
        compression_type=pulsar.CompressionType.LZ4,
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
    )
    for message in messages:
        message.send(producer)
    producer.flush()
    producer.close()


@pytest.fixture
async def namespace(
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    make_namespace: MakeNamespace,
) -> NamespaceName:
    """An empty namespace on both clusters."""
    name = new_namespace()
    for admin in (on_blue, on_green):
        await make_namespace(admin, name)
    return name


@pytest.fixture
async def writers(
    blue: ClusterConnection, green: ClusterConnection
) -> AsyncIterator[tuple[pulsar.Client, pulsar.Client]]:
    """Clients that write to blue and to green."""
    clients = (open_client(blue), open_client(green))
    yield clients
    for client in clients:
        client.close()


Writers = tuple[pulsar.Client, pulsar.Client]


async def verify(on_blue: AdminClient, on_green: AdminClient, *namespaces: NamespaceName) -> Verification:
    return await verify_in_process(on_blue, on_green, await freeze_bounds(on_blue, on_green, namespaces))


def by_topic(verification: Verification) -> dict[str, TopicVerdict]:
    return {
        TopicName.parse(topic.topic).local: topic for namespace in verification.namespaces for topic in namespace.topics
    }


def only_topic(verification: Verification) -> TopicVerdict:
    ((topic,),) = (namespace.topics for namespace in verification.namespaces)
    return topic


def the_difference(topic: TopicVerdict) -> Difference:
    (difference,) = topic.differences
    return difference


# Copies that a producer made: one topic for each kind of damage, compared once, read by every test.


@dataclass(frozen=True)
class Damaged:
    """A namespace with one damaged copy per topic, and what this process found there."""

    namespace: NamespaceName
    request: VerifyRequest
    verification: Verification

    def __getitem__(self, topic: str) -> TopicVerdict:
        return by_topic(self.verification)[topic]


@pytest.fixture(scope="module")
def damaged(blue: ClusterConnection, green: ClusterConnection) -> Damaged:
    """The copies of `COPIES`, an empty topic, a partitioned one, and one that green lacks."""
    return asyncio.run(_damaged(blue, green))


async def _damaged(blue: ClusterConnection, green: ClusterConnection) -> Damaged:
    namespace = NamespaceName(f"test-{os.urandom(5).hex()}", "orders")
    async with AsyncExitStack() as stack:
        admins = [await stack.enter_async_context(AdminClient(connection)) for connection in (blue, green)]
        for admin in admins:
            own = await admin.cluster_name()
            await admin.put(f"/tenants/{namespace.tenant}", {"adminRoles": [], "allowedClusters": [own]})
            await admin.put(f"/namespaces/{namespace.path}", {"retention_policies": FOREVER})
            await admin.create_partitioned_topic(TopicName(namespace, "partitioned"), 3)
            await admin.create_topic(TopicName(namespace, "empty"))
        await admins[0].create_topic(TopicName(namespace, "lost"))
        for side, (connection, batch) in enumerate(((blue, 7), (green, 1))):
            client = open_client(connection)
            for topic, copy in COPIES.items():
                write(client, TopicName(namespace, topic), copy if side else MESSAGES, batch)
            for index in range(3):
                write(client, TopicName(namespace, f"partitioned-partition-{index}"), MESSAGES[index::3], batch)
            client.close()
        request = await freeze_bounds(*admins, [namespace])
        return Damaged(namespace, request, await verify_in_process(*admins, request))


@pytest.mark.parametrize("topic", ["equal", "empty", "partitioned-partition-0", "partitioned-partition-2"])
def test_a_true_copy_is_equal_whatever_its_batches(damaged: Damaged, topic: str) -> None:
    assert damaged[topic].verdict is Verdict.EQUAL


def test_both_sides_of_an_equal_topic_have_the_same_proof(damaged: Damaged) -> None:
    proof = damaged["equal"].proof
    assert proof["source"]["messages"] == COUNT
    assert proof["source"] == proof["target"]


@pytest.mark.parametrize("topic", [topic for topic in COPIES if topic != "equal"])
def test_every_damage_makes_its_topic_different(damaged: Damaged, topic: str) -> None:
    assert damaged[topic].verdict is Verdict.DIFFERENT


def test_a_dropped_message_is_named_with_position_key_and_producer(damaged: Damaged) -> None:
    difference = the_difference(damaged["dropped"])
    where = damaged.request.pairs[[pair.topic.endswith("/dropped") for pair in damaged.request.pairs].index(True)]
    assert (difference.kind, difference.source, difference.target) == (
        Kind.MISSING,
        f"{where.source.ledgers.runs[0][0]}:5[5]",
        None,
    )
    assert (difference.key, difference.producer) == (TARGETED.key, "checkout-2")


def test_a_duplicated_message_is_named_as_extra_with_its_copies(damaged: Damaged) -> None:
    difference = the_difference(damaged["duplicated"])
    assert (difference.kind, difference.copies) == (Kind.EXTRA, (1, 2))
    repeated = {name: topic.repeated for name, topic in by_topic(damaged.verification).items() if topic.repeated}
    assert repeated == {"duplicated": 1}


@pytest.mark.parametrize(
    ("topic", "field"),
    [
        ("payload", "payload"),
        ("key", "key"),
        ("property", "property 'trace'"),
        ("event-time", "event time"),
    ],
)
def test_an_altered_message_is_named_on_both_sides_with_its_field(damaged: Damaged, topic: str, field: str) -> None:
    difference = the_difference(damaged[topic])
    assert (difference.kind, [name for name, _, _ in difference.fields]) == (Kind.ALTERED, [field])
    assert difference.source
    assert difference.target


def test_swapped_messages_are_reordered_and_nothing_else(damaged: Damaged) -> None:
    compared = damaged["swapped"]
    moved = the_difference(compared)
    assert (compared.reordered, compared.differing, moved.kind, moved.key) == (True, 0, Kind.REORDERED, TARGETED.key)
    assert compared.reason.endswith("the order of producer 'checkout-2' is broken")


def test_swapped_messages_are_named_beside_one_that_is_missing(damaged: Damaged) -> None:
    compared = damaged["swapped-and-dropped"]
    assert [(difference.kind, difference.key) for difference in compared.differences] == [
        (Kind.MISSING, MESSAGES[0].key),
        (Kind.REORDERED, TARGETED.key),
    ]
    assert (compared.reordered, compared.differing) == (True, 1)
    assert (
        compared.reason
        == "of the messages that both hold, 1 changed places; the order of producer 'checkout-2' is broken"
    )


def test_a_topic_that_the_target_lacks_makes_the_namespace_different(damaged: Damaged) -> None:
    assert (damaged["lost"].verdict, damaged["lost"].reason) == (Verdict.DIFFERENT, "green has no such topic")


def by_entries(request: VerifyRequest) -> VerifyRequest:
    """The same request, for the engine that reads whole entries; these copies by a producer never have equal ones."""
    return replace(request, pairs=tuple(replace(pair, engine=ChosenEngine(EngineName.ENTRY)) for pair in request.pairs))


def findings(verification: Verification) -> dict[str, tuple[object, ...]]:
    return {
        name: (topic.verdict, topic.differing, topic.differences, topic.reordered, topic.reason, topic.source_messages)
        for name, topic in by_topic(verification).items()
    }


async def test_where_entries_differ_the_messages_in_them_decide(
    damaged: Damaged, on_blue: AdminClient, on_green: AdminClient
) -> None:
    verification = await verify_in_process(on_blue, on_green, by_entries(damaged.request))
    assert findings(verification) == findings(damaged.verification)
    equal = by_topic(verification)["equal"]
    assert equal.engine == "message, because whole entries were not equal"
    assert "they do not lie in equal entries" in equal.notes[0]
    assert (by_topic(verification)["empty"].engine, by_topic(verification)["dropped"].notes) == ("entry", ())


@pytest.mark.pyspark
async def test_a_spark_job_comes_to_the_same_verdicts_and_names_the_message(
    damaged: Damaged,
    on_blue: AdminClient,
    on_green: AdminClient,
    blue: ClusterConnection,
    green: ClusterConnection,
    records: Path,
) -> None:
    mixed = replace(damaged.request, pairs=(*by_entries(damaged.request).pairs[:4], *damaged.request.pairs[4:]))
    request, result = store_request(Run.open("verify/1"), mixed)
    job = submit(JOB, ["--request", request, "--result", result], blue, green, records)
    assert job.returncode == 0, job.stdout[-3000:]
    verification = await recheck(on_blue, on_green, mixed, Verification.from_bytes(Path(result).read_bytes()))
    assert findings(verification) == findings(damaged.verification)
    dropped = the_difference(damaged["dropped"])
    assert f"DIFFERENT  persistent://{damaged.namespace}/dropped: 1 of {COUNT} messages" in job.stdout
    assert f"missing on green  blue {dropped.source}  key {TARGETED.key!r}" in job.stdout


def test_a_job_without_its_request_fails_and_leaves_no_result(
    blue: ClusterConnection, green: ClusterConnection, records: Path
) -> None:
    result = records / "result.json"
    result.write_text("of an earlier try")
    job = submit(JOB, ["--request", str(records / "none.json"), "--result", str(result)], blue, green, records)
    assert (job.returncode, result.exists()) == (1, False)
    assert "The comparison was not carried out" in job.stdout


# Copies that the replicator made.


@pytest.fixture
async def replicated(on_blue: AdminClient, on_green: AdminClient, namespace: NamespaceName) -> TopicName:
    """An empty topic whose namespace replicates from blue to green."""
    return await make_replicated(on_blue, on_green, TopicName(namespace, "events"))


@pytest.mark.cluster
async def test_a_replicated_topic_is_equal_although_green_goes_on(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers
) -> None:
    write(writers[0], replicated, MESSAGES)
    write(writers[0], replicated, MESSAGES, batch=1)
    request = await freeze_bounds(on_blue, on_green, [replicated.namespace])
    write(writers[1], replicated, MESSAGES[:5])
    write(writers[1], replicated, MESSAGES[:5], batch=1)
    again = await freeze_bounds(on_blue, on_green, [replicated.namespace], engine=EngineChoice.ENTRY)
    compared = only_topic(await verify_in_process(on_blue, on_green, again))
    assert (compared.verdict, compared.source_messages, compared.target_messages) == (
        Verdict.EQUAL,
        2 * COUNT,
        2 * COUNT,
    )
    assert again.pairs[0].target.last == request.pairs[0].target.last


async def test_a_replicated_topic_with_large_batches_is_compared_by_entries(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers
) -> None:
    write(writers[0], replicated, MESSAGES * 10)
    request = await freeze_bounds(on_blue, on_green, [replicated.namespace])
    assert request.pairs[0].engine.name is EngineName.ENTRY
    compared = only_topic(await verify_in_process(on_blue, on_green, VerifyRequest.from_bytes(request.to_bytes())))
    assert (compared.verdict, compared.source_messages, compared.notes) == (Verdict.EQUAL, 10 * COUNT, ())
    assert compared.engine == "entry, because an entry of the source holds 7.0 messages on average"
    assert compared.proof["source"] == compared.proof["target"]


async def test_an_empty_replicated_topic_is_equal_beside_messages_of_green(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers
) -> None:
    write(writers[1], replicated, MESSAGES)
    compared = only_topic(await verify(on_blue, on_green, replicated.namespace))
    assert (compared.verdict, compared.source_messages, compared.target_messages) == (Verdict.EQUAL, 0, 0)


async def test_a_message_that_was_never_replicated_is_missing(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers
) -> None:
    write(writers[0], replicated, MESSAGES, batch=1)
    await freeze_bounds(on_blue, on_green, [replicated.namespace])
    await on_blue.post(f"/namespaces/{replicated.namespace.path}/replication", ["blue"])
    await _without_replicator(on_blue, replicated)
    write(writers[0], replicated, [TARGETED], batch=1)
    await on_blue.post(f"/namespaces/{replicated.namespace.path}/replication", ["blue", "green"])
    await wait_linked(on_blue, [replicated], "green")
    write(writers[0], replicated, MESSAGES[:3], batch=1)
    for engine in (EngineChoice.MESSAGE, EngineChoice.ENTRY):
        request = await freeze_bounds(on_blue, on_green, [replicated.namespace], engine=engine)
        compared = only_topic(await verify_in_process(on_blue, on_green, request))
        assert (compared.verdict, the_difference(compared).kind) == (Verdict.DIFFERENT, Kind.MISSING)


async def _without_replicator(admin: AdminClient, topic: TopicName) -> None:
    async with asyncio.timeout(30):
        while "pulsar.repl.green" in (await admin.internal_stats(topic))["cursors"]:
            await asyncio.sleep(0.1)


async def test_what_retention_removed_from_blue_is_left_out_and_said(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers
) -> None:
    write(writers[0], replicated, MESSAGES)
    await freeze_bounds(on_blue, on_green, [replicated.namespace])
    await on_blue.put(f"/{replicated.path}/unload")
    write(writers[0], replicated, MESSAGES)
    await freeze_bounds(on_blue, on_green, [replicated.namespace])
    none = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    await on_blue.post(f"/namespaces/{replicated.namespace.path}/retention", none)
    await _trimmed(on_blue, replicated)
    compared = only_topic(await verify(on_blue, on_green, replicated.namespace))
    assert (compared.verdict, compared.source_messages) == (Verdict.EQUAL, COUNT)
    assert "the oldest that it still holds" in compared.notes[0]


async def _trimmed(admin: AdminClient, topic: TopicName) -> None:
    async with asyncio.timeout(60):
        while len((await admin.internal_stats(topic))["ledgers"]) > 1:
            await admin.post(f"/{topic.path}/trim")
            await asyncio.sleep(0.2)


async def test_messages_of_writers_on_both_sides_are_inconclusive_and_not_a_loss(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers
) -> None:
    write(writers[0], replicated, MESSAGES[:10])
    await freeze_bounds(on_blue, on_green, [replicated.namespace])
    write(writers[1], replicated, MESSAGES[20:25])
    write(writers[0], replicated, MESSAGES[10:20])
    compared = only_topic(await verify(on_blue, on_green, replicated.namespace))
    assert compared.verdict is Verdict.INCONCLUSIVE
    assert "mapping 'whole'" in compared.reason


# Clusters in a blue-green migration.


@pytest.mark.cluster
async def test_a_migrated_namespace_is_compared_where_it_was(
    on_blue: AdminClient, on_green: AdminClient, redirect: Redirect, replicated: TopicName, writers: Writers
) -> None:
    write(writers[0], replicated, MESSAGES)
    await freeze_bounds(on_blue, on_green, [replicated.namespace])
    await migrate(on_blue, redirect, replicated)
    write(writers[1], replicated, MESSAGES[:20])
    compared = only_topic(await verify(on_blue, on_green, replicated.namespace))
    assert (compared.verdict, compared.source_messages) == (Verdict.EQUAL, COUNT)


@pytest.mark.cluster
async def test_a_migrated_topic_that_was_unloaded_is_inconclusive(
    on_blue: AdminClient, on_green: AdminClient, redirect: Redirect, replicated: TopicName, writers: Writers
) -> None:
    write(writers[0], replicated, MESSAGES)
    await migrate(on_blue, redirect, replicated)
    await on_blue.put(f"/{replicated.path}/unload")
    compared = only_topic(await verify(on_blue, on_green, replicated.namespace))
    assert compared.verdict is Verdict.INCONCLUSIVE
    assert "already migrated" in compared.reason


@pytest.mark.cluster
async def test_a_migrated_topic_unloaded_before_it_is_read_is_inconclusive(
    on_blue: AdminClient, on_green: AdminClient, redirect: Redirect, replicated: TopicName, writers: Writers
) -> None:
    write(writers[0], replicated, MESSAGES)
    await migrate(on_blue, redirect, replicated)
    request = await freeze_bounds(on_blue, on_green, [replicated.namespace])
    await on_blue.put(f"/{replicated.path}/unload")
    compared = only_topic(await verify_in_process(on_blue, on_green, request))
    assert compared.verdict is Verdict.INCONCLUSIVE
    assert "unloaded while it was read" in compared.reason


async def migrate(admin: AdminClient, redirect: Redirect, topic: TopicName) -> None:
    """Redirect the namespace's clients, and wait until the topic is closed."""
    await redirect(topic.namespace)
    async with asyncio.timeout(30):
        while (await admin.internal_stats(topic))["state"] != "Terminated":
            await asyncio.sleep(0.1)


# What cannot be compared is never equal.


async def test_an_unknown_namespace_is_inconclusive(
    on_blue: AdminClient, on_green: AdminClient, new_namespace: Callable[[], NamespaceName]
) -> None:
    verification = await verify(on_blue, on_green, new_namespace())
    assert (verification.verdict, only_topic(verification).reason) == (
        Verdict.INCONCLUSIVE,
        "there is no such namespace on blue",
    )


async def test_a_namespace_that_the_target_lacks_is_different(
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    make_namespace: MakeNamespace,
) -> None:
    name = new_namespace()
    await make_namespace(on_blue, name)
    verification = await verify(on_blue, on_green, name)
    assert (verification.verdict, only_topic(verification).reason) == (
        Verdict.DIFFERENT,
        "there is no such namespace on green",
    )


async def test_a_namespace_without_topics_is_inconclusive(
    on_blue: AdminClient, on_green: AdminClient, namespace: NamespaceName
) -> None:
    assert (await verify(on_blue, on_green, namespace)).verdict is Verdict.INCONCLUSIVE


async def test_no_namespace_at_all_is_refused(on_blue: AdminClient, on_green: AdminClient) -> None:
    with pytest.raises(InvalidRequest, match="No namespace was given"):
        await freeze_bounds(on_blue, on_green, [])


async def test_the_mapping_whole_does_not_forgive_messages_of_the_targets_own(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers
) -> None:
    write(writers[0], replicated, MESSAGES[:10])
    await freeze_bounds(on_blue, on_green, [replicated.namespace])
    write(writers[1], replicated, MESSAGES[10:12])
    request = await freeze_bounds(on_blue, on_green, [replicated.namespace], mapping=EntryMapping.WHOLE)
    compared = only_topic(await verify_in_process(on_blue, on_green, request))
    assert (compared.verdict, compared.differing) == (Verdict.DIFFERENT, 2)


# Records.


def test_the_verdict_of_each_namespace_is_kept_in_the_ledger(damaged: Damaged, records: Path) -> None:
    run = Run.open("verify/2")
    record(run, damaged.verification)
    record(run, damaged.verification)
    (kept,) = run.ledger.verdicts("verify/2")
    assert (kept.scope, kept.verdict, kept.messages) == (
        str(damaged.namespace),
        "different",
        damaged.verification.messages,
    )


async def test_a_job_that_left_no_result_is_not_taken_for_one(
    on_blue: AdminClient, on_green: AdminClient, damaged: Damaged, records: Path
) -> None:
    with pytest.raises(NotFound, match="left no result"):
        await conclude(Run.open("verify/3"), on_blue, on_green, damaged.request, str(records / "none.json"))


def test_the_same_code_gives_the_same_package(tmp_path: Path) -> None:
    assert build_package_zip(tmp_path / "a").read_bytes() == build_package_zip(tmp_path / "b").read_bytes()
