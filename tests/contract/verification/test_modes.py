"""Modes, causes, checkpoints and kinds of topics on real clusters: true copies raise no alarm, faults have a name."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pulsar
import pytest
from tests.support.encryption import encryption
from tests.support.replication import FOREVER, make_alone, make_replicated

from pulsar_fleet.cluster.admin.client import AdminClient
from pulsar_fleet.cluster.connection import ClusterConnection
from pulsar_fleet.cluster.errors import InvalidRequest
from pulsar_fleet.cluster.message_client import open_client
from pulsar_fleet.cluster.names import NamespaceName, TopicName
from pulsar_fleet.ledger.run import Run
from pulsar_fleet.migration.prepare.compaction import compact
from pulsar_fleet.verification.bounds.engine_choice import EngineChoice, ReadFrom
from pulsar_fleet.verification.coverage import Compaction, Coverage, Mode, Sample
from pulsar_fleet.verification.job import job_environment
from pulsar_fleet.verification.messages.differences import Cause, Kind
from pulsar_fleet.verification.messages.verdict import TopicVerdict, Verdict, Verification
from pulsar_fleet.verification.request import Order, VerifyRequest
from pulsar_fleet.verification.steps import freeze_bounds, record, verify_in_process
from pulsar_fleet.verification.subscriptions.steps import compare_subscriptions

pytestmark = pytest.mark.versions

MakeNamespace = Callable[[AdminClient, NamespaceName], Awaitable[None]]
Writers = tuple[pulsar.Client, pulsar.Client]
CHUNKED = 6_000_000
"""Bytes of a message that the broker's limit of 5 MB cuts in two."""


@pytest.fixture
async def namespace(
    on_blue: AdminClient,
    on_green: AdminClient,
    new_namespace: Callable[[], NamespaceName],
    make_namespace: MakeNamespace,
) -> NamespaceName:
    """An empty namespace on both clusters that keeps everything."""
    name = new_namespace()
    for admin in (on_blue, on_green):
        await make_namespace(admin, name)
        await admin.post(f"/namespaces/{name.path}/retention", FOREVER)
    return name


@pytest.fixture
def writers(blue: ClusterConnection, green: ClusterConnection) -> Iterator[Writers]:
    """Clients that write to blue and to green."""
    clients = (open_client(blue), open_client(green))
    yield clients
    for client in clients:
        client.close()


@pytest.fixture
async def replicated(on_blue: AdminClient, on_green: AdminClient, namespace: NamespaceName) -> TopicName:
    """An empty topic whose namespace replicates from blue to green."""
    return await make_replicated(on_blue, on_green, TopicName(namespace, "events"))


def send(client: pulsar.Client, topic: TopicName, payloads: Sequence[bytes], **options: object) -> None:
    """Write messages, with key, event time and a property made from their number; unbatched unless asked for."""
    producer = client.create_producer(
        str(topic), **{"producer_name": "checkout", "block_if_queue_full": True, **options}
    )
    for number, payload in enumerate(payloads):
        producer.send_async(
            payload, None, partition_key=f"k{number % 5}", event_timestamp=1000 + number, properties={"n": str(number)}
        )
    producer.flush()
    producer.close()


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"order-%d" % number for number in range(first, first + count)]


def topics_of(verification: Verification) -> dict[str, TopicVerdict]:
    return {
        TopicName.parse(topic.topic).local: topic for namespace in verification.namespaces for topic in namespace.topics
    }


def only_topic(verification: Verification) -> TopicVerdict:
    (topic,) = topics_of(verification).values()
    return topic


async def verify(on_blue: AdminClient, on_green: AdminClient, name: NamespaceName, **options: object) -> Verification:
    request = await freeze_bounds(on_blue, on_green, [name], **options)  # type: ignore[arg-type]
    return await verify_in_process(on_blue, on_green, request)


# Kinds of topics: true copies are equal.


