"""A generated namespace on blue: its topics with all that they hold."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pulsar
from tests.support.encryption import encryption
from tests.support.generated_topics import Compaction, GeneratedNamespace, GeneratedTopic, Kind, Refusal, Subscription
from tests.support.moved_namespace import MovedNamespace, empty_log

from pulsar_fleet.cluster.names import TopicName
from pulsar_fleet.migration.prepare.compaction import compact
from pulsar_sandbox.sandbox.jars import DEFAULT_VERSION, jars_for

PROGRAM = Path(__file__).with_name("GeneratedTransactions.java")
RESISTS = "late"
"""The topic that becomes a shadow behind the gates, where a run has one that resists."""
DELAY = timedelta(hours=1)
Options = Mapping[str, object]


async def build(moved: MovedNamespace, generated: GeneratedNamespace, keys: Path) -> None:
    """Make the topics in the namespace, which exists; without its limits.

    :param keys: a folder for the key of messages that are encrypted.
    """
    path = f"/namespaces/{moved.namespace.path}"
    if generated.retention:
        await moved.blue.post(f"{path}/retention", generated.retention)
    if generated.ttl:
        await moved.blue.post(f"{path}/messageTTL", generated.ttl)
    secret = encryption(keys)
    await asyncio.gather(*(_create(moved, topic) for topic in generated.topics))
    await asyncio.gather(*(asyncio.to_thread(_fill, moved, topic, secret) for topic in generated.topics))
    await asyncio.to_thread(_transact, moved, [topic for topic in generated.topics if topic.transactions])
    await asyncio.gather(*(_complete(moved, topic, secret) for topic in generated.topics))
    if generated.refusal is Refusal.SHADOW:
        await moved.make_shadow("shadow", of="live")
    if generated.kind is Kind.RESISTING:
        await moved.blue.create_topic(moved.topic(RESISTS))


async def set_limits(moved: MovedNamespace, generated: GeneratedNamespace) -> None:
    """Set on blue what the readers of a test do not fit under."""
    for limit in generated.limits:
        await moved.blue.post(f"/namespaces/{moved.namespace.path}/{limit.path}", limit.value)


async def lift_limits(moved: MovedNamespace, generated: GeneratedNamespace) -> None:
    """Let the readers of a test in again, on each cluster that has the namespace."""
    for admin in (moved.blue, moved.green):
        if await admin.namespace(moved.namespace) is not None:
            for limit in generated.limits:
                path = f"/namespaces/{moved.namespace.path}/{limit.path}"
                await (admin.post(path, False) if limit.value is True else admin.delete(path))


async def _create(moved: MovedNamespace, topic: GeneratedTopic) -> None:
    name = moved.topic(topic.name)
    if topic.partitions:
        await moved.blue.create_partitioned_topic(name, topic.partitions)
    else:
        await moved.blue.create_topic(name)
    policies = {
        "retention": topic.retention,
        "messageTTL": topic.ttl,
        "deduplicationEnabled": topic.deduplicated or None,
        "compactionThreshold": 1_000_000 if topic.compaction is Compaction.LATER else None,
    }
    for policy, value in policies.items():
        if value is not None:
            await moved.blue.post(f"/{name.path}/{policy}", value)
    for partition in name.partitions(topic.partitions):
        for subscription in topic.subscriptions:
            await moved.blue.create_subscription(partition, subscription.name)


def _fill(moved: MovedNamespace, topic: GeneratedTopic, secret: Options) -> None:
    for partition in moved.topic(topic.name).partitions(topic.partitions):
        _write(moved.client, partition, topic, range(topic.messages), secret)
        for subscription in topic.subscriptions:
            _acknowledge(moved.client, partition, subscription)


def _write(
    client: pulsar.Client, partition: TopicName, topic: GeneratedTopic, numbers: Sequence[int], secret: Options
) -> None:
    producer = client.create_producer(
        str(partition),
        batching_enabled=topic.batched,
        compression_type=pulsar.CompressionType.LZ4 if topic.compressed else pulsar.CompressionType.NONE,
        **(secret if topic.encrypted else {}),
    )
    for number in numbers:
        is_tombstone = topic.tombstones and number % 7 == 6
        delay = {"deliver_after": DELAY} if topic.delayed and number % topic.delayed == topic.delayed - 1 else {}
        producer.send_async(
            b"" if is_tombstone else b"%d" % number,
            lambda *_: None,
            partition_key=f"k{number % topic.keys}",
            event_timestamp=number + 1,
            **delay,
        )
    producer.flush()
    producer.close()


def _acknowledge(client: pulsar.Client, partition: TopicName, subscription: Subscription) -> None:
    if not subscription.read and not subscription.skipped:
        return
    count = subscription.read + (subscription.skipped + 1 if subscription.skipped else 0)
    consumer = client.subscribe(
        str(partition), subscription.name, crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME
    )
    messages = [consumer.receive(timeout_millis=20_000) for _ in range(count)]
    if subscription.read:
        consumer.acknowledge_cumulative(messages[subscription.read - 1])
    if subscription.skipped:
        consumer.acknowledge(messages[-1])
    consumer.close()


def _transact(moved: MovedNamespace, topics: Sequence[GeneratedTopic]) -> None:
    """With the Java client: pulsar-client for Python has no transactions."""
    partitions = [
        str(partition) for topic in topics for partition in moved.topic(topic.name).partitions(topic.partitions)
    ]
    if not partitions:
        return
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars_for(DEFAULT_VERSION)}/*", str(PROGRAM)]
    command += [moved.blue.connection.require_service_url(), *partitions]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]


async def _complete(moved: MovedNamespace, topic: GeneratedTopic, secret: Options) -> None:
    """What comes when every message but the tail is there."""
    blue, partitions = moved.blue, moved.topic(topic.name).partitions(topic.partitions)
    if topic.compaction in (Compaction.DONE, Compaction.TRIMMED):
        await compact(blue, partitions)
    tail = range(topic.messages, topic.messages + topic.tail)
    for partition in partitions if tail else ():
        await asyncio.to_thread(_write, moved.client, partition, topic, tail, secret)
    if topic.compaction is Compaction.TRIMMED:
        await empty_log(moved.blue, partitions[0])
    for partition in partitions:
        if topic.terminated:
            await blue.post(f"/{partition.path}/terminate")
        if topic.unloaded:
            await blue.put(f"/{partition.path}/unload")