async def test_messages_in_chunks_are_compared_wherever_ranges_are_cut(
    on_blue: AdminClient, on_green: AdminClient, namespace: NamespaceName, writers: Writers
) -> None:
    big = [os.urandom(CHUNKED), b"small", os.urandom(CHUNKED)]
    for client in writers:
        send(client, TopicName(namespace, "events"), big, chunking_enabled=True)
    request = await freeze_bounds(on_blue, on_green, [namespace])
    assert request.entries == 2 * 5
    digests = []
    for entries in (100, 1, 2, 3):
        cut = replace(request, entries_per_range=entries)
        compared = only_topic(await verify_in_process(on_blue, on_green, cut))
        assert (compared.verdict, compared.source_messages) == (Verdict.EQUAL, 3)
        digests.append(compared.proof["source"])
    assert digests == digests[:1] * 4


async def test_a_chunk_that_replication_dropped_is_named(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers
) -> None:
    """Observed on 4.2.4: a replicator drops a chunk that its own properties make larger than the broker's limit."""
    send(writers[0], replicated, [b"small", os.urandom(CHUNKED), b"small"], chunking_enabled=True)
    compared = only_topic(await verify(on_blue, on_green, replicated.namespace))
    assert (compared.verdict, [difference.cause for difference in compared.differences]) == (
        Verdict.DIFFERENT,
        [Cause.CHUNK_LOST],
    )


async def test_an_encrypted_copy_is_equal_and_a_second_encryption_inconclusive(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers, tmp_path: Path
) -> None:
    secret = encryption(tmp_path)
    copied = TopicName(NamespaceName(replicated.namespace.tenant, "copied"), "events")
    for admin in (on_blue, on_green):
        await admin.put_namespace(copied.namespace, {"retention_policies": FOREVER})
    for client in writers:
        send(client, copied, numbered(3), **secret)
    send(writers[0], replicated, numbered(5), batching_enabled=True, batching_max_messages=3, **secret)
    send(writers[0], replicated, numbered(3), **secret)
    assert only_topic(await verify(on_blue, on_green, replicated.namespace)).verdict is Verdict.EQUAL
    encrypted_again = only_topic(await verify(on_blue, on_green, copied.namespace))
    assert (encrypted_again.verdict, {difference.cause for difference in encrypted_again.differences}) == (
        Verdict.INCONCLUSIVE,
        {Cause.ENCRYPTED},
    )


async def test_a_topic_compacted_on_one_side_is_compared_by_its_latest_values(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers
) -> None:
    send(writers[0], replicated, numbered(40), batching_enabled=True, batching_max_messages=4)
    send(writers[0], replicated, [b""], batching_enabled=True)
    await freeze_bounds(on_blue, on_green, [replicated.namespace])
    await compact_and_trim(on_blue, replicated)
    send(writers[0], replicated, numbered(3, 100))
    compared = only_topic(await verify(on_blue, on_green, replicated.namespace))
    assert (compared.verdict, compared.source_messages, compared.notes) == (
        Verdict.EQUAL,
        5,
        ("compacted: the latest value of each key was compared",),
    )
    send(writers[1], replicated, [b"of green's own"])
    again = await freeze_bounds(on_blue, on_green, [replicated.namespace])
    assert only_topic(await verify_in_process(on_blue, on_green, again)).verdict is Verdict.EQUAL


async def test_the_log_of_a_compacted_topic_is_compared_too(
    on_blue: AdminClient, on_green: AdminClient, namespace: NamespaceName, writers: Writers
) -> None:
    """A value that another has superseded is in no compacted view, and every other consumer gets it."""
    topic = TopicName(namespace, "table")
    for admin in (on_blue, on_green):
        await admin.create_topic(topic)
    send(writers[0], topic, [b"superseded"])
    for client in writers:
        send(client, topic, numbered(5))
    await compact(on_blue, [topic])
    verification = await verify(on_blue, on_green, namespace)
    log, view = verification.namespaces[0].topics
    assert (log.verdict, log.differing, view.verdict, view.source_messages) == (Verdict.DIFFERENT, 1, Verdict.EQUAL, 5)
    assert verification.topics == {Verdict.EQUAL: 0, Verdict.DIFFERENT: 1, Verdict.INCONCLUSIVE: 0}
    assert verification.messages == 6
    only_values = await verify(on_blue, on_green, namespace, coverage=Coverage(compaction=Compaction.ALWAYS))
    assert only_topic(only_values).verdict is verification.verdict.EQUAL


async def test_a_key_that_an_encrypted_message_deletes_is_in_no_compacted_view(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers, tmp_path: Path
) -> None:
    """Encrypted, its content is not empty: the broker goes by the size that it had before."""
    send(writers[0], replicated, numbered(10))
    lz4 = pulsar.CompressionType.LZ4
    send(writers[0], replicated, [b""], compression_type=lz4, **encryption(tmp_path))
    await freeze_bounds(on_blue, on_green, [replicated.namespace])
    await compact_and_trim(on_blue, replicated)
    compared = only_topic(await verify(on_blue, on_green, replicated.namespace))
    assert (compared.verdict, compared.source_messages, compared.target_messages) == (Verdict.EQUAL, 4, 4)


@pytest.mark.parametrize("compacted", [("green",), ("blue",), ("blue", "green")], ids="+".join)
async def test_a_compacted_topic_whose_keys_are_all_deleted_has_equal_views(
    on_blue: AdminClient,
    on_green: AdminClient,
    replicated: TopicName,
    writers: Writers,
    compacted: tuple[str, ...],
) -> None:
    """Nothing is delivered to its readers: the broker's compacted ledger has no entry."""
    send(writers[0], replicated, [b"value"])
    send(writers[0], replicated, [b""])
    await freeze_bounds(on_blue, on_green, [replicated.namespace])
    for admin in (on_blue, on_green):
        if admin.connection.name in compacted:
            await compact(admin, [replicated])
    log, view = (await verify(on_blue, on_green, replicated.namespace)).namespaces[0].topics
    assert (log.verdict, log.source_messages, view.verdict) == (Verdict.EQUAL, 2, Verdict.EQUAL), view.reason


async def test_a_log_that_is_gone_is_named_beside_the_latest_values(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers
) -> None:
    send(writers[0], replicated, numbered(10))
    await freeze_bounds(on_blue, on_green, [replicated.namespace])
    await compact_and_trim(on_blue, replicated)
    compared = only_topic(await verify(on_blue, on_green, replicated.namespace))
    assert (compared.verdict, compared.reason, compared.source_messages) == (Verdict.EQUAL, "", 5)
    assert compared.notes[1].startswith("its log was not compared: blue has no messages of it any more")


async def test_subscriptions_of_a_compacted_topic_are_compared_by_its_log(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers
) -> None:
    send(writers[0], replicated, numbered(10))
    for admin in (on_blue, on_green):
        await admin.create_subscription(replicated, "job")
    await freeze_bounds(on_blue, on_green, [replicated.namespace])
    await compact(on_blue, [replicated])
    request = await freeze_bounds(on_blue, on_green, [replicated.namespace])
    (topic,) = (await compare_subscriptions(on_blue, on_green, request)).namespaces[0].topics
    assert [(row.subscription, row.verdict) for row in topic.subscriptions] == [("job", Verdict.EQUAL)]


async def compact_and_trim(admin: AdminClient, topic: TopicName) -> None:
    """Compact, and remove the log behind it."""
    await compact(admin, [topic])
    await trim(admin, topic)


async def trim(admin: AdminClient, topic: TopicName) -> None:
    """Remove every ledger but the open one."""
    none = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    await admin.post(f"/namespaces/{topic.namespace.path}/retention", none)
    await admin.put(f"/{topic.path}/unload")
    async with asyncio.timeout(60):
        while len((await admin.internal_stats(topic))["ledgers"]) > 1:
            await admin.post(f"/{topic.path}/trim")
            await asyncio.sleep(0.2)


async def test_a_topic_trimmed_while_it_is_compared_is_never_different(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers
) -> None:
    send(writers[0], replicated, numbered(20))
    request = await freeze_bounds(on_blue, on_green, [replicated.namespace])
    await trim(on_blue, replicated)
    compared = only_topic(await verify_in_process(on_blue, on_green, request))
    assert (compared.verdict, compared.reason) == (
        Verdict.INCONCLUSIVE,
        "blue removed old messages while they were compared; verify again",
    )
    await trim(on_green, replicated)
    both = only_topic(await verify_in_process(on_blue, on_green, request))
    assert (both.verdict, both.source_messages) == (Verdict.INCONCLUSIVE, 0)


# Causes.


async def test_a_message_not_meant_for_the_target_differs_from_a_lost_one(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers
) -> None:
    producer = writers[0].create_producer(str(replicated))
    producer.send(b"for all")
    producer.send(b"for blue", disable_replication=True)
    producer.close()
    compared = only_topic(await verify(on_blue, on_green, replicated.namespace))
    assert (compared.verdict, [difference.cause for difference in compared.differences]) == (
        Verdict.INCONCLUSIVE,
        [Cause.NOT_FOR_TARGET],
    )
    assert "1 × not for the target" in compared.reason


async def test_faults_of_a_copy_have_their_causes(
    on_blue: AdminClient, on_green: AdminClient, namespace: NamespaceName, writers: Writers
) -> None:
    original = numbered(30)
    copies = {
        "dropped": original[:9] + original[10:],
        "doubled": [*original, original[9]],
        "altered": [*original[:9], b"Order-9", *original[10:]],
        "swapped": [*original[:9], original[10], original[9], *original[11:]],
    }
    for name, copy in copies.items():
        for client, payloads in zip(writers, (original, copy), strict=True):
            producer = client.create_producer(str(TopicName(namespace, name)), producer_name="checkout")
            for payload in payloads:
                producer.send(payload, partition_key="k")
            producer.close()
    by_name = topics_of(await verify(on_blue, on_green, namespace))
    named = {
        name: [(difference.kind, difference.cause) for difference in topic.differences]
        for name, topic in by_name.items()
    }
    assert named == {
        "dropped": [(Kind.MISSING, Cause.LOST)],
        "doubled": [(Kind.EXTRA, Cause.DUPLICATED)],
        "altered": [(Kind.ALTERED, Cause.ALTERED)],
        "swapped": [(Kind.REORDERED, None)],
    }
    assert by_name["swapped"].reason.endswith(
        "changed places; the order of producer 'checkout' and of key 'k' is broken"
    )


async def test_topics_whose_contents_were_exchanged_name_each_other(
    on_blue: AdminClient, on_green: AdminClient, namespace: NamespaceName, writers: Writers
) -> None:
    contents = {"a": numbered(5), "b": numbered(7, 100)}
    for client, names in zip(writers, (("a", "b"), ("b", "a")), strict=True):
        for name, other in zip(("a", "b"), names, strict=True):
            send(client, TopicName(namespace, name), contents[other])
    by_name = topics_of(await verify(on_blue, on_green, namespace))
    for name, other in (("a", "b"), ("b", "a")):
        assert by_name[name].verdict is Verdict.DIFFERENT
        assert by_name[name].reason == (
            f"{TopicName(namespace, other)} on green holds what this topic holds on blue, and the other way round: the "
            "contents of the two topics were exchanged"
        )


async def test_only_the_order_that_is_asked_for_counts(
    on_blue: AdminClient, on_green: AdminClient, namespace: NamespaceName, writers: Writers
) -> None:
    topic = TopicName(namespace, "events")
    for client, order in zip(writers, ((0, 1, 0, 1), (1, 0, 1, 0)), strict=True):
        producers = [
            client.create_producer(str(topic), producer_name=f"checkout-{number}", batching_enabled=False)
            for number in range(2)
        ]
        for at, number in enumerate(order):
            producers[number].send(b"%d-%d" % (number, at // 2), partition_key=f"k{number}")
    by_order = {order: only_topic(await verify(on_blue, on_green, namespace, order=order)) for order in Order}
    assert {order: topic.verdict for order, topic in by_order.items()} == {
        Order.PRODUCER_AND_KEY: Verdict.EQUAL,
        Order.TOTAL: Verdict.DIFFERENT,
    }
    assert "the order of each producer and of each key is kept" in by_order[Order.PRODUCER_AND_KEY].notes[0]
    assert "the order of each producer and of each key is kept" in by_order[Order.TOTAL].reason


# Modes.


async def test_a_window_compares_what_was_published_in_it(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers
) -> None:
    send(writers[0], replicated, numbered(10))
    begin = datetime.now(UTC)
    await asyncio.sleep(0.05)
    send(writers[0], replicated, numbered(7))
    await asyncio.sleep(0.05)
    end = datetime.now(UTC)
    send(writers[0], replicated, numbered(5))
    coverage = Coverage.between(begin.isoformat(), end.isoformat())
    verification = await verify(on_blue, on_green, replicated.namespace, coverage=coverage, engine=EngineChoice.ENTRY)
    assert (verification.verdict, verification.messages) == (Verdict.EQUAL, 7)
    assert only_topic(verification).engine == "message, because a window is cut by the publish times of messages"
    assert verification.restriction.startswith("for messages published from")


async def test_a_sample_reads_the_same_pieces_on_both_sides_and_states_its_power(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers
) -> None:
    send(writers[0], replicated, numbered(1500))
    coverage = Coverage(mode=Mode.SAMPLE, sample=Sample(one_in=20, probability=0.99))
    for engine in (EngineChoice.ENTRY, EngineChoice.AUTO):
        verification = await verify(on_blue, on_green, replicated.namespace, coverage=coverage, engine=engine)
        topic = only_topic(verification)
        assert (topic.verdict, topic.source_messages, topic.target_messages) == (Verdict.EQUAL, 100, 100)
    assert topic.engine == "message, because an entry of the source holds 1.0 messages on average"
    assert verification.restriction.endswith("differences in 1 of 20 messages of a topic with probability 0.99")


async def test_copies_that_no_replicator_made_have_no_windows_and_samples(
    on_blue: AdminClient, on_green: AdminClient, namespace: NamespaceName, writers: Writers
) -> None:
    for client in writers:
        send(client, TopicName(namespace, "events"), numbered(3))
    coverage = Coverage(mode=Mode.SAMPLE, sample=Sample())
    compared = only_topic(await verify(on_blue, on_green, namespace, coverage=coverage))
    assert (compared.verdict, "compares only what geo-replication copied" in compared.reason) == (
        Verdict.INCONCLUSIVE,
        True,
    )


async def prove(
    on_blue: AdminClient,
    on_green: AdminClient,
    name: NamespaceName,
    number: int,
    coverage: Coverage | None = None,
    engine: EngineChoice = EngineChoice.AUTO,
) -> TopicVerdict:
    """Verify as the run of this number, and record it."""
    run = Run.open(f"verify/{number}")
    verification = await verify(on_blue, on_green, name, coverage=coverage, run=run, engine=engine)
    record(run, verification)
    return only_topic(verification)


async def test_a_proof_continues_the_last_one_and_is_that_of_both(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers, records: Path
) -> None:
    run = partial(prove, on_blue, on_green, replicated.namespace)
    since = Coverage(mode=Mode.INCREMENTAL)
    send(writers[0], replicated, numbered(10))
    with pytest.raises(InvalidRequest, match="run mode 'full' first"):
        await run(1, since)
    await run(2)
    send(writers[0], replicated, numbered(7))
    third = await run(3, since)
    nothing_new = await run(4, since)
    send(writers[0], replicated, numbered(2))
    fifth, whole = await run(5, since), await run(6)
    assert [compared.source_messages for compared in (third, nothing_new, fifth, whole)] == [7, 0, 2, 19]
    assert third.notes[0].startswith("continues run verify/2, which proved 10 messages")
    assert (fifth.proof, fifth.bounds) == (whole.proof, whole.bounds)
    await trim(on_blue, replicated)
    gone = await run(7, since)
    assert (gone.verdict, "whose ledger was removed since" in gone.reason) == (Verdict.INCONCLUSIVE, True)


async def test_a_proof_is_continued_by_the_engine_that_made_it_and_by_no_other(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers, records: Path
) -> None:
    run = partial(prove, on_blue, on_green, replicated.namespace)
    since = Coverage(mode=Mode.INCREMENTAL)
    send(writers[0], replicated, numbered(40), batching_enabled=True, batching_max_messages=4)
    await run(1, engine=EngineChoice.ENTRY)
    send(writers[0], replicated, numbered(20), batching_enabled=True, batching_max_messages=4)
    second, whole = await run(2, since), await run(3, engine=EngineChoice.ENTRY)
    assert (second.source_messages, second.engine) == (20, "entry, as in run verify/1, which it continues")
    assert (second.proof, second.bounds) == (whole.proof, whole.bounds)
    by_message = await run(4, since, EngineChoice.MESSAGE)
    assert (by_message.verdict, by_message.source_messages) == (Verdict.EQUAL, 60)
    assert by_message.notes == ("compared completely: no earlier run proved it equal with engine 'message'",)


async def test_the_source_can_be_read_from_shadow_topics(
    on_blue: AdminClient, on_green: AdminClient, replicated: TopicName, writers: Writers
) -> None:
    send(writers[0], replicated, numbered(80))
    shadow = TopicName(NamespaceName(replicated.namespace.tenant, "shadows"), "events")
    without = await verify(on_blue, on_green, replicated.namespace, read_from=ReadFrom.SHADOW)
    assert (without.verdict, "it has no shadow topic on blue" in only_topic(without).reason) == (
        Verdict.INCONCLUSIVE,
        True,
    )
    await make_alone(on_blue, shadow.namespace)
    await on_blue.create_topic(shadow, {"PULSAR.SHADOW_SOURCE": str(replicated)})
    await on_blue.put(f"/{replicated.path}/shadowTopics", [str(shadow)])
    before, verification = await delivered(on_blue, replicated), without
    async with asyncio.timeout(60):
        while verification.verdict is not Verdict.EQUAL:
            # A shadow may learn of an open ledger's last entry only with the next one.
            send(writers[0], replicated, [b"next"])
            verification = await verify(on_blue, on_green, replicated.namespace, read_from=ReadFrom.SHADOW)
            assert verification.verdict is Verdict.EQUAL or "verify again" in only_topic(verification).reason
    assert f"read from its shadow topic {shadow}" in only_topic(verification).notes
    assert verification.messages > 80
    assert (await delivered(on_blue, replicated), await delivered(on_blue, shadow)) == (before, verification.messages)


async def test_keyed_digests_depend_on_the_key_and_find_the_same(
    on_blue: AdminClient,
    on_green: AdminClient,
    namespace: NamespaceName,
    writers: Writers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for client, payloads in zip(writers, (numbered(30), [*numbered(29), b"other"]), strict=True):
        send(client, TopicName(namespace, "equal"), numbered(30))
        send(client, TopicName(namespace, "altered"), payloads)
    with pytest.raises(InvalidRequest, match="set PULSAR_FLEET_DIGEST_SECRET"):
        await verify(on_blue, on_green, namespace, keyed=True)
    proofs = []
    for secret in ("one", "two"):
        monkeypatch.setenv("PULSAR_FLEET_DIGEST_SECRET", secret)
        by_name = topics_of(await verify(on_blue, on_green, namespace, keyed=True, engine=EngineChoice.ENTRY))
        assert {name: topic.verdict for name, topic in by_name.items()} == {
            "equal": Verdict.EQUAL,
            "altered": Verdict.DIFFERENT,
        }
        assert [(difference.kind, difference.key) for difference in by_name["altered"].differences] == [
            (Kind.ALTERED, "k4")
        ]
        proofs.append(by_name["equal"].proof["source"])
    assert proofs[0] != proofs[1]
    assert {proof["encoding"] for proof in proofs} == {"keyed"}


# A killed comparison goes on.

READ = """
import json, sys
from pulsar_fleet.messages.datasource.ranges_source import RangesReader
reader = RangesReader(json.loads(sys.stdin.read()))
for part in reader.partitions():
    for batch in reader.read(part):
        print(batch.num_rows, flush=True)
"""


@pytest.mark.long
async def test_a_comparison_that_was_killed_does_not_read_finished_ranges_again(
    on_blue: AdminClient,
    on_green: AdminClient,
    blue: ClusterConnection,
    green: ClusterConnection,
    namespace: NamespaceName,
    writers: Writers,
    tmp_path: Path,
) -> None:
    names = [TopicName(namespace, f"t{number}") for number in range(8)]
    for client in writers:
        for name in names:
            send(client, name, [os.urandom(1000) if name == names[-1] else b"x" * 1000] * 30)
    request = await freeze_bounds(on_blue, on_green, [namespace], max_bytes_per_second=30_000)
    result = str(tmp_path / "result.json")
    finished = await kill_while_reading(request, result, (blue, green))
    assert 0 < len(finished) < len(names)
    before = await settled(on_blue, names)
    unlimited = replace(request, max_bytes_per_second=None)
    verification = await verify_in_process(on_blue, on_green, unlimited, result_uri=result)
    again = {name.local for name in names if await delivered(on_blue, name) > before[name.local]}
    assert again == {name.local for name in names} - finished
    verdicts = {name: topic.verdict for name, topic in topics_of(verification).items()}
    assert verdicts == {**dict.fromkeys(verdicts, Verdict.EQUAL), "t7": Verdict.DIFFERENT}
    assert list(tmp_path.glob("result-checkpoints/*")) == []


async def settled(admin: AdminClient, topics: Sequence[TopicName]) -> dict[str, int]:
    """What was delivered of each topic, after the broker has noticed that its consumers are gone."""
    counts: dict[str, int] = {}
    while counts != (now := {topic.local: await delivered(admin, topic) for topic in topics}):
        counts = now
        await asyncio.sleep(1)
    return counts


async def delivered(admin: AdminClient, topic: TopicName) -> int:
    return int((await admin.stats(topic))["msgOutCounter"])


async def kill_while_reading(
    request: VerifyRequest, result: str, clusters: tuple[ClusterConnection, ClusterConnection]
) -> set[str]:
    """Read the source in a Spark task's own code in another process, kill it, and name the topics that it finished."""
    from pulsar_fleet.messages.checkpoints import Checkpoints
    from pulsar_fleet.messages.credentials import Side

    kept = Checkpoints.next_to(result, request.identity())
    groups = [[Side.SOURCE, [part.to_json() for part in group]] for group in request.groups(Side.SOURCE)]
    address = {"name": "blue", "admin_url": clusters[0].admin_url, "service_url": clusters[0].service_url}
    options = {
        "clusters": json.dumps({Side.SOURCE: address}),
        "groups": json.dumps(groups),
        "buckets": str(request.buckets),
        "limits": json.dumps(request.limits(1)),
        "checkpoints": kept.uri,
    }
    job = subprocess.Popen(
        [sys.executable, "-c", READ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **job_environment(*clusters)},
    )
    assert job.stdin
    with job.stdin as stdin:
        stdin.write(json.dumps(options))
    ends = time.monotonic() + 60
    while not list(Path(kept.uri).glob("*.parquet")) and time.monotonic() < ends:
        await asyncio.sleep(0.05)
    job.send_signal(signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL
    return {TopicName.parse(request.pairs[pair].topic).local for pair, _ in kept.load(Side.SOURCE)}
